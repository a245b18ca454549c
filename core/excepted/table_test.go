package excepted

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/exception"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/tools/must"
)

// kept is where several tables are kept, with a clock of its own.
type kept struct {
	now      int64
	version  string
	document []byte
	fails    error
	before   func() // called before a document is taken
}

var errDown = errors.New("down")

func (k *kept) exchange(ask *exception.Ask) (*exception.Answer, error) {
	if k.fails != nil {
		var none *exception.Answer
		return none, k.fails
	}
	if ask.Document != nil && k.before != nil {
		before := k.before
		k.before = nil
		before()
	}
	a := &exception.Answer{Now: k.now}
	if ask.Document != nil && (ask.Over == k.version && !ask.Lost || ask.Lost && k.version < ask.Known) {
		next := k.version
		if next < ask.Known {
			next = ask.Known
		}
		k.version = next + "1"
		k.document = ask.Document
		a.Taken = true
	}
	a.Version = k.version
	if !a.Taken && a.Version != ask.Known {
		a.Document = k.document
	}
	return a, nil
}

// node is a node with a rule of 3 requests an hour for each key.
type node struct {
	t       *testing.T
	table   *Table
	limiter *core.Limiter
	rule    *ruleset.Rule
	group   *Group
	flag    bool
	forgot  []string
}

// newNode returns a node. Its clock is behind that of the place by an hour.
func newNode(t *testing.T, k *kept, store core.Store, limit string) *node {
	t.Helper()
	n := &node{t: t, limiter: core.NewLimiter(store)}
	n.table = NewTable(k.exchange, func() int64 { return k.now - 3600_000_000 }, func(err error) {})
	n.open(limit)
	return n
}

func (n *node) open(limit string) {
	n.t.Helper()
	text := &ruleset.RuleText{Name: "api"}
	text.Texts = map[string]string{"limit": limit}
	text.Lists = map[string][]string{"key": {"header:X-Key"}}
	text.Objects = map[string][]*ruleset.Object{"limit_from": {{Texts: map[string]string{"source": "header:X-Limit"}}}}
	r, wrong := ruleset.Compile(text, ruleset.Context{Prefixes: match.Prefixes{IPv4: 32, IPv6: 64}})
	if len(wrong) > 0 {
		n.t.Fatal(wrong)
	}
	_, err := n.limiter.OpenAll(r.Limits.Rules())
	must.Succeed(n.t, err)
	n.rule = r
	n.group = &Group{Limiter: n.limiter, Rules: []*ruleset.Rule{r}, Label: func(name string) string { return "shop/" + name }}
	n.group.Limits = func(some bool) { n.flag = some }
	n.group.Forget = func(r *core.Rule, key string) { n.forgot = append(n.forgot, key) }
	n.table.Attach(n.group)
}

func (n *node) pass(key string, want bool) {
	n.t.Helper()
	checks := []core.Check{{Rule: n.rule.Active.Of("", key), Key: key, Cost: 1}}
	var v core.Verdict
	must.Succeed(n.t, n.limiter.Decide(checks, false, &v))
	must.Equal(n.t, v.Outcome == core.Allow, want, key+" passes")
}

func (n *node) decide(kind, key, limit string, lasts time.Duration) error {
	return n.table.Change(func(list []exception.Exception, now int64) ([]exception.Exception, error) {
		return exception.With(list, exception.Exception{Rule: "shop/api", Key: []byte(key), Kind: kind, Limit: limit, Made: now, Until: now + lasts.Microseconds()}), nil
	})
}

func (n *node) end(kind, key string) {
	n.t.Helper()
	must.Succeed(n.t, n.table.Change(func(list []exception.Exception, now int64) ([]exception.Exception, error) {
		return exception.Without(list, kind, "shop/api", key), nil
	}))
}

