package replay

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
)

// Trade compares ways to count with a rule's own: how much each would have rejected of clients that keep to the limit in the long run, and how much
// it would have let any client have. Each way is by itself, as in Suggestion.
type Trade struct {
	Rule       string  `json:"rule"`
	Clients    int64   `json:"clients"`
	Legitimate int64   `json:"legitimate_clients"`  // of them: those that never ask for more than longRun times the limit in as many periods
	Requests   int64   `json:"legitimate_requests"` // of these clients
	Period     float64 `json:"period_seconds"`
	OneIn      int64   `json:"one_client_in,omitempty"` // of the clients near a limit, one in so many is replayed; 0: all are
	Ways       []Way   `json:"ways"`                    // the first is the rule's own
	Note       string  `json:"note,omitempty"`          // why nothing is suggested, or compared
}

// Way is a limit with its algorithm. Peaks are units: what requests cost.
type Way struct {
	Limit      string `json:"limit"`
	Algorithm  string `json:"algorithm"`
	Burst      int64  `json:"burst,omitempty"`
	Segments   int64  `json:"segments,omitempty"`
	Legitimate int64  `json:"legitimate_rejected"` // requests of legitimate clients
	Touched    int64  `json:"legitimate_touched"`  // legitimate clients
	Rejected   int64  `json:"rejected"`            // requests of all clients
	AtMost     int64  `json:"at_most"`             // what a client can have in any period, whatever it does
	Second     int64  `json:"peak_second"`         // the most that a client got in a second
	Peak       int64  `json:"peak_period"`         // in a period
	Long       int64  `json:"peak_ten_periods"`
	Now        bool   `json:"now,omitempty"`
	Suggested  bool   `json:"suggested,omitempty"`
	Front      bool   `json:"front,omitempty"` // no other way has less of Legitimate or Peak, and no more of the other
}

// The definitions of docs/replay.md.
const (
	longRun     = 10 // periods in which a legitimate client keeps to the limit on average
	leastRuns   = 2  // so many times longRun must the logs cover
	slots       = 20 // a peak is of periods that begin at a twentieth of one
	leastSpared = 10 // requests of legitimate clients that a suggestion must spare, at least
	leastKeys   = 5  // clients that the rule's own limit must touch of them
	mostNear    = 10_000
	secondLong  = 1_000_000
)

// trade makes a Trade: the first pass measures what each client asks for, the second decides by all ways.
type trade struct {
	rule    int // its place
	text    *ruleset.RuleText
	period  string // as it is written
	limit   *rate.Limit
	demands map[uint64]*demand
	probes  []*probe // of the ways, for compile and ask
	near    map[uint64]*nearKey
	done    bool
	result  Trade
}

// demand is what a client asks for. Periods and runs of them count from the epoch.
type demand struct {
	period, run         int64 // the present ones
	inPeriod, inRun     int64
	mostPeriod, mostRun int64
	requests            int64
}

// nearKey is a client that some way might reject.
type nearKey struct {
	legitimate bool
	loads      []load
}

// load is what a client got by one way.
type load struct {
	touched         bool
	slot            int64 // the present one
	slots           [slots]int64
	sum             int64 // of slots
	second, run     int64
	inSecond, inRun int64
}

// newTrade returns the trade of a rule whose limit a probe finds.
func newTrade(p *probe, limit *rate.Limit) *trade {
	t := &trade{rule: p.rule, text: p.text, period: p.period, limit: limit, demands: make(map[uint64]*demand)}
	t.result = Trade{Rule: p.text.Name, Period: float64(limit.Period) / 1e6, Ways: []Way{}}
	switch {
	case limit.Calendar != nil:
		t.refuse("the limit follows the calendar, which only a fixed_window can")
	case p.text.Objects["count_match"] != nil:
		t.refuse("what is counted is only a part of what is limited (count_match)")
	case p.text.Lists["count"] != nil:
		t.refuse("what is counted is known only after the response (count)")
	}
	return t
}

// refuse ends the trade with the reason.
func (t *trade) refuse(why string, args ...any) {
	t.done = true
	t.result.Note = fmt.Sprintf(why, args...)
}

// measure notes what a client asks for, in the first pass.
func (t *trade) measure(hash uint64, at, cost int64) {
	d := t.demands[hash]
	if d == nil {
		d = &demand{}
		t.demands[hash] = d
	}
	d.requests++
	count(&d.period, &d.inPeriod, &d.mostPeriod, at/t.limit.Period, cost)
	count(&d.run, &d.inRun, &d.mostRun, at/t.limit.Period/longRun, cost)
}

// count adds units to those of a stretch of time, and keeps the most of any.
func count(now, in, most *int64, stretch, units int64) {
	if *now != stretch {
		*now, *in = stretch, 0
	}
	*in += units
	*most = max(*most, *in)
}

