package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// fake is a client and its servers: in a Cluster one for each client's key, otherwise one. It answers as answer says, and keeps a copy of
// every call.
type fake struct {
	t       *testing.T
	cluster bool
	closed  int
	none    bool // no server is known
	timeout time.Duration

	mu      sync.Mutex
	servers map[string]*Server
	calls   []*sentCall
	answer  func(c *sentCall) ([]int64, error)
}

// sentCall is a copy of a call, with the server that it was sent to.
type sentCall struct {
	server string
	call   *Call
	script *Script
	keys   []string
	args   []string
	parts  []sentPart
}

// sentPart is a rule's part of the argument.
type sentPart struct {
	algorithm, counts, shadow, peek byte
	cost, requests                  int64
}

func newFake(t *testing.T) *fake {
	return &fake{t: t, servers: make(map[string]*Server), timeout: time.Minute}
}

var (
	errDown = errors.New("down")
	errNone = fmt.Errorf("%w: nobody knows of one", ErrUnavailable)
)

// tag returns the hash tag of a key, without braces.
func tag(key string) string {
	return key[strings.Index(key, "{")+1 : strings.Index(key, "}")]
}

func (f *fake) Server(key string) (*Server, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.none {
		return nil, errNone
	}
	name := "one"
	if f.cluster {
		name = tag(key)
	}
	if f.servers[name] == nil {
		conn := &fakeConn{fake: f, name: name}
		f.servers[name] = NewPipelinedServer(name, conn, pipelineOf(conn))
	}
	return f.servers[name], nil
}

// server returns the server that has a client's keys.
func (f *fake) server(client string) *Server {
	s, err := f.Server("weir:{" + client + "}")
	must.Succeed(f.t, err)
	return s
}

func (f *fake) Timeout() time.Duration    { return f.timeout }
func (f *fake) Background() time.Duration { return f.Timeout() }

func (f *fake) Cluster() bool { return f.cluster }

func (f *fake) Servers() []*Server {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*Server
	for _, s := range f.servers {
		list = append(list, s)
	}
	return list
}

func (f *fake) Name() string { return "fake" }

func (f *fake) Close() error {
	f.closed++
	return nil
}

type fakeConn struct {
	fake *fake
	name string
}

// Run implements Conn.
func (c *fakeConn) Run(call *Call) error {
	sent := &sentCall{server: c.name, call: call, script: call.Script}
	sent.keys = append(sent.keys, call.Keys...)
	sent.args = append(sent.args, call.Args...)
	argument := call.Args[0]
	switch call.Script {
	case scriptOfOverflow, scriptOfSettle, scriptOfBlock, scriptOfReset, scriptOfRenewal: // these have other arguments
		argument = ""
	}
	for argument != "" && len(sent.parts) < len(call.Keys) {
		number := func(at int) int64 {
			return int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(argument[at : at+8]))))
		}
		p := sentPart{argument[0], argument[1], argument[2], argument[3], number(4), number(12)}
		length := 44
		if rate.Algorithm(p.algorithm) == rate.FixedWindow && number(36) == 1 {
			length += 40
		}
		argument = argument[length:]
		sent.parts = append(sent.parts, p)
	}
	must.Equal(c.fake.t, argument, "", "the argument has %d bytes too many", len(argument))
	c.fake.mu.Lock()
	c.fake.calls = append(c.fake.calls, sent)
	answer := c.fake.answer
	c.fake.mu.Unlock()
	reply, err := answer(sent)
	call.Reply = append(call.Reply[:0], reply...)
	return err
}

// forget forgets the calls so far.
func (f *fake) forget() {
	f.mu.Lock()
	f.calls = nil
	f.mu.Unlock()
}

// allowedWith is a rule's part of a reply that allows the request, with so many units left.
func allowedWith(remaining int64) []int64 { return []int64{remaining, 0, 60_000_000, 6_000_000} }

// denied is a rule's part of a reply that rejects the request.
func denied() []int64 { return []int64{-1, 30_000_000, 60_000_000, 0} }

// always answers all calls with the same reply for each key, and with the server's time if the call asks for it.
func always(reply []int64) func(c *sentCall) ([]int64, error) {
	return func(c *sentCall) ([]int64, error) {
		var all []int64
		for i := 0; i < len(c.keys); i++ {
			all = append(all, reply...)
		}
		if len(c.args) > 1 {
			all = append(all, serverTime)
		}
		return all, nil
	}
}

