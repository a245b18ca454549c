package memory

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// The tests of package traefik compare the answers with those of the general path.

func TestSeveralRulesAreChargedTogetherOrNotAtAll(t *testing.T) {
	const clients, each = 4, 200
	now := int64(1_700_000_000_000_000)
	for name, apart := range map[string]bool{"with one key": false, "with keys in different shards": true} {
		m := New(Config{Index: Mapped, Clock: func() int64 { return now }})
		var rules []*ServedRule
		var all []*core.Rule
		for i, requests := range []int64{300, 100} {
			r := mustRule(t, core.RuleConfig{Name: []string{"wide", "narrow"}[i], Limit: mustLimit(t, rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: requests, Period: time.Hour})})
			must.Succeed(t, m.Open(r))
			served := &ServedRule{FastPath: NewFastPath(m, r), QuotaFields: allQuotaFields(r), Refusal: &Refusal{}}
			if apart {
				key := r.Name()
				served.Key = func(r *http.Request) string { return key }
			}
			rules = append(rules, served)
			all = append(all, r)
		}
		var passed, left atomic.Int64
		h := ServeSeveral(rules, &ServeConfig{
			Key: hostOf, Direct: true, Apart: apart,
			Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { passed.Add(1) }),
			Rest: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { left.Add(1) }),
		})
		var wg sync.WaitGroup
		for i := 0; i < clients; i++ {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := 0; i < each; i++ {
					h.ServeHTTP(httptest.NewRecorder(), &http.Request{Header: http.Header{}, RemoteAddr: "192.0.2.1:80"})
				}
			}()
		}
		wg.Wait()
		if passed.Load() != 100 || left.Load() != 0 {
			t.Errorf("%s: %d requests have passed and %d were left to the rest, want 100 and 0", name, passed.Load(), left.Load())
		}
		for i, r := range all {
			key := "192.0.2.1"
			if apart {
				key = r.Name()
			}
			checks := []core.Check{{Rule: r, Key: key, Cost: 1}}
			must.Succeed(t, m.Decide(checks, true))
			if want := []int64{199, 0}[i]; checks[0].Decision.Remaining != want {
				t.Errorf("%s: rule %d would have %d left, want %d", name, i, checks[0].Decision.Remaining, want)
			}
		}
	}
}
