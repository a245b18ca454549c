package memory

import (
	"hash/maphash"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core/rate"
)

// The functions of this file are what tools/flatten writes the fast paths of a Store from: its doc comment says how.

// templateServe returns a handler that decides, charges, counts, sets the quota fields and takes a ticket of a guard in one function, as c says. Requests
// that are allowed at once go on, and plain rejections are answered as c.Refusal says. All others go to c.Rest, uncharged, uncounted and untimed.
func templateServe(e *FastPath, c *ServeConfig) http.Handler {
	m := c.Metering
	metered := m != nil
	if !metered {
		m = &Metering{}
	}
	own := m.Path
	other := m.Other
	aside := m.OwnPaths
	allowed := m.Allowed
	timed := &timedFastPath{fastPath: e, config: c}
	g := c.Guarding
	next := c.Next
	guarded := g != nil
	if guarded {
		next = g.Ticketed
	} else {
		g = &Guarding{}
	}
	word := g.Word
	takesTicket := g.Take
	leavesPlace := g.Leave
	noTicket := g.NoTicket
	unready := g.Unticketed
	keyOf := c.Key
	noKey := c.NoKey
	direct := c.Direct
	keyless := c.Keyless
	shards := e.shards
	mask := e.mask
	seed := e.seed
	salt := e.salt
	clock := e.clock
	ahead := e.ahead
	tells := ahead != nil
	limit := e.limit
	accounts := e.accounts
	special := tells || accounts
	rest := c.Rest
	settling := newSettling(e, c)
	t := c.QuotaFields
	wanted := t.XRateLimit || t.IETF
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var (
			path                   string
			key                    string
			i                      int
			ok                     bool
			hash                   uint64
			s                      *shard
			state                  *rate.State
			now                    int64
			remaining, reset, more int64
			h                      http.Header
			to                     http.Handler // who serves the request; one call for all, since an interpreter pays for each, whether it is made or not
		)
		if metered {
			path = r.URL.Path
			if path == own || path == other {
				to = aside
				goto serve
			}
		}
		key = KeyIn(direct, keyOf, r)
		if key == noKey {
			to = keyless
			goto serve
		}
		hash = maphash.String(seed, key)&^kindBit ^ salt
		s = shards[hash&mask]
		s.mu.Lock()
		if clock == nil {
			now = time.Now().UnixMicro()
		} else {
			now = clock()
		}
		if metered && now%TimedShare == 0 { // microseconds are random enough, and cost an interpreter less than a counter
			to = timed
			goto unlock
		}
		i, ok = s.fast[hash]
		if !ok {
			i = -1
			goto settle
		}
		if special {
			if accounts && s.owners[i]&accounted != 0 {
				if rejectPenalized(settling, s, i, now, key, w, r) {
					return
				}
				to = rest
				goto unlock
			}
			if tells {
				now += atomic.LoadInt64(ahead)
				s.admitted[i]++
			}
		}
	again:
		state = &s.slots[i].state
		remaining, reset, more = takeIn(s, limit, state, now)
		if remaining < 0 {
			goto rare
		}
		s.mu.Unlock()
		if metered {
			atomic.AddInt64(allowed, 1)
		}
		if wanted {
			reset = (reset + 999_999) / 1_000_000
			more = (more + 999_999) / 1_000_000
			h = w.Header()
			if len(h) > 1 || remaining|reset >= t.Ready { // Traefik's responses always have one field
				setLarge(t, h, remaining, reset, more)
			} else {
				h[HeaderLimit] = t.Limit
				h[HeaderRemaining] = numberValues[remaining]
				h[HeaderReset] = numberValues[reset]
				h[HeaderRateLimit] = []string{t.State + numberTexts[remaining] + numberEnds[more]}
				h[HeaderPolicy] = t.Policy
			}
		}
		to = next
		if guarded { // a ticket is taken as guard.Gauge says
			to = unready
			if r.ContentLength < 0 {
				goto serve
			}
			if r.Header["Upgrade"] != nil {
				goto serve
			}
			if atomic.AddInt64(word, takesTicket)&noTicket != 0 {
				goto serve
			}
			to = next
			defer atomic.AddInt64(word, leavesPlace)
		}
		goto serve
	rare:
		if templateReject(settling, s, i, now, key, w, r) {
			return
		}
	settle:
		i = templateSettle(settling, s, i, now, hash, w, r)
		if i >= 0 {
			goto again
		}
		return
	unlock:
		s.mu.Unlock()
	serve:
		to.ServeHTTP(w, r)
	})
}

