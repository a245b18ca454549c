package redis

import (
	"hash/maphash"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

// The functions of this file are what tools/flatten writes the fast paths of a Store from: its doc comment says how. Programs call what it writes.
var _ = []func(e *fastPath, c *memory.ServeConfig) http.Handler{templateOne, templateLeased, templateSeveral}

// templateOne returns the fast path of one rule, which asks Redis. All but a plain yes goes to the labels seldom and unusual.
func templateOne(e *fastPath, c *memory.ServeConfig) http.Handler {
	m := c.Metering
	metered := m != nil
	if !metered {
		m = &memory.Metering{}
	}
	own := m.Path
	other := m.Other
	aside := m.OwnPaths
	allowed := m.Allowed
	durations := e.durations
	keyOf := c.Key
	noKey := c.NoKey
	direct := c.Direct
	keyless := c.Keyless
	next := c.Next
	shards := e.shards
	seed := e.seed
	salt := e.rules[0].salt
	quota := e.rules[0].quota
	trouble := e.trouble
	clock := e.clock
	p := e.pipeline
	head := e.all.head
	tail := e.all.tail
	t := c.QuotaFields
	ready := t.Ready != 0
	wanted := t.XRateLimit || t.IETF
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var (
			path    string
			key     string
			hash    uint64
			shard   *decisionShard
			k       *cachedDecision
			command string
			now     int64
			began   time.Duration
			s       *Stream
			number  uint
			line    string
			words   []string
			err     error
			h       http.Header
			end     string
		)
		if metered {
			path = r.URL.Path
			if path == own || path == other {
				aside.ServeHTTP(w, r)
				return
			}
		}
		key = memory.KeyIn(direct, keyOf, r)
		if key == noKey {
			keyless.ServeHTTP(w, r)
			return
		}
		hash = maphash.String(seed, key) ^ salt
		shard = shards[hash%cacheShards]
		shard.mu.Lock()
		k = shard.keys.Young[hash]
		if k == nil || k.command == "" || trouble.Load() != 0 {
			shard.mu.Unlock()
			goto seldom
		}
		command = k.command
		shard.mu.Unlock()
		began = time.Since(Started)
		if clock == nil {
			now = int64(began / time.Microsecond)
		} else {
			now = clock()
		}
		s, number, line, err = exchange(p, head, command, tail)
		if s == nil {
			goto seldom
		}
		if err != nil {
			goto unusual
		}
		s.Turns.EndResponse(number)
		words = strings.Split(line[1:], " ")
		if len(words) != lineNumbers+1 || line[0] != '+' || !strings.HasSuffix(command, words[lineNumbers]) {
			goto unusual
		}
		shard.mu.Lock()
		k.at = now
		k.line = line
		k.limit = quota
		shard.mu.Unlock()
		if metered {
			if number%memory.TimedShare == 0 {
				rate.Observe(durations, time.Since(Started)-began)
			}
			atomic.AddInt64(allowed, 1)
		}
		h = w.Header()
		if len(h) > 1 || !ready { // Traefik's responses always have one field
			if wanted {
				setOtherFields(t, h, words)
			}
		} else {
			if words[5] != "0" {
				end = memory.MoreText + words[5]
			}
			h[memory.HeaderLimit] = t.Limit
			h[memory.HeaderRemaining] = words[0:1:1]
			h[memory.HeaderReset] = words[4:5:5]
			h[memory.HeaderRateLimit] = []string{t.State + words[0] + end}
			h[memory.HeaderPolicy] = t.Policy
		}
		next.ServeHTTP(w, r)
		return
	seldom:
		settleKnown(e, w, r, key, hash)
		return
	unusual:
		settle(e, w, r, e.all, key, []uint64{hash}, &Turn{Stream: s, Number: number, Began: began, Line: []byte(line), Err: err}, now, tail, 0)
	})
}

// exchange makes one call over a Pipeline, whose doc comment has the steps. Without a Stream it returns nil.
//
//flatten:inline
func exchange(p *Pipeline, head, command, tail string) (s *Stream, number uint, line string, err error) {
	var sent uint
	var sending bool
	var out string
	var n int
	var reply []byte
	p.Mu.Lock()
	s = p.Stream
	if s == nil {
		p.Mu.Unlock()
		return nil, 0, "", nil
	}
	number = s.Number
	s.Number = number + 1
	s.Out += head + command + tail
	sending = s.Sending
	s.Sending = true
	p.Mu.Unlock()
	if !sending {
		runtime.Gosched() // lets goroutines that are about to call do so first, so that one write sends all their commands
		s.Writing.Lock()
		p.Mu.Lock()
		out = s.Out
		s.Out = ""
		sent = s.Sent
		s.Sent = s.Number
		s.Sending = false
		p.Mu.Unlock()
		n, err = io.WriteString(s.Conn, out)
		if err != nil {
			p.Unsent(s, sent, n, err)
		}
		s.Writing.Unlock()
	}
	s.Turns.StartResponse(number)
	reply, err = s.Reader.ReadSlice('\n')
	line = string(reply)
	return s, number, line, err
}

