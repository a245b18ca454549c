package memory

import (
	"fmt"
	"hash/maphash"
	"math"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/underrace"
)

// interpreted says that Yaegi runs the tests. A file that Yaegi leaves out sets it to false.
var interpreted = true

// oracleDecisions returns how many decisions of each algorithm to compare with its oracle, and a seed. WEIR_ORACLE (1e6) and
// WEIR_ORACLE_SEED set them.
func oracleDecisions(t *testing.T) (decisions int, seed int64) {
	decisions, seed = 100_000, 1
	if interpreted {
		decisions = 1_500
	}
	if s := os.Getenv("WEIR_ORACLE"); s != "" {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			t.Fatalf("WEIR_ORACLE: %v", err)
		}
		decisions = int(f)
	}
	if s := os.Getenv("WEIR_ORACLE_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseInt(s, 10, 64); err != nil {
			t.Fatalf("WEIR_ORACLE_SEED: %v", err)
		}
	}
	return decisions, seed
}

func TestTokenBucketAgreesWithItsOracle(t *testing.T) {
	underrace.OneGoroutine(t)
	againstOracle(t, numbers{algorithm: rate.TokenBucket})
}

func TestTokenBucketWithIntervalRefillAgreesWithItsOracle(t *testing.T) {
	underrace.OneGoroutine(t)
	againstOracle(t, numbers{algorithm: rate.TokenBucket, interval: true})
}

func TestLeakyBucketAgreesWithItsOracle(t *testing.T) {
	underrace.OneGoroutine(t)
	againstOracle(t, numbers{algorithm: rate.LeakyBucket})
}

func TestFixedWindowAgreesWithItsOracle(t *testing.T) {
	underrace.OneGoroutine(t)
	againstOracle(t, numbers{algorithm: rate.FixedWindow})
}

func TestSlidingWindowLogAgreesWithItsOracle(t *testing.T) {
	underrace.OneGoroutine(t)
	againstOracle(t, numbers{algorithm: rate.SlidingWindowLog})
}

func TestSlidingWindowCounterAgreesWithItsOracle(t *testing.T) {
	underrace.OneGoroutine(t)
	againstOracle(t, numbers{algorithm: rate.SlidingWindowCounter})
}

func TestWindowsOfAKeysOwnAgreeWithTheirOracle(t *testing.T) {
	underrace.OneGoroutine(t)
	againstOracle(t, numbers{algorithm: rate.FixedWindow, start: rate.FirstRequest})
	againstOracle(t, numbers{algorithm: rate.FixedWindow, start: rate.Spread})
	againstOracle(t, numbers{algorithm: rate.SlidingWindowCounter, start: rate.Spread})
	againstOracle(t, numbers{algorithm: rate.SlidingWindowCounter, start: rate.Spread, segments: 6})
}

// The windows of the calendar are found a second time from the date of every half hour of ten weeks in which clocks change: at
// night in Berlin, at midnight in São Paulo.
func TestFixedWindowOfTheCalendarAgreesWithItsOracle(t *testing.T) {
	underrace.OneGoroutine(t)
	decisions, seed := oracleDecisions(t)
	r := rand.New(rand.NewSource(seed))
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/Sao_Paulo"} {
		location := loadZone(t, zone)
		if location == nil {
			continue
		}
		first := time.Date(2018, 9, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
		for _, on := range []struct {
			unit rate.Calendar
			on   int
		}{{rate.Day, 0}, {rate.Week, 0}, {rate.Month, 0}, {rate.Week, 7}, {rate.Month, 17}} {
			unit := on.unit
			bounds := naiveBounds(unit, on.on, location, first, 70*48)
			tally := &tally{}
			for tally.decisions < decisions/15 {
				h := newHistory(r, numbers{algorithm: rate.FixedWindow, bounds: bounds, requests: 1 + r.Int63n(5)}, tally)
				h.config = rate.LimitConfig{Algorithm: rate.FixedWindow, Calendar: unit, On: on.on, Location: location}
				h.low, h.high = bounds[0], bounds[len(bounds)-1]
				h.now = h.low + r.Int63n(h.high-h.low)
				h.n.period = mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: 1, Calendar: unit, Location: location}).Period
				if err := h.run(60); err != nil {
					t.Fatalf("seed %d, %s on %d in %s: %v", seed, unit.String(), on.on, zone, err)
				}
			}
			t.Logf("%s on %d in %s: %s", unit.String(), on.on, zone, tally.String())
		}
	}
}

