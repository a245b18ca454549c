package regions

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/eventual"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/usage"
	"github.com/proxyweir/weir/redis"
)

// Config configures New. Clock and Changed may be nil.
type Config struct {
	Settings Settings
	Store    *redis.Store   // of this region
	Peers    []*redis.Store // of the others, in the order of Settings.Names: of the same prefix and secret. The courier closes them

	Clock   func() int64                     // in microseconds, of which only differences matter; nil: a monotonic one
	Changed func(peer string, why error)     // is called when a region is cut off, and with nil when it is heard again
	Failed  func(what string, failure error) // is called when the courier cannot do its work, once until it can again
	Differs func(what string)                // is called when regions turn out to have settings that contradict each other, or others than before; "": they agree again
}

// Courier is a node's part in the election of its region's courier, and the courier if the node is elected. New makes it. It is safe for concurrent use.
type Courier struct {
	c       Config
	fleet   *redis.Fleet
	part    float64
	divides *Store // nil: no region is home
	again   func() // made once, as the timers of package redis

	round   sync.Mutex     // held by Tick
	telling sync.WaitGroup // calls of Config.Changed and Config.Differs

	mu     sync.Mutex
	timer  *time.Timer
	closed bool
	used   bool
	asked  int64 // when the node took part in the election last, by clock; and one more
	term   *term // nil: another node is the courier, or none is needed

	differs string           // how regions' settings contradict each other, as this node was told
	fails   map[string]error // why the breakers of other regions' Redis are open, by their names
}

// How the courier goes about.
const (
	electEvery = time.Second
	late       = 3  // intervals after which a region that was not read is cut off, and its calls' time limit
	atRate     = 10 // intervals for which a region that is cut off counts at its last known rate
	half       = 2  // of a rate that is not confirmed
)

// New returns a node's courier, which does nothing until Start or Tick.
func New(c Config) *Courier {
	random := make([]byte, 8)
	_, _ = rand.Read(random)
	if c.Clock == nil {
		c.Clock = monotonic
	}
	k := &Courier{c: c, fails: make(map[string]error), part: c.Settings.Part(), fleet: redis.NewFleet(c.Store, "regions", hex.EncodeToString(random))}
	k.again = k.next
	if s := &k.c.Settings; s.Home != "" {
		home := c.Store
		for i, name := range s.Names() {
			if name == s.Home {
				home = c.Peers[i]
			}
		}
		k.divides = NewStore(c.Store, home, s)
	}
	return k
}

func monotonic() int64 { return int64(time.Since(redis.Started) / time.Microsecond) }

// Divides returns the store for rules with regions lease, and all others of this region's store; nil: no region is home.
func (k *Courier) Divides() *Store { return k.divides }

// Lends reports whether a region is home.
func (k *Courier) Lends() bool { return k.c.Settings.Home != "" }

// Stores returns the stores of the other regions.
func (k *Courier) Stores() []*redis.Store { return k.c.Peers }

// Start has the courier work by itself.
func (k *Courier) Start() {
	k.mu.Lock()
	k.timer = time.AfterFunc(electEvery/10, k.again)
	k.mu.Unlock()
}

// next is a tick, and sets the timer for the next one.
func (k *Courier) next() {
	defer func() {
		_ = recover() // an interpreted program has no other recover
		k.mu.Lock()
		if !k.closed {
			k.timer.Reset(k.interval())
		}
		k.mu.Unlock()
	}()
	k.Tick()
}

// Close ends the courier, and closes the stores of the other regions.
func (k *Courier) Close() {
	k.mu.Lock()
	k.closed = true
	if k.timer != nil {
		k.timer.Stop()
	}
	k.mu.Unlock()
	for _, s := range k.c.Peers {
		_ = s.Close()
	}
}

// interval returns the interval of ticks: the shortest of regional rules.
func (k *Courier) interval() time.Duration {
	every := electEvery
	for _, r := range k.c.Store.RegionalRules() {
		if one := time.Duration(r.RegionTerms().Every) * time.Microsecond; one < every {
			every = one
		}
	}
	return every
}