const serverTime = 1_772_452_820_000_000

// scene is a store on a fake, with a clock that stands still.
type scene struct {
	*fake
	store   *Store
	now     int64
	changes []string
	nodes   int // that share a rule while Redis is away; 0: none counts by itself
}

func newScene(t *testing.T, cluster bool) *scene {
	s := &scene{fake: newFake(t), now: 1}
	s.cluster = cluster
	s.answer = always(allowedWith(5))
	store, err := NewStore(Config{
		Client:    s.fake,
		PlainKeys: true,
		Clock:     func() int64 { return s.now },
		WallClock: func() int64 { return serverTime },
		Changed:   func(server string, err error) { s.changes = append(s.changes, fmt.Sprint(server, ": ", err)) },
	})
	must.Succeed(t, err)
	store.closed = true // only the test probes
	s.store = store
	return s
}

func (s *scene) open(c core.RuleConfig, l rate.LimitConfig) *core.Rule {
	r := mustRule(s.t, c, l)
	must.Succeed(s.t, s.store.Open(r))
	return r
}

func check(r *core.Rule, key string, cost int64) core.Check {
	return core.Check{Rule: r, Key: key, Cost: cost}
}

func TestADecisionIsReadFromItsReply(t *testing.T) {
	s := newScene(t, false)
	r := s.open(core.RuleConfig{Name: "r"}, rate.LimitConfig{Algorithm: rate.LeakyBucket})
	for i, c := range []struct {
		reply []int64
		want  rate.Decision
	}{
		{[]int64{7, 0, 18_000_000, 5_000_000}, rate.Decision{Allowed: true, Limit: 10, Remaining: 7, ResetAfter: 18_000_000, MoreAfter: 5_000_000}},
		{[]int64{0, 9_000_000, 10, 7}, rate.Decision{Allowed: true, Limit: 10, Delay: 9_000_000, ResetAfter: 10, MoreAfter: 7}},
		{[]int64{-1, 5, 10, 0}, rate.Decision{Limit: 10, RetryAfter: 5, ResetAfter: 10}},
		{[]int64{-4, -1, 10, 0}, rate.Decision{Limit: 10, Remaining: 3, RetryAfter: rate.Never, ResetAfter: 10}},
	} {
		s.answer = always(c.reply)
		checks := []core.Check{check(r, fmt.Sprint(i), 1)}
		if err := s.store.Decide(checks, false); err != nil || checks[0].Decision != c.want {
			t.Errorf("%d: %+v, %v, want %+v", c.reply, checks[0].Decision, err, c.want)
		}
	}
}

func TestARequestIsOneCall(t *testing.T) {
	s := newScene(t, false)
	a := s.open(core.RuleConfig{Name: "a", CountRejected: true}, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 3})
	b := s.open(core.RuleConfig{Name: "b", Shadow: true}, rate.LimitConfig{Calendar: rate.Day})
	s.answer = always(allowedWith(2))
	if err := s.store.Decide(nil, false); err != nil || len(s.calls) != 0 {
		t.Fatalf("nothing asked: %v, %d calls", err, len(s.calls))
	}
	if err := s.store.Decide([]core.Check{check(a, "x", 1)}, true); err != nil || len(s.calls) != 1 {
		t.Fatalf("%v, %d calls", err, len(s.calls))
	}
	if c := s.calls[0]; c.script != scriptsOfOne[rate.FixedWindow] || len(c.args) != 1 || c.parts[0] != (sentPart{byte(rate.FixedWindow), 1, 0, 1, 1, 3}) {
		t.Errorf("one rule: %+v", c)
	}
	s.forget()
	checks := []core.Check{check(a, "x", 2), check(b, "y", 7)}
	if err := s.store.Decide(checks, false); err != nil || len(s.calls) != 1 {
		t.Fatalf("%v, %d calls", err, len(s.calls))
	}
	c := s.calls[0]
	if c.script != scriptOfSeveral || len(c.args) != 1 || len(c.keys) != 2 ||
		!strings.HasPrefix(c.keys[0], "weir:{x}:a:") || !strings.HasPrefix(c.keys[1], "weir:{y}:b:") ||
		c.parts[0] != (sentPart{byte(rate.FixedWindow), 1, 0, 0, 2, 3}) || c.parts[1] != (sentPart{byte(rate.FixedWindow), 0, 1, 0, 7, 10}) {
		t.Errorf("two rules: %+v", c)
	}
}

