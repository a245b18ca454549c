package client

import (
	"cmp"
	"fmt"
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
// nearly all requests are rejected. The period in which they start is not counted: a bucket is full then. Of small limits they use less, or are rejected now and then:
// -v prints what docs/clients.md says of them.
func TestClientsThatPaceThemselvesUseALimitWithoutBeingRejected(t *testing.T) {
	ietf, x := answer.Fields{IETF: true}, answer.Fields{XRateLimit: true}
	for _, c := range []struct {
		algorithm           rate.Algorithm
		fields              answer.Fields
		clients, goroutines int
		limit               string // "": 600/1m
		least, most         int64  // admitted of what the limit allows, and rejected of all, in per cent; 0: 95 and 1
		periods             int64  // that are counted; 0: 3. A bucket may be fuller at the end than at the beginning, which is a smaller part of more
	}{
		{algorithm: rate.FixedWindow, fields: ietf}, {algorithm: rate.SlidingWindowCounter, fields: ietf}, {algorithm: rate.TokenBucket, fields: ietf},
		{algorithm: rate.SlidingWindowLog, fields: ietf},
		{algorithm: rate.FixedWindow, fields: x}, {algorithm: rate.SlidingWindowCounter, fields: x}, {algorithm: rate.TokenBucket, fields: x},
		{algorithm: rate.SlidingWindowLog, fields: x, most: 6},
		{algorithm: rate.FixedWindow, fields: ietf, clients: 1, goroutines: 50}, {algorithm: rate.TokenBucket, fields: ietf, clients: 1, goroutines: 50, periods: 12},
		{algorithm: rate.FixedWindow, fields: ietf, limit: "100/10s", least: 88}, {algorithm: rate.SlidingWindowCounter, fields: ietf, limit: "100/10s", least: 85},
		{algorithm: rate.TokenBucket, fields: ietf, limit: "100/10s"}, {algorithm: rate.SlidingWindowLog, fields: ietf, limit: "100/10s", least: 80, most: 12},
		{algorithm: rate.FixedWindow, fields: ietf, limit: "60/1m", most: 8}, {algorithm: rate.SlidingWindowCounter, fields: ietf, limit: "60/1m", least: 80, most: 10},
		{algorithm: rate.TokenBucket, fields: ietf, limit: "60/1m", least: 90, most: 10}, {algorithm: rate.SlidingWindowLog, fields: ietf, limit: "60/1m", least: 85, most: 30},
	} {
		synctest.Test(t, func(t *testing.T) {
			limit := cmp.Or(c.limit, "600/1m")
			l := limitedBy(t, limit, rate.LimitConfig{Algorithm: c.algorithm}, c.fields)
			period, allowed := time.Duration(l.rule.Limit.Period)*time.Microsecond, cmp.Or(c.periods, 3)*l.rule.Limit.Quota
			var clients []http.RoundTripper
			for range cmp.Or(c.clients, 20) {
				transport := &Transport{Base: l}
				for range cmp.Or(c.goroutines, 1) {
					clients = append(clients, transport)
				}
			}
			var all sync.WaitGroup
			counted := time.Duration(cmp.Or(c.periods, 3)) * period
			all.Go(func() { ask(period+counted, clients) })
			time.Sleep(period)
			admitted, rejected := -l.admitted.Load(), -l.rejected.Load()
			time.Sleep(counted)
			admitted, rejected = admitted+l.admitted.Load(), rejected+l.rejected.Load()
			all.Wait()
			said := fmt.Sprintf("%s, %s, %+v: %.1f %% of it admitted, %.1f %% rejected", limit, c.algorithm, c.fields, 100*float64(admitted)/float64(allowed), 100*float64(rejected)/float64(admitted+rejected))
			t.Log(said)
			if admitted < allowed*cmp.Or(c.least, 95)/100 || rejected > (admitted+rejected)*cmp.Or(c.most, 1)/100 {
				t.Errorf("%s; want at least %d %%, and at most %d %%", said, cmp.Or(c.least, 95), cmp.Or(c.most, 1))
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		l := limitedBy(t, "600/1m", rate.LimitConfig{Algorithm: rate.FixedWindow}, ietf)
		ask(time.Minute, []http.RoundTripper{l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l, l})
		must.Equal(t, l.rejected.Load() > 20*l.admitted.Load(), true, "most are rejected that do not pace themselves")
	})
}