// naiveBounds lists the half hours at which the date enters another unit, between the first and the last such one. A day on which months begin is at most
// 28, and one on which weeks begin is 7.
func naiveBounds(unit rate.Calendar, on int, location *time.Location, first int64, halfHours int) []int64 {
	var bounds []int64
	before := ""
	for i := 0; i < halfHours; i++ {
		at := first + int64(i)*30*60*1_000_000
		date := time.UnixMicro(at).In(location)
		label := date.Format("2006-01-02")
		if unit == rate.Week {
			if on == 7 {
				date = date.AddDate(0, 0, 1)
			}
			year, week := date.ISOWeek()
			label = fmt.Sprint(year, "-", week)
		} else if unit == rate.Month {
			if on > 1 {
				date = date.AddDate(0, 0, 1-on)
			}
			label = date.Format("2006-01")
		}
		if before != "" && label != before {
			bounds = append(bounds, at)
		}
		before = label
	}
	return bounds
}

func againstOracle(t *testing.T, n numbers) {
	decisions, seed := oracleDecisions(t)
	r := rand.New(rand.NewSource(seed))
	tally := &tally{}
	for histories := 1; tally.decisions < decisions; histories++ {
		randomNumbers(r, &n)
		h := newHistory(r, n, tally)
		h.low, h.high = 1_000_000_000_000, 7_000_000_000_000_000
		h.now = 1_600_000_000_000_000 + r.Int63n(200_000_000_000_000)
		if err := h.run(60); err != nil {
			t.Fatalf("seed %d, history %d: %v", seed, histories, err)
		}
	}
	t.Logf("seed %d: %s", seed, tally.String())
	if tally.late*100_000 > tally.random {
		t.Errorf("%d of %d decisions refuse what the oracle admits: more than one of 100,000", tally.late, tally.random)
	}
	if !n.interval && n.segments == 0 && n.start == rate.ByClock && tally.fastPath < tally.decisions/100 {
		t.Errorf("%d of %d decisions were made by the fast path", tally.fastPath, tally.decisions)
	}
	if refused := tally.decisions - tally.allowed; !n.interval && n.segments == 0 && n.start == rate.ByClock && tally.rejected < refused/400 {
		t.Errorf("%d of %d rejections were made by the shortcut", tally.rejected, refused)
	}
}

// tally counts what was compared.
type tally struct {
	decisions int // all decisions
	allowed   int
	random    int // at random instants, as opposed to instants chosen because they are an edge
	late      int // rejected at random instants, though the oracle allows them
	lateEdge  int // the same at the other instants
	fastPath  int // decided by the fast path
	rejected  int // decided by the shortcut for rejections, too
}

func (t *tally) String() string {
	return fmt.Sprintf("%d decisions, %d allowed; rejected though the oracle allows: %d of %d at random instants, %d of %d at the edge; %d by the fast path",
		t.decisions, t.allowed, t.late, t.random, t.lateEdge, t.decisions-t.random, t.fastPath)
}

// history is a random sequence of requests of one key, decided by a Store and by an oracle.
type history struct {
	r             *rand.Rand
	n             numbers
	config        rate.LimitConfig // the parts of the limit that are not in n
	oracle        oracle
	store         *Store
	rule          *core.Rule
	fastPath      *FastPath // nil if there is none
	now           int64
	low, high     int64 // the bounds of the clock
	countRejected bool
	changes       bool
	viewers       bool     // a changed limit is open together with the earlier ones, and each request comes under one of them
	others        []viewer // limits that are open besides h.n's
	edge          bool
	trace         []string
	tally         *tally
}

// viewer is an open limit.
type viewer struct {
	n        numbers
	rule     *core.Rule
	fastPath *FastPath
}

// view chooses one of the open limits for the next request.
func (h *history) view() {
	if i := h.r.Intn(len(h.others) + 1); i < len(h.others) {
		other := h.others[i]
		h.others[i] = viewer{h.n, h.rule, h.fastPath}
		h.n = other.n
		h.rule = other.rule
		h.fastPath = other.fastPath
	}
}

