package replay

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
)

// Suggestion is the lowest limit that would have touched at most a share of a rule's clients. It touches a client if it would have rejected
// any of its requests, had the rule been the only one. Tolerance, waiting and penalties do not count: it is about the limit itself.
type Suggestion struct {
	Rule     string  `json:"rule"`
	Of       string  `json:"of"`                // limit, or concurrency
	Now      string  `json:"now"`               // the rule's limit
	Limit    string  `json:"limit"`             // the suggested limit, as in a rule file; "": none
	Requests int64   `json:"requests"`          // of it
	Burst    int64   `json:"burst,omitempty"`   // of a bucket whose rule has one: in the same proportion
	Clients  int64   `json:"clients"`           // keys that the rule's own limit covers
	Touched  int64   `json:"touched"`           // how many of them it would have touched
	Share    float64 `json:"share"`             // of the clients
	Note     string  `json:"note,omitempty"`    // why there is none, or how it is limited
	Inexact  bool    `json:"inexact,omitempty"` // a lower limit may also do
	least    bool    // the lowest limit is found
}

// probes find suggestions. They decide each request a second time, by limits that show how much a client uses.
type probes struct {
	list   []*probe
	byRule [][]*probe // by the rule's place
	trades []*trade   // the same; nil: the rule has no limit of its own
	own    []*core.Rule
	share  float64
	player *player
	checks [1]core.Check
	v      core.Verdict
}

// probe finds the limit of one rule, or its concurrency.
//
// If the use of a client does not depend on the limit (windows, logs, requests under way), a limit that nobody reaches shows the most
// that each client has used, and so which limit would have sufficed. This is exact, in one pass.
//
// The level of a bucket depends on its limit, which drains it. So the first pass counts a fixed window of the same period, which shows
// within which bounds the limit lies. Further passes decide limits within them side by side, and finer ones in between, until there are none.
type probe struct {
	rule     int
	text     *ruleset.RuleText
	period   string
	bucket   bool
	alone    bool // it is for concurrency
	used     map[uint64]uint32
	limit    *core.Rule
	rungs    []int64 // limits that are decided side by side, in ascending order; nil: the first pass
	ladder   []*core.Rule
	reached  map[uint64]uint8 // how many of the rungs a client has exceeded
	low      int64            // a limit that touches too many clients
	high     int64            // a limit that does not; above the largest: none is known
	ratio    float64          // of a bucket's burst to its requests
	patience float64          // how many periods a leaky bucket makes wait
	result   Suggestion
}

// mostRungs is the most limits that are decided side by side.
const mostRungs = 64

// beyond is the use of a client that has used more than can be measured.
const beyond = math.MaxUint32

func newProbes(rules *Rules, share float64) (*probes, error) {
	p := &probes{share: share}
	var open []*core.Rule
	for i, r := range rules.set.Rules {
		own := r.Limits.Own()
		p.own = append(p.own, own)
		var texts []*ruleset.RuleText
		if own != nil {
			texts = append(texts, rules.texts[i])
		}
		if own != nil && !own.Limit.InFlight && rules.texts[i].Texts["concurrency"] != "" {
			alone := ruleset.Only(rules.texts[i], "concurrency")
			alone.Name = rules.texts[i].Name
			texts = append(texts, alone)
		}
		var list []*probe
		for _, text := range texts {
			one, err := newProbe(i, text, own)
			if err != nil {
				return nil, err
			}
			list = append(list, one)
			open = append(open, one.limit)
		}
		var t *trade
		if len(list) > 0 && !list[0].alone {
			t = newTrade(list[0], own.Limit)
		}
		p.trades = append(p.trades, t)
		p.list = append(p.list, list...)
		p.byRule = append(p.byRule, list)
	}
	var err error
	p.player, err = newPlayer(open)
	return p, err
}

