package client

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// limited is Weir's limiter as a RoundTripper, by the clock of the test: one limit for all. Answers take some milliseconds.
type limited struct {
	limiter            *core.Limiter
	rule               *core.Rule
	fields             answer.Fields
	admitted, rejected atomic.Int64
}

func limitedBy(t *testing.T, limit string, c rate.LimitConfig, fields answer.Fields) *limited {
	t.Helper()
	must.Succeed(t, rate.ParseLimit(limit, &c))
	made, err := rate.NewLimit(c)
	must.Succeed(t, err)
	rule, err := core.NewRule(core.RuleConfig{Name: "api", Limit: made})
	must.Succeed(t, err)
	store := memory.New(memory.Config{})
	must.Succeed(t, store.Open(rule))
	return &limited{limiter: core.NewLimiter(store), rule: rule, fields: fields}
}

func (l *limited) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(time.Duration(1+rand.IntN(20)) * time.Millisecond)
	checks, v, w := []core.Check{{Rule: l.rule, Key: "all"}}, core.Verdict{}, httptest.NewRecorder()
	if err := l.limiter.Decide(checks, false, &v); err != nil {
		return nil, err
	}
	answer.WriteHeaders(w.Header(), l.fields, checks, &v)
	if v.Outcome == core.Reject {
		l.rejected.Add(1)
		w.WriteHeader(http.StatusTooManyRequests)
	} else {
		l.admitted.Add(1)
	}
	time.Sleep(time.Duration(1+rand.IntN(20)) * time.Millisecond)
	return w.Result(), nil
}

// ask has clients send requests, one after the other, for so long: each list has the RoundTripper of as many goroutines.
func ask(during time.Duration, clients []http.RoundTripper) {
	end := time.Now().Add(during)
	var all sync.WaitGroup
	for _, transport := range clients {
		all.Go(func() {
			c := &http.Client{Transport: transport}
			for time.Now().Before(end) {
				if answer, err := c.Get("http://api.test/"); err == nil {
					_ = answer.Body.Close()
				}
			}
		})
	}
	all.Wait()
}

// Twenty clients that know nothing of each other use nearly all of one limit, and are hardly ever rejected; nor are fifty goroutines with one Transport. Without it
// nearly all requests are rejected. The minute in which they start is not counted: a bucket is full then.
func TestClientsThatPaceThemselvesUseALimitWithoutBeingRejected(t *testing.T) {
	ietf, x := answer.Fields{IETF: true}, answer.Fields{XRateLimit: true}
	for _, c := range []struct {
		algorithm           rate.Algorithm
		fields              answer.Fields
		clients, goroutines int
	}{
		{rate.FixedWindow, ietf, 20, 1}, {rate.SlidingWindowCounter, ietf, 20, 1}, {rate.TokenBucket, ietf, 20, 1}, {rate.SlidingWindowLog, ietf, 20, 1},
		{rate.FixedWindow, x, 20, 1}, {rate.TokenBucket, x, 20, 1},
		{rate.FixedWindow, ietf, 1, 50}, {rate.TokenBucket, ietf, 1, 50},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := limitedBy(t, "600/1m", rate.LimitConfig{Algorithm: c.algorithm}, c.fields)
			var clients []http.RoundTripper
			for range c.clients {
				transport := &Transport{Base: l}
				for range c.goroutines {
					clients = append(clients, transport)
				}
			}
			var all sync.WaitGroup
			all.Go(func() { ask(4*time.Minute, clients) })
			time.Sleep(time.Minute)
			admitted, rejected := -l.admitted.Load(), -l.rejected.Load()
			time.Sleep(3 * time.Minute)
			admitted, rejected = admitted+l.admitted.Load(), rejected+l.rejected.Load()
			all.Wait()
			if admitted < 3*600*95/100 || rejected > (admitted+rejected)/100 {
				t.Errorf("%v: %d were admitted of 1800 that might be, and %d rejected", c, admitted, rejected)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		l := limitedBy(t, "600/1m", rate.LimitConfig{Algorithm: rate.FixedWindow}, ietf)
		ask(time.Minute, []http.RoundTripper{l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l})
		must.Equal(t, l.rejected.Load() > 20*l.admitted.Load(), true, "most are rejected that do not pace themselves")
	})
}
