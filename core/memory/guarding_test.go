package memory

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// The word is as package guard has it: the tickets are above bit 48, and Take takes one of them and adds a place.
const wordTicket, wordTake = 1 << 48, guard.Take

// TestAGuardedFastPathTakesTickets: each request that is allowed goes to one handler, by whether it has got a ticket. What is left for the rest is
// not counted.
func TestAGuardedFastPathTakesTickets(t *testing.T) {
	for _, a := range []rate.Algorithm{rate.TokenBucket, rate.LeakyBucket, rate.FixedWindow, rate.SlidingWindowCounter} {
		for _, metered := range []bool{false, true} {
			now := int64(1_700_000_000_000_001)
			m := New(Config{Index: Mapped, Clock: func() int64 { return now }})
			r := mustRule(t, core.RuleConfig{Name: "r", Limit: mustLimit(t, rate.LimitConfig{Algorithm: a, Requests: 100_000, Period: time.Second})})
			must.Succeed(t, m.Open(r))
			must.Succeed(t, m.Decide([]core.Check{{Rule: r, Key: "192.0.2.1", Cost: 1}}, false))
			word, begin := new(int64), int64(2*wordTicket) // two tickets
			went, fails := "", false
			to := func(name string) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					went += name
					if name == "ticketed" && atomic.LoadInt64(word) != begin+wordTake {
						t.Errorf("%s: the word is %#x within a request with a ticket, want %#x", a, *word, begin+wordTake)
					}
					if fails {
						panic(http.ErrAbortHandler)
					}
				})
			}
			g := &Guarding{Word: word, Take: wordTake, Leave: -guard.Place, NoTicket: guard.NoTicket, Ticketed: to("ticketed"), Unticketed: to("unticketed")}
			way := NewFastPath(m, r)
			noKey := func(r *http.Request) string { return "" }
			c := &ServeConfig{QuotaFields: allQuotaFields(r), Key: noKey, Direct: true, Keyless: to("keyless"), Guarding: g, Next: to("next"), Rest: to("rest")}
			if metered {
				c.Metering = &Metering{Allowed: new(int64), Durations: rate.NewDurations(), Path: NoPath, Other: NoPath, OwnPaths: to("aside")}
			}
			h := Serve(way, c)
			ask := func(what, want string, after int64, change func(r *http.Request)) {
				t.Helper()
				now += 2 * TimedShare // else it is timed
				*word, went = begin, ""
				request := httptest.NewRequest("GET", "/", nil)
				request.RemoteAddr = "192.0.2.1:1234"
				change(request)
				func() {
					defer func() { _ = recover() }()
					h.ServeHTTP(httptest.NewRecorder(), request)
				}()
				if went != want || *word != after {
					t.Errorf("%s, metered %v: %s goes to %s, and leaves %#x in the word; want %s, and %#x", a, metered, what, went, *word, want, after)
				}
			}
			plain := func(r *http.Request) {}
			ask("a request", "ticketed", begin-wordTicket, plain)
			fails = true
			ask("a request that fails", "ticketed", begin-wordTicket, plain)
			fails = false
			ask("one with a body", "ticketed", begin-wordTicket, func(r *http.Request) { r.ContentLength = 5 })
			ask("one with a body of unknown length", "unticketed", begin, func(r *http.Request) { r.ContentLength = -1 })
			ask("an upgrade", "unticketed", begin, func(r *http.Request) { r.Header.Set("Upgrade", "websocket") })
			ask("a new key", "ticketed", begin-wordTicket, func(r *http.Request) { r.RemoteAddr = "192.0.2.2:1234" })
			ask("one without a key", "keyless", begin, func(r *http.Request) { r.RemoteAddr = "[2001:db8::1]:1234" })
			begin = 0
			ask("one that finds no ticket", "unticketed", wordTake, plain)
			begin = 2*wordTicket + (1<<23-1)<<24
			ask("one that finds too many under way", "unticketed", begin+wordTake, plain)
			if metered {
				now -= now%TimedShare + TimedShare
				ask("one that is timed", "next", begin, plain)
			}
		}
	}
}
