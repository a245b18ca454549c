// Package fleetclock has the virtual clock of simulated fleets, and who judges what they admit.
package fleetclock

import "container/heap"

// Start is the time at which fleets begin, in microseconds since the Unix epoch: some midnight.
const Start = 1_700_006_400_000_000

// Clock is a virtual clock, and what is to happen by it. Times are in microseconds. It is for one goroutine.
type Clock struct {
	Now int64

	events events
	serial int
}

// At has something happen at a time, after whatever else was to happen at that time already.
func (c *Clock) At(at int64, do func()) {
	c.serial++
	heap.Push(&c.events, event{at, c.serial, do})
}

// Until moves the time on, and has everything happen that is to happen by then.
func (c *Clock) Until(now int64) {
	for len(c.events) > 0 && c.events[0].at <= now {
		e := heap.Pop(&c.events).(event)
		c.Now = e.at
		e.do()
	}
	c.Now = max(c.Now, now) // what happened may have moved it on further
}

type event struct {
	at     int64
	serial int
	do     func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].serial < q[j].serial
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
