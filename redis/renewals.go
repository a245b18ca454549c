package redis

import (
	"crypto/rand"
	"encoding/binary"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
)

// DefaultLease is how long a reservation of a request under way outlives its node.
const DefaultLease = 15 * time.Second

// renewals has the reservations in Redis of this node's requests under way, and renews them. A node that dies renews nothing, and its leases
// end. (They have nothing to do with consistency lease: see leaseCache.) It is safe for concurrent use.
type renewals struct {
	store   *Store
	lasts   int64 // in microseconds
	tickets atomic.Uint64
	taken   atomic.Int64 // requests under way whose reservations are on this node alone
	again   func()       // renews all, and sets the timer again: made once, since in Yaegi a timer's function keeps what made it

	mu     sync.Mutex
	held   map[string]map[string]bool // the members of each key's set
	timer  *time.Timer                // nil: none is set
	owed   []owed                     // charges that Redis has not got; their reservations are held
	closed bool
	ending func() // closes the store when nothing is reserved any more; nil: the store stays open
}

// The most keys and leases that one call renews, so that no decision waits long for it.
const (
	leaseKeys    = 64
	leaseMembers = 500
)

// begin sets up the leases of a store.
func (l *renewals) begin(s *Store, lasts time.Duration) {
	if lasts <= 0 {
		lasts = DefaultLease
	}
	l.store = s
	l.lasts = int64(lasts / time.Microsecond)
	l.held = make(map[string]map[string]bool)
	l.again = func() { l.renewLater() }
	var first [8]byte
	_, _ = rand.Read(first[:]) // nodes count from different numbers, so that they have different tickets
	l.tickets.Store(binary.LittleEndian.Uint64(first[:]))
}

// ticket returns an identifier for a request's reservations. It is never 0.
func (l *renewals) ticket() uint64 {
	n := l.tickets.Add(1)
	if n == 0 {
		n = l.tickets.Add(1)
	}
	return n
}

// every is the time from one renewal to the next.
func (l *renewals) every() time.Duration { return time.Duration(l.lasts) * time.Microsecond / 3 }

func (l *renewals) add(key, member string) {
	l.mu.Lock()
	members := l.held[key]
	if members == nil {
		members = make(map[string]bool)
		l.held[key] = members
	}
	members[member] = true
	if l.timer == nil && !l.closed {
		l.timer = time.AfterFunc(l.every(), l.again)
	}
	l.mu.Unlock()
}

func (l *renewals) remove(key, member string) {
	l.mu.Lock()
	members := l.held[key]
	delete(members, member)
	if len(members) == 0 {
		delete(l.held, key)
	}
	l.mu.Unlock()
}

// owed is the charge of a request that has ended while Redis could not be reached. Its reservation is renewed until Redis has got the charge.
type owed struct {
	reservation core.Reservation
	until       int64 // when it is given up, in microseconds of the wall clock
}

// The most charges that are kept, and for how long.
const (
	mostOwed = 10_000
	owedFor  = 10 * time.Minute
)

// owe keeps the charge of a reservation, if Redis has certainly not got it, for which that error stands.
func (l *renewals) owe(r *core.Reservation, err error, until int64) {
	if r.Units == 0 || !leased(r.Rule) || executed(err) {
		return
	}
	l.mu.Lock()
	if l.closed || len(l.owed) >= mostOwed {
		l.mu.Unlock()
		return
	}
	l.owed = append(l.owed, owed{reservation: *r, until: until})
	l.mu.Unlock()
	name := l.store.naming.key(r.Key, opened(r.Rule).suffix)
	l.add(heldUnder(name, r.Rule, r.Cost), member(r.Rule, r.Cost, r.Ticket))
}

// charge sends the charges that are owed, until Redis does not get one.
func (l *renewals) charge() {
	l.mu.Lock()
	list := l.owed
	l.owed = nil
	l.mu.Unlock()
	now := l.store.wallClock()
	for i := range list {
		o := &list[i]
		err := l.store.settleOne(&o.reservation, time.Time{})
		if err == nil || o.until < now {
			continue
		}
		l.owe(&o.reservation, err, o.until)
		l.mu.Lock()
		l.owed = append(l.owed, list[i+1:]...)
		l.mu.Unlock()
		break
	}
	l.settled()
}

