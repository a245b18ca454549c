package stores

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/excepted"
	"github.com/proxyweir/weir/core/exception"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/redis"
)

// LocalExceptions keeps the exceptions of this process, and in a file if it is told to use one.
type LocalExceptions struct {
	mu      sync.Mutex
	file    string // "": none
	kept    []byte
	changes int64
}

// Exchange is the exception.Exchange with them.
func (l *LocalExceptions) Exchange(ask *exception.Ask) (*exception.Answer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &exception.Answer{Now: time.Now().UnixMicro()}
	if ask.Document != nil && ask.Over == l.version() {
		if err := l.keep(ask.Document); err != nil {
			return nil, err
		}
		a.Taken = true
	}
	a.Version = l.version()
	if !a.Taken && a.Version != ask.Known {
		a.Document = l.kept
	}
	return a, nil
}

func (l *LocalExceptions) version() string {
	if l.changes == 0 {
		return ""
	}
	return fmt.Sprintf("%016d", l.changes)
}

// keep keeps a document, in the file first.
func (l *LocalExceptions) keep(document []byte) error {
	if l.file != "" {
		if err := writeWhole(l.file, append(document[:len(document):len(document)], '\n')); err != nil {
			return fmt.Errorf("exceptions_file: %w", err)
		}
	}
	l.kept = document
	l.changes++
	return nil
}

// CheckExceptionsFile returns what is in a file of exceptions; none if it is not there yet. The error says why it cannot be used.
func CheckExceptionsFile(file string) ([]exception.Exception, error) {
	if info, err := os.Stat(filepath.Dir(file)); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("exceptions_file %q: its folder is not there; make it, so that the file can be written", file)
	}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("exceptions_file %q: %w", file, err)
	}
	list, err := exception.Read(text)
	if err != nil {
		return nil, fmt.Errorf("exceptions_file %q: has other things than exceptions (%w); name another file, or remove it", file, err)
	}
	return list, nil
}

// Use has exceptions kept in a file from now on; "": in none. What is in the file comes besides those that there are, which have precedence.
func (l *LocalExceptions) Use(file string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if file == l.file {
		return nil
	}
	if file == "" {
		l.file = ""
		return nil
	}
	list, err := CheckExceptionsFile(file)
	if err != nil {
		return err
	}
	ours, _ := exception.Read(l.kept) // which was written here
	for _, e := range ours {
		list = exception.With(list, e)
	}
	document, err := exception.Write(list)
	if err != nil {
		return err
	}
	l.file = file
	if len(ours) > 0 {
		return l.keep(document)
	}
	if len(list) > 0 {
		l.kept = document
		l.changes++
	}
	return nil
}

// writeWhole writes a file such that after a crash it is the one before or the new one.
func writeWhole(file string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".exceptions-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Obeying has rules of a handler, which are open, obey the exceptions of the limiter's store, until Detach.
func (l *Limiter) Obeying(namespace string, rules []*ruleset.Rule, domains []*ruleset.Domain) *excepted.Group {
	g := &excepted.Group{Limiter: l.Limiter, Rules: rules, Domains: domains, Label: func(name string) string { return strings.TrimPrefix(namespace+"/"+name, "/") }}
	if l.Redis != nil {
		g.Forget = func(r *core.Rule, key string) { l.Redis.Forget(r, key) }
	}
	g.Failed = func(label, limit string, err error) {
		storageLog().Warn("a limit that somebody has given a key does not fit the rule here, and is not in force", zap.String("rule", label), zap.String("limit", limit), zap.Error(err))
	}
	l.Exceptions.Attach(g)
	return g
}

// Disregard ends what Obeying began; it does nothing with nil.
func (l *Limiter) Disregard(g *excepted.Group) {
	if g != nil {
		l.Exceptions.Detach(g)
	}
}

// exceptionsOf returns the table of the exceptions in a Redis.
func exceptionsOf(s *redis.Store, name string) *excepted.Table {
	return excepted.NewTable(redis.Exceptions(s), func() int64 { return time.Now().UnixMicro() }, func(err error) {
		if errors.Is(err, redis.ErrReply) || errors.Is(err, exception.ErrDamaged) { // of a Redis that does not answer, others tell
			redisLog().Error("what people have decided for single keys cannot be read; what is known of it holds", zap.String("server", name), zap.Error(err))
		}
	})
}