// A request may still be under way under a rule of a configuration that was replaced.
func TestARuleThatWasReleasedIsStillDecided(t *testing.T) {
	s := newScene(t, false)
	r := s.open(core.RuleConfig{Name: "r"}, rate.LimitConfig{Calendar: rate.Day})
	must.Succeed(t, s.store.Decide([]core.Check{check(r, "k", 1)}, false))
	s.store.Release(r)
	if err := s.store.Decide([]core.Check{check(r, "k", 1)}, false); err != nil || len(s.calls) != 2 {
		t.Fatalf("%v, %d calls", err, len(s.calls))
	}
	if before, after := s.calls[0], s.calls[1]; before.keys[0] != after.keys[0] || before.args[0] != after.args[0] || before.script != after.script {
		t.Errorf("%+v, and then %+v", before, after)
	}
}

func TestAReplyOfAnotherScriptIsAnError(t *testing.T) {
	s := newScene(t, false)
	a, b := s.open(core.RuleConfig{Name: "a"}, rate.LimitConfig{}), s.open(core.RuleConfig{Name: "b"}, rate.LimitConfig{})
	for i, reply := range [][]int64{nil, {1, 2}, {1, 2, 3, 4}, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 2, 3, -4, 1, 2, 3, 4}} {
		s.answer = func(c *sentCall) ([]int64, error) { return reply, nil }
		if err := s.store.Decide([]core.Check{check(a, "k", 1), check(b, "k", 1)}, false); !errors.Is(err, errReply) {
			t.Errorf("reply %d of two rules: %v", i, err)
		}
	}
	if s.server("").breaker.Open() {
		t.Error("a server that answers counts as down")
	}
}

func TestWindowsThatDoNotHaveTheServersTimeAreSentOnceMore(t *testing.T) {
	s := newScene(t, false)
	r := s.open(core.RuleConfig{Name: "r"}, rate.LimitConfig{Calendar: rate.Month})
	year := int64(365 * 24 * 3600 * 1_000_000)
	s.answer = func(c *sentCall) ([]int64, error) {
		if len(s.calls) == 1 {
			return []int64{serverTime + year}, nil
		}
		return allowedWith(5), nil
	}
	if err := s.store.Decide([]core.Check{check(r, "k", 1)}, false); err != nil || len(s.calls) != 2 {
		t.Fatalf("%v, %d calls", err, len(s.calls))
	}
	bounds := r.Limit.Windows(serverTime + year)
	for i, bound := range bounds {
		argument := s.calls[1].args[0]
		if sent := math.Float64frombits(binary.LittleEndian.Uint64([]byte(argument[44+8*i:]))); int64(sent) != bound {
			t.Errorf("bound %d is %.0f, want %d", i, sent, bound)
		}
	}
	if err := s.store.Decide([]core.Check{check(r, "k", 1)}, false); err != nil || len(s.calls) != 3 {
		t.Errorf("the next: %v, %d calls in all, want 3", err, len(s.calls))
	}
	s.forget()
	s.answer = func(c *sentCall) ([]int64, error) { return []int64{0}, nil } // on every call
	if err := s.store.Decide([]core.Check{check(r, "k", 1)}, false); !errors.Is(err, errReply) || len(s.calls) != 2 {
		t.Errorf("%v, %d calls, want an error after 2", err, len(s.calls))
	}
}

func TestWithoutAKnownServerADecisionFailsAtOnce(t *testing.T) {
	s := newScene(t, false)
	s.none = true
	r := s.open(core.RuleConfig{Name: "r"}, rate.LimitConfig{})
	checks := []core.Check{check(r, "k", 1)}
	checks[0].Decision = rate.Decision{Allowed: true, Limit: 99} // of an earlier request
	if err := s.store.Decide(checks, false); err != errNone || checks[0].Decision != (rate.Decision{}) {
		t.Errorf("%v, %+v", err, checks[0].Decision)
	}
	if err := s.store.Check(0); err != errNone {
		t.Errorf("checked: %v", err)
	}
}

