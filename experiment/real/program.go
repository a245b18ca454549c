package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// program is a running server, in a process of its own.
type program struct {
	name    string
	process *exec.Cmd
	log     string // the file of what it has said
	done    chan struct{}
	err     error // of the process, when it is done
}

// start starts a program, whose files and log are in a folder.
func start(folder, name string, command *exec.Cmd) (*program, error) {
	p := &program{name: name, process: command, log: filepath.Join(folder, name+".log"), done: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	command.Dir, command.Stdout, command.Stderr = folder, log, log
	command.SysProcAttr = endWithParent()
	if err := asUsual(command.Start); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		p.err = command.Wait()
		close(p.done)
	}()
	return p, nil
}

// said returns the end of what the program has said.
func (p *program) said() string {
	text, _ := os.ReadFile(p.log)
	return string(text[max(0, len(text)-2000):])
}

// stop ends the program, and returns an error if it had ended before, or does not end.
func (p *program) stop() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s has ended before its time: %v: %s", p.name, p.err, p.said())
	default:
	}
	_ = p.process.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(15 * time.Second)
	defer timer.Stop()
	select {
	case <-p.done:
		return nil
	case <-timer.C:
		p.kill()
		return fmt.Errorf("%s does not end: %s", p.name, p.said())
	}
}

// kill ends the program at once.
func (p *program) kill() {
	_ = p.process.Process.Kill()
	<-p.done
}

// ready waits until an address answers with 200.
func (p *program) ready(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if status(ctx, url) == http.StatusOK {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s has ended: %v: %s", p.name, p.err, p.said())
		case <-ctx.Done():
			return fmt.Errorf("%s does not come up: %s", p.name, p.said())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// status returns the status of an answer; 0 if there is none.
func status(ctx context.Context, url string) int {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0
	}
	r.Close = true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

// freeAddress returns an address of this machine on which nothing listens.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// programs are running servers, which are stopped in the reverse order.
type programs []*program

func (p *programs) stop() (err error) {
	for i := len(*p) - 1; i >= 0; i-- {
		err = errors.Join(err, (*p)[i].stop())
	}
	*p = nil
	return err
}