// open ends the first pass over logs of that length. It returns the limits of the second, none if there is nothing to find out.
func (t *trade) open(span int64) ([]*probe, error) {
	s := &t.result
	least := longRun * leastRuns * t.limit.Period
	s.Clients = int64(len(t.demands))
	for _, d := range t.demands {
		if d.mostRun <= longRun*t.limit.Requests {
			s.Legitimate++
			s.Requests += d.requests
		}
	}
	switch {
	case t.done:
	case s.Clients == 0:
		t.refuse("no request of the logs has come under it")
	case span < least:
		t.refuse("the logs cover %s: too little to tell who keeps to the limit in the long run, which takes %d periods, %s", roughly(span), longRun*leastRuns, roughly(least))
	case s.Legitimate == 0:
		t.refuse("no client keeps to the limit in the long run")
	}
	if t.done {
		return nil, nil
	}
	if err := t.makeWays(); err != nil {
		return nil, err
	}
	capacity := int64(math.MaxInt64)
	for _, p := range t.probes {
		capacity = min(capacity, p.limit.Limit.Requests, p.limit.Limit.Quota)
	}
	t.near = make(map[uint64]*nearKey)
	for hash, d := range t.demands {
		if 2*d.mostPeriod > capacity { // else it has at most 2 u in any period, and no way rejects it
			t.near[hash] = &nearKey{legitimate: d.mostRun <= longRun*t.limit.Requests}
		}
	}
	t.demands = nil
	if len(t.near) > mostNear {
		s.OneIn = int64((len(t.near) + mostNear - 1) / mostNear)
	}
	return t.probes, nil
}

// roughly writes a length of time in whole units.
func roughly(micros int64) string { return shortDuration(math.Round(float64(micros) / 1e6)) }