func TestAServerThatIsDownGetsNoCallsUntilAProbeSucceeds(t *testing.T) {
	s := newScene(t, false)
	r := s.open(core.RuleConfig{Name: "r"}, rate.LimitConfig{})
	decide := func() error { return s.store.Decide([]core.Check{check(r, "k", 1)}, false) }
	s.answer = func(c *sentCall) ([]int64, error) { return nil, errDown }
	for i := 0; i < 5; i++ {
		if err := decide(); !errors.Is(err, errDown) || err.Error() != "one: down" {
			t.Fatalf("call %d: %v", i+1, err)
		}
	}
	for i := 0; i < 3; i++ {
		if err := decide(); err != ErrOpen || err.Error() != ErrUnavailable.Error() || ErrorKind(err) != "unavailable" {
			t.Fatalf("after five failures: %v, %q", err, ErrorKind(err))
		}
		if got := s.store.Servers(); len(got) != 1 || got[0] != (ServerState{Name: "one", Open: true}) {
			t.Fatalf("the servers after five failures: %+v", got)
		}
	}
	server := s.server("")
	if len(s.calls) != 5 || server.Available() || strings.Join(s.changes, ", ") != "one: down" {
		t.Fatalf("%d calls, available %v, changes %q", len(s.calls), server.Available(), s.changes)
	}
	key := s.calls[0].keys[0]

	s.forget()
	s.store.probe(server, &server.breaker, key)
	s.answer = func(c *sentCall) ([]int64, error) { panic("in the client") }
	s.store.probe(server, &server.breaker, key)
	if server.Available() || len(s.changes) != 1 || len(s.calls) != 2 {
		t.Fatalf("after probes that failed: available %v, changes %q, %d calls", server.Available(), s.changes, len(s.calls))
	}
	s.answer = always(allowedWith(1))
	s.store.probe(server, &server.breaker, key)
	if !server.Available() || strings.Join(s.changes, ", ") != "one: down, one: <nil>" {
		t.Fatalf("after one that succeeded: available %v, changes %q", server.Available(), s.changes)
	}
	c := s.calls[2]
	if len(c.keys) != 1 || c.keys[0] != "weir:{k}:probe" || c.script != scriptsOfOne[rate.TokenBucket] {
		t.Errorf("the probe was %+v", c)
	}
	if err := decide(); err != nil {
		t.Error(err)
	}
	s.forget()
	s.store.probe(server, &server.breaker, key) // by a late timer
	must.Equal(t, len(s.calls), 0, "a server that is in use is probed")
}

func TestAnAnswerBetweenFailuresKeepsAServerInUse(t *testing.T) {
	s := newScene(t, false)
	r := s.open(core.RuleConfig{Name: "r"}, rate.LimitConfig{})
	for i := 0; i < 20; i++ {
		s.answer = always(allowedWith(5))
		if i%5 != 0 {
			s.answer = func(c *sentCall) ([]int64, error) { return nil, errDown }
		}
		if err := s.store.Decide([]core.Check{check(r, "k", 1)}, false); errors.Is(err, ErrUnavailable) {
			t.Fatalf("call %d: the server gets no calls any more, after at most four failures in a row", i+1)
		}
	}
}

func TestAMigratingSlotIsNoFailureOfItsServer(t *testing.T) {
	s := newScene(t, true)
	r := s.open(core.RuleConfig{Name: "r"}, rate.LimitConfig{})
	s.answer = func(c *sentCall) ([]int64, error) { return nil, ErrMoving }
	for i := 0; i < 20; i++ {
		if err := s.store.Decide([]core.Check{check(r, "k", 1)}, false); !errors.Is(err, ErrMoving) {
			t.Fatal(err)
		}
	}
	if !s.server("k").Available() || len(s.changes) != 0 {
		t.Errorf("available %v, changes %q", s.server("k").Available(), s.changes)
	}
}

// A server that has lost the key's slot is not probed: nobody else will call it for that slot either.
func TestAServerThatHasLostTheSlotIsNotProbedForIt(t *testing.T) {
	s := newScene(t, true)
	other := NewServer("other", &fakeConn{s.fake, "other"})
	for i := 0; i < 5; i++ {
		other.breaker.Fail(other.trouble.Load())
	}
	s.store.probe(other, &other.breaker, "weir:{k}:r:AAAAAAAA")
	if len(s.calls) != 0 || !other.Available() {
		t.Errorf("%d calls, available %v", len(s.calls), other.Available())
	}
}

func TestAProbesLimitIsWholeAgainAtOnce(t *testing.T) {
	s := newScene(t, false)
	if err := s.store.Check(0); err != nil || len(s.calls) != 1 {
		t.Fatalf("%v, %d calls", err, len(s.calls))
	}
	c := s.calls[0]
	if len(c.keys) != 1 || !strings.HasSuffix(c.keys[0], "}:probe") || c.parts[0].peek != 0 || c.parts[0].requests != rate.MaxRequests {
		t.Errorf("%+v", c)
	}
	s.answer = func(c *sentCall) ([]int64, error) { return nil, errDown }
	if err := s.store.Check(time.Minute); err != errDown {
		t.Errorf("a permanent error: %v", err)
	}
}