func newHistory(r *rand.Rand, n numbers, t *tally) *history {
	h := &history{r: r, n: n, oracle: newOracle(&n), tally: t}
	h.config = rate.LimitConfig{Algorithm: n.algorithm, Interval: n.interval, Segments: n.segments, Start: n.start, Period: time.Duration(n.period) * time.Microsecond}
	h.countRejected = r.Intn(3) == 0
	h.changes = r.Intn(3) == 0
	h.viewers = h.changes && r.Intn(2) == 0
	if n.algorithm == rate.SlidingWindowLog && h.quantum() > 1 && h.countRejected {
		// When a log full of rejections is made smaller, it keeps as many entries as it held, and one whose entries expire late
		// holds more than the oracle.
		h.changes = false
	}
	h.store = New(Config{MaxKeys: 100, Clock: h.clock, Index: Index(r.Intn(2))})
	return h
}

func (h *history) clock() int64 { return h.now }

// quantum is the smallest difference between times in a log.
func (h *history) quantum() int64 {
	if h.n.algorithm != rate.SlidingWindowLog {
		return 1
	}
	return int64(math.Ceil(float64(h.n.period) / (1<<31 - 1)))
}

// open opens the limit of h.n, at the beginning or as a change.
func (h *history) open() error {
	c := h.config
	c.Requests = h.n.requests
	if h.n.algorithm == rate.TokenBucket || h.n.algorithm == rate.LeakyBucket {
		c.Burst = h.n.burst
	}
	if h.n.algorithm == rate.LeakyBucket {
		c.MaxDelay = time.Duration(h.n.maxDelay) * time.Microsecond
	}
	limit, err := rate.NewLimit(c)
	if err != nil {
		return err
	}
	rule, err := core.NewRule(core.RuleConfig{Name: "r", Limit: limit, CountRejected: h.countRejected})
	if err != nil {
		return err
	}
	if err := h.store.Open(rule); err != nil {
		return err
	}
	if h.rule != nil {
		h.store.Release(h.rule)
	}
	h.rule = rule
	h.fastPath = NewFastPath(h.store, rule)
	h.trace = append(h.trace, fmt.Sprintf("%+v count_rejected %v", c, h.countRejected))
	return nil
}

func (h *history) run(steps int) error {
	if err := h.open(); err != nil {
		return err
	}
	for i := 0; i < steps; i++ {
		if h.changes && h.r.Intn(15) == 0 {
			changed := h.n
			randomChange(h.r, &changed)
			if legal(&changed) {
				if h.viewers && len(h.others) < 3 {
					h.others = append(h.others, viewer{h.n, h.rule, h.fastPath})
					h.rule = nil
				}
				h.n = changed
				if err := h.open(); err != nil {
					return h.failed("%v", err)
				}
			}
		}
		h.view()
		h.move()
		cost := h.cost()
		d, err := h.step(cost, h.r.Intn(8) == 0)
		if err != nil {
			return err
		}
		if !d.Allowed && d.RetryAfter != rate.Never && d.RetryAfter < rate.Forever/2 && h.now+d.RetryAfter < h.high && h.r.Intn(4) == 0 {
			if err := h.honest(cost, d.RetryAfter); err != nil {
				return err
			}
		}
	}
	return nil
}

// honest asks at the instant of RetryAfter, and just before it.
func (h *history) honest(cost, retryAfter int64) error {
	h.edge = true
	h.now += retryAfter - 1
	if retryAfter < 1 {
		return h.failed("rejected with RetryAfter %d", retryAfter)
	}
	d, err := h.step(cost, true)
	if err == nil && d.Allowed {
		err = h.failed("admitted a microsecond before RetryAfter was over")
	}
	if err != nil {
		return err
	}
	h.now++
	d, err = h.step(cost, true)
	if err == nil && !d.Allowed {
		err = h.failed("not admitted when RetryAfter was over")
	}
	return err
}

