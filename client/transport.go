// Package client has an http.RoundTripper for programs that call an API with a quota: it paces itself by the header fields, and backs off when it is told to.
package client

import (
	"cmp"
	"io"
	"math/rand/v2"
	"net/http"
	"regexp"
	"sync"
	"time"
)

// Transport is an http.RoundTripper that keeps to the quota that answers tell: by RateLimit and RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10), or else by
// RateLimit-Limit, -Remaining and -Reset of earlier drafts or by their X- forms, whose Reset is seconds from now or of the Unix epoch.
//
// It spreads what remains over the time until the reset, before anything is rejected. From how fast that becomes less it sees how many share the quota, and takes its
// part. Requests before the first answer are not paced. After a 429 or 503 with Retry-After all requests wait so long, and a random time more. The rejected one is sent
// again if that does no harm (the method is idempotent, or there is an Idempotency-Key) and its body, if any, can be had again by GetBody. Otherwise, and where the wait
// would pass the context's deadline or LongestWait, the caller gets the answer as it came. Errors are those of Base, of GetBody, and of the context.
//
// The zero value is ready. It is safe for concurrent use, if its fields do not change then. Clients that share one pace themselves together.
type Transport struct {
	Base        http.RoundTripper          // sends requests; nil: http.DefaultTransport
	Key         func(*http.Request) string // requests with one key share quotas; nil: those to one host. It is for APIs whose parts have limits of their own
	LongestWait time.Duration              // most that a request waits each time; 0: a minute. If its turn comes later, it is sent then, since the API may know better
	Retries     float64                    // how many requests may be sent again, as a share of all; 0: 0.1; negative: none. Up to 10 that are left are kept for later

	mu     sync.Mutex
	pacers map[string]*pacer
	spent  float64 // retries, less what requests have added since
}

// pacer spaces requests that share quotas. The Transport's mu guards it.
type pacer struct {
	last, hold time.Time         // when the latest request has its turn; before when none has
	gap        time.Duration     // from one request to the next
	seen       map[string]policy // the latest, by name
}

const mostRetries, mostKept, mostSeen = 10, 1000, 100 // of pacers, and of the policies of one

var idempotent = regexp.MustCompile(`^(|GET|HEAD|OPTIONS|TRACE|PUT|DELETE)$`)

// RoundTrip sends a request when its turn has come, and again after a rejection, as Transport says.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	p, wait, granted := t.turn(r, -max(0, cmp.Or(t.Retries, 0.1)))
	for {
		select {
		case <-time.After(wait):
		case <-r.Context().Done():
			t.leave(p, granted)
			if r.Body != nil {
				_ = r.Body.Close() // as http.RoundTripper wants it
			}
			return nil, r.Context().Err()
		}
		if granted && t.held(p) { // by an answer that has come meanwhile
			_, wait, granted = t.turn(r, 0)
			continue
		}
		answer, err := cmp.Or(t.Base, http.DefaultTransport).RoundTrip(r)
		if err != nil || !t.learn(p, answer, time.Now()) || !idempotent.MatchString(r.Method) && r.Header.Get("Idempotency-Key") == "" ||
			r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
			return answer, err
		}
		if _, wait, granted = t.turn(r, 1); !granted {
			return answer, nil
		}
		_, _ = io.CopyN(io.Discard, answer.Body, 64<<10) // so that the connection can be used again
		_ = answer.Body.Close()
		if r = r.Clone(r.Context()); r.GetBody != nil {
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// CloseIdleConnections closes those of Base: http.Client calls it.
func (t *Transport) CloseIdleConnections() {
	if base, can := cmp.Or(t.Base, http.DefaultTransport).(interface{ CloseIdleConnections() }); can {
		base.CloseIdleConnections()
	}
}

// turn returns how long a request waits for its turn, and takes that and so many retries; below 0: adds them. It is not granted if that is too late, or none is left.
func (t *Transport) turn(r *http.Request, retries float64) (p *pacer, wait time.Duration, granted bool) {
	key, now, longest := r.URL.Host, time.Now(), cmp.Or(t.LongestWait, time.Minute)
	if t.Key != nil {
		key = t.Key(r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if p = t.pacers[key]; p == nil {
		p = &pacer{seen: map[string]policy{}}
		t.pacers = keep(t.pacers, key, p, mostKept)
	}
	t.spent = max(0, t.spent+min(0, retries))
	at := p.last.Add(time.Duration((0.9 + 0.2*rand.Float64()) * float64(p.gap)))
	if at.Before(p.hold) {
		at = p.hold
	}
	wait = max(0, at.Sub(now))
	if deadline, has := r.Context().Deadline(); has && deadline.Before(now.Add(wait)) {
		return p, 0, false
	}
	if wait > longest || retries > 0 && (t.Retries < 0 || t.spent+retries > mostRetries) {
		return p, min(wait, longest), false
	}
	t.spent += max(0, retries)
	p.last = now.Add(wait)
	return p, wait, true
}

// leave gives back the turn of a request that has ended before, if it was granted.
func (t *Transport) leave(p *pacer, granted bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if granted {
		p.last = p.last.Add(-p.gap)
	}
}

// held reports whether nobody has its turn now.
func (t *Transport) held(p *pacer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Now().Before(p.hold)
}

// learn takes from an answer what it tells of quotas, and reports whether it asks to wait for another try.
func (t *Transport) learn(p *pacer, answer *http.Response, now time.Time) (again bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var gap, hold float64 // in seconds
	for name, n := range policiesOf(answer.Header, now) {
		before := p.seen[name]
		n.follow(&before)
		p.seen = keep(p.seen, name, n, mostSeen)
		own, until := n.turns()
		gap, hold = max(gap, own), max(hold, until)
	}
	p.gap = seconds(gap)
	after := retryAfter(answer, now)
	if hold = max(hold, after); hold > 0 {
		p.hold = now.Add(seconds(hold + rand.Float64()*max(gap, after/10)))
	}
	return after > 0
}