// templateSettle settles a request that Serve neither allows nor rejects at once, with the lock of its shard held, which it unlocks: it leaves it to
// the rest. Or it keeps the lock, and returns the slot of the key, for Serve to try again, since it has inserted a new key, or moved an old state
// to the present. Otherwise it returns -1. i is the slot, -1 for a new key.
func templateSettle(f *settling, s *shard, i int, now int64, hash uint64, w http.ResponseWriter, r *http.Request) int {
	if f.tells {
		if i < 0 {
			s.mu.Unlock()
			goto rest
		}
		s.admitted[i]--
	}
	if i < 0 {
		i = settleNew(f, s, now, hash, w, r)
		if f.limit.Ages {
			if i >= 0 {
				readyIn(f, s, i, now)
			}
		}
		return i
	}
	if f.limit.Ages {
		if readyIn(f, s, i, now) {
			if f.tells {
				s.admitted[i]++
			}
			return i
		}
	}
	s.mu.Unlock()
rest:
	f.rest.ServeHTTP(w, r)
	return -1
}

// templateReject rejects a request by the key in slot i, or leaves it to the rest, with the lock of its shard held, which it unlocks. If the limit does
// not surely reject the request, it keeps the lock, and returns false.
func templateReject(f *settling, s *shard, i int, now int64, key string, w http.ResponseWriter, r *http.Request) bool {
	var (
		state        *rate.State
		limit        *rate.Limit
		g            *Refuser
		retry, reset int64
		refused      bool
	)
	g = f.refuser
	if g == nil || r.Header[f.watched] != nil && !noticedIn(f) {
		return false
	}
	state = &s.slots[i].state
	limit = f.limit
	retry, reset = rejectIn(s, limit, state, now)
	if retry < 0 {
		goto allowed
	}
	s.owners[i] |= rejected
	if f.tells {
		s.admitted[i]--
	}
	s.mu.Unlock()
	if g.next != nil {
		passShadowed(g, w, r)
		return true
	}
	refused = Refuse(g, retry, reset, key, w, r)
	if !refused {
		goto general
	}
	_ = refused // which nothing else reads where this is written flat
	return true
general:
	f.rest.ServeHTTP(w, r)
	return true
allowed:
	return false
}

var _ = templateSeveral // it is only read

