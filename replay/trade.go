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
	Unseen     *Saving `json:"unseen,omitempty"`        // what the suggested way does in the half of the logs that has not chosen it
	Seen       string  `json:"unseen_note,omitempty"`   // why there is none
}

// Saving compares what a way rejects of legitimate clients with what the rule's own does.
type Saving struct {
	Now     int64   `json:"rejected_now"`          // requests
	Touched int64   `json:"touched_now"`           // clients of which something is rejected now
	Less    int64   `json:"rejected_less"`         // requests of Now, of clients of which the way rejects less
	Share   float64 `json:"less_share"`            // Less / Now
	Margin  float64 `json:"less_margin"`           // by how much Share may differ in other logs of such clients
	Spared  int64   `json:"clients_spared"`        // those of Touched of which the way rejects nothing
	More    int64   `json:"rejected_more"`         // requests of clients of which the way rejects more
	Harmed  int64   `json:"clients_rejected_more"` // their number
	sure    bool    // Less is clearly above More
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

// The definitions of docs/replay.md, "The way to count that rejects least".
const (
	longRun      = 10 // periods in which a legitimate client keeps to the limit on average
	leastRuns    = 2  // so many times longRun must the logs cover
	unseenRuns   = 4  // so many, so that one half of them chooses and the other measures
	slots        = 20 // a peak is of periods that begin at a twentieth of one
	leastSpared  = 10 // requests of legitimate clients that a suggestion must spare, at least
	leastKeys    = 5  // clients that the rule's own limit must touch of them
	mostNear     = 10_000
	marginErrors = 4 // standard errors in a margin
	marginAlike  = 3 // where all of n clients are alike, 3/n of others may not be
	sureErrors   = 2 // in what is clear
	secondLong   = 1_000_000
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
	span    int64 // of the logs
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
	rejected        [2]int64 // of a legitimate client, in each half of the logs
	slot            int64    // the present one
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
	t.span = span
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
		if got.rejected == [2]int64{} {
			w.Touched++
		}
		got.rejected[at/t.limit.Period/longRun%2]++
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
	case tooFew(now.Legitimate, now.Touched):
		t.result.Note = "it rejects " + rejections(now.Legitimate, now.Touched) + ": too few to choose by"
		return
	}
	chooses, measures := [2]bool{true, false}, [2]bool{false, true}
	if t.result.Seen = t.indivisible(); t.result.Seen != "" {
		chooses, measures = [2]bool{true, true}, [2]bool{true, true}
	}
	best, most := 0, int64(0)
	for i := range ways {
		w := &ways[i]
		s := t.saving(i, chooses)
		saved := s.Less - s.More
		if w.Touched <= now.Touched && w.protects(now, t.limit) && (saved > most || saved == most && w.Peak < ways[best].Peak) {
			best, most = i, saved
		}
	}
	s := t.saving(best, measures)
	if s.Less-s.More < leastSpared || !s.sure {
		t.result.Note = "no other way is clearly better at the same protection"
		t.result.Seen = ""
		return
	}
	ways[best].Suggested = true
	if t.result.Seen == "" {
		t.result.Unseen = s
	}
}

// indivisible says why the logs have no half that could measure what the other has chosen, "" if they have. The halves alternate with each run of periods,
// so that each has its share of night and day.
func (t *trade) indivisible() string {
	if least := longRun * unseenRuns * t.limit.Period; t.span < least {
		return fmt.Sprintf("the logs cover %s, and that takes %s", roughly(t.span), roughly(least))
	}
	for half := range 2 {
		s := t.saving(0, [2]bool{half == 0, half == 1})
		if tooFew(s.Now, s.Touched) {
			return "in one of the halves it rejects " + rejections(s.Now, s.Touched)
		}
	}
	return ""
}