// Tick does what is due. It waits for this region's Redis, and not for others: Settle does.
func (k *Courier) Tick() {
	k.round.Lock()
	defer k.round.Unlock()
	rules := make(map[uint64]*core.Rule)
	for _, r := range k.c.Store.RegionalRules() {
		rules[eventual.IDOf(r.Identity)] = r
	}
	now := k.c.Clock()
	k.mu.Lock()
	k.used = len(rules) > 0 || k.divides != nil && k.divides.open.Load() > 0
	used := k.used
	t := k.term
	elect := k.used && !k.closed && (k.asked == 0 || now-k.asked+1 >= int64(electEvery/time.Microsecond))
	if elect {
		k.asked = now + 1
	}
	k.mu.Unlock()
	if elect {
		var news *advice.Proposal
		if t != nil {
			news = t.news()
		}
		agreement, err := redis.Agree(k.fleet, 0, news)
		switch {
		case err != nil: // Redis fails: what is known is kept
		case agreement.Leads && t == nil:
			t = newTerm(k)
		case !agreement.Leads:
			t = nil
		}
		if err == nil {
			k.hear(k.c.Settings.heard(string(agreement.Document)))
		}
	}
	if !used {
		t = nil
	}
	k.mu.Lock()
	k.term = t
	k.mu.Unlock()
	if t != nil && t.due(now, rules) {
		t.run(rules)
	}
}

// hear takes over how the regions' settings contradict each other.
func (k *Courier) hear(differs string) {
	k.mu.Lock()
	changed := k.differs != differs
	k.differs = differs
	k.mu.Unlock()
	if k.divides != nil {
		k.divides.apart.Store(differs != "")
	}
	if changed && k.c.Differs != nil {
		k.aside(func() { k.c.Differs(differs) })
	}
}

// aside calls a function of the courier's user, who may take their time.
func (k *Courier) aside(tell func()) {
	k.telling.Add(1)
	go func() {
		defer k.telling.Done()
		tell()
	}()
}

// Fails notes that the breaker of a region's Redis has opened, and why, or with nil that it has closed: the store's redis.Config.Changed.
func (k *Courier) Fails(region string, why error) {
	k.mu.Lock()
	k.fails[region] = why
	k.mu.Unlock()
}

// whyOf returns why a region cannot be heard whose calls were not made.
func (k *Courier) whyOf(region string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if why := k.fails[region]; why != nil {
		return why
	}
	return redis.ErrTimeout
}

// Settle waits until no call to another region is under way, and all is told.
func (k *Courier) Settle() {
	k.round.Lock()
	defer k.round.Unlock()
	if k.term != nil {
		k.term.reading.Wait()
	}
	k.telling.Wait()
}

// Stats returns how the region hears of others.
func (k *Courier) Stats() Stats {
	k.mu.Lock()
	t := k.term
	s := Stats{Used: k.used, Leads: t != nil, Differs: k.differs != ""}
	k.mu.Unlock()
	if t != nil {
		for _, p := range t.peers {
			s.Peers = append(s.Peers, p.stats())
		}
	}
	return s
}

// add adds counts of regional rules to a ledger.
func add(l *usage.Ledger, counts []usage.Counts, rules map[uint64]*core.Rule) {
	for i := range counts {
		c := &counts[i]
		if rules[c.Slot.Rule] != nil {
			for n, key := range c.Keys {
				l.Add(c.Slot, key, int64(c.Units[n]))
			}
		}
	}
}

// addMarks adds marks of regional rules to a ledger.
func addMarks(l *usage.Ledger, marks []usage.Mark, rules map[uint64]*core.Rule) {
	for _, m := range marks {
		if rules[m.Rule] != nil {
			l.AddMark(m)
		}
	}
}

// lagOf returns after how long a region knows what another has admitted, besides the time that calls take: twice both intervals.
func lagOf(r *core.Rule) int64 { return 2 * (r.SyncTerms().Every + r.RegionTerms().Every) }

// slotAt returns the slot in which a unit counts that is admitted now.
func slotAt(r *core.Rule, id uint64, now int64) usage.Slot {
	s := rate.SlotOf(r.Limit, now, r.SyncTerms().Every)
	return usage.Slot{Rule: id, Start: s.Start, End: s.End}
}
