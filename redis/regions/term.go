package regions

import (
	"errors"
	"sync"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/usage"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/logs"
)

// term is a courier's work from its election on. Its fields are only used by run, but for those of peers.
type term struct {
	k        *Courier
	nodes    *logs.Logs // reads what the region's nodes have told
	region   *logs.Logs // writes what the region has admitted
	sums     usage.Ledger
	peers    []*peer
	reading  sync.WaitGroup
	began    int64 // when the last round began, by the courier's clock; and one more
	failed   bool  // the last round did
	restored bool  // what an earlier courier has passed on was read
	told     int64 // when the region's terms were told last, as slots
	every    int64 // the interval of the last round
}

// newTerm begins with nothing known. The generations of logs are larger than those of any courier before, unless the region's clock has stepped back.
func newTerm(k *Courier) *term {
	s := k.c.Store
	t := &term{k: k}
	c := s.LogsIn(s.IndexOfNodes())
	c.Name = ofRegion + "--------" // it writes nothing
	c.Reads = isNode
	t.nodes = logs.New(c)
	generation := c.Now() / 1000
	c = s.LogsIn(s.IndexOfRegions())
	c.Name = logName(k.c.Settings.Region)
	c.Generation = generation
	c.Ledger = &t.sums
	t.region = logs.New(c)
	for i, name := range k.c.Settings.Names() {
		t.peers = append(t.peers, newPeer(k, name, k.c.Peers[i], generation))
	}
	return t
}

// due reports whether the interval of the rules has passed.
func (t *term) due(now int64, rules map[uint64]*core.Rule) bool {
	return t.began == 0 || now-t.began+1 >= shortest(rules)*3/4
}

func shortest(rules map[uint64]*core.Rule) int64 {
	every := int64(rate.LongestSync / time.Microsecond)
	if len(rules) == 0 {
		every = int64(electEvery / time.Microsecond)
	}
	for _, r := range rules {
		every = rate.AtMost(every, r.RegionTerms().Every)
	}
	return every
}

// run is one round.
func (t *term) run(rules map[uint64]*core.Rule) {
	s := t.k.c.Store
	now := t.k.c.Clock()
	over := now - t.began + 1
	if t.began == 0 {
		over = 0
	}
	t.began = now + 1
	for i := 0; !t.restored && i < len(t.peers); i++ {
		if err := t.peers[i].restore(s, rules); err != nil {
			t.fail("what other regions have told cannot be read from this region's Redis", err)
			t.began = 0
			return
		}
	}
	t.restored = true
	var news usage.News
	err := t.nodes.Round(s.RunLogs, &news)
	add(&t.sums, news.Counts, rules)
	addMarks(&t.sums, news.Marks, rules)
	if at := s.LogsIn("").Now(); err == nil && (t.told == 0 || at-t.told > termsLast/2 || at < t.told) {
		t.told = at
		t.sums.AddMark(usage.Mark{Rule: ruleOfTerms, Key: t.k.c.Settings.terms(), At: at, Until: at, End: at + termsLast})
	}
	if err == nil {
		err = t.region.Round(s.RunLogs, &usage.News{})
	}
	every := shortest(rules)
	for _, p := range t.peers {
		if every < t.every {
			p.excuse(now)
		}
		p.isCut(now, rules)
	}
	t.every = every
	for _, p := range t.peers {
		p.presume(now, over, rules, news.Counts, t.k.part, len(t.peers))
		if failure := p.pass(s); err == nil {
			err = failure
		}
		if p.begin() {
			t.reading.Add(1)
			go t.read(p, rules)
		}
	}
	if err != nil {
		t.fail("this region's Redis", err)
	} else {
		t.failed = false
	}
}

// news returns what the courier tells the nodes of its region: its settings, and how those of regions contradict each other.
func (t *term) news() *advice.Proposal {
	told := make(map[string]uint64)
	var strange []string
	now := t.k.c.Store.LogsIn("").Now()
	for _, p := range t.peers {
		p.mu.Lock()
		if p.terms.End > now {
			told[p.name] = p.terms.Key
		}
		if p.strange {
			strange = append(strange, p.name)
		}
		p.mu.Unlock()
	}
	text := t.k.c.Settings.text() + "\n" + t.k.c.Settings.differs(told, strange)
	return &advice.Proposal{Serial: now, Document: []byte(text), Keep: newsLast}
}

func (t *term) fail(what string, err error) {
	if !t.failed && t.k.c.Failed != nil {
		t.k.c.Failed(what, err)
	}
	t.failed = true
}

// read reads the log of another region, and passes on what is new.
func (t *term) read(p *peer, rules map[uint64]*core.Rule) {
	defer func() {
		_ = recover() // an interpreted program has no other recover
		p.mu.Lock()
		p.busy = false
		p.mu.Unlock()
		t.reading.Done()
	}()
	if p.hear(rules) {
		_ = p.pass(t.k.c.Store) // the next round says what fails
	}
}

