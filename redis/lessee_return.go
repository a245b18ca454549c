package redis

import (
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// settleLate takes over what came of a call after its request had left. What Redis has decided on the request does not matter any more.
func (l *lessee) settleLate(h *holding, a *rate.LeaseAsk, reply []int64, err error) {
	var numbers []int64
	if err == nil && len(reply) == leaseNumbers {
		numbers = reply
	}
	l.settle(h, a, numbers, executed(err) && len(reply) != 1)
}

// settle takes over the numbers of an answer to a call about a lease; nil: there is none, and there will be none. executed says whether Redis may have
// carried the call out.
func (l *lessee) settle(h *holding, a *rate.LeaseAsk, numbers []int64, executed bool) {
	h.mu.Lock()
	terms := h.open.lease
	h.mu.Unlock()
	var g rate.LeaseGrant
	if numbers != nil && readGrant(numbers, terms, &g) {
		l.grant(h, a, &g)
		return
	}
	h.mu.Lock()
	rate.OrphanLease(&h.lease, terms, a, executed)
	h.mu.Unlock()
	l.failed.Add(1)
}

// grant takes over the answer to a call about a lease.
func (l *lessee) grant(h *holding, a *rate.LeaseAsk, g *rate.LeaseGrant) {
	mono, _ := l.store.clocks()
	h.mu.Lock()
	rate.GrantLease(&h.lease, h.open.lease, a, g, mono)
	if g.Units > 0 && !h.listed {
		h.listed = true
		shard := &l.shards[h.place]
		shard.held = append(shard.held, h)
	}
	h.mu.Unlock()
	if rate.LeaseGained(a, g) > 0 {
		l.granted.Add(1)
	} else {
		l.refused.Add(1)
	}
	l.watch()
}

// watch sets the timer, unless it is set.
func (l *lessee) watch() {
	l.mu.Lock()
	if l.timer == nil && !l.closed {
		l.timer = time.AfterFunc(returnsEvery, l.again)
	}
	l.mu.Unlock()
}

// returnLater gives back what is due, and sets the timer for the next time if anything is held.
func (l *lessee) returnLater() {
	defer func() {
		_ = recover() // an interpreted program has no other recover
	}()
	due, held := l.expiring(0)
	l.mu.Lock()
	due = append(due, l.unsent...)
	l.unsent = nil
	l.mu.Unlock()
	for _, one := range due {
		l.send(one)
	}
	l.mu.Lock()
	if l.closed || !held && len(l.unsent) == 0 {
		l.timer = nil
	} else {
		l.timer.Reset(returnsEvery)
	}
	l.mu.Unlock()
}

// expiring returns the calls that give back the leases that are due at that time from now, in microseconds. It reports whether any others are held.
func (l *lessee) expiring(ahead int64) (due []*errand, held bool) {
	mono, wall := l.store.clocks()
	for i := range l.shards {
		shard := &l.shards[i]
		shard.mu.Lock()
		kept := shard.held[:0]
		for _, h := range shard.held {
			one := &errand{of: h}
			if rate.ReturnLease(&h.lease, mono+ahead, wall+ahead, &one.ask) {
				due = append(due, one)
			}
			if h.listed = rate.LeaseHeld(&h.lease); h.listed {
				kept = append(kept, h)
				held = true
			}
		}
		shard.held = kept
		shard.mu.Unlock()
	}
	return due, held
}

// send makes a call aside.
func (l *lessee) send(one *errand) {
	l.underWay.Add(1)
	l.mu.Lock()
	l.due = append(l.due, one)
	begin := l.active == 0 || l.active < mostAside && time.Since(l.begun) > apart
	if begin {
		l.active++
		l.begun = time.Now()
	}
	l.mu.Unlock()
	if begin {
		go l.sendAll()
	}
}

// sendAll makes the calls that are due until there are no more.
func (l *lessee) sendAll() {
	for {
		l.mu.Lock()
		n := l.together(len(l.due))
		list := append([]*errand{}, l.due[:n]...)
		l.due = append([]*errand{}, l.due[n:]...)
		if n == 0 {
			l.active--
		} else {
			l.begun = time.Now()
		}
		l.mu.Unlock()
		if n == 0 {
			return
		}
		l.sendSome(list)
	}
}

// sendSome makes one call. An answer that comes after the client's timeout is taken over, too.
func (l *lessee) sendSome(list []*errand) {
	s := l.store
	c := &Call{Script: scriptOfLease}
	err := errReply // if this panics
	defer func() {
		_ = recover() // an interpreted program has no other recover
		if !pending(err) {
			l.finish(list, c.Reply, err)
		}
	}()
	var argument strings.Builder
	for _, one := range list {
		c.Keys = append(c.Keys, one.of.name, one.of.name+demandSuffix)
		one.of.mu.Lock()
		o := one.of.open
		check := core.Check{Rule: one.of.rule}
		one.of.mu.Unlock()
		argument.WriteString(leaseArgument(&one.ask, o.lease))
		argument.WriteString(argumentOf(s, c, o, &check, false))
	}
	c.Args = []string{argument.String()}
	c.Late = func(late error) { l.finish(list, c.Reply, late) }
	err = s.callAside(c)
}

// finish takes over the reply to a call for errands, or the error for which there is none.
func (l *lessee) finish(list []*errand, reply []int64, err error) {
	done := executed(err)
	if err == nil && len(reply) == 1 { // the server's time lies in none of the calendar's windows that were sent
		l.store.ahead.Store(reply[0] - l.store.wallClock())
		done = false
	}
	answered := err == nil && len(reply) == leaseNumbers*len(list)
	for i, one := range list {
		var numbers []int64
		if answered {
			numbers = reply[leaseNumbers*i : leaseNumbers*i+leaseNumbers]
		}
		if one.ask.Want > 0 {
			l.settle(one.of, &one.ask, numbers, done)
		} else if answered {
			l.returned.Add(1)
		} else if done || !l.sendLater(one) {
			l.failed.Add(1)
		}
		l.underWay.Add(-1)
	}
}

// sendLater has the units of an errand given back with the next ones, since Redis has not got the call. It returns false if there were too many tries.
func (l *lessee) sendLater(one *errand) bool {
	one.tries++
	l.mu.Lock()
	again := one.tries < mostTries && !l.closed
	if again {
		l.unsent = append(l.unsent, one)
	}
	l.mu.Unlock()
	if again {
		l.watch()
	}
	return again
}

// together returns how many of so many errands one call is for. Keys of several slots of a Cluster cannot be in one call.
func (l *lessee) together(n int) int {
	if n > mostErrands {
		n = mostErrands
	}
	if n > 1 && l.store.client.Cluster() {
		n = 1
	}
	return n
}