// pair returns two nodes that share a store of counters, and the place.
func pair(t *testing.T) (*kept, *node, *node) {
	t.Helper()
	k := &kept{now: 1_790_000_000_000_000}
	store := memory.New(memory.Config{Clock: func() int64 { return k.now }})
	return k, newNode(t, k, store, "3/1h"), newNode(t, k, store, "3/1h")
}

func TestOthersObeyALimitUntilItIsOver(t *testing.T) {
	k, a, b := pair(t)
	for i := 0; i < 3; i++ {
		b.pass("acme", true)
	}
	b.pass("acme", false)
	must.Succeed(t, a.decide(exception.Limit, "acme", "+2", time.Minute))
	a.pass("acme", true)
	b.pass("acme", false)
	b.table.Tick()
	must.Equal(t, b.flag, true, "the path is told of limits")
	must.Equal(t, strings.Join(b.forgot, " "), "acme", "it forgets what it remembers")
	b.pass("acme", true)
	b.pass("acme", false)
	must.Succeed(t, b.decide(exception.Limit, "acme", "+3", time.Minute)) // the last word counts
	a.table.Tick()
	must.Equal(t, len(a.table.List()), 1, "exceptions")
	a.pass("acme", true)
	k.now += 60_000_000
	k.fails = errDown // the time goes on without the store
	a.table.Tick()
	a.pass("acme", false)
	must.Equal(t, len(a.table.List()), 0, "exceptions")
	must.Equal(t, a.flag, false, "the path is told of limits")
	must.Equal(t, errors.Is(a.decide(exception.Limit, "acme", "+9", time.Minute), errDown), true, "an error of the store is reported")
}

// The manual promises that the nodes of a fleet obey within 2 seconds. The steps are those of the goroutine that keeps a node's table: a Tick in each Every.
func TestEveryNodeObeysWithinTheTimeThatTheManualPromises(t *testing.T) {
	const promised = 2 * time.Second
	k, a, b := pair(t)
	for _, kind := range []string{exception.Limit, exception.Block, exception.Forget} {
		must.Succeed(t, a.decide(kind, kind, "1/1h", time.Minute))
		obeys := false
		for passed := time.Duration(0); passed+Every <= promised; passed += Every {
			k.now += Every.Microseconds()
			b.table.Tick()
			obeys = true
		}
		must.Equal(t, obeys, true, "%s: there is a Tick in that time", kind)
	}
	b.pass(exception.Limit, true)
	b.pass(exception.Limit, false)
	b.pass(exception.Block, false)
	must.Contain(t, strings.Join(b.forgot, " "), exception.Forget) // as after a credit, which is in Redis at once
}

func TestWhatIsDecidedAtTheSameTimeIsAllKept(t *testing.T) {
	k, a, b := pair(t)
	k.before = func() { must.Succeed(t, b.decide(exception.Limit, "bob", "+1", time.Hour)) }
	must.Succeed(t, a.decide(exception.Limit, "ann", "+1", time.Hour))
	b.table.Tick()
	must.Equal(t, len(b.table.List()), 2, "exceptions")
	b.end(exception.Limit, "ann")
	a.table.Tick()
	must.Equal(t, len(a.table.List()), 1, "exceptions")
	many := a.table.Change(func(list []exception.Exception, now int64) ([]exception.Exception, error) {
		return make([]exception.Exception, exception.Most+1), nil
	})
	must.Equal(t, errors.Is(many, ErrFull), true, "too many are refused")
}

func TestWhatTheStoreHasLostIsGivenBack(t *testing.T) {
	k, a, b := pair(t)
	must.Succeed(t, a.decide(exception.Limit, "acme", "+1", time.Hour))
	k.version = ""
	k.document = nil
	b.table.Tick() // which knows nothing
	must.Equal(t, k.version, "", "version")
	a.table.Tick()
	b.table.Tick()
	must.Equal(t, len(b.table.List()), 1, "exceptions")
	a.end(exception.Limit, "acme")
	b.table.Tick() // what was ended is not what was lost
	a.table.Tick()
	must.Equal(t, len(a.table.List())+len(b.table.List()), 0, "exceptions")
	k.version = b.table.version + "2"
	k.document = []byte("{")
	b.table.Tick()
	must.Equal(t, b.table.failed, true, "what cannot be read is a failure")
}

