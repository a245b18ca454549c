package redis

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

// settleKnown rejects a request whose key is cached as rejected, or takes the general path.
func settleKnown(e *fastPath, w http.ResponseWriter, r *http.Request, key string, hash uint64) {
	var (
		shard        *decisionShard
		k            *cachedDecision
		g            *memory.Refuser
		now          int64
		retry, reset int64
	)
	if e.refuses && !watched(e, r) {
		now = e.store.clock()
		shard = e.shards[hash%cacheShards]
		shard.mu.Lock()
		k = shard.keys.Young[hash]
		if k != nil && k.plain && now < k.until && k.at <= now && k.terms == e.rules[0].open.terms {
			g = e.rules[0].refuser
			retry = k.retryAt - now
			reset = k.resetAt - now
		} else if k != nil && now < k.here.until && countedHere(e.rules[0], k) && e.server.breaker.Open() {
			g = e.rules[0].local
			retry = k.here.retryAt - now
			reset = k.here.resetAt - now
		}
		shard.mu.Unlock()
		if retry > 0 && reset > 0 && memory.Refuse(g, retry, reset, key, w, r) {
			return
		}
	}
	decideSeldom(e, w, r, e.all, key)
}

// countedHere reports whether this node's own count has decided on a key under the rule, by the share that it has now.
func countedHere(one *fastRule, k *cachedDecision) bool {
	return one.local != nil && k.here.terms == one.open.terms && k.here.quota == one.rule.Local.Limit.Quota
}

// settleKnownSeveral is settleKnown for several rules.
func settleKnownSeveral(e *fastPath, w http.ResponseWriter, r *http.Request, group *ruleGroup, key string) {
	if e.refuses && !watched(e, r) && refuseKnown(e, w, r, group, key) {
		return
	}
	decideSeldom(e, w, r, group, key)
}

// refuseKnown rejects a request that rules reject as the decision cache says, if that has something about the keys of all others: what
// Store.recall decides; and while Redis cannot be asked, as this node's own count says. Otherwise it returns false.
func refuseKnown(e *fastPath, w http.ResponseWriter, r *http.Request, group *ruleGroup, key string) bool {
	var (
		now, retry, longest, whole int64
		hash                       uint64
		reported                   int
		alone                      bool
		policies                   []string
		shard                      *decisionShard
		k                          *cachedDecision
		about                      cachedDecision
		left, waits                []int64 // of memory.RefuseSeveral
		refusers                   []*memory.Refuser
	)
	left = make([]int64, len(group.rules))
	waits = make([]int64, len(group.rules))
	refusers = make([]*memory.Refuser, len(group.rules))
	now = e.store.clock()
	alone = e.trouble.Load() != 0 && e.server.breaker.Open()
	policies = group.policies
	for n, one := range group.rules {
		if one.keyOf != nil {
			key = one.keyOf(r)
		}
		hash = maphash.String(e.seed, key) ^ one.salt
		shard = e.shards[hash%cacheShards]
		shard.mu.Lock()
		k = shard.keys.Young[hash]
		if k == nil || k.terms != one.open.terms && (!alone || !countedHere(one, k)) {
			shard.mu.Unlock()
			return false
		}
		about = *k
		shard.mu.Unlock()
		refusers[n] = one.refuser
		if alone && countedHere(one, &about) {
			refusers[n] = one.local
			policies = group.shares
			about = cachedDecision{until: about.here.until, retryAt: about.here.retryAt, resetAt: about.here.resetAt, remaining: about.here.left, plain: true}
		}
		if about.line != "" {
			about.unfold()
		}
		if about.at <= now && now < about.until {
			if !about.plain {
				return false
			}
			left[n] = -1
			retry = about.retryAt - now
			waits[n] = (retry + 999_999) / 1_000_000
			if retry > longest {
				reported = n
				longest = retry
				whole = about.resetAt - now
			}
			continue
		}
		left[n] = about.remaining
		if about.moreAt > now {
			waits[n] = (about.moreAt - now + 999_999) / 1_000_000
		}
	}
	if longest == 0 {
		return false
	}
	if whole < 0 {
		whole = 0
	}
	if e.apart {
		key = group.rules[0].keyOf(r)
	}
	memory.RefuseSeveral(refusers, policies, reported, left, waits, longest, whole, key, w, r)
	return true
}