// newProbe makes the probe of a rule for the first pass.
func newProbe(place int, text *ruleset.RuleText, own *core.Rule) (p *probe, err error) {
	p = &probe{rule: place, text: text, used: make(map[uint64]uint32)}
	p.result.Rule = text.Name
	p.result.Of = "limit"
	if own.Limit.InFlight || strings.TrimSpace(text.Texts["limit"]) == "" && ruleset.One(text, "tiers") == nil {
		p.alone = true
		p.result.Of = "concurrency"
		p.result.Now = strings.TrimSpace(text.Texts["concurrency"])
		most := &ruleset.RuleText{}
		ruleset.SetText(&most.Object, "concurrency", strconv.Itoa(rate.MaxRequests))
		p.limit, err = p.compile(most, "most")
		return p, err
	}
	l := own.Limit
	written := text.Texts["limit"]
	if strings.TrimSpace(written) == "" {
		for _, tier := range ruleset.One(text, "tiers").Pairs["limits"] {
			if tier.Name == ruleset.AnyTier {
				written = tier.Value
			}
		}
	}
	p.result.Now = strings.TrimSpace(written)
	_, p.period, _ = strings.Cut(p.result.Now, "/")
	p.period = strings.TrimSpace(p.period)
	p.bucket = l.IsBucket
	most := l.MostRequests()
	first := ruleset.Only(text, "algorithm", "time_zone", "count", "count_match")
	if p.bucket {
		ruleset.SetText(&first.Object, "algorithm", rate.FixedWindow.String())
		burst, err := strconv.ParseInt(strings.TrimSpace(text.Texts["burst"]), 10, 64)
		p.ratio = 1
		if err == nil {
			p.result.Now += fmt.Sprintf(" burst %d", burst)
			p.ratio = float64(burst) / float64(l.Requests)
		}
		p.patience = math.Inf(1)
		if l.Queues {
			p.patience = float64(l.MaxDelay) / float64(l.Period)
		}
		most = rate.MaxRequests // of the fixed window
	}
	ruleset.SetText(&first.Object, "limit", fmt.Sprintf("%d/%s", most, p.period))
	p.limit, err = p.compile(first, "most")
	p.high = rate.MaxRequests + 1
	if p.ratio > 1 {
		p.high = int64(rate.MaxRequests/p.ratio) + 1
	}
	return p, err
}

// compile compiles a limit of the probe. Each has its own name, and so its own counters.
func (p *probe) compile(text *ruleset.RuleText, what string) (*core.Rule, error) {
	text.Name = fmt.Sprintf("%d-%s-%s", p.rule, p.result.Of, what)
	r, wrong := ruleset.Compile(text, ruleset.Context{})
	if len(wrong) > 0 {
		return nil, fmt.Errorf("suggest: rule %q: %w", p.text.Name, wrong[0])
	}
	return r.Limits.Own(), nil
}

// burst returns the burst of a bucket with so many requests; 0 if the rule sets none, so that it equals the requests.
func (p *probe) burst(requests int64) int64 {
	if strings.TrimSpace(p.text.Texts["burst"]) == "" {
		return 0
	}
	return max(int64(float64(requests)*p.ratio), 1)
}

// again reports whether the logs are read more than once.
func (p *probes) again() bool {
	return slices.ContainsFunc(p.list, func(one *probe) bool { return one.bucket })
}

// decide decides a request by each of the probes, in a pass that counts from 1. seen is as in side.decide.
func (p *probes) decide(pass int, at int64, r *request, seen []bool) {
	for i := range r.checks[0] {
		c := &r.checks[0][i]
		if !c.asks(seen) || c.limit == nil || c.limit != p.own[c.rule].For(c.key) || c.cost >= rate.Unaffordable {
			continue
		}
		hash := maphash.String(seed, c.key)
		if t := p.trades[c.rule]; t != nil && pass == 1 {
			t.measure(hash, at, c.cost)
		} else if t != nil && !t.done {
			p.weigh(t, hash, at, r, c)
		}
		for _, one := range p.byRule[c.rule] {
			if one.result.least {
				continue
			}
			if one.rungs == nil {
				p.measure(one, hash, at, r, c)
			} else if one.mayExceed(hash) {
				p.climb(one, hash, at, r, c)
			}
		}
	}
}

// ask decides on a request by one limit.
func (p *probes) ask(limit *core.Rule, at int64, r *request, c *check) *rate.Decision {
	p.checks[0] = core.Check{Rule: limit, Key: c.key, Cost: c.cost}
	p.player.decide(at, r, p.checks[:], &p.v)
	return &p.checks[0].Decision
}

