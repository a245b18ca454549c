package redis

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// TestARefusalIsDistinguishedFromAServerInTrouble has replies of Redis 6.2, 7.0 and 7.2, and of Valkey.
func TestARefusalIsDistinguishedFromAServerInTrouble(t *testing.T) {
	for _, c := range []struct {
		text    string
		refused bool
	}{
		{"NOPERM this user has no permissions to run the 'evalsha' command", true},
		{"NOPERM User weir has no permissions to run the 'evalsha' command", true},
		{"NOPERM this user has no permissions to access one of the keys used as arguments", true},
		{"NOPERM No permissions to access a key", true},
		{"ERR The user executing the script can't run this command or subcommand script: 956ac7400b44, on @user_script:8.", true},
		{"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 956a, on @user_script:8.", true},
		{"ERR ACL failure in script: User weir has no permissions to run the 'zadd' command script: 956a, on @user_script:8.", true},
		{"ERR Error running script (call to f_956a): @user_script:8: @user_script: 8: The user executing the script can't run this command or subcommand", true},
		{"ERR Unknown Redis command called from script script: 956a, on @user_script:8.", true},
		{"ERR user_script:8: attempt to perform arithmetic on a nil value script: 956a, on @user_script:8.", true},
		{"WRONGTYPE Operation against a key holding the wrong kind of value script: 956a, on @user_script:8.", true},
		{"ERR Error running script (call to f_956a): @user_script:8: WRONGTYPE Operation against a key holding the wrong kind of value", true},

		{"OOM command not allowed when used memory > 'maxmemory'. script: 956a, on @user_script:8.", false},
		{"ERR Error running script (call to f_956a): @user_script:8: @user_script: 8: -OOM command not allowed when used memory > 'maxmemory'.", false},
		{"ERR Error running script (call to f_956a): @user_script:8: @user_script: 8: -READONLY You can't write against a read only replica.", false},
		{"READONLY You can't write against a read only replica.", false},
		{"LOADING Redis is loading the dataset in memory", false},
		{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", false},
		{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", false},
		{"NOREPLICAS Not enough good replicas to write.", false},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", false},
		{"CLUSTERDOWN The cluster is down", false},
		{"NOAUTH Authentication required.", false},
		{"ERR max number of clients reached", false},
		{"ERR unknown command 'EVALSHA'", false},
		{"", false},
	} {
		err := fmt.Errorf("redis: %s%w", c.text, OfReply(c.text))
		if errors.Is(err, ErrRefused) != c.refused || !errors.Is(err, ErrReply) || ErrorKind(err) != "reply" || err.Error() != "redis: "+c.text {
			t.Errorf("%q: refused %v, want %v; kind %q", c.text, errors.Is(err, ErrRefused), c.refused, ErrorKind(err))
		}
	}
}

func TestARefusalSaysWhichRuleNeedsWhat(t *testing.T) {
	s := newScene(t, false)
	plain := s.open(core.RuleConfig{Name: "plain"}, rate.LimitConfig{})
	log := s.open(core.RuleConfig{Name: "log", Namespace: "api"}, rate.LimitConfig{Algorithm: rate.SlidingWindowLog})
	soft := s.open(core.RuleConfig{Name: "offenders", OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{time.Minute}}}, rate.LimitConfig{})
	both := s.open(core.RuleConfig{Name: "offenders", OverflowPolicy: core.OverflowPolicy{Penalties: []time.Duration{time.Hour}}}, rate.LimitConfig{})
	lineOf := func(script *Script, call string) int {
		for i, line := range strings.Split(script.Source, "\n") {
			if strings.Contains(line, call) {
				return i + 1
			}
		}
		t.Fatalf("no line has %s", call)
		return 0
	}
	rights := func(line int) string {
		return fmt.Sprintf("ERR The user executing the script can't run this command or subcommand script: 956a, on @user_script:%d.", line)
	}
	for _, c := range []struct {
		text   string
		script *Script
		rules  []*core.Rule
		want   string
	}{
		{rights(lineOf(scriptOfOverflow, "call('ZADD', key")), scriptOfOverflow, []*core.Rule{plain, soft}, `rule "offenders" needs the command ZADD, which Redis's ACL does not let the user run; allow +zadd (docs`},
		{"ERR ACL failure in script: User weir has no permissions to run the 'lrem' command", scriptOfOverflow, []*core.Rule{soft}, `rule "offenders" needs the command LREM, which`},
		{rights(lineOf(scriptOfSeveral, "call('STRLEN'")), scriptOfSeveral, []*core.Rule{plain, log}, `rule "log" of "api" needs the command STRLEN, which`},
		{rights(lineOf(scriptOfSeveral, "v = call('GET', key)")), scriptOfSeveral, []*core.Rule{plain, soft}, `rules "plain", "offenders" need the command GET, which`},
		{"ERR ACL failure in script: User weir has no permissions to run the 'psetex' command", scriptOfOverflow, []*core.Rule{soft, both}, `rule "offenders" needs the command PSETEX, which`},
		{"ERR ACL failure in script", scriptOfOverflow, []*core.Rule{soft, both}, `rule "offenders" needs a command that`},
		{"NOPERM this user has no permissions to run the 'evalsha' command", scriptOfSeveral, []*core.Rule{plain, log}, `rules "plain", "log" of "api" need the command EVALSHA, which`},
		{"NOPERM this user has no permissions to access one of the keys used as arguments", scriptOfSeveral, []*core.Rule{plain}, `rule "plain": Redis's ACL does not let the user at keys that begin with weir:; allow ~weir:*: `},
		{"ERR Unknown Redis command called from script script: 956a, on @user_script:" + fmt.Sprint(lineOf(scriptOfOverflow, "call('ZADD', key")) + ".", scriptOfOverflow, []*core.Rule{soft}, `rule "offenders" needs the command ZADD, which the server does not have under that name: `},
		{"ERR user_script:8: attempt to perform arithmetic on a nil value", scriptOfOverflow, []*core.Rule{soft}, `rule "offenders": redis: ERR user_script:8`},
		{"ERR The user executing the script can't run this command or subcommand", scriptOfOverflow, []*core.Rule{soft}, `rule "offenders" needs a command that Redis's ACL does not let the user run; allow those`},
	} {
		err := fmt.Errorf("redis: %s%w", c.text, OfReply(c.text))
		checks := make([]core.Check, len(c.rules))
		for i, r := range c.rules {
			checks[i].Rule = r
		}
		got := s.store.refused(err, c.script, checks)
		if !errors.Is(got, ErrRefused) || !strings.HasPrefix(got.Error(), c.want) || !strings.HasSuffix(got.Error(), c.text) {
			t.Errorf("%q\n became %v\n    want %s…", c.text, got, c.want)
		}
	}
}

func TestRefusedCallsDoNotOpenTheBreaker(t *testing.T) {
	s := newScene(t, false)
	r := s.open(core.RuleConfig{Name: "r"}, rate.LimitConfig{})
	refusal := fmt.Errorf("redis: NOPERM%w", ErrRefused)
	s.answer = func(c *sentCall) ([]int64, error) { return nil, refusal }
	for i := 0; i < 20; i++ {
		if err := s.store.Decide([]core.Check{check(r, "k", 1)}, false); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), `rule "r"`) {
			t.Fatalf("call %d: %v", i+1, err)
		}
		v := newVisit(s.store, r)
		if err := v.ask("192.0.2.1"); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), `rule "r"`) {
			t.Fatalf("call %d, by the fast path: %v", i+1, err)
		}
	}
	server := s.server("")
	if !server.Available() || len(s.changes) != 0 {
		t.Fatalf("available %v, changes %q", server.Available(), s.changes)
	}

	// After no answers, a refusal is an answer.
	s.answer = func(c *sentCall) ([]int64, error) { return nil, errDown }
	for i := 0; i < 5; i++ {
		_ = s.store.Decide([]core.Check{check(r, "k", 1)}, false)
	}
	if server.Available() {
		t.Fatal("a server that is down is still available")
	}
	s.answer = func(c *sentCall) ([]int64, error) { return nil, refusal }
	s.store.probe(server, &server.breaker, "weir:{k}:r:AAAAAAAA")
	if !server.Available() {
		t.Error("a server that answers is not available")
	}
}
