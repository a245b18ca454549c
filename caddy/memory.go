package ratelimit

import (
	"cmp"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/core/excepted"
	"github.com/proxyweir/weir/core/memory"
)

// memories holds the one sharedMemory of the process, which must outlive every reload.
var memories = caddy.NewUsagePool()

const memoryKey = "memory"

func acquireMemory() (*sharedMemory, error) {
	value, _, err := memories.LoadOrNew(memoryKey, func() (caddy.Destructor, error) {
		s := &sharedMemory{
			// Created for the largest possible number of keys, so that it has many shards, and each is small.
			store:  memory.New(memory.Config{MaxKeys: stores.MaxMaxKeys}),
			sweeps: time.NewTicker(defaultSweepInterval),
			stop:   make(chan struct{}),

			blocked: report.NewBlockedAddresses(),
		}
		s.exceptions = excepted.NewTable(s.kept.Exchange, func() int64 { return time.Now().UnixMicro() }, func(error) {}) // it does not fail to read
		s.exceptions.AtOnce = true
		s.store.SetMaxKeys(0)
		go s.sweeper()
		return s, nil
	})
	if err != nil {
		return nil, err
	}
	return value.(*sharedMemory), nil
}

func releaseMemory() error {
	_, err := memories.Delete(memoryKey)
	return err
}

// Destruct implements caddy.Destructor.
func (s *sharedMemory) Destruct() error {
	close(s.stop)
	return nil
}

// start puts a in force, or makes it wait until the current app leaves.
func (s *sharedMemory) start(a *App) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inForce != nil {
		s.next = a
		return
	}
	s.putInForce(a)
}

// useExceptions has a configuration that is loaded use its file of exceptions: at once if no other is in force, else when it starts.
func (s *sharedMemory) useExceptions(file string) error {
	if file == "" {
		return nil
	}
	if _, err := stores.CheckExceptionsFile(file); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inForce != nil {
		return nil
	}
	err := s.kept.Use(file)
	s.exceptions.Tick()
	return err
}

// leave undoes start. It does nothing if a has left already.
func (s *sharedMemory) leave(a *App) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch a {
	case s.next:
		s.next = nil
	case s.inForce:
		next := s.next
		s.next = nil
		s.putInForce(next)
	}
}

// putInForce makes a the app in force; nil is none. Its rules go on where those of the app before are.
func (s *sharedMemory) putInForce(a *App) {
	before := s.inForce
	s.inForce = a
	s.blocked.Changed()
	if a == nil {
		s.adapting.Use(nil)
		return
	}
	if err := s.kept.Use(a.ExceptionsFile); err != nil { // which Provision has checked
		a.logger.Error("exceptions are kept in this process alone", zap.Error(err))
	}
	s.exceptions.Tick()
	s.adapting.Use(a.adviceSource)
	for _, h := range a.handlers {
		h.guarded.PutInForce()
	}
	s.store.SetMaxKeys(a.maxKeys)
	s.sweeps.Reset(cmp.Or(a.sweep, defaultSweepInterval))
	if before == nil {
		return
	}
	a.limitsByName(a.files.inUse()).continueFrom(before.limitsByName(before.files.inUse()), a.reportTransition)
}

// appInForce returns the app of the configuration that serves requests now, or nil if there is none.
func appInForce() *App {
	var s *sharedMemory
	memories.Range(func(_, value any) bool { // there is at most one
		s = value.(*sharedMemory)
		return false
	})
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next != nil { // the next app serves already, and the old one has yet to stop
		return s.next
	}
	return s.inForce
}

const defaultSweepInterval = time.Minute

// sweeper sweeps the memory until it is no longer used.
func (s *sharedMemory) sweeper() {
	defer s.sweeps.Stop()
	seconds := time.NewTicker(excepted.Every)
	defer seconds.Stop()
	for {
		select {
		case <-seconds.C:
			s.exceptions.Tick()
		case <-s.sweeps.C:
			s.store.Sweep()
			report.SweepTopKeys()
			s.blocked.Sweep()
		case <-s.stop:
			return
		}
	}
}

// limitsBefore returns the limits of the configuration that is in force while this one is loaded. They are looked up once, for all
// handlers.
func (a *App) limitsBefore() limitsByName {
	if a.before == nil {
		a.before = make(limitsByName)
		if other := appInForce(); other != nil && other != a {
			a.before = other.limitsByName(other.files.inUse())
		}
	}
	return a.before
}
