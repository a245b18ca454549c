package redis

import (
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
)

// failed notes that a call to a server, about that key, has failed. seen is what the server's trouble was when the call began.
func (s *Store) failed(server *Server, key string, seen int64, err error) {
	if errors.Is(err, ErrMoving) {
		return
	}
	if errors.Is(err, ErrRefused) { // it has answered
		server.breaker.Succeed()
		return
	}
	if !server.breaker.Fail(seen) {
		return
	}
	if s.changed != nil {
		s.changed(server.name, err)
	}
	s.probeLater(server, key)
}

// probeLater has the server probed after a while.
func (s *Store) probeLater(server *Server, key string) {
	wait := time.Duration(server.breaker.Wait(rand.Float64())) * time.Microsecond //nolint:gosec // spreads nodes, keeps no secret
	s.mu.Lock()
	if timer := s.timers[server]; s.closed {
		// nobody asks any more
	} else if timer != nil { // not a new one: a function made by what the last timer runs would keep all before it in Yaegi's memory
		timer.Reset(wait)
	} else {
		s.timers[server] = time.AfterFunc(wait, func() { s.probe(server, key) })
	}
	s.mu.Unlock()
}

// probe asks a server whether it decides again. One that does not have the key's slot any more is not asked: nobody else
// will ask it either.
func (s *Store) probe(server *Server, key string) {
	if !server.breaker.Probe() {
		return
	}
	var err error
	defer func() {
		if p := recover(); p != nil { // in an interpreted program nobody above would
			err = fmt.Errorf("probing panicked: %v", p)
		}
		server.breaker.Probed(err == nil)
		if err != nil {
			s.probeLater(server, key)
			return
		}
		s.mu.Lock()
		delete(s.timers, server)
		s.mu.Unlock()
		if s.changed != nil {
			s.changed(server.name, nil)
		}
	}()
	now, _ := s.client.Server(key)
	if now == server {
		err = server.conn.Run(probeCall(key))
	}
	if errors.Is(err, ErrRefused) { // it answers, and who else is refused is told by itself
		err = nil
	}
}

// Check reports whether Redis decides, by a charge to a key of its own, for which it tries for so long at most.
func (s *Store) Check(most time.Duration) error {
	end := time.Now().Add(most)
	key := s.naming.key("", "}:")
	for {
		server, err := s.client.Server(key)
		if err == nil {
			err = server.conn.Run(probeCall(key))
		}
		if !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrTimeout) || time.Now().After(end) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// probeCall returns a charge to a key that lies in the slot of the one given.
func probeCall(key string) *Call {
	return &Call{
		Script: scriptsOfOne[core.TokenBucket],
		Keys:   []string{key[:strings.LastIndex(key, "}:")] + "}:probe"},
		Args:   []string{probeArgument},
	}
}

// probeArgument is that of a limit which is whole again at once, so that the probe's key does not stay.
var probeArgument = makeProbeArgument()

func makeProbeArgument() string {
	limit, _ := core.NewLimit(core.LimitConfig{Algorithm: core.TokenBucket, Requests: core.MaxRequests, Period: core.MinPeriod})
	rule, _ := core.NewRule(core.RuleConfig{Name: "probe", Limit: limit}) // which nothing is wrong with
	return string(appendArgument(nil, rule, false, nil))
}
