package redis

import (
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
)

// failed notes that a call to a server, for that key, has failed. seen is the server's count of failures when the call began: see
// breaker.Fail.
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

// probeLater sets the timer of the server's next probe.
func (s *Store) probeLater(server *Server, key string) {
	wait := time.Duration(server.breaker.Wait(rand.Float64())) * time.Microsecond //nolint:gosec // spreads nodes, keeps no secret
	s.mu.Lock()
	if timer := s.timers[server]; s.closed {
		// no more probes
	} else if timer != nil { // not a new one: in Yaegi a function that is made in a timer's callback keeps all earlier ones in memory
		timer.Reset(wait)
	} else {
		s.timers[server] = time.AfterFunc(wait, func() { s.probe(server, key) })
	}
	s.mu.Unlock()
}

// probe runs a script on the server, to find out whether it works again. If the server no longer has the key's slot, it skips that: nobody
// else will call that server either.
func (s *Store) probe(server *Server, key string) {
	if !server.breaker.Probe() {
		return
	}
	var err error
	defer func() {
		if p := recover(); p != nil { // an interpreted program has no other recover
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
	if errors.Is(err, ErrRefused) { // it answers; whether it refuses other calls they find out themselves
		err = nil
	}
}

// Check returns nil if Redis works, which it finds out by a charge to a key of its own. While there is no server or no answer it tries
// again, for at most that long.
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

// probeCall returns a charge to a key in the same slot as the given one.
func probeCall(key string) *Call {
	return &Call{
		Script: scriptsOfOne[core.TokenBucket],
		Keys:   []string{key[:strings.LastIndex(key, "}:")] + "}:probe"},
		Args:   []string{probeArgument},
	}
}

// probeArgument is the argument of a limit that is whole again at once, so that the probe's key expires at once.
var probeArgument = makeProbeArgument()

func makeProbeArgument() string {
	limit, _ := core.NewLimit(core.LimitConfig{Algorithm: core.TokenBucket, Requests: core.MaxRequests, Period: core.MinPeriod})
	rule, _ := core.NewRule(core.RuleConfig{Name: "probe", Limit: limit}) // a valid rule
	return string(appendArgument(nil, rule, false, nil))
}