// peer is another region, as the courier knows it.
type peer struct {
	k     *Courier
	name  string
	store *redis.Store
	heard *logs.Logs // reads the region's log in its Redis; only hear uses it

	passing sync.Mutex // held by pass
	passed  *logs.Logs // writes what the region has admitted among the logs of this region's nodes
	ledger  usage.Ledger

	mu       sync.Mutex
	busy     bool  // a call to the region is under way
	at       int64 // when the last call began that has succeeded, or the term, by the courier's clock
	known    bool  // there was such a call
	cut      bool
	failure  error      // of the last call; nil: it has succeeded, or there was none
	longest  int64      // the longest that the region's counts are not known of here, besides the age of the last call
	ahead    int64      // how far its Redis's clock is ahead of the node's
	terms    usage.Mark // what it has told of its settings
	there    bool       // its log is in its Redis, as the call under way has found
	another  bool       // that of another region is
	strange  bool       // only that of another was, at the last call
	flows    map[uint64]flow
	presumed map[place]float64 // units that were passed on before the region has told them
}

// flow is at which rate a key is admitted in another region.
type flow struct {
	rule, key uint64
	rate      float64 // units a microsecond
}

// place is a count: that of a key in a slot.
type place struct {
	slot usage.Slot
	key  uint64
}

func newPeer(k *Courier, name string, store *redis.Store, generation int64) *peer {
	p := &peer{k: k, name: name, store: store, at: k.c.Clock(), flows: make(map[uint64]flow), presumed: make(map[place]float64)}
	own := k.c.Store
	c := store.LogsIn(store.IndexOfRegions())
	c.Name = ofRegion + "--------" // it writes nothing
	c.Reads = p.isTheirs
	c.Now = own.LogsIn("").Now
	c.Sets = p.setClock
	p.heard = logs.New(c)
	c = own.LogsIn(own.IndexOfNodes())
	c.Name = logName(name)
	c.Generation = generation
	c.Ledger = &p.ledger
	p.passed = logs.New(c)
	return p
}

// isOwn reports whether a log of that name is the region's.
func (p *peer) isOwn(name string) bool { return name == logName(p.name) }

// isTheirs is isOwn of logs in the region's Redis, where there should be no other.
func (p *peer) isTheirs(name string) bool {
	is := p.isOwn(name)
	p.mu.Lock()
	p.there = p.there || is
	p.another = p.another || !is
	p.mu.Unlock()
	return is
}

func (p *peer) setClock(least, most int64) {
	p.mu.Lock()
	p.ahead = least + (most-least)/2
	p.mu.Unlock()
}

// restore takes over what an earlier courier has passed on: the region has told it already, or will.
func (p *peer) restore(s *redis.Store, rules map[uint64]*core.Rule) error {
	var news usage.News
	c := s.LogsIn(s.IndexOfNodes())
	c.Name = ofRegion + "--------"
	c.Reads = p.isOwn
	if err := logs.New(c).Round(s.RunLogs, &news); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range news.Counts {
		for n, key := range news.Counts[i].Keys {
			p.presumed[place{news.Counts[i].Slot, key}] += float64(news.Counts[i].Units[n])
		}
	}
	add(&p.ledger, news.Counts, rules)
	addMarks(&p.ledger, news.Marks, rules)
	return nil
}

// begin reports whether the region is to be read now: no call is under way.
func (p *peer) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy {
		return false
	}
	p.busy = true
	return true
}

// hear makes a call to the region. It reports whether that has succeeded.
func (p *peer) hear(rules map[uint64]*core.Rule) bool {
	var news usage.News
	began := p.k.c.Clock()
	p.mu.Lock()
	p.there = false
	p.another = false
	p.mu.Unlock()
	err := p.heard.Round(p.store.RunLogs, &news)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.learn(&news, rules, began-p.at, p.known && err == nil)
	if !errors.Is(err, redis.ErrUnavailable) { // that is since an earlier call has failed, which says more
		p.failure = err
	}
	if err != nil {
		return false
	}
	p.strange = p.another && !p.there
	p.at = began
	p.known = true
	if p.cut {
		p.cut = false
		p.tell(rules)
	}
	return true
}

// tell says that the region is cut off now, or no longer, if that makes a difference.
func (p *peer) tell(rules map[uint64]*core.Rule) {
	if p.k.c.Changed != nil && (len(rules) > 0 || p.name == p.k.c.Settings.Home) {
		why := p.failure
		if p.cut && why == nil {
			why = p.k.whyOf(p.name)
		}
		p.k.aside(func() { p.k.c.Changed(p.name, why) })
	}
}