// templateSeveral returns the path of several rules: it finds and charges each rule's state in turn, and sets the quota fields for all of them.
// If one of them does not allow the request at once, settleSeveral takes it all back.
func templateSeveral(f *several, c *ServeConfig) http.Handler {
	m := c.Metering
	metered := m != nil
	if !metered {
		m = &Metering{}
	}
	own := m.Path
	other := m.Other
	aside := m.OwnPaths
	keyOf := c.Key
	noKey := c.NoKey
	direct := c.Direct
	keyless := c.Keyless
	rest := c.Rest
	next := c.Next
	all := f.rules
	whole := f.policies
	matched := f.matched
	apart := f.apart
	shards := f.shards
	mask := f.mask
	seed := f.seed
	place := f.place
	clock := f.clock
	xRateLimit := f.xRateLimit
	ietf := f.ietf
	counted := metered || f.tallied
	inFlight := f.inFlight
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var (
			path                   string
			h                      http.Header
			list                   []*severalRule
			policies               []string
			key                    string
			i                      int
			ok                     bool
			base, hash             uint64
			hashes                 []uint64
			before                 []rate.State
			s                      *shard
			state                  *rate.State
			limit                  *rate.Limit
			tightest               *severalRule
			now                    int64
			remaining, reset, more int64
			left, quota, wait      int64
			failed                 int
			refused                int64 // a bit for each shadow that would reject the request
			texts                  string
			begun                  int64 // since started, in nanoseconds; 0: it is not timed
		)
		if metered {
			path = r.URL.Path
			if path == own || path == other {
				aside.ServeHTTP(w, r)
				return
			}
		}
		h = w.Header()
		if len(h) > 1 && EarlierFields(h) { // Traefik's responses always have one field
			rest.ServeHTTP(w, r)
			return
		}
		list = all
		policies = whole
		if matched {
			list, policies = covering(f, r)
			if len(list) == 0 {
				next.ServeHTTP(w, r)
				return
			}
		}
	begin:
		if apart {
			hashes = lockApart(f, list, r)
			if hashes == nil {
				rest.ServeHTTP(w, r)
				return
			}
		} else {
			key = KeyIn(direct, keyOf, r)
			if key == noKey {
				keyless.ServeHTTP(w, r)
				return
			}
			base = maphash.String(seed, key) &^ kindBit
			s = shards[(base^place)&mask]
			s.mu.Lock()
		}
		if clock == nil {
			now = time.Now().UnixMicro()
		} else {
			now = clock()
		}
		if metered && now%TimedShare == 0 && begun == 0 { // microseconds are random enough; it is timed from the beginning
			begun = beginTimed(f, s, hashes)
			goto begin
		}
		before = make([]rate.State, len(list))
	again:
		left = 1 // of a quota of 0: the first rule is tighter than that
		quota = 0
		texts = ""
		for n, p := range list {
			if refused != 0 && refused>>uint(n)&1 != 0 {
				continue
			}
			if apart {
				hash = hashes[n]
				s = shards[hash&mask]
			} else {
				hash = base ^ p.salt
			}
			i, ok = s.index[hash]
			if !ok {
				failed = n
				goto rare
			}
			state = &s.slots[i].state
			if p.inFlight {
				reset = 0
				more = 0
				remaining = freeIn(s, p, hash, state)
				if remaining < 0 {
					failed = n
					goto rare
				}
			} else {
				if p.accounts && s.owners[i]&accounted != 0 {
					failed = n
					goto rare
				}
				before[n] = *state
				limit = p.limit
				remaining, reset, more = takeIn(s, limit, state, now)
				if remaining < 0 {
					failed = n
					goto rare
				}
			}
			if p.shadow {
				continue
			}
			if ietf {
				more = (more + 999_999) / 1_000_000
				if remaining|more < tabled {
					texts = texts + p.state + numberTexts[remaining] + numberEnds[more]
				} else {
					texts = texts + memberOf(p, remaining, more)
				}
			}
			if remaining*quota < left*p.quota {
				left = remaining
				quota = p.quota
				wait = reset
				tightest = p
			}
		}
		if inFlight {
			defer endInFlight(beginInFlight(f, list, s, base, hashes, now))
		}
		if apart {
			unlockSeveral(f, s, hashes)
		} else {
			s.mu.Unlock()
		}
		if counted {
			countSeveral(f, list, begun, refused)
		}
		if quota == 0 && texts == "" { // they are all shadows
			next.ServeHTTP(w, r)
			return
		}
		if xRateLimit {
			wait = (wait + 999_999) / 1_000_000
			if left|wait < tabled {
				h[HeaderLimit] = tightest.limitField
				h[HeaderRemaining] = numberValues[left]
				h[HeaderReset] = numberValues[wait]
			} else {
				setLong(h, tightest, left, wait)
			}
		}
		if ietf {
			h[HeaderRateLimit] = []string{texts[2:]}
			h[HeaderPolicy] = policies
		}
		next.ServeHTTP(w, r)
		return
	rare:
		refused = settleSeveral(f, list, policies, before[:failed], s, base, hashes, now, begun, refused, key, w, r)
		if refused >= 0 {
			goto again
		}
	})
}