// watched reports whether a request must take the general path: it has the header field that is watched, and nobody has noticed that yet; or there are keys
// with exceptions, and this may be one.
func watched(e *fastPath, r *http.Request) bool {
	if e.config.Excepted != nil && atomic.LoadInt32(e.config.Excepted) != 0 {
		return true
	}
	return r.Header[e.config.Watched] != nil && !e.config.Noticed.Load()
}

// decideUnheld takes the general path for a key of a leased rule, since its unit is not held, or more units are to be asked for; or for one of a rule
// that is eventual, since the memory does not simply allow the request.
func decideUnheld(e *fastPath, w http.ResponseWriter, r *http.Request, key string) {
	checks := checksOf(e, e.all, key, r)
	if watched(e, r) {
		e.config.Rest.ServeHTTP(w, r)
		return
	}
	err := decideGenerally(e, checks)
	e.conclude.Conclude(w, r, checks, err)
}

// decideGenerally lets the store decide, and times one decision in memory.TimedShare.
func decideGenerally(e *fastPath, checks []core.Check) error {
	if e.durations == nil || atomic.AddInt64(e.general, 1)%memory.TimedShare != 1 {
		return e.store.Decide(checks, false)
	}
	begun := time.Now()
	err := e.store.Decide(checks, false)
	rate.Observe(e.durations, time.Since(begun))
	return err
}

// decideSeldom takes the general path for a request with a key that is not cached, or cached as rejected, and notes the names that
// the next request needs. It does so, too, while the Pipeline has no Stream, and has one made. If a part of the key is missing, if the server
// has failed, or if the request must be noticed, it leaves the request to the rest. key is what it is if the rules have one.
func decideSeldom(e *fastPath, w http.ResponseWriter, r *http.Request, group *ruleGroup, key string) {
	checks := checksOf(e, group, key, r)
	if checks == nil || e.trouble.Load() != 0 || watched(e, r) {
		e.config.Rest.ServeHTTP(w, r)
		return
	}
	e.pipeline.Wake()
	err := decideGenerally(e, checks)
	if err == nil {
		for i, one := range group.rules {
			name := e.store.naming.key(checks[i].Key, one.open.suffix)
			hash := e.store.hashOf(one.open, checks[i].Key)
			shard := e.shards[hash%cacheShards]
			shard.mu.Lock()
			k := shard.keys.Use(hash, shardKeys)
			if one.overflow && k.until <= e.store.clock() { // its block is over, of which nothing else is noted
				k.until = 0
			}
			if k.until == 0 {
				k.command = argumentText(name)
				if e.overflow {
					k.six = sixOf(name)
				}
			}
			shard.mu.Unlock()
		}
	}
	e.conclude.Conclude(w, r, checks, err)
}

// checksOf returns the checks of a request; nil if it lacks the key of one of several rules.
func checksOf(e *fastPath, group *ruleGroup, key string, r *http.Request) []core.Check {
	var checks, none []core.Check
	for _, one := range group.rules {
		if one.keyOf != nil {
			key = one.keyOf(r)
			if key == one.noKey {
				return none
			}
		}
		if one.linked {
			checks = append(checks, core.PartOf(one.rule, key))
		} else {
			checks = append(checks, core.Check{Rule: one.rule, Key: key, Cost: 1})
		}
	}
	return checks
}

