package goredis_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// user is the ACL user of these tests, whose permissions they change.
const user, userPassword = "weir", "secret"

// newUserStore returns a store that connects to the server as that user, with one of the two clients.
func newUserStore(t *testing.T, server *redistest.Server, interpreted bool) *redis.Store {
	t.Helper()
	return newStore(t, redis.Config{Prefix: "weir:", Lines: interpreted}, goredis.Config{Addresses: []string{server.Addr()}, Username: user, Password: userPassword})
}

// openConcurrency opens a rule with a limit of requests under way.
func openConcurrency(t *testing.T, n *node, name string, most int64) {
	t.Helper()
	l, err := rate.NewConcurrency(most)
	must.Succeed(t, err)
	n.open(t, core.RuleConfig{Name: name, Limit: l})
}

func eachClient(t *testing.T, f func(t *testing.T, interpreted bool)) {
	for _, name := range []string{"goredis", "resp"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, name == "resp")
		})
	}
}

func TestACommandThatOneRuleLacksDoesNotAffectOthers(t *testing.T) {
	t.Parallel()
	eachClient(t, func(t *testing.T, interpreted bool) {
		server := redistest.Start(t, redistest.WithUser(user, userPassword, "~weir:* "+acl+" "+aclOverflow+" -zadd"))
		n := &node{store: newUserStore(t, server, interpreted)}
		n.open(t, rule(t, "plain", rate.TokenBucket, plenty))
		openConcurrency(t, n, "places", 5)
		for i := range 20 {
			_, err := n.ask([]int{1}, "somebody")
			if !errors.Is(err, redis.ErrRefused) || redis.ErrorKind(err) != "reply" {
				t.Fatalf("request %d under the rule that lacks a command: %v", i, err)
			}
			for _, want := range []string{`rule "places"`, "ZADD", "+zadd", "docs/redis.md"} {
				if !strings.Contains(err.Error(), want) {
					t.Fatalf("the error does not have %q: %v", want, err)
				}
			}
		}
		if ok, err := n.ask([]int{0}, "somebody"); !ok || err != nil {
			t.Fatalf("under the other rule: %v, %v", ok, err)
		}
		for _, s := range n.store.Servers() {
			if s.Open {
				t.Error("the breaker has opened")
			}
		}
		server.MustDo(t, "ACL", "SETUSER", user, "+zadd")
		if ok, err := n.ask([]int{1}, "somebody"); !ok || err != nil {
			t.Errorf("with the command: %v, %v", ok, err)
		}
	})
}

// TestWithoutACommandNoRuleAdmitsMoreThanItsLimit forbids each of the commands that docs/redis.md lists. A rule returns an error, or decides as
// it would with all of them. None continues without something that it cannot read.
func TestWithoutACommandNoRuleAdmitsMoreThanItsLimit(t *testing.T) {
	underrace.OneGoroutine(t)
	t.Parallel()
	server := redistest.Start(t, redistest.WithUser(user, userPassword, "~weir:*"))
	statuses, err := core.ParseCounted([]string{"401"})
	must.Succeed(t, err)
	commands := strings.Fields(acl + " " + aclOverflow)
	slices.Sort(commands)
	failed := 0
	for _, command := range slices.Compact(commands) {
		if command = strings.TrimPrefix(command, "+"); strings.HasPrefix(command, "-") {
			continue
		}
		server.MustDo(t, "FLUSHALL")
		server.MustDo(t, append([]string{"ACL", "SETUSER", user, "-@all"}, append(strings.Fields(acl+" "+aclOverflow), "-"+command)...)...)
		n := &node{store: newUserStore(t, server, false)}
		var names []string
		open := func(c core.RuleConfig) {
			n.open(t, c)
			names = append(names, c.Name)
		}
		for _, c := range oneOfEach(t, 3) {
			open(c)
			if c.Limit.Algorithm == rate.LeakyBucket { // it allows no count by status and no penalties
				continue
			}
			name := c.Name
			c.Name, c.OverflowPolicy = name+"-penalty", core.OverflowPolicy{Penalties: []time.Duration{time.Hour}}
			open(c)
			c.Name, c.OverflowPolicy = name+"-count", core.OverflowPolicy{Count: statuses}
			open(c)
		}
		openConcurrency(t, n, "places", 3)
		names = append(names, "places")
		for _, algorithm := range []rate.Algorithm{rate.TokenBucket, rate.SlidingWindowLog} {
			limit, err := rate.NewLimit(rate.LimitConfig{Requests: 1, Period: 30 * time.Minute, Algorithm: algorithm, Delays: true, MaxDelay: time.Hour})
			must.Succeed(t, err)
			open(core.RuleConfig{Name: limit.Algorithm.String() + "-delay", Limit: limit})
		}
		for r, name := range names {
			admitted := 0
			for range 10 {
				ok, err := n.ask([]int{r}, "somebody")
				switch {
				case ok:
					admitted++
				case err != nil:
					failed++
					if !errors.Is(err, redis.ErrRefused) || !strings.Contains(err.Error(), "+"+command) && command != "eval" && command != "evalsha" {
						t.Errorf("%s without %s: %v", name, command, err)
					}
				}
			}
			if admitted > 3 {
				t.Errorf("%s without %s: %d requests were admitted, want 3 at most", name, command, admitted)
			}
		}
		// This is for a defect: what a script had written before the missing command stayed in Redis forever.
		for _, key := range server.MustDo(t, "KEYS", "*").List {
			if left := server.MustDo(t, "PTTL", key.Text); left.Int == -1 {
				t.Errorf("without %s: the key %q never expires", command, key.Text)
			}
		}
	}
	if failed == 0 {
		t.Error("no command was missing")
	}
}