// measure notes the most that a client has used.
func (p *probes) measure(one *probe, hash uint64, at int64, r *request, c *check) {
	d := p.ask(one.limit, at, r, c)
	used := uint32(beyond)
	if d.Allowed {
		used = uint32(d.Limit - d.Remaining)
	}
	one.used[hash] = max(one.used[hash], used)
}

// mayExceed reports whether a client may have exceeded any of the rungs. It cannot have where its windows say that all of them suffice:
// within any time of n periods it has used at most n+2 windows' most, and a bucket lets through n periods' requests and a burst.
func (one *probe) mayExceed(hash uint64) bool {
	lowest := one.rungs[0]
	burst := min(one.ratio, one.patience) - 1/float64(lowest) // of which the whole part is taken
	if burst <= 0 {
		return true
	}
	most := max(1, 2/burst)
	if one.text.Lists["count"] != nil || one.text.Objects["count_match"] != nil { // and what is reserved beside it
		most += 1 / burst
	}
	return float64(one.used[hash])*most+1 >= float64(lowest)
}

// climb notes which of the rungs a client has exceeded. Of those that it has, all below are, too.
func (p *probes) climb(one *probe, hash uint64, at int64, r *request, c *check) {
	reached := one.reached[hash]
	for i := len(one.rungs) - 1; i >= int(reached); i-- {
		if d := p.ask(one.ladder[i], at, r, c); !d.Allowed {
			one.reached[hash] = uint8(i + 1)
			return
		}
	}
}

// finish runs all events that are left.
func (p *probes) finish() { p.player.finish() }

// next turns the measurements of a pass into suggestions, or into limits for another pass. once says that the logs can be read only once, and span how
// much time they cover.
func (p *probes) next(pass int, once bool, span int64) (again bool, err error) {
	var open []*core.Rule
	for _, t := range p.trades {
		switch {
		case t == nil:
		case pass > 1:
			t.conclude()
		default:
			if once && !t.done {
				t.refuse("standard input can be read once, and this takes two passes; name files")
			}
			ways, err := t.open(span)
			if err != nil {
				return false, err
			}
			for _, one := range ways {
				again = true
				open = append(open, one.limit)
			}
		}
	}
	for _, one := range p.list {
		if one.result.least {
			continue
		}
		rungs := one.conclude(p.share)
		if rungs == nil {
			continue
		}
		again = true
		one.rungs, one.ladder = rungs, nil
		one.reached = make(map[uint64]uint8)
		for _, n := range rungs {
			text := counting(one.text, p.own[one.rule].Limit)
			ruleset.SetText(&text.Object, "limit", fmt.Sprintf("%d/%s", n, one.period))
			if burst := one.burst(n); burst > 0 {
				ruleset.SetText(&text.Object, "burst", strconv.FormatInt(burst, 10))
			}
			limit, err := one.compile(text, strconv.FormatInt(n, 10))
			if err != nil {
				return false, err
			}
			one.ladder = append(one.ladder, limit)
			open = append(open, limit)
		}
	}
	if again {
		p.player, err = newPlayer(open)
	}
	return again, err
}

// counting returns what a rule says of how it counts: of on_limit delay neither that nor its max_delay.
func counting(text *ruleset.RuleText, limit *rate.Limit) *ruleset.RuleText {
	some := ruleset.Only(text, ruleset.Counting...)
	if !limit.Queues {
		delete(some.Texts, "max_delay")
	}
	return some
}