// learn passes on what is new, less what was presumed, and learns rates. The caller has p.mu.
func (p *peer) learn(news *usage.News, rules map[uint64]*core.Rule, over int64, rates bool) {
	units := make(map[uint64]int64)
	for i := range news.Counts {
		c := &news.Counts[i]
		if rules[c.Slot.Rule] == nil {
			continue
		}
		for n, key := range c.Keys {
			more := int64(c.Units[n])
			at := place{c.Slot, key}
			if presumed := p.presumed[at]; presumed > 0 {
				if presumed > float64(more) {
					p.presumed[at] = presumed - float64(more)
					more = 0
				} else {
					delete(p.presumed, at)
					more -= int64(presumed)
				}
			}
			if more > 0 {
				p.ledger.Add(c.Slot, key, more)
			}
			id := c.Slot.Rule ^ key
			if _, has := p.flows[id]; !has {
				p.flows[id] = flow{rule: c.Slot.Rule, key: key}
			}
			units[id] += int64(c.Units[n])
		}
	}
	addMarks(&p.ledger, news.Marks, rules)
	for _, m := range news.Marks {
		if m.Rule == ruleOfTerms && m.At >= p.terms.At {
			p.terms = m
		}
	}
	if !rates || over <= 0 {
		return
	}
	for id, f := range p.flows {
		f.rate += (float64(units[id])/float64(over) - f.rate) / half
		if f.rate*float64(over)*atRate < 1 || rules[f.rule] == nil {
			delete(p.flows, id)
		} else {
			p.flows[id] = f
		}
	}
}

// excuse notes that the region was not asked as often as it is from now on: what it has not told since is no sign that it is cut off.
func (p *peer) excuse(now int64) {
	p.mu.Lock()
	if !p.cut {
		p.at = now
	}
	p.mu.Unlock()
}

// isCut finds out whether the region could not be read for too long.
func (p *peer) isCut(now int64, rules map[uint64]*core.Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.longest = 0
	for _, r := range rules {
		p.longest = rate.AtLeast(p.longest, lagOf(r))
	}
	if !p.cut && now-p.at > late*shortest(rules)+int64(p.store.Background()/time.Microsecond) {
		p.cut = true
		p.tell(rules)
	}
}

// presume passes on what the region was probably admitted since, if it is cut off: as much beside what this region has admitted as its part of the limit leaves
// to the others, and, for some intervals, what its last known rates say, if that is more. over is for how long.
func (p *peer) presume(now, over int64, rules map[uint64]*core.Rule, own []usage.Counts, part float64, peers int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	slots := p.k.c.Store.LogsIn("").Now()
	for at := range p.presumed {
		if at.slot.End <= slots {
			delete(p.presumed, at)
		}
	}
	if !p.cut {
		return
	}
	beside := make(map[uint64]float64) // what is presumed by the share
	for i := range own {
		if rules[own[i].Slot.Rule] == nil {
			continue
		}
		for n, key := range own[i].Keys {
			units := float64(own[i].Units[n]) * (1/part - 1) / float64(peers)
			p.presumeUnits(own[i].Slot, key, units)
			beside[own[i].Slot.Rule^key] += units
		}
	}
	if !p.known || now-p.at >= atRate*shortest(rules) {
		return
	}
	for id, f := range p.flows {
		if r := rules[f.rule]; r != nil && f.rate*float64(over) > beside[id] {
			p.presumeUnits(slotAt(r, f.rule, slots), f.key, f.rate*float64(over)-beside[id])
		}
	}
}

// presumeUnits passes on units of a key that the region has not told. Parts of units are kept for later.
func (p *peer) presumeUnits(slot usage.Slot, key uint64, units float64) {
	at := place{slot, key}
	before := p.presumed[at]
	p.presumed[at] = before + units
	if more := int64(before+units) - int64(before); more > 0 {
		p.ledger.Add(slot, key, more)
	}
}

// pass writes what is new among the logs of this region's nodes.
func (p *peer) pass(s *redis.Store) error {
	p.passing.Lock()
	defer p.passing.Unlock()
	err := p.passed.Round(s.RunLogs, &usage.News{})
	return err
}

// stats returns how the region is heard.
func (p *peer) stats() PeerStats {
	now := p.k.c.Clock()
	p.mu.Lock()
	defer p.mu.Unlock()
	s := PeerStats{Name: p.name, Age: time.Duration(now-p.at) * time.Microsecond, Cut: p.cut, Ahead: time.Duration(p.ahead-p.k.c.Store.Ahead()) * time.Microsecond}
	for _, f := range p.flows {
		if units := int64(f.rate * float64(now-p.at+p.longest)); units > s.Units {
			s.Units = units
		}
	}
	return s
}