// close stops the renewals and returns true if nothing is reserved. Otherwise it returns false, and stops them and calls end later, when
// nothing is reserved any more.
func (l *renewals) close(end func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.any() && !l.closed {
		l.ending = end
		return false
	}
	l.stop()
	return true
}

// any reports whether anything is to be charged yet. The caller has the lock.
func (l *renewals) any() bool { return len(l.held)+len(l.owed) > 0 || l.taken.Load() > 0 }

// abandon stops the renewals, whatever is reserved.
func (l *renewals) abandon() {
	l.mu.Lock()
	l.ending = nil
	l.stop()
	l.mu.Unlock()
}

// settled is called when a request's reservations have ended in Redis.
func (l *renewals) settled() {
	l.mu.Lock()
	end := l.ending
	if end == nil || l.any() {
		l.mu.Unlock()
		return
	}
	l.ending = nil
	l.stop()
	l.mu.Unlock()
	end()
}

// stop stops the renewals. The caller has the lock.
func (l *renewals) stop() {
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
}

// renewLater renews all leases, and sets the timer for the next time if there are any.
func (l *renewals) renewLater() {
	defer func() {
		_ = recover() // an interpreted program has no other recover
		l.mu.Lock()
		if l.closed || len(l.held) == 0 {
			l.timer = nil
		} else {
			l.timer.Reset(l.every())
		}
		l.mu.Unlock()
	}()
	l.renew()
	if l.owes() {
		l.charge()
	}
}

func (l *renewals) owes() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.owed) > 0
}

// renew makes all reservations last for another lease from now. It makes those again that have gone, because this process stood still for
// longer than a lease, or Redis has lost them: their requests are under way, and count.
func (l *renewals) renew() {
	keys, members := l.all()
	single := l.store.client.Cluster() // keys of several slots cannot be in one call
	for from := 0; from < len(keys); {
		to := from
		length := 0
		for to < len(keys) && (to == from || !single && to-from < leaseKeys && length+len(members[to]) <= leaseMembers*memberLength) {
			length += len(members[to])
			to++
		}
		l.renewSome(keys[from:to], members[from:to])
		from = to
	}
}

// renewSome renews some of the leases, in one call.
func (l *renewals) renewSome(keys, members []string) {
	c := &Call{Script: scriptOfRenewal, Keys: keys, Args: append([]string{strconv.FormatInt(l.lasts, 10)}, members...)}
	if !l.store.runAside(c) || len(c.Reply) == 0 || c.Reply[0] == 0 {
		return
	}
	// The script has made reservations again, perhaps also some that have ended meanwhile.
	keys, members = l.ended(keys, members)
	if len(keys) > 0 { // if this fails, they end with their leases
		l.store.runAside(&Call{Script: scriptOfRelease, Keys: keys, Args: append([]string{"0"}, members...)})
	}
}

// ended returns those of the members that have ended, in the form of all.
func (l *renewals) ended(keys, members []string) (endedKeys, ended []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, key := range keys {
		held := l.held[key]
		together := make([]byte, 0, len(members[i]))
		for from := 0; from < len(members[i]); from += memberLength {
			member := members[i][from : from+memberLength]
			if !held[member] {
				together = append(together, member...)
			}
		}
		if len(together) > 0 {
			endedKeys = append(endedKeys, key)
			ended = append(ended, string(together))
		}
	}
	return endedKeys, ended
}

// all returns the keys with reservations, and for each its members, as one string. A key with many members occurs several times.
func (l *renewals) all() (keys, members []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, held := range l.held {
		together := make([]byte, 0, memberLength*len(held))
		for member := range held {
			together = append(together, member...)
			if len(together) == leaseMembers*memberLength {
				keys = append(keys, key)
				members = append(members, string(together))
				together = together[:0]
			}
		}
		if len(together) > 0 {
			keys = append(keys, key)
			members = append(members, string(together))
		}
	}
	return keys, members
}

// memberLength is the length of a member in bytes: the ticket, and the cost.
const memberLength = 16