// This is for a defect: at the end of a request that must be charged, the script gave the reservation back, and then failed to charge. Without
// PSETEX everything was let through, although each request had an error.
func TestWithoutACommandRequestsCountedByStatusStayReserved(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithUser(user, userPassword, "~weir:*"))
	statuses, err := core.ParseCounted([]string{"401"})
	must.Succeed(t, err)
	commands := strings.Fields(acl + " " + aclOverflow)
	failed := 0
	for _, command := range commands {
		server.MustDo(t, "FLUSHALL")
		server.MustDo(t, append([]string{"ACL", "SETUSER", user, "-@all"}, append(commands, "-"+strings.TrimPrefix(command, "+"))...)...)
		n := &node{store: newUserStore(t, server, false)}
		for r, c := range oneOfEach(t, 3) {
			if c.Limit.Algorithm == rate.LeakyBucket { // it allows no count by status
				n.rules = append(n.rules, nil)
				continue
			}
			c.OverflowPolicy = core.OverflowPolicy{Count: statuses}
			n.open(t, c)
			admitted := 0
			for range 10 {
				checks := n.checks([]int{r}, "somebody")
				if err := n.store.Decide(checks, false); err != nil || !checks[0].Decision.Allowed {
					continue
				}
				admitted++
				reservations := core.AppendReservations(nil, checks)
				for i := range reservations {
					reservations[i].Keep(true)
				}
				if n.store.Settle(reservations) != nil {
					failed++
				}
			}
			if admitted > 3 {
				t.Errorf("%s without %s: %d requests were let through, want 3 at most", c.Name, command, admitted)
			}
		}
	}
	if failed == 0 {
		t.Error("no request failed to be charged")
	}
}

// This is for a defect: without STRLEN or PEXPIRE a request let through by tolerance was charged, and then failed.
func TestToleranceOfABucketNeedsNoPermissionsForLogs(t *testing.T) {
	t.Parallel()
	for _, missing := range []string{"-strlen", "-pexpire"} {
		server := redistest.Start(t, redistest.WithUser(user, userPassword, "~weir:* "+acl+" "+aclOverflow+" "+missing))
		n := &node{store: newUserStore(t, server, false)}
		c := rule(t, "soft", rate.TokenBucket, 3)
		c.OverflowPolicy = core.OverflowPolicy{SoftPercent: 100, SoftFor: time.Minute}
		n.open(t, c)
		for i := range 10 {
			if ok, err := n.ask([]int{0}, "somebody"); ok != (i < 6) || err != nil {
				t.Errorf("%s: request %d: %v, %v", missing, i+1, ok, err)
			}
		}
	}
}