// After a timeout the Conn may still read the call.
func TestACallThatTimedOutIsNotChangedAnyMore(t *testing.T) {
	s := newScene(t, false)
	r := s.open(core.RuleConfig{Name: "r"}, rate.LimitConfig{})
	var late []*sentCall
	for i := 0; i < 4; i++ {
		s.answer = func(c *sentCall) ([]int64, error) { return nil, ErrTimeout }
		s.forget()
		if err := s.store.Decide([]core.Check{check(r, fmt.Sprint("late", i), int64(10+i))}, false); !errors.Is(err, ErrTimeout) {
			t.Fatal(err)
		}
		late = append(late, s.calls[0])
		s.answer = always(allowedWith(1))
		must.Succeed(t, s.store.Decide([]core.Check{check(r, fmt.Sprint("next", i), 3)}, false))
	}
	for i, c := range late {
		if len(c.call.Keys) != 1 || c.call.Keys[0] != c.keys[0] || c.call.Args[0] != c.args[0] || c.call.Script != c.script {
			t.Errorf("call %d was of %q, and is of %q", i, c.keys, c.call.Keys)
		}
	}
}

func TestClosingAStoreClosesItsClient(t *testing.T) {
	s := newScene(t, false)
	if err := s.store.Close(); err != nil || s.closed != 1 {
		t.Errorf("%v, closed %d times", err, s.closed)
	}
}

// order returns the servers of the calls, with a p for a peek and an r for a refund.
func (s *scene) order() string {
	var list []string
	for _, c := range s.calls {
		word := c.server
		if c.script == scriptOfRefund {
			word += " r"
		} else if c.parts[0].peek == 1 {
			word += " p"
		}
		list = append(list, word)
	}
	return strings.Join(list, ", ")
}

// by answers with the reply for the call's server. Servers without one allow the request.
func by(replies map[string][]int64) func(c *sentCall) ([]int64, error) {
	return func(c *sentCall) ([]int64, error) {
		if c.script == scriptOfRefund {
			return nil, nil
		}
		if reply, ok := replies[c.server]; ok {
			return append(append([]int64{}, reply...), serverTime), nil
		}
		return always(allowedWith(5))(c)
	}
}

func TestInAClusterAClientsRulesAreOneCall(t *testing.T) {
	s := newScene(t, true)
	a, b, c := s.open(core.RuleConfig{Name: "a"}, rate.LimitConfig{}), s.open(core.RuleConfig{Name: "b"}, rate.LimitConfig{}), s.open(core.RuleConfig{Name: "c"}, rate.LimitConfig{})
	if err := s.store.Decide([]core.Check{check(a, "x", 1), check(b, "x", 1)}, false); err != nil || len(s.calls) != 1 || len(s.calls[0].args) != 1 {
		t.Fatalf("of one client: %v, %d calls", err, len(s.calls))
	}
	s.forget()
	checks := []core.Check{check(a, "x", 1), check(b, "y", 2), check(c, "x", 3)}
	s.answer = by(map[string][]int64{"x": {7, 0, 1, 1, 8, 0, 2, 2}, "y": {9, 0, 3, 3}})
	if err := s.store.Decide(checks, false); err != nil || s.order() != "x, y" {
		t.Fatalf("of two: %v, %s", err, s.order())
	}
	if len(s.calls[0].keys) != 2 || s.calls[0].parts[1].cost != 3 || len(s.calls[0].args) != 2 || len(s.calls[1].args) != 2 {
		t.Errorf("%+v, %+v", s.calls[0], s.calls[1])
	}
	for i, want := range []int64{7, 9, 8} {
		must.Equal(t, checks[i].Decision.Remaining, want, "check %d has the decision %+v, want %d remaining", i, checks[i].Decision, want)
	}
}

