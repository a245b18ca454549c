package redis

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
)

// carriage is what Carry has to do: to block under one rule the keys that are blocked under another.
type carriage struct {
	from, to  string // the ends of the keys' names: see ruleSuffix
	penalties bool   // the rule has any
	done      func()
}

const (
	carriedKeys  = 500 // how many keys one call looks at, so that no decision waits long for it
	carriedRules = 200 // how many rules one pass over the keys is for
	carriedTags  = 1000
	carryTries   = 5
	carryAgain   = time.Second // after a call that has failed
)

// Now implements core.Store: it is the node's time.
func (s *Store) Now() int64 { return s.clock() }

// Carry implements core.Store. Nobody knows which keys are blocked but the servers. So it goes through all keys of all servers, in the
// background, some at a time: once for all rules that have changed together. This needs the command SCAN.
//
// A server that does not answer is tried again some times. If a pass over its keys fails, done is called all the same: the keys that were not
// reached are then blocked only until the transition ends.
func (s *Store) Carry(from, to *core.Rule, done func()) {
	if opened(from).sync != nil && opened(to).sync != nil {
		s.eventually.of.Carry(from, to, done)
		return
	}
	t, _ := to.Terms()
	one := &carriage{from: opened(from).suffix, to: opened(to).suffix, penalties: len(t.Penalties) > 0, done: done}
	s.mu.Lock()
	s.carriages = append(s.carriages, one)
	idle := !s.carrying
	s.carrying = true
	s.mu.Unlock()
	if idle {
		go s.carryAll()
	}
}

// carryAll does what Carry has to do until there is nothing more.
func (s *Store) carryAll() {
	for {
		s.mu.Lock()
		n := len(s.carriages)
		if n > carriedRules {
			n = carriedRules
		}
		list := append([]*carriage{}, s.carriages[:n]...)
		s.carriages = append([]*carriage{}, s.carriages[n:]...)
		s.carrying = n > 0
		s.mu.Unlock()
		if n == 0 {
			return
		}
		s.carrySome(list)
		for _, one := range list {
			one.done()
		}
	}
}

// carrySome goes once through all keys of all servers.
func (s *Store) carrySome(list []*carriage) {
	defer func() {
		_ = recover() // an interpreted program has no other recover
	}()
	args := []string{"0", globbed(s.naming.prefix) + "*}:*", strconv.Itoa(carriedKeys)}
	for _, one := range list {
		args = append(args, one.from, one.to, strconv.FormatInt(oneIf(one.penalties), 10))
	}
	for _, server := range s.masters() {
		s.carryOn(server, args)
	}
}

// masters returns all servers that have keys.
func (s *Store) masters() []*Server {
	var list []*Server
	known := make(map[*Server]bool)
	tags := 1
	if s.client.Cluster() {
		tags = carriedTags // some of them are in each server's slots
	}
	for i := 0; i < tags; i++ {
		server, err := s.client.Server("{" + strconv.Itoa(i) + "}")
		if err == nil && !known[server] {
			known[server] = true
			list = append(list, server)
		}
	}
	return list
}

// carryOn goes through the keys of one server.
func (s *Store) carryOn(server *Server, args []string) {
	cursor := "0"
	failures := 0
	for {
		s.mu.Lock()
		closed := s.closed
		s.mu.Unlock()
		if closed {
			return
		}
		c := &Call{Script: scriptOfCarry, Args: append([]string{cursor}, args[1:]...), wait: aside}
		err := s.call(server, c)
		if err == nil && len(c.Reply) == 2 {
			failures = 0
			if c.Reply[0] == 0 {
				return
			}
			cursor = strconv.FormatInt(c.Reply[0], 10)
			continue
		}
		if err == nil {
			err = errReply
		}
		failures++
		if failures == carryTries || errors.Is(err, ErrRefused) {
			if s.notCarried != nil {
				s.notCarried(server.name, err)
			}
			return
		}
		time.Sleep(carryAgain)
	}
}

// globbed returns a text as SCAN's patterns have it.
func globbed(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`).Replace(text)
}

// NamesOf returns a pattern of SCAN for the names of the keys of a rule that is open, and what stands before and behind the client's part in them.
func (s *Store) NamesOf(r *core.Rule) (pattern, before, behind string) {
	before, behind = s.naming.prefix, opened(r).suffix
	return globbed(before) + "*" + globbed(behind) + "*", before, behind
}
