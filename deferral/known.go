package deferral

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Known is what a node knows of a queue without asking Redis: which keys have jobs, and whether jobs are safe. While Redis does not answer, requests of the keys
// with jobs must not be done: they would overtake the jobs. Of what its own node has put into a line it knows at once, and of what others have, a second later. A
// API and a Worker share it, and it may outlive them, as a reload needs. It is safe for concurrent use; the zero value knows of no jobs.
type Known struct {
	mu     sync.Mutex
	keys   map[string]time.Time // by the digest of a key, when it was last said that it has jobs
	doubts map[string]int       // jobs that are unconfirmed, by the same
	all    bool                 // there are too many keys to know them, so each may have jobs

	orphans map[string]time.Time // when jobs were first seen that are unconfirmed, perhaps for ever

	obstacle atomic.Pointer[string] // why jobs are not safe; "": they are; nil: Redis has not said yet
}

// mostKnown is how many keys a Known knows.
const mostKnown = 100_000

// held reports whether requests of a key must not be done while Redis does not answer.
func (k *Known) held(key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, has := k.keys[key]
	return has || k.all || k.doubts[key] > 0
}

// doubtful reports whether a job of a key may have been promised that is in no line yet, so that a request would overtake it even while Redis answers: one of
// this node, or one of those that Redis had when it was asked, unless its node has had a time since this one saw it first.
func (k *Known) doubtful(key string, jobs []string, asked time.Time, patience time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	held := k.doubts[key] > 0
	for _, id := range jobs {
		first, has := k.orphans[id]
		if !has {
			if k.orphans == nil || len(k.orphans) >= mostAsked {
				k.orphans = make(map[string]time.Time)
			}
			first, k.orphans[id] = asked, asked
		}
		held = held || asked.Sub(first) < patience
	}
	return held
}

// away notes that Redis does not answer: no node can put a job into the line meanwhile, so the time that doubtful gives it begins again.
func (k *Known) away() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.orphans = nil
}

// doubt adds to the unconfirmed jobs of a key.
func (k *Known) doubt(key string, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.doubts == nil {
		k.doubts = make(map[string]int)
	}
	if k.doubts[key] += n; k.doubts[key] == 0 {
		delete(k.doubts, key)
	}
}

// note notes that keys have jobs.
func (k *Known) note(keys ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keys == nil {
		k.keys = make(map[string]time.Time)
	}
	now := time.Now()
	for _, key := range keys {
		if _, has := k.keys[key]; !has && len(k.keys) >= mostKnown {
			k.all = true
			return
		}
		k.keys[key] = now
	}
}

// forget notes that keys had no jobs when Redis was asked. What has been noted of them since then stays.
func (k *Known) forget(asked time.Time, keys ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		if k.keys[key].Before(asked) {
			delete(k.keys, key)
		}
	}
}

// empty notes that no key had jobs when Redis was asked.
func (k *Known) empty(asked time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, at := range k.keys {
		if at.Before(asked) {
			delete(k.keys, key)
		}
	}
	k.all = false
}

// some returns some of the keys that are known to have jobs, others each time.
func (k *Known) some(most int) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []string
	for key := range k.keys {
		if len(list) == most {
			break
		}
		list = append(list, key)
	}
	return list
}

// linesScript returns the keys of jobs that were accepted from a time on, at most so many, and the time of the last; and which of some keys have no jobs.
var linesScript = script("lines")

// Bounds of following.
const (
	followEvery = time.Second
	mostAsked   = 1000 // keys in one script
	mostPages   = mostKnown / mostAsked
)

// follow brings w.Known up to date, about once a second. The claims were made when Redis was asked.
func (w *Worker) follow(c *claims, asked time.Time) {
	if c.Open == 0 {
		w.Known.empty(asked)
		w.followed = c.Now
		return
	}
	if asked.Sub(w.followedAt) < followEvery {
		return
	}
	from := "-inf"
	if !w.followed.IsZero() {
		from = strconv.FormatInt(w.followed.Add(-followEvery).UnixMicro(), 10) // and once more what came last, since clocks are adjusted
	}
	for range mostPages {
		began := time.Now()
		fresh, last, gone, err := w.Queue.lines(w.all, from, w.Known.some(mostAsked))
		if err != nil {
			return // the next round
		}
		w.Known.note(fresh...)
		w.Known.forget(began, gone...)
		if len(fresh) < mostAsked || last == from {
			break
		}
		from = last
	}
	w.followed, w.followedAt = c.Now, asked
}

// lines runs linesScript.
func (q *Queue) lines(ctx context.Context, from string, known []string) (fresh []string, last string, gone []string, err error) {
	args := []any{from, mostAsked}
	for _, key := range known {
		args = append(args, key)
	}
	list, err := q.run(ctx, linesScript, args...).Slice()
	if err != nil {
		return nil, "", nil, err
	}
	if len(list) != 3 {
		return nil, "", nil, errMalformed
	}
	return texts(list[0]), str(list[1]), texts(list[2]), nil
}

// texts reads a member of a reply that is a list of texts.
func texts(v any) []string {
	all, _ := v.([]any)
	list := make([]string, len(all))
	for i := range all {
		list[i] = str(all[i])
	}
	return list
}