func TestThePartMostLikelyToDenyGoesFirst(t *testing.T) {
	s := newScene(t, true)
	a, b, c := s.open(core.RuleConfig{Name: "a"}, rate.LimitConfig{}), s.open(core.RuleConfig{Name: "b"}, rate.LimitConfig{Requests: 100}), s.open(core.RuleConfig{Name: "c"}, rate.LimitConfig{})
	shadow := s.open(core.RuleConfig{Name: "shadow", Shadow: true}, rate.LimitConfig{})
	know := func(r *core.Rule, key string, remaining int64) {
		s.answer = always(allowedWith(remaining))
		must.Succeed(t, s.store.Decide([]core.Check{check(r, key, 1)}, false))
	}
	know(a, "x", 6)       // six tenths are left
	know(b, "y", 9)       // nine hundredths
	know(shadow, "s", 0)  // nothing, but a shadow rule denies nothing
	know(shadow, "y2", 0) // the same, with a rule that may deny
	s.answer = by(nil)
	for _, v := range []struct {
		checks []core.Check
		want   string
	}{
		{[]core.Check{check(a, "x", 1), check(b, "y", 1)}, "y, x"},
		{[]core.Check{check(b, "y", 1), check(a, "x", 1)}, "y, x"},
		{[]core.Check{check(c, "unknown", 1), check(a, "x", 1), check(b, "y", 1)}, "y, x, unknown"},
		{[]core.Check{check(shadow, "s", 1), check(c, "unknown", 1), check(a, "x", 1)}, "x, unknown, s"},
		{[]core.Check{check(shadow, "y2", 1), check(c, "y2", 1), check(a, "x", 1)}, "x, y2"},
		{[]core.Check{check(a, "new", 1), check(c, "newer", 1)}, "new, newer"},
	} {
		s.forget()
		if err := s.store.Decide(v.checks, true); err != nil || s.order() != strings.ReplaceAll(v.want, ",", " p,")+" p" {
			t.Errorf("%v, %s, want %s", err, s.order(), v.want)
		}
	}
}

func TestAfterADenialNothingMoreIsChargedAndChargesAreGivenBack(t *testing.T) {
	s := newScene(t, true)
	a := s.open(core.RuleConfig{Name: "a"}, rate.LimitConfig{})
	silent := s.open(core.RuleConfig{Name: "silent", Shadow: true}, rate.LimitConfig{})
	b := s.open(core.RuleConfig{Name: "b"}, rate.LimitConfig{})
	c := s.open(core.RuleConfig{Name: "c"}, rate.LimitConfig{})
	counts := s.open(core.RuleConfig{Name: "counts", CountRejected: true}, rate.LimitConfig{})
	shadow := s.open(core.RuleConfig{Name: "shadow", Shadow: true}, rate.LimitConfig{})
	s.answer = by(map[string][]int64{
		"x": {6, 4_000_000, 60_000_000, 8_000_000, -1, 9, 60_000_000, 0}, // a admits after a delay; the shadow rule does not
		"y": {-1, 30_000_000, 60_000_000, 0},
		"z": {8, 0, 60_000_000, 1},
		"u": {9, 0, 60_000_000, 1},
		"s": {3, 0, 60_000_000, 2_000_000},
	})
	checks := []core.Check{check(a, "x", 3), check(silent, "x", 1), check(b, "y", 1), check(c, "z", 5), check(counts, "u", 1), check(shadow, "s", 2)}
	must.Succeed(t, s.store.Decide(checks, false))
	if s.order() != "x, y, z p, u, s p, x r, u r" {
		t.Fatalf("the calls were %s", s.order())
	}
	refund := s.calls[5]
	if len(refund.keys) != 1 || refund.keys[0] != s.calls[0].keys[0] || len(refund.args) != 2 || refund.args[1] != fmt.Sprint(serverTime) || refund.parts[0].cost != 3 {
		t.Errorf("the refund was %+v", refund)
	}
	for i, want := range []rate.Decision{
		{Allowed: true, Limit: 10, Remaining: 9, ResetAfter: 60_000_000, MoreAfter: 8_000_000},
		{Limit: 10, RetryAfter: 9, ResetAfter: 60_000_000},
		{Limit: 10, RetryAfter: 30_000_000, ResetAfter: 60_000_000},
		{Allowed: true, Limit: 10, Remaining: 10, ResetAfter: 60_000_000}, // never more than the limit, and then no more to come
		{Allowed: true, Limit: 10, Remaining: 10, ResetAfter: 60_000_000},
		{Allowed: true, Limit: 10, Remaining: 5, ResetAfter: 60_000_000, MoreAfter: 2_000_000},
	} {
		if checks[i].Decision != want {
			t.Errorf("check %d: %+v, want %+v", i, checks[i].Decision, want)
		}
	}
}

