package redis

import (
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// settleLate takes over what came of a call after its request had left. What Redis has decided on the request does not matter any more.
func (l *leaseCache) settleLate(k *keyLease, a *rate.LeaseAsk, reply []int64, err error) {
	var numbers []int64
	if err == nil && len(reply) == leaseNumbers {
		numbers = reply
	}
	l.settle(k, a, numbers, executed(err) && len(reply) != 1)
}

// settle takes over the numbers of an answer to a call about a lease; nil: there is none, and there will be none. executed says whether Redis may have
// carried the call out.
func (l *leaseCache) settle(k *keyLease, a *rate.LeaseAsk, numbers []int64, executed bool) {
	k.mu.Lock()
	terms := k.open.lease
	k.mu.Unlock()
	var g rate.LeaseGrant
	if numbers != nil && readGrant(numbers, terms, &g) {
		l.grant(k, a, &g)
		return
	}
	k.mu.Lock()
	rate.OrphanLease(&k.lease, terms, a, executed)
	k.mu.Unlock()
	l.failed.Add(1)
}

// grant takes over the answer to a call about a lease.
func (l *leaseCache) grant(k *keyLease, a *rate.LeaseAsk, g *rate.LeaseGrant) {
	mono, _ := l.store.clocks()
	k.mu.Lock()
	rate.GrantLease(&k.lease, k.open.lease, a, g, mono)
	if g.Units > 0 && !k.listed {
		k.listed = true
		shard := &l.shards[k.place]
		shard.held = append(shard.held, k)
	}
	k.mu.Unlock()
	if rate.LeaseGained(a, g) > 0 {
		l.granted.Add(1)
	} else {
		l.refused.Add(1)
	}
	l.watch()
}

// watch sets the timer, unless it is set.
func (l *leaseCache) watch() {
	l.mu.Lock()
	if l.timer == nil && !l.closed {
		l.timer = time.AfterFunc(returnsEvery, l.again)
	}
	l.mu.Unlock()
}

// returnLater gives back what is due, and sets the timer for the next time if anything is held.
func (l *leaseCache) returnLater() {
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
func (l *leaseCache) expiring(ahead int64) (due []*leaseCall, held bool) {
	mono, wall := l.store.clocks()
	for i := range l.shards {
		shard := &l.shards[i]
		shard.mu.Lock()
		kept := shard.held[:0]
		for _, k := range shard.held {
			one := &leaseCall{of: k}
			if rate.ReturnLease(&k.lease, mono+ahead, wall+ahead, &one.ask) {
				due = append(due, one)
			}
			if k.listed = rate.LeaseHeld(&k.lease); k.listed {
				kept = append(kept, k)
				held = true
			}
		}
		shard.held = kept
		shard.mu.Unlock()
	}
	return due, held
}

// send makes a call aside.
func (l *leaseCache) send(one *leaseCall) {
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
func (l *leaseCache) sendAll() {
	for {
		l.mu.Lock()
		n := l.together(len(l.due))
		list := append([]*leaseCall{}, l.due[:n]...)
		l.due = append([]*leaseCall{}, l.due[n:]...)
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
func (l *leaseCache) sendSome(list []*leaseCall) {
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
		one.of.mu.Lock()
		o := one.of.open
		c.Keys = keysOfLease(c.Keys, one.of.name, o)
		check := core.Check{Rule: one.of.rule}
		one.of.mu.Unlock()
		argument.WriteString(leaseArgument(&one.ask, o))
		argument.WriteString(argumentOf(s, c, o, &check, false))
	}
	c.Args = []string{argument.String()}
	c.Late = func(late error) { l.finish(list, c.Reply, late) }
	err = s.callAside(c)
}

// finish takes over the reply to a call about leases, or the error for which there is none.
func (l *leaseCache) finish(list []*leaseCall, reply []int64, err error) {
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

// sendLater has the units of a lease given back with the next ones, since Redis has not got the call. It returns false if there were too many tries.
func (l *leaseCache) sendLater(one *leaseCall) bool {
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

// together returns how many of so many lease calls one call to Redis is for. Keys of several slots of a Cluster cannot be in one call.
func (l *leaseCache) together(n int) int {
	if n > mostLeaseCalls {
		n = mostLeaseCalls
	}
	if n > 1 && l.store.client.Cluster() {
		n = 1
	}
	return n
}