// makeWays makes the rule's own way, and those that are tried beside it.
func (t *trade) makeWays() error {
	l := t.limit
	if err := t.add(counting(t.text, l), l.Requests, l.Burst); err != nil {
		return err
	}
	t.result.Ways[0].Now = true
	for _, algorithm := range []rate.Algorithm{rate.FixedWindow, rate.SlidingWindowCounter, rate.SlidingWindowSegments, rate.SlidingWindowLog} {
		for _, percent := range []int64{75, 100, 125, 150} {
			text := &ruleset.RuleText{}
			ruleset.SetText(&text.Object, "algorithm", algorithm.String())
			if algorithm == rate.SlidingWindowSegments {
				ruleset.SetText(&text.Object, "segments", "10")
			}
			if err := t.add(text, l.Requests*percent/100, 0); err != nil {
				return err
			}
		}
	}
	buckets := []rate.Algorithm{rate.TokenBucket}
	if l.Queues { // else a client would have to wait, which the rule does not ask of it
		buckets = append(buckets, rate.LeakyBucket)
	}
	for _, algorithm := range buckets {
		for _, percent := range []int64{50, 75, 100} {
			for _, burst := range []int64{100, 125, 150, 200, 300} {
				text := &ruleset.RuleText{}
				if algorithm == rate.LeakyBucket {
					text = ruleset.Only(t.text, "max_delay")
				}
				ruleset.SetText(&text.Object, "algorithm", algorithm.String())
				if err := t.add(text, l.Requests*percent/100, l.Requests*burst/100); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// add adds a way, unless it is there already, or no limit can be so.
func (t *trade) add(text *ruleset.RuleText, requests, burst int64) error {
	p := &probe{rule: t.rule, text: t.text}
	p.result.Of = "trade"
	if requests < 1 {
		return nil
	}
	ruleset.SetText(&text.Object, "limit", fmt.Sprintf("%d/%s", requests, t.period))
	if burst > 0 {
		ruleset.SetText(&text.Object, "burst", strconv.FormatInt(burst, 10))
	}
	limit, err := p.compile(text, strconv.Itoa(len(t.probes)))
	if err != nil {
		if len(t.probes) > 0 { // beyond what the algorithm can have
			return nil
		}
		return err
	}
	l := limit.Limit
	w := Way{Limit: fmt.Sprintf("%d/%s", l.Requests, t.period), Algorithm: l.Algorithm.String(), Burst: l.Burst, Segments: l.Segments(), AtMost: mostOf(l)}
	for i := range t.result.Ways {
		if o := &t.result.Ways[i]; o.Limit == w.Limit && o.Algorithm == w.Algorithm && o.Burst == w.Burst && o.Segments == w.Segments && !(i == 0 && l.Interval() != t.limit.Interval()) {
			return nil
		}
	}
	p.limit = limit
	t.probes = append(t.probes, p)
	t.result.Ways = append(t.result.Ways, w)
	return nil
}

// mostOf returns what a client can have by a limit in any one period. docs/algorithms.md has why.
func mostOf(l *rate.Limit) int64 {
	switch l.Algorithm {
	case rate.SlidingWindowLog:
		return l.Requests
	case rate.TokenBucket:
		return l.Requests + l.Burst
	case rate.LeakyBucket:
		return l.Requests + 1
	}
	return 2 * l.Requests
}

// weigh decides a request by each of the ways, in the second pass.
func (p *probes) weigh(t *trade, hash uint64, at int64, r *request, c *check) {
	key := t.near[hash]
	if key == nil || t.result.OneIn > 1 && !drawn(c.key, t.result.OneIn) {
		return
	}
	if key.loads == nil {
		key.loads = make([]load, len(t.probes))
	}
	for i, one := range t.probes {
		w, got := &t.result.Ways[i], &key.loads[i]
		d := p.ask(one.limit, at, r, c)
		if d.Allowed {
			got.add(w, at+d.Delay, c.cost, t.limit.Period)
			continue
		}
		w.Rejected++
		if !key.legitimate {
			continue
		}
		w.Legitimate++
		if !got.touched {
			got.touched = true
			w.Touched++
		}
	}
}

// drawn reports whether a key is one of those in a sample of one in so many: the same in each run.
func drawn(key string, oneIn int64) bool {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key))
	return h.Sum64()%uint64(oneIn) == 0
}

// add counts units that a client got.
func (g *load) add(w *Way, at, units, period int64) {
	slot := at / max(period/slots, 1)
	if slot < g.slot || slot >= g.slot+slots {
		g.slots, g.sum, g.slot = [slots]int64{}, 0, slot
	}
	for g.slot < slot {
		g.slot++
		g.sum -= g.slots[g.slot%slots]
		g.slots[g.slot%slots] = 0
	}
	g.slots[slot%slots] += units
	g.sum += units
	w.Peak = max(w.Peak, g.sum)
	count(&g.second, &g.inSecond, &w.Second, at/secondLong, units)
	count(&g.run, &g.inRun, &w.Long, at/period/longRun, units)
}

// conclude ends the second pass.
func (t *trade) conclude() {
	if t.done {
		return
	}
	t.done = true
	ways := t.result.Ways
	for i := range ways {
		ways[i].Front = true
		for j := range ways {
			o, w := &ways[j], &ways[i]
			if o.Legitimate <= w.Legitimate && o.Peak <= w.Peak && (o.Legitimate < w.Legitimate || o.Peak < w.Peak || o.AtMost < w.AtMost || o.AtMost == w.AtMost && j < i) {
				w.Front = false
				break
			}
		}
	}
	now := &ways[0]
	switch {
	case now.Legitimate == 0:
		t.result.Note = "it rejects nothing of clients that keep to the limit in the long run"
		return
	case now.tooFew():
		t.result.Note = fmt.Sprintf("it rejects %s of %s: too few to choose by", plural(now.Legitimate, "request", "requests"), plural(now.Touched, "legitimate client", "legitimate clients"))
		return
	}
	best := now
	for i := range ways {
		if w := &ways[i]; w.Touched <= now.Touched && w.protects(now, t.limit) && w.before(best) {
			best = w
		}
	}
	if spared := float64(now.Legitimate - best.Legitimate); spared < leastSpared || spared < 3*math.Sqrt(float64(now.Legitimate)) {
		t.result.Note = "no other way is clearly better at the same protection"
		return
	}
	best.Suggested = true
}

// tooFew reports whether what the rule's own way rejects is too little to choose by.
func (w *Way) tooFew() bool { return w.Legitimate < leastSpared || w.Touched < leastKeys }

// protects reports whether a way gives no client more than the rule's own limit does: by what clients could do, and by what they did. A peak that the
// limit itself grants anybody is none.
func (w *Way) protects(now *Way, limit *rate.Limit) bool {
	return w.AtMost <= now.AtMost && w.Second <= max(now.Second, limit.Quota) && w.Peak <= max(now.Peak, limit.Requests) && w.Long <= max(now.Long, longRun*limit.Requests)
}

// before reports whether a way is better than another that protects as well.
func (w *Way) before(o *Way) bool {
	if w.Legitimate != o.Legitimate {
		return w.Legitimate < o.Legitimate
	}
	return w.Peak < o.Peak
}

// Counted writes a way to count in a few words.
func (w *Way) Counted() string {
	text := w.Limit + " " + w.Algorithm
	switch {
	case w.Segments > 0:
		text += " segments " + strconv.FormatInt(w.Segments, 10)
	case w.Burst > 0:
		text += " burst " + strconv.FormatInt(w.Burst, 10)
	}
	return text
}

// Mark says what a way is.
func (w *Way) Mark() string {
	var marks []string
	if w.Now {
		marks = append(marks, "now")
	}
	if w.Suggested {
		marks = append(marks, "suggested")
	}
	return strings.Join(marks, ", ")
}

// periods writes how long a period is, and longRun of them.
func (t *Trade) periods() (one, long string) {
	micros := time.Duration(t.Period * float64(time.Second)).Round(time.Microsecond)
	return rate.FormatPeriod(micros), rate.FormatPeriod(longRun * micros)
}

// choices returns the rule's own way, and those that reject less of legitimate clients and have the least peaks of such; none where there is too
// little to choose by.
func (t *Trade) choices() []*Way {
	if len(t.Ways) == 0 || t.Ways[0].tooFew() {
		return nil
	}
	now := &t.Ways[0]
	list := []*Way{now}
	for i := range t.Ways[1:] {
		if w := &t.Ways[i+1]; w.Suggested || w.Front && w.Legitimate < now.Legitimate {
			list = append(list, w)
		}
	}
	slices.SortStableFunc(list[1:], func(a, b *Way) int { return cmp.Compare(a.Peak, b.Peak) })
	return list
}