// A part in which a rule denies has charged nothing: there is nothing to give back.
func TestAPartThatDeniesIsNotGivenBack(t *testing.T) {
	s := newScene(t, true)
	a, b, c := s.open(core.RuleConfig{Name: "a"}, rate.LimitConfig{}), s.open(core.RuleConfig{Name: "b"}, rate.LimitConfig{}), s.open(core.RuleConfig{Name: "c"}, rate.LimitConfig{})
	s.answer = by(map[string][]int64{"x": {6, 0, 1, 1, -1, 9, 1, 0}})
	if err := s.store.Decide([]core.Check{check(a, "x", 1), check(b, "x", 1), check(c, "y", 1)}, false); err != nil || s.order() != "x, y p" {
		t.Errorf("%v, the calls were %s", err, s.order())
	}
	s.forget()
	s.answer = by(map[string][]int64{"v": denied()})
	if err := s.store.Decide([]core.Check{check(a, "u", 1), check(c, "v", 1)}, true); err != nil || s.order() != "u p, v p" {
		t.Errorf("a peek: %v, the calls were %s", err, s.order())
	}
}

func TestAnErrorAfterAChargeGivesItBack(t *testing.T) {
	s := newScene(t, true)
	a, b := s.open(core.RuleConfig{Name: "a"}, rate.LimitConfig{}), s.open(core.RuleConfig{Name: "b"}, rate.LimitConfig{})
	c := s.open(core.RuleConfig{Name: "c"}, rate.LimitConfig{})
	s.answer = func(c *sentCall) ([]int64, error) {
		if c.server == "y" {
			return nil, errDown
		}
		return by(nil)(c)
	}
	checks := []core.Check{check(a, "x", 1), check(b, "y", 1), check(c, "z", 1)}
	if err := s.store.Decide(checks, false); !errors.Is(err, errDown) || s.order() != "x, y, x r" {
		t.Errorf("%v, the calls were %s", err, s.order())
	}
	for i := range checks {
		if checks[i].Decision != (rate.Decision{}) {
			t.Errorf("check %d, whose key was not known: %+v", i, checks[i].Decision)
		}
	}
}

// If a refund fails, the charge stays, and the request is rejected all the same.
func TestAFailedRefundIsAFailureOfTheServerAndNotOfTheRequest(t *testing.T) {
	s := newScene(t, true)
	a, b := s.open(core.RuleConfig{Name: "a"}, rate.LimitConfig{}), s.open(core.RuleConfig{Name: "b", CountRejected: true}, rate.LimitConfig{})
	s.answer = func(c *sentCall) ([]int64, error) {
		if c.script == scriptOfRefund {
			return nil, errDown
		}
		if c.server == "y" {
			return append(denied(), serverTime), nil
		}
		return by(nil)(c)
	}
	checks := []core.Check{check(a, "x", 1), check(b, "y", 1)}
	if err := s.store.Decide(checks, false); err != nil || s.order() != "x, y, x r" || checks[1].Decision.Allowed {
		t.Fatalf("%v, the calls were %s, %+v", err, s.order(), checks[1].Decision)
	}
	for i := 0; i < 4; i++ {
		s.server("x").patient.Fail(s.server("x").patient.Trouble().Load())
	}
	if s.server("x").Available() {
		t.Error("the refund's failure was not counted")
	}

	// A server that has gone down meanwhile gets no refund.
	s = newScene(t, true)
	a, b = s.open(core.RuleConfig{Name: "a"}, rate.LimitConfig{}), s.open(core.RuleConfig{Name: "b"}, rate.LimitConfig{})
	s.answer = func(c *sentCall) ([]int64, error) {
		if c.server == "y" {
			for i := 0; i < 5; i++ {
				s.server("x").patient.Fail(s.server("x").patient.Trouble().Load())
			}
			return append(denied(), serverTime), nil
		}
		return by(nil)(c)
	}
	if err := s.store.Decide([]core.Check{check(a, "x", 1), check(b, "y", 1)}, false); err != nil || s.order() != "x, y" {
		t.Errorf("%v, the calls were %s", err, s.order())
	}
}