func TestABlockIsMadeAgainWhereTheRuleCountsElsewhere(t *testing.T) {
	k, a, b := pair(t)
	must.Succeed(t, a.decide(exception.Block, "eve", "", time.Hour))
	b.pass("eve", false) // by the store
	b.table.Tick()
	must.Equal(t, a.limiter.Unblock(a.rule.Limits.Own(), "eve"), nil, "")
	a.table.Tick() // which does not block it each time
	a.pass("eve", true)
	must.Succeed(t, b.decide(exception.Block, "eve", "", 2*time.Hour))
	b.table.Detach(b.group)
	b.open("9/7h") // as after a reload
	b.pass("eve", true)
	b.table.Tick()
	b.pass("eve", false)
	b.pass("bob", true)
	must.Succeed(t, b.decide(exception.Limit, "eve", "50/1s", time.Hour)) // which counts elsewhere, too
	b.pass("eve", false)
	a.end(exception.Block, "eve")
	b.pass("eve", false)
	b.table.Tick()
	b.pass("eve", true)
	k.now += 3 * 3600_000_000
	a.table.Tick()
	b.table.Tick()
}

func TestBlocksAreMadeAgainInAStoreThatHasLostThem(t *testing.T) {
	k, a, b := pair(t)
	must.Succeed(t, a.decide(exception.Block, "eve", "", time.Hour))
	b.table.Tick()
	b.table.Detach(b.group)
	b.open("9/7h") // which only this node has
	b.table.Tick()
	must.Succeed(t, a.limiter.Unblock(a.rule.Limits.Own(), "eve"))
	must.Succeed(t, b.limiter.Unblock(b.rule.Limits.Own(), "eve"))
	k.version = ""
	k.document = nil
	a.table.Tick()
	a.pass("eve", false)
	b.table.Tick()
	b.pass("eve", false)
	must.Equal(t, len(b.table.List()), 1, "exceptions")
}

func TestABlockHoldsUnderALimitThatIsBroughtLater(t *testing.T) {
	_, a, _ := pair(t)
	must.Succeed(t, a.decide(exception.Block, "eve", "", time.Hour))
	r := a.rule.Active.Of("5/1s", "eve")
	must.Equal(t, r != a.rule.Limits.Own(), true, "the limit is the request's")
	a.table.Tick()
	checks := []core.Check{{Rule: r, Key: "eve", Cost: 1}}
	var v core.Verdict
	must.Succeed(t, a.limiter.Decide(checks, false, &v))
	must.Equal(t, v.Outcome == core.Reject, true, "it is rejected")
}

func TestALimitThatDoesNotFitTheRuleHereIsReported(t *testing.T) {
	_, a, b := pair(t)
	said := ""
	b.group.Failed = func(label, limit string, err error) { said = label + " " + limit + " " + err.Error() }
	must.Succeed(t, a.decide(exception.Limit, "acme", "5/1ns", time.Hour))
	b.table.Tick()
	must.Contain(t, said, "shop/api 5/1ns")
	b.pass("acme", true)
}

func TestANodeForgetsAKeyThatWasResetElsewhereOnce(t *testing.T) {
	k, a, b := pair(t)
	must.Succeed(t, a.decide(exception.Forget, "acme", "", time.Minute))
	b.table.Tick()
	b.table.Tick()
	must.Equal(t, strings.Join(b.forgot, " "), "acme", "it forgets")
	must.Equal(t, len(b.table.List()), 0, "it lists")
	k.now++
	must.Succeed(t, a.decide(exception.Forget, "acme", "", time.Hour))
	b.table.Tick()
	must.Equal(t, len(b.forgot), 2, "it forgets again")
}