// settle goes on with a call whose reply does not simply allow the request, and passes the result on. hashes are those of the keys. tail is what the
// command ended with, and ticket the first of its tickets, if there are any.
func settle(e *fastPath, w http.ResponseWriter, r *http.Request, group *ruleGroup, key string, hashes []uint64, t *Turn, now int64, tail string, ticket uint64) {
	checks := checksOf(e, group, key, r)
	call := &Call{Script: e.script, Args: []string{tail[strings.IndexByte(tail, '\n')+1 : len(tail)-2]}}
	var names []string
	var rules []*openRule
	var bits []int64
	for i, one := range group.rules {
		names = append(names, e.store.naming.key(checks[i].Key, one.open.suffix))
		rules = append(rules, one.open)
		if e.overflow {
			call.Keys = furtherKeys(call.Keys, names[i])
		}
	}
	if !e.overflow {
		call.Keys = names
	}
	t.Call = call
	err := e.pipeline.Finish(t)
	if e.durations != nil && t.Number%memory.TimedShare == 0 {
		rate.Observe(e.durations, time.Since(Started)-t.Began)
	}
	if err != nil {
		e.store.failed(e.server, &e.server.breaker, call.Keys, 0, e.store.tooFar(e.server, err)) // ServeHTTP has seen no failures before the call
	} else if !readDecisions(e, checks, call.Reply) {
		err = errReply
	}
	if err == nil {
		if e.overflow {
			for i := range checks {
				checks[i].Ticket = ticket + uint64(i)
			}
			bits = readBits(e.store, bits, names, checks, call.Reply)
		}
		answered := e.store.clock()
		for i := range checks {
			if rules[i].further == nil || !e.overflow || bits[i]&isBlocked != 0 { // as Store.conclude has it
				e.store.decisions.put(hashes[i], rules[i], now, answered, 1, &checks[i].Decision)
			}
		}
	} else {
		err = fmt.Errorf("%s: %w", e.server.name, e.store.refused(err, call.Script, checks))
		e.store.lastKnown(&callState{rules: rules, hashes: hashes}, checks, e.store.clock())
	}
	e.conclude.Conclude(w, r, checks, err)
}

// readDecisions reads the numbers of a line into the decisions. It returns false if it is no reply to such a call.
func readDecisions(e *fastPath, checks []core.Check, reply []int64) bool {
	numbers := 4
	if e.overflow {
		numbers = overflowNumbers
	} else if len(reply) == lineNumbers*len(checks) {
		numbers = lineNumbers
	}
	if len(reply) != numbers*len(checks) {
		return false
	}
	for i := range checks {
		if !readDecision(checks[i].Rule, reply[numbers*i:], &checks[i].Decision) {
			return false
		}
	}
	return true
}

// sixOf returns the keys of a check as arguments of a command: see scripts/accounts.lua. name is the first.
func sixOf(name string) string {
	text := ""
	for _, key := range furtherKeys(nil, name) {
		text += argumentText(key)
	}
	return text
}

// ticketed returns the end of a command with new tickets, of which the rules have one each, and the first of them. It returns "" if requests wait for a
// rule: then the general path knows how long one more may wait.
func ticketed(e *fastPath, group *ruleGroup) (tail string, first uint64) {
	for _, r := range group.patient {
		if r.Waiting() > 0 {
			return "", 0
		}
	}
	n := uint64(len(group.tickets))
	first = e.store.renewals.tickets.Add(n) - n + 1
	if first+n <= n { // one of them is 0
		first = e.store.renewals.tickets.Add(n) - n + 1
	}
	b := []byte(group.tail)
	for i, at := range group.tickets {
		binary.LittleEndian.PutUint64(b[at:], first+uint64(i))
	}
	tail = string(b)
	return tail, first
}