// templateLeased returns the fast path of a leased rule: it spends a unit that the node holds.
func templateLeased(e *fastPath, c *memory.ServeConfig) http.Handler {
	m := c.Metering
	metered := m != nil
	if !metered {
		m = &memory.Metering{}
	}
	own := m.Path
	other := m.Other
	aside := m.OwnPaths
	allowed := m.Allowed
	durations := e.durations
	keyOf := c.Key
	noKey := c.NoKey
	direct := c.Direct
	keyless := c.Keyless
	next := c.Next
	shards := e.leaseShards
	seed := e.seed
	salt := e.rules[0].salt ^ e.rules[0].open.terms
	quota := e.rules[0].quota
	clock := e.clock
	none := &keyLease{}
	t := c.QuotaFields
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var (
			path             string
			key              string
			hash             uint64
			at               time.Time
			mono, ahead      int64 // ahead is the wall clock at first
			shard            *leaseShard
			of               *keyLease
			lease            *rate.Lease
			remaining, reset int64
			h                http.Header
		)
		if metered {
			path = r.URL.Path
			if path == own || path == other {
				aside.ServeHTTP(w, r)
				return
			}
		}
		key = memory.KeyIn(direct, keyOf, r)
		if key == noKey {
			keyless.ServeHTTP(w, r)
			return
		}
		hash = maphash.String(seed, key) ^ salt
		shard = shards[hash%cacheShards]
		at = time.Now()
		if clock == nil {
			mono = int64(at.Sub(Started) / time.Microsecond)
			ahead = at.UnixMicro()
		} else {
			mono, ahead = e.store.clocks()
		}
		shard.mu.Lock()
		of = shard.keys.Young[hash]
		if of == nil {
			of = none
		}
		lease = &of.lease
		ahead -= mono + lease.Ahead
		if lease.Left <= lease.Low || mono >= lease.End || ahead > rate.SteppedClocks || ahead < -rate.SteppedClocks {
			shard.mu.Unlock()
			decideUnheld(e, w, r, key)
			return
		}
		lease.Came++
		lease.Left--
		shard.spent++
		remaining = lease.Left + lease.Free
		reset = lease.ResetAt - mono
		shard.mu.Unlock()
		if remaining > quota {
			remaining = quota
		}
		if reset < 0 {
			reset = 0
		}
		if metered {
			if mono%memory.TimedShare == 0 { // microseconds are random enough
				rate.Observe(durations, time.Since(at))
			}
			atomic.AddInt64(allowed, 1)
		}
		reset = (reset + 999_999) / 1_000_000
		h = w.Header()
		setDecided(t, h, remaining, reset, 0)
		next.ServeHTTP(w, r)
	})
}

// setDecided sets the quota fields for a request that was allowed here. reset and more are the seconds until the quota is
// whole and until more is left; a more of 0 is left out.
//
//flatten:inline
func setDecided(t *memory.QuotaFields, h http.Header, remaining, reset, more int64) {
	var left []string
	if len(h) > 1 || reset >= t.Ready { // Traefik's responses always have one field
		memory.SetQuotaFields(t, h, remaining, reset, more)
	} else if remaining >= t.Ready {
		left = []string{strconv.FormatInt(remaining, 10)}
		h[memory.HeaderLimit] = t.Limit
		h[memory.HeaderRemaining] = left
		h[memory.HeaderReset] = t.Values[reset]
		h[memory.HeaderRateLimit] = []string{t.State + left[0] + t.Ends[more]}
		h[memory.HeaderPolicy] = t.Policy
	} else {
		h[memory.HeaderLimit] = t.Limit
		h[memory.HeaderRemaining] = t.Values[remaining]
		h[memory.HeaderReset] = t.Values[reset]
		h[memory.HeaderRateLimit] = []string{t.State + t.Numbers[remaining] + t.Ends[more]}
		h[memory.HeaderPolicy] = t.Policy
	}
}