// Calls to several slots share one deadline. Nobody waits for refunds after it.
func TestRefundsThatTakeLongGoOnInTheBackground(t *testing.T) {
	s := newScene(t, true)
	s.timeout = 0
	a, b := s.open(core.RuleConfig{Name: "a"}, rate.LimitConfig{}), s.open(core.RuleConfig{Name: "b"}, rate.LimitConfig{})
	release, refunded := make(chan bool), make(chan bool)
	s.answer = func(c *sentCall) ([]int64, error) {
		if c.script == scriptOfRefund {
			<-release
			refunded <- true
			return nil, nil
		}
		return by(map[string][]int64{"y": denied()})(c)
	}
	checks := []core.Check{check(a, "x", 1), check(b, "y", 1)}
	if err := s.store.Decide(checks, false); err != nil || checks[1].Decision.Allowed { // returns while the refund waits
		t.Errorf("%v, %+v", err, checks[1].Decision)
	}
	release <- true
	<-refunded
	first, second := s.calls[0].call, s.calls[1].call
	if first.Deadline.IsZero() || !first.Deadline.Equal(second.Deadline) {
		t.Errorf("the deadlines are %v and %v", first.Deadline, second.Deadline)
	}
	s.forget()
	s.asks(false, check(a, "z", 1))
	if !s.calls[0].call.Deadline.IsZero() {
		t.Error("a single call has a deadline of its own")
	}
}

// TestAFailureUsesWhatOtherRequestsHaveLearnedMeanwhile is for a defect. A request that began later than a failing one had learned something.
// The failing one took that for knowledge from before a step back of the clock, and the client had its whole limit again.
func TestAFailureUsesWhatOtherRequestsHaveLearnedMeanwhile(t *testing.T) {
	s := newScene(t, false)
	r := s.open(core.RuleConfig{Name: "r"}, rate.LimitConfig{})
	later := []core.Check{check(r, "k", 1)}
	s.answer = func(c *sentCall) ([]int64, error) {
		s.answer = always(denied())
		s.now++
		if err := s.store.Decide(later, false); err != nil {
			t.Error(err)
		}
		return nil, errDown
	}
	checks := []core.Check{check(r, "k", 1)}
	if err := s.store.Decide(checks, false); !errors.Is(err, errDown) {
		t.Fatal(err)
	}
	if d := checks[0].Decision; d.Limit == 0 || d.Remaining != 0 {
		t.Errorf("%+v; want nothing left, as the other request has learned", d)
	}
}

// TestNothingIsChargedIfASlotsServerIsKnownToBeDown is for a defect: every request charged the other slots, and gave the charges back.
func TestNothingIsChargedIfASlotsServerIsKnownToBeDown(t *testing.T) {
	s := newScene(t, true)
	a, b := s.open(core.RuleConfig{Name: "a"}, rate.LimitConfig{}), s.open(core.RuleConfig{Name: "b"}, rate.LimitConfig{})
	s.answer = always(allowedWith(5))
	for i := 0; i < 5; i++ {
		s.server("y").breaker.Fail(s.server("y").trouble.Load())
	}
	checks := []core.Check{check(a, "x", 1), check(b, "y", 1)}
	if err := s.store.Decide(checks, false); !errors.Is(err, ErrUnavailable) || len(s.calls) != 0 {
		t.Errorf("%v, %d calls; want none", err, len(s.calls))
	}
}

func TestServersAreListedByTheirNames(t *testing.T) {
	s := newScene(t, true)
	if got := s.store.Servers(); len(got) != 0 {
		t.Fatalf("before any is known: %+v", got)
	}
	for _, name := range []string{"c", "a", "d", "b"} {
		s.fake.server(name)
	}
	for i := 0; i < 5; i++ {
		s.fake.server("d").breaker.Fail(s.fake.server("d").trouble.Load())
	}
	want := []ServerState{{"a", false}, {"b", false}, {"c", false}, {"d", true}}
	got := s.store.Servers()
	if len(got) != len(want) {
		t.Fatalf("got %+v, want %+v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestAnErrorHasAKind(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{ErrTimeout, "timeout"},
		{fmt.Errorf("one: %w: connecting again, after %w", ErrTimeout, errReply), "timeout"},
		{ErrOpen, "unavailable"},
		{fmt.Errorf("one: %w", errReply), "reply"},
		{fmt.Errorf("%w: the connection was lost: nonsense%w", ErrUnavailable, ErrReply), "reply"},
		{ErrMoving, "reply"},
		{ErrUnavailable, "connection"},
		{fmt.Errorf("%w: refused", ErrUnavailable), "connection"},
		{errDown, "connection"},
	} {
		must.Equal(t, ErrorKind(c.err), c.want, "%v", c.err)
	}
	must.Equal(t, errReply.Error(), "redis: the reply is not that of the script", "the text of an error with a mark")
}