// conclude finds the limit, or returns the limits to try next.
func (one *probe) conclude(share float64) []int64 {
	s := &one.result
	s.Clients = int64(len(one.used))
	if s.Clients == 0 {
		s.least = true
		s.Note = "no request of the logs has come under it"
		return nil
	}
	spare := int64(share*float64(s.Clients) + 1e-9)
	if one.rungs == nil {
		used := slices.AppendSeq(make([]uint32, 0, len(one.used)), maps.Values(one.used))
		slices.SortFunc(used, func(a, b uint32) int { return cmp.Compare(b, a) })
		least := used[spare]
		if one.bucket {
			return one.firstRungs(least)
		}
		if least == beyond {
			s.least = true
			s.Note = fmt.Sprintf("more than %d would be needed, which is the most that a sliding_window_log can have", rate.MaxLogRequests)
			return nil
		}
		one.found(max(int64(least), 1), int64(slices.Index(used, least))) // those before it have used more
		return nil
	}
	exceeded := make([]int64, len(one.rungs)) // by how many clients each rung was
	for _, n := range one.reached {
		for i := range int(n) {
			exceeded[i]++
		}
	}
	for i, n := range one.rungs {
		if exceeded[i] > spare {
			one.low = n
			continue
		}
		one.high = n
		s.Touched = exceeded[i]
		break
	}
	if one.high-one.low <= 1 {
		if one.high > rate.MaxRequests {
			s.least = true
			s.Note = "no limit would do"
			return nil
		}
		one.found(one.high, s.Touched)
		return nil
	}
	return spread(one.low+1, one.high-1)
}

// firstRungs returns the limits within which a bucket's lies, when the clients that may be touched least have used so much in a window. It
// is that or somewhat less, by the burst that there is, or up to twice as much where the edges of two windows meet.
func (one *probe) firstRungs(used uint32) []int64 {
	burst := min(one.ratio, one.patience)
	from := int64(float64(used)/(one.ratio+1)) - 1
	to := float64(used)*max(1, 2/burst) + 2
	if math.IsInf(to, 1) || math.IsNaN(to) || to > float64(one.high-1) {
		to = float64(one.high - 1)
	}
	return spread(max(from, 1), max(int64(to), from, 1))
}

// spread returns at most mostRungs numbers, including both bounds: in equal steps, or in equal proportions if the bounds are far apart.
func spread(from, to int64) []int64 {
	var list []int64
	steps := min(to-from, mostRungs-1)
	for i := range steps {
		n := from + i*(to-from)/steps
		if to-from > steps && to/from > 8 {
			n = int64(math.Round(float64(from) * math.Pow(float64(to)/float64(from), float64(i)/float64(steps))))
		}
		list = append(list, n)
	}
	return slices.Compact(append(list, to))
}

// found notes the limit.
func (one *probe) found(requests, touched int64) {
	s := &one.result
	s.least = true
	s.Requests = requests
	s.Touched = touched
	s.Share = float64(touched) / float64(s.Clients)
	s.Limit = strconv.FormatInt(requests, 10)
	if !one.alone {
		s.Limit += "/" + one.period
	}
	if one.bucket {
		s.Burst = one.burst(requests)
	}
}

// mostPasses is how often logs are read for suggestions at most. Each pass makes the bounds 60 times narrower.
const mostPasses = 8

// suggest ends the first pass, and reads the logs again as long as that helps.
func (p *replay) suggest(ctx context.Context) error {
	for {
		p.probes.finish()
		again, err := p.probes.next(p.pass, slices.Contains(p.config.Logs, standardInput), p.last-p.first)
		if err != nil {
			return err
		}
		if !again || p.pass == mostPasses {
			break
		}
		p.pass++
		clear(p.seen)
		p.read.Store(0)
		p.order = order{leave: p.order.leave, step: p.order.step}
		if err := p.readAll(ctx); err != nil {
			return err
		}
	}
	var list []Suggestion
	for i, ofRule := range p.probes.byRule {
		if len(ofRule) == 0 {
			list = append(list, Suggestion{Rule: p.sides[0].rules.texts[i].Name, Of: "limit", Now: "unlimited", Note: "has no limit of its own"})
		}
		for _, one := range ofRule {
			s := one.result
			if !s.least { // not reached but with a log that changes while it is read
				s.Inexact = true
				s.Note = fmt.Sprintf("between %d and %d", one.low, one.high)
			}
			list = append(list, s)
		}
	}
	for _, t := range p.probes.trades {
		if t != nil {
			p.report.Trades = append(p.report.Trades, &t.result)
		}
	}
	p.report.Suggestions, p.report.Passes = list, p.pass
	return nil
}