// saving compares a way with the rule's own in some halves of the logs. Its errors are those of a ratio of sums over clients: a few clients may make
// most of what is rejected, and other clients come the next day.
func (t *trade) saving(way int, halves [2]bool) *Saving {
	s := &Saving{}
	var nowNow, lessLess, lessNow, allAll, allNow float64 // sums of products over clients
	for _, key := range t.near {
		if !key.legitimate || key.loads == nil {
			continue
		}
		var now, then int64
		for half, asked := range halves {
			if asked {
				now += key.loads[0].rejected[half]
				then += key.loads[way].rejected[half]
			}
		}
		less := max(now-then, 0)
		s.Now += now
		s.Less += less
		s.More += max(then-now, 0)
		s.Touched += int64(index(now > 0))
		s.Spared += int64(index(now > 0 && then == 0))
		s.Harmed += int64(index(then > now))
		n, l, a := float64(now), float64(less), float64(now-then)
		nowNow, lessLess, lessNow, allAll, allNow = nowNow+n*n, lessLess+l*l, lessNow+l*n, allAll+a*a, allNow+a*n
	}
	if n := float64(s.Now); n > 0 {
		deviation := func(share, squares, products float64) float64 {
			return math.Sqrt(max(squares-2*share*products+share*share*nowNow, 0)) / n
		}
		s.Share = float64(s.Less) / n
		s.Margin = min(max(marginErrors*deviation(s.Share, lessLess, lessNow), marginAlike*nowNow/n/n), 1)
		inAll := float64(s.Less-s.More) / n
		s.sure = inAll > sureErrors*deviation(inAll, allAll, allNow)
	}
	return s
}

// rejections writes numbers.
func rejections(requests, clients int64) string {
	return fmt.Sprintf("%s of %s", plural(requests, "request", "requests"), plural(clients, "legitimate client", "legitimate clients"))
}

// tooFew reports whether so many rejected requests of so many clients are too little to choose by.
func tooFew(requests, clients int64) bool { return requests < leastSpared || clients < leastKeys }

// protects reports whether a way gives no client more than the rule's own limit does: by what clients could do, and by what they did. A peak that the
// limit itself grants anybody is none.
func (w *Way) protects(now *Way, limit *rate.Limit) bool {
	return w.AtMost <= now.AtMost && w.Second <= max(now.Second, limit.Quota) && w.Peak <= max(now.Peak, limit.Requests) && w.Long <= max(now.Long, longRun*limit.Requests)
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

// said says what is promised of the suggested way, in sentences; none if none is suggested.
func (t *Trade) said() []string {
	i := slices.IndexFunc(t.Ways, func(w Way) bool { return w.Suggested })
	if i < 0 {
		return nil
	}
	way, u := t.Ways[i].Counted(), t.Unseen
	_, long := t.periods()
	if u == nil {
		return []string{fmt.Sprintf("%s was chosen on all of the logs. Nothing is promised, since no half of them can measure what the other has chosen: %s.", way, t.Seen)}
	}
	more := "It rejects nothing more of any client."
	if u.Harmed > 0 {
		more = fmt.Sprintf("It rejects %s more of %s. With other clients that may be none, or several times as many.", plural(u.More, "request", "requests"), plural(u.Harmed, "client", "clients"))
	}
	share := fmt.Sprintf("%.0f %%, ± %.0f with other clients", 100*u.Share, math.Ceil(100*u.Margin))
	if u.Margin >= u.Share {
		share = "too few clients make that to promise a share"
	}
	return []string{
		fmt.Sprintf("%s was chosen on one half of the logs: every other %s.", way, long),
		fmt.Sprintf("On the other half, which the suggestion did not see, it spares %s of %s that are rejected now: %s.", grouped(u.Less), plural(u.Now, "request", "requests"), share),
		fmt.Sprintf("It rejects nothing of %s of the %s that something is rejected of now.", grouped(u.Spared), plural(u.Touched, "client", "clients")),
		more,
	}
}

// periods writes how long a period is, and longRun of them.
func (t *Trade) periods() (one, long string) {
	micros := time.Duration(t.Period * float64(time.Second)).Round(time.Microsecond)
	return rate.FormatPeriod(micros), rate.FormatPeriod(longRun * micros)
}

// choices returns the rule's own way, and those that reject less of legitimate clients and have the least peaks of such; none where there is too
// little to choose by.
func (t *Trade) choices() []*Way {
	if len(t.Ways) == 0 || tooFew(t.Ways[0].Legitimate, t.Ways[0].Touched) {
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