// step decides one request and compares.
func (h *history) step(cost int64, peek bool) (rate.Decision, error) {
	got, err := h.decide(cost, peek)
	if err != nil {
		return got, err
	}
	if err := h.checkUnused(); err != nil {
		return got, err
	}
	if o, ok := h.oracle.(*logOracle); ok && o.last > h.now {
		h.edge = true // the key's time stands still, perhaps at an instant that was chosen as an edge
	}
	want := h.oracle.look(&h.n, h.now, cost)
	admits := want.Allowed
	if !peek && (got.Allowed || h.countRejected) {
		h.oracle.charge(&h.n, h.now, cost, got.Allowed)
		if !got.Allowed {
			want = h.oracle.look(&h.n, h.now, cost)
		}
	}
	h.trace = append(h.trace, fmt.Sprintf("at %d cost %d peek %v: %+v", h.now, cost, peek, got))
	h.tally.decisions++
	if got.Allowed {
		h.tally.allowed++
	}
	if !h.edge {
		h.tally.random++
	}
	if got.Allowed && !admits {
		return got, h.failed("admits what the oracle refuses: %+v", want)
	}
	quantum := h.quantum()
	if quantum == 1 {
		if got != want {
			return got, h.failed("the oracle says %+v", want)
		}
		return got, nil
	}
	if !got.Allowed && admits {
		if h.edge {
			h.tally.lateEdge++
		} else {
			h.tally.late++
		}
		key := h.oracle.(*logOracle).last // if the clock has stepped back, the key's time stands still until then
		if !h.countRejected && h.now+got.RetryAfter >= key+2*quantum {
			return got, h.failed("late by two quanta of %d µs or more: the oracle says %+v", quantum, want)
		}
		return got, nil
	}
	if got.Limit != want.Limit || got.Delay != want.Delay || got.Remaining > want.Remaining ||
		!within(got.RetryAfter, want.RetryAfter, quantum) || got.Remaining == want.Remaining && !within(got.MoreAfter, want.MoreAfter, quantum) || want.ResetAfter > 0 && !within(got.ResetAfter, want.ResetAfter, quantum) {
		return got, h.failed("the oracle says %+v, a quantum being %d µs", want, quantum)
	}
	return got, nil
}

// decide asks the store, sometimes by the fast path.
func (h *history) decide(cost int64, peek bool) (rate.Decision, error) {
	if h.fastPath != nil && cost == 1 && !peek && h.r.Intn(2) == 0 {
		if remaining, reset, more := Take(h.fastPath, "k"); remaining >= 0 {
			h.tally.fastPath++
			return rate.Decision{Allowed: true, Limit: h.rule.Limit.Quota, Remaining: remaining, ResetAfter: reset, MoreAfter: more}, nil
		}
	}
	checks := []core.Check{{Rule: h.rule, Key: "k", Cost: cost}}
	retry, reset := h.reject(cost)
	err := h.store.Decide(checks, peek)
	d := checks[0].Decision
	if retry >= 0 {
		h.tally.rejected++
		if want := (rate.Decision{Limit: h.rule.Limit.Quota, RetryAfter: retry, ResetAfter: reset}); d != want {
			return d, h.failed("reject says %+v, and Decide %+v", want, d)
		}
	}
	return d, err
}

// reject asks the shortcut for rejections; retry is -1 if it does not apply.
func (h *history) reject(cost int64) (retry, reset int64) {
	if h.fastPath == nil || cost != 1 || h.countRejected {
		return -1, 0
	}
	hash := (maphash.String(h.store.seed, "k")^h.rule.InMemory.(*space).salt)&^kindBit | h.rule.InMemory.(*space).kind
	s := &h.store.shards[hash&h.store.mask]
	i := find(s, hash)
	if i < 0 {
		return -1, 0
	}
	return rejectIn(s, h.rule.Limit, &s.slots[i].state, h.now)
}

// checkUnused compares unused with the decision on a request at no cost.
func (h *history) checkUnused() error {
	if h.n.algorithm == rate.SlidingWindowLog || h.n.segments > 0 {
		return nil
	}
	c := core.Check{Rule: h.rule, Key: "k"}
	checks := []core.Check{c}
	if err := h.store.Decide(checks, true); err != nil {
		return err
	}
	s := &h.store.shards[checks[0].Hash&h.store.mask]
	i := find(s, checks[0].Hash)
	if i < 0 {
		return nil
	}
	if got := rate.Unused(h.rule.Limit, &s.slots[i].state, h.now); got != (checks[0].Decision.ResetAfter == 0) {
		return h.failed("unused says %v of %+v", got, checks[0].Decision)
	}
	return nil
}

// within reports whether a time equals the oracle's, or is later by less than two quanta.
func within(got, want, quantum int64) bool {
	return got == want || want != rate.Never && got > want && got < want+2*quantum
}

func (h *history) failed(format string, args ...interface{}) error {
	last := h.trace
	if len(last) > 40 {
		last = last[len(last)-40:]
	}
	return fmt.Errorf("%s\n%s", strings.Join(last, "\n"), fmt.Sprintf(format, args...))
}

