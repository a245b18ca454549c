package memory

import (
	"hash/maphash"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// ServedRule is one of the rules of ServeSeveral. The ServeConfig has the rest, and of what is here it is not asked. A store that is no Memory
// needs no FastPath.
type ServedRule struct {
	FastPath    *FastPath
	QuotaFields *QuotaFields
	Refusal     *Refusal                     // nil: requests that the rule rejects are left to Rest
	Allowed     *int64                       // as Metering.Allowed; not nil if there is a Metering
	Key         func(r *http.Request) string // as ServeConfig.Key, if that is Apart; otherwise it is not asked
	NoKey       string                       // with Key; requests without one are left to Rest
	Covers      func(r *http.Request) bool   // whether the rule covers a request; nil: it covers all

	Linked bool // it is decided together with the rule before it, for the same requests and keys

	// Of a shadow, or of a candidate. Requests that it would have rejected are counted in Refused, and the others of a candidate in Passed.
	Refused, Passed []*int64

	once     sync.Once
	prepared *severalRule // for all handlers that have the rule
}

// several has what the path of several rules needs.
type several struct {
	rules    []*severalRule
	matched  bool     // any of them does not cover all requests
	tallied  bool     // any of them counts, also if there is no Metering
	inFlight bool     // any of them is a limit of requests in flight
	apart    bool     // they have different keys, which may be in different shards
	policies []string // the value of RateLimit-Policy if all cover the request

	memory           *Store
	shards           []*shard
	mask, place      uint64 // place is what a rule's salt adds to the number of a key's shard: it is the same for all of a namespace
	seed             maphash.Seed
	clock            func() int64
	rest             http.Handler
	xRateLimit, ietf bool
	leaves           bool // it leaves all rejections to the rest
	watched          string
	noticed          *atomic.Bool
	durations        *rate.Durations // nil: nothing is timed
}

// severalRule is one of several rules.
type severalRule struct {
	limit    *rate.Limit
	isLog    bool
	rule     *core.Rule
	linked   bool
	accounts bool // of the FastPath
	inFlight bool // it limits requests in flight
	shadow   bool // it never rejects, and sets no fields

	countRejected   bool
	refused, passed []*int64
	space           *space
	salt            uint64 // of the FastPath
	quota           int64
	state           string   // the beginning of its member of RateLimit, behind another member
	limitField      []string // of its QuotaFields, as policy
	policy          string
	allowed         *int64
	keyOf           func(r *http.Request) string // of the ServedRule
	noKey           string
	covers          func(r *http.Request) bool // nil: covers all
	refuser         *Refuser                   // nil: it has no Refusal
}

// ServeSeveral is Serve for several rules of one namespace in one Memory, each of which is charged if all that cover a request allow it. Any number of
// handlers may have the same rules.
// A Guarding is not supported: Next must be guarded. Requests that an earlier handler has set quota fields for are left to Rest.
func ServeSeveral(rules []*ServedRule, c *ServeConfig) http.Handler {
	tables.Do(makeTables)
	e := rules[0].FastPath
	f := &several{
		memory: e.memory, shards: e.shards, mask: e.mask, place: e.salt & e.mask, seed: e.seed, clock: e.clock, rest: c.Rest,
		watched: c.Watched, noticed: c.Noticed, apart: c.Apart,
	}
	policies := ""
	for _, rule := range rules {
		p := preparedRule(rule)
		f.rules = append(f.rules, p)
		f.xRateLimit = f.xRateLimit || rule.QuotaFields.XRateLimit // shadows have none
		f.ietf = f.ietf || rule.QuotaFields.IETF
		f.leaves = f.leaves || rule.Refusal == nil || p.countRejected || p.accounts || p.inFlight || p.shadow || p.limit.Cost != 1
		f.inFlight = f.inFlight || p.inFlight
		f.tallied = f.tallied || len(p.refused) > 0
		f.matched = f.matched || rule.Covers != nil
		if !p.shadow {
			policies += ", " + p.policy
		}
	}
	if policies != "" {
		f.policies = []string{policies[2:]}
	}
	if c.Metering != nil {
		f.durations = c.Metering.Durations
	}
	return newSeveral(f, c)
}

// preparedRule returns what newSeveralRule has made of a rule.
func preparedRule(rule *ServedRule) *severalRule {
	rule.once.Do(func() { rule.prepared = newSeveralRule(rule) })
	return rule.prepared
}

func newSeveralRule(rule *ServedRule) *severalRule {
	e := rule.FastPath
	t := rule.QuotaFields
	p := &severalRule{
		limit: e.limit, isLog: e.limit.IsLog, rule: e.rule, linked: rule.Linked, accounts: e.accounts, inFlight: e.limit.InFlight, shadow: e.rule.Shadow, countRejected: e.countRejected, refused: rule.Refused, passed: rule.Passed, space: e.space, salt: e.salt, quota: e.limit.Quota,
		state: ", " + t.State, limitField: t.Limit, policy: t.Policy[0], allowed: rule.Allowed, keyOf: rule.Key, noKey: rule.NoKey, covers: rule.Covers,
	}
	if rule.Refusal != nil {
		p.refuser = NewRefuser(t, rule.Refusal)
	}
	return p
}

// covering returns the rules that cover a request, and their policies as the value of RateLimit-Policy.
func covering(f *several, r *http.Request) (list []*severalRule, policies []string) {
	text := ""
	covers := false
	for _, p := range f.rules {
		if !p.linked {
			covers = p.covers == nil || p.covers(r)
		}
		if covers {
			list = append(list, p)
			if !p.shadow {
				text += ", " + p.policy
			}
		}
	}
	if text != "" {
		policies = []string{text[2:]}
	}
	return list, policies
}

// beginTimed unlocks what is locked, as unlockSeveral does, so that a decision can be timed from its beginning, and returns the time since started.
func beginTimed(f *several, s *shard, hashes []uint64) int64 {
	unlockSeveral(f, s, hashes)
	return int64(time.Since(started))
}

// countSeveral counts a request that all rules have allowed, but for the shadows that refused says. begun is not 0 if the decision is timed.
func countSeveral(f *several, list []*severalRule, begun, refused int64) {
	var counts []*int64
	if begun != 0 {
		rate.Observe(f.durations, time.Since(started)-time.Duration(begun))
	}
	for n, p := range list {
		counts = p.passed
		if refused>>uint(n)&1 != 0 {
			counts = p.refused
		} else if p.allowed != nil {
			atomic.AddInt64(p.allowed, 1)
		}
		for _, count := range counts {
			atomic.AddInt64(count, 1)
		}
	}
}

// memberOf returns a rule's member of RateLimit, behind another, with seconds until more is left; 0: that is left out.
func memberOf(p *severalRule, remaining, more int64) string {
	text := p.state + strconv.FormatInt(remaining, 10)
	if more > 0 {
		text += MoreText + strconv.FormatInt(more, 10)
	}
	return text
}

// setLong sets the X-RateLimit fields for numbers that are not in the lists.
func setLong(h http.Header, p *severalRule, remaining, reset int64) {
	h[HeaderLimit] = p.limitField
	h[HeaderRemaining] = []string{strconv.FormatInt(remaining, 10)}
	h[HeaderReset] = []string{strconv.FormatInt(reset, 10)}
}

// lockApart returns the hashes of rules' keys, and locks their shards in ascending order, as lockAll does. If the request lacks a key, it
// returns nil, and locks nothing.
func lockApart(f *several, list []*severalRule, r *http.Request) []uint64 {
	var none []uint64
	hashes := make([]uint64, 0, len(list))
	key := ""
	for _, p := range list {
		if !p.linked {
			key = p.keyOf(r)
			if key == p.noKey {
				return none
			}
		}
		hashes = append(hashes, (maphash.String(f.seed, key)&^kindBit)^p.salt)
	}
	last := -1
	for {
		next := -1
		for _, hash := range hashes {
			at := int(hash & f.mask)
			if at > last && (next < 0 || at < next) {
				next = at
			}
		}
		if next < 0 {
			return hashes
		}
		f.shards[next].mu.Lock()
		last = next
	}
}

// unlockSeveral unlocks what is locked: the shards of hashes, each once, or s if there are none.
func unlockSeveral(f *several, s *shard, hashes []uint64) {
	if !f.apart {
		s.mu.Unlock()
		return
	}
	for i, hash := range hashes {
		first := true
		for j := 0; j < i; j++ {
			first = first && hashes[j]&f.mask != hash&f.mask
		}
		if first {
			f.shards[hash&f.mask].mu.Unlock()
		}
	}
}

// settleSeveral settles a request that a rule has given up, or for which it has a new key, with the locks of the shards held. before has the
// states of the rules before that one, which were charged. It rejects the request, or leaves it to the rest, and unlocks; or it
// inserts new keys, moves old states to the present, keeps the locks, and returns which shadows would reject the request, for another try; else -1. s, base and hashes are where the states are,
// as the path has them. begun is not 0 if the decision is timed.
func settleSeveral(f *several, list []*severalRule, policies []string, before []rate.State, s *shard, base uint64, hashes []uint64, now, begun, refused int64, key string, w http.ResponseWriter, r *http.Request) int64 {
	var (
		state                         rate.State
		hash                          uint64
		i, failed, fresh, reported    int
		ok                            bool
		remaining, reset, more, retry int64
		longest, whole, shadows       int64
		left, waits                   []int64 // of RefuseSeveral
		slots                         []int
		refusers                      []*Refuser
	)
	left = make([]int64, len(list))
	waits = make([]int64, len(list))
	slots = make([]int, len(list))
	failed = len(before)
	reported = -1
	for n, p := range list {
		hash = base ^ p.salt
		if f.apart {
			hash = hashes[n]
			s = f.shards[hash&f.mask]
		}
		i, ok = s.index[hash]
		slots[n] = i
		if ok && p.inFlight {
			if freeIn(s, p, hash, &s.slots[i].state) < 0 {
				fresh = -len(list) // for the rest
			}
			continue
		}
		if ok && p.accounts && s.owners[i]&accounted != 0 {
			fresh = -len(list)
			continue
		}
		if !ok {
			slots[n] = -1
			left[n] = p.quota
			fresh++
			continue
		}
		if n < failed && refused>>uint(n)&1 == 0 {
			if p.isLog {
				giveBack(s, &before[n])
			}
			s.slots[i].state = before[n]
		}
		state = s.slots[i].state
		remaining = -1
		if n != failed { // else it has been tried
			if p.isLog {
				remaining, reset, more = tryIn(s, p.limit, &state, now)
			} else {
				remaining, reset, more = rate.Take(p.limit, &state, now)
			}
		}
		if remaining < 0 {
			retry = -1
			if p.isLog && !f.leaves {
				retry, reset = rejectIn(s, p.limit, &state, now)
			} else if !f.leaves {
				retry, reset = rate.Reject(p.limit, &state, now)
			}
			if retry >= 0 {
				if reported < 0 || retry > longest {
					reported = n
					longest = retry
					whole = reset
				}
				left[n] = -1
				waits[n] = 1
				if retry > 1_000_000 {
					waits[n] = (retry + 999_999) / 1_000_000
				}
				continue
			}
			if p.isLog {
				if readyLog(f.memory, s, i, p.space, p.limit, now) {
					state = s.slots[i].state
					remaining, reset, more = tryIn(s, p.limit, &state, now)
				}
			} else if rate.Roll(p.limit, &state, now) {
				remaining, reset, more = rate.Take(p.limit, &state, now)
			}
			if remaining < 0 && refusesIn(s, p, i, now) {
				shadows |= 1 << uint(n)
				continue
			}
			if remaining < 0 {
				fresh = -len(list)
				continue
			}
		}
		left[n] = remaining + 1 // as the limit says of a request that costs nothing
		if left[n] >= p.quota {
			left[n] = p.quota
		} else {
			waits[n] = (more + 999_999) / 1_000_000
		}
	}
	if fresh < 0 || (fresh > 0 || reported >= 0) && f.watched != "" && r.Header[f.watched] != nil && !f.noticed.Load() {
		unlockSeveral(f, s, hashes)
		f.rest.ServeHTTP(w, r)
		return -1
	}
	if reported < 0 {
		if prepare(f, list, hashes, s, base, now, fresh) {
			return shadows
		}
		unlockSeveral(f, s, hashes)
		f.rest.ServeHTTP(w, r)
		return -1
	}
	refusers = make([]*Refuser, len(list))
	for n, p := range list {
		refusers[n] = p.refuser
		if left[n] < 0 {
			if f.apart {
				s = f.shards[hashes[n]&f.mask]
			}
			s.owners[slots[n]] |= rejected
		}
	}
	unlockSeveral(f, s, hashes)
	if begun != 0 {
		rate.Observe(f.durations, time.Since(started)-time.Duration(begun))
	}
	if f.apart {
		key = list[0].keyOf(r)
	}
	RefuseSeveral(refusers, policies, reported, left, waits, longest, whole, key, w, r)
	return -1
}

// takeIn is take for a state in a shard, which may have a log.
//
//flatten:inline
func takeIn(s *shard, l *rate.Limit, state *rate.State, now int64) (remaining, reset, more int64) {
	if l.IsLog {
		return takeInLog(s, l, state, now)
	}
	return rate.Take(l, state, now)
}

// takeInLog is take for a state that has a log.
//
//flatten:inline
func takeInLog(s *shard, l *rate.Limit, state *rate.State, now int64) (remaining, reset, more int64) {
	if state.A >= rate.BlockMark {
		return -1, 0, 0
	}
	return rate.TakeFromSlidingWindowLog(l, state, &s.logs[state.A], now)
}

// rejectIn is reject for a state in a shard, which may have a log.
//
//flatten:inline
func rejectIn(s *shard, l *rate.Limit, state *rate.State, now int64) (retry, reset int64) {
	if l.IsLog {
		return rejectInLog(s, l, state, now)
	}
	return rate.Reject(l, state, now)
}

// rejectInLog is reject for a state that has a log.
//
//flatten:inline
func rejectInLog(s *shard, l *rate.Limit, state *rate.State, now int64) (retry, reset int64) {
	if state.A >= rate.BlockMark {
		return -1, 0
	}
	return rate.RejectFromSlidingWindowLog(l, state, &s.logs[state.A], now)
}

// readyIn makes the state in slot i ready for another try, and reports whether the request is allowed then.
func readyIn(f *settling, s *shard, i int, now int64) bool {
	if f.limit.IsLog {
		return readyLog(f.memory, s, i, f.space, f.limit, now)
	}
	return rate.Roll(f.limit, &s.slots[i].state, now)
}

// tryIn is takeIn for a copy of the state of a log, which is not charged either.
func tryIn(s *shard, l *rate.Limit, state *rate.State, now int64) (remaining, reset, more int64) {
	remaining, reset, more = takeIn(s, l, state, now)
	if remaining >= 0 {
		giveBack(s, state)
	}
	return remaining, reset, more
}

// giveBack takes the newest entry from a log, which takeIn has charged. state is that of its key.
func giveBack(s *shard, state *rate.State) { s.logs[state.A].N-- }

// started is what times of timed decisions count from.
var started = time.Now()

// prepare readies the states of all rules for a request that they allow: it inserts new keys, of which there are so many as fresh, and moves
// old states to the present. It returns false if that is not all: see settleNew.
func prepare(f *several, list []*severalRule, hashes []uint64, s *shard, base uint64, now int64, fresh int) bool {
	var (
		hash uint64
		i    int
		ok   bool
	)
	m := f.memory
	if fresh > 0 {
		if m.keys.Load() > m.maxKeys.Load()-int64(fresh) || m.logTimes.Load() > logBudgetFloor {
			return false
		}
		for n, p := range list { // before any is inserted, which would be forgotten as unused
			hash = base ^ p.salt
			if f.apart {
				hash = hashes[n]
				s = f.shards[hash&f.mask]
			}
			if hash == 0 {
				return false
			}
			if _, ok = s.index[hash]; !ok {
				expireKeys(m, s, 2, now, nil)
			}
		}
	}
	for n, p := range list {
		hash = base ^ p.salt
		if f.apart {
			hash = hashes[n]
			s = f.shards[hash&f.mask]
		}
		i, ok = s.index[hash]
		if !ok {
			i = addKey(m, s, p.space, hash, now, 1)
		}
		if p.isLog {
			readyLog(m, s, i, p.space, p.limit, now)
		} else if !p.inFlight {
			rate.Roll(p.limit, &s.slots[i].state, now)
		}
	}
	return true
}