// templateSeveral returns the fast path of several rules, or of one with an overflow policy. They have one call, and each has its own cached decision. If any
// has an overflow policy, scripts/overflow.lua decides on all, and replies with an array; what it lets through by tolerance goes to the label unusual, too.
func templateSeveral(e *fastPath, c *memory.ServeConfig) http.Handler {
	m := c.Metering
	metered := m != nil
	if !metered {
		m = &memory.Metering{}
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
	all := e.all
	matched := e.matched
	apart := e.apart
	shards := e.shards
	seed := e.seed
	trouble := e.trouble
	durations := e.durations
	clock := e.clock
	p := e.pipeline
	xRateLimit := e.xRateLimit
	ietf := e.ietf
	overflow := e.overflow
	counted := metered || e.tallied
	conclude := e.conclude
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var (
			path                   string
			h                      http.Header
			group                  *ruleGroup
			list                   []*fastRule
			head, tail             string
			key                    string
			hash                   uint64
			hashes                 []uint64
			entries                []*cachedDecision
			shard                  *decisionShard
			k                      *cachedDecision
			command                string
			now                    int64
			began                  time.Duration
			s                      *Stream
			number                 uint
			line                   string
			words                  []string
			err                    error
			tightest               *fastRule
			remaining, left, quota int64
			at, place              int
			refused                int64 // a bit for each shadow that would reject the request
			ticket                 uint64
			texts                  string
		)
		if metered {
			path = r.URL.Path
			if path == own || path == other {
				aside.ServeHTTP(w, r)
				return
			}
		}
		h = w.Header()
		if len(h) > 1 && memory.EarlierFields(h) { // Traefik's responses always have one field
			rest.ServeHTTP(w, r)
			return
		}
		group = all
		if matched {
			group = covering(e, r)
			if group == nil {
				next.ServeHTTP(w, r)
				return
			}
		}
		list = group.rules
		head = group.head
		tail = group.tail
		hashes = make([]uint64, len(list))
		entries = make([]*cachedDecision, len(list))
		if !apart {
			key = memory.KeyIn(direct, keyOf, r)
			if key == noKey {
				keyless.ServeHTTP(w, r)
				return
			}
		}
		for n, one := range list {
			if apart {
				key = one.keyOf(r)
				if key == one.noKey {
					rest.ServeHTTP(w, r)
					return
				}
			}
			hash = maphash.String(seed, key) ^ one.salt
			hashes[n] = hash
			shard = shards[hash%cacheShards]
			shard.mu.Lock()
			k = shard.keys.Young[hash]
			if k == nil || k.command == "" || overflow && k.six == "" {
				shard.mu.Unlock()
				goto seldom
			}
			if overflow {
				command += k.six
			} else {
				command += k.command
			}
			shard.mu.Unlock()
			entries[n] = k
		}
		if trouble.Load() != 0 {
			goto seldom
		}
		if group.tickets != nil {
			tail, ticket = ticketed(e, group)
			if tail == "" {
				goto seldom
			}
		}
		began = time.Since(Started)
		if clock == nil {
			now = int64(began / time.Microsecond)
		} else {
			now = clock()
		}
		s, number, line, err = exchange(p, head, command, tail)
		if s == nil {
			goto seldom
		}
		if err == nil && line == group.reply {
			words, refused, line, err = readArray(s.Reader, group, line)
		}
		if err != nil {
			goto unusual
		}
		s.Turns.EndResponse(number)
		if !overflow {
			words = strings.Split(line[1:], " ")
			if len(words) != lineNumbers*len(list)+1 || line[0] != '+' || !strings.HasSuffix(command, words[len(words)-1]) {
				goto unusual
			}
		} else if len(words) == 0 {
			goto unusual
		}
		left = 1 // of a quota of 0: the first rule is tighter than that
		for n, one := range list {
			if refused != 0 && refused>>uint(n)&1 != 0 {
				continue
			}
			at = n * lineNumbers
			if !one.overflow {
				shard = shards[hashes[n]%cacheShards]
				k = entries[n]
				shard.mu.Lock()
				k.at = now
				k.line = "+" + strings.Join(words[at:at+lineNumbers], " ")
				k.limit = one.quota
				shard.mu.Unlock()
			}
			if one.shadow {
				continue
			}
			remaining, _ = strconv.ParseInt(words[at], 10, 64) // the script has written numbers
			if remaining*quota < left*one.quota {
				left = remaining
				quota = one.quota
				tightest = one
				place = at
			}
			if ietf {
				texts = texts + one.stateText + words[at]
				if words[at+5] != "0" {
					texts = texts + memory.MoreText + words[at+5]
				}
			}
		}
		if xRateLimit && tightest != nil {
			h[memory.HeaderLimit] = tightest.limitField
			h[memory.HeaderRemaining] = words[place : place+1 : place+1]
			h[memory.HeaderReset] = words[place+4 : place+5 : place+5]
		}
		if texts != "" {
			h[memory.HeaderRateLimit] = []string{texts[2:]}
			h[memory.HeaderPolicy] = group.policies
		}
		if metered && number%memory.TimedShare == 0 {
			rate.Observe(durations, time.Since(Started)-began)
		}
		if counted {
			countServed(list, refused)
		}
		if group.inFlight {
			defer conclude.Finish(reserved(e, group, key, r, ticket))
		}
		next.ServeHTTP(w, r)
		return
	seldom:
		settleKnownSeveral(e, w, r, group, key)
		return
	unusual:
		settle(e, w, r, group, key, hashes, &Turn{Stream: s, Number: number, Began: began, Line: []byte(line), Err: err}, now, tail, ticket)
	})
}