// move sets the clock: usually forward by about what it takes to refill one request, sometimes not at all, by a whole period or
// several, or back.
func (h *history) move() {
	p, each := h.n.period, h.n.period/h.n.requests+1
	h.edge = false
	step := int64(0)
	switch k := h.r.Intn(100); {
	case k < 40:
		step = h.r.Int63n(3*each + 1)
	case k < 50:
		h.edge = true
	case k < 60:
		step = h.r.Int63n(4)
		h.edge = true
	case k < 75:
		step = h.r.Int63n(p)
	case k < 80:
		step = []int64{p, p - 1, p + 1, p / 2, 2 * p}[h.r.Intn(5)]
		h.edge = true
	case k < 84:
		step = h.r.Int63n(3 * p)
	case k < 86: // the beginning of the next window
		step = p - h.now%p - h.r.Int63n(2)
		h.edge = true
	case k < 93:
		step = -h.r.Int63n(p)
	case k < 96:
		step = []int64{-p, -p - 1, -p + 1, -2 * p, -h.now % p}[h.r.Intn(5)]
		h.edge = true
	case k < 97:
		step = -p - h.r.Int63n(3*p)
	default:
		step = h.r.Int63n(200*p + 1)
	}
	h.now += step
	if h.now < h.low || h.now >= h.high {
		h.now = h.low + h.r.Int63n(h.high-h.low)
	}
}

func (h *history) cost() int64 {
	most := h.n.requests
	if h.n.burst > 0 {
		most = h.n.burst
	}
	switch k := h.r.Intn(100); {
	case k < 55:
		return 1
	case k < 70:
		return 1 + h.r.Int63n(5)
	case k < 80:
		return 1 + h.r.Int63n(most)
	case k < 90:
		return 1 + h.r.Int63n(most/3+1)
	case k < 98:
		return []int64{most, most + 1, most + 2, larger(1, most-1)}[h.r.Intn(4)]
	}
	return []int64{rate.MaxRequests, rate.Unaffordable, most + 1 + h.r.Int63n(most)}[h.r.Intn(3)]
}

// randomNumbers sets a valid limit: small ones, ordinary ones, and the extremes that are accepted.
func randomNumbers(r *rand.Rand, n *numbers) {
	shortest, longest := int64(rate.MinPeriod/time.Microsecond), int64(rate.MaxPeriod/time.Microsecond)
	for {
		switch r.Intn(10) {
		case 0:
			n.period = shortest
		case 1:
			n.period = longest
		case 2, 3:
			n.period = []int64{1_000_000, 60_000_000, 3600_000_000, 7, 2147_483_647, 2147_483_648, 4294_967_295}[r.Intn(7)]
		default:
			n.period = spread(r, shortest, longest)
		}
		randomChange(r, n)
		if legal(n) {
			return
		}
	}
}

// randomChange changes the numbers of a limit, as a reload may.
func randomChange(r *rand.Rand, n *numbers) {
	most := int64(rate.MaxRequests)
	if n.algorithm == rate.SlidingWindowLog {
		most = rate.MaxLogRequests
		if interpreted {
			most = 1000
		}
	}
	if r.Intn(2) == 0 {
		most = 20
	}
	n.requests = spread(r, 1, most)
	if r.Intn(20) == 0 {
		n.requests = most
	}
	if n.algorithm == rate.TokenBucket || n.algorithm == rate.LeakyBucket {
		switch r.Intn(4) {
		case 0:
			n.burst = n.requests
		case 1:
			n.burst = most
		default:
			n.burst = spread(r, 1, most)
		}
	}
	if n.algorithm == rate.LeakyBucket {
		n.maxDelay = spread(r, 1, int64(time.Hour/time.Microsecond))
	}
}

// legal reports whether NewLimit accepts the numbers. It computes the bounds independently.
func legal(n *numbers) bool {
	return n.period >= 1000 && product(n.burst, n.period, n.requests).Cmp(whole(int64(rate.MaxDrain/time.Microsecond))) <= 0
}

// spread returns a random number whose order of magnitude is evenly distributed.
func spread(r *rand.Rand, low, high int64) int64 {
	x := math.Exp(math.Log(float64(low)) + r.Float64()*(math.Log(float64(high))-math.Log(float64(low))))
	return smaller(high, larger(low, int64(math.Round(x))))
}