// readArray reads the rest of an array, of which the first line was read, and returns of each rule what scripts/several_line.lua says, if all allow the
// request at once, but for the shadows that refused says; otherwise nothing. read is all that was read.
func readArray(in *bufio.Reader, group *ruleGroup, first string) (words []string, refused int64, read string, err error) {
	var list, numbers, none []string
	var bits int64
	numbers, read, err = restOf(in, first, overflowNumbers*len(group.rules))
	if err != nil || len(numbers) == 0 {
		return none, 0, read, err
	}
	list = make([]string, 0, lineNumbers*len(group.rules))
	for n, one := range group.rules {
		of := numbers[n*overflowNumbers : (n+1)*overflowNumbers]
		if of[0][0] == '-' {
			if one.refused == nil || !one.overflow || of[4] != "0" {
				return none, 0, read, err
			}
			bits |= 1 << uint(n)
		} else if of[1] != "0" || of[4] != one.usual {
			return none, 0, read, err
		}
		list = append(list, of[0], of[1], of[2], of[3], inSeconds(of[2]), inSeconds(of[3]))
	}
	return list, bits, read, err
}

// restOf reads the rest of an array, of which the first line was read, and returns its numbers, and all that was read.
func restOf(in *bufio.Reader, first string, numbers int) (words []string, read string, err error) {
	var (
		there      []byte
		last, rest string
		ends       bool
	)
	there, _ = in.Peek(in.Buffered())
	read = first + string(there)
	words = strings.SplitN(read, "\r\n:", numbers+1)
	if len(words) > numbers {
		last, rest, ends = strings.Cut(words[numbers], "\r\n")
	}
	if !ends {
		return restByLines(in, first, numbers)
	}
	words[numbers] = last
	read = read[:len(read)-len(rest)]
	_, err = in.Discard(len(read) - len(first))
	return words[1:], read, err
}

// restByLines is restOf for an array that is not there at once.
func restByLines(in *bufio.Reader, first string, numbers int) ([]string, string, error) {
	var (
		line  []byte
		words []string
		read  string
		err   error // a named result would keep that of an earlier call in the interpreter
	)
	read = first
	for i := 0; i < numbers && err == nil; i++ {
		line, err = in.ReadSlice('\n')
		read += string(line)
	}
	words = strings.Split(strings.TrimSuffix(read, "\r\n"), "\r\n:")
	if len(words) != numbers+1 {
		words = words[:1]
	}
	return words[1:], read, err
}

// inSeconds returns microseconds, which a script has written, in seconds.
func inSeconds(text string) string {
	n, _ := strconv.ParseInt(text, 10, 64)
	return strconv.FormatInt((n+999_999)/1_000_000, 10)
}

// countServed counts a request that all rules have allowed, but for the shadows that refused says.
func countServed(list []*fastRule, refused int64) {
	var counts []*int64
	for n, one := range list {
		counts = one.passed
		if refused>>uint(n)&1 != 0 {
			counts = one.refused
		} else if one.allowed != nil {
			atomic.AddInt64(one.allowed, 1)
		}
		for _, count := range counts {
			atomic.AddInt64(count, 1)
		}
	}
}

// reserved returns the reservations of a request that was allowed, and has them renewed. ticket is the first one.
func reserved(e *fastPath, group *ruleGroup, key string, r *http.Request, ticket uint64) []core.Reservation {
	var list []core.Reservation
	for n, one := range group.rules {
		if !one.rule.Limit.InFlight {
			continue
		}
		of := key
		if one.keyOf != nil {
			of = one.keyOf(r)
		}
		name := e.store.naming.key(of, one.open.suffix)
		e.store.renewals.add(heldUnder(name, one.rule, 1), member(one.rule, 1, ticket+uint64(n)))
		list = append(list, core.Reservation{Rule: one.rule, Key: of, Cost: 1, Ticket: ticket + uint64(n)})
	}
	return list
}

// setOtherFields sets the quota fields of a request that is allowed, if not all are wanted, or an earlier handler has set fields.
func setOtherFields(t *memory.QuotaFields, h http.Header, words []string) {
	remaining, _ := strconv.ParseInt(words[0], 10, 64) // the script has written numbers
	reset, _ := strconv.ParseInt(words[4], 10, 64)
	more, _ := strconv.ParseInt(words[5], 10, 64)
	memory.SetQuotaFields(t, h, remaining, reset, more)
}
