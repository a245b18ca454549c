package redis

import (
	"math/rand"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/storetest"
)

// visitOfSeveral is a visit under several rules.
type visitOfSeveral struct {
	scene   *scene
	apart   bool
	rules   []*core.Rule
	handler http.Handler
	passed  bool
	checks  []core.Check // if it has neither passed nor been rejected, what was decided
	err     error

	rejected [3]int64 // by each rule, on the fast path
}

// openSeveral opens three rules, of which the last covers no request to /two. They have different keys if so wanted. That of the second is the
// limit.
func openSeveral(s *scene, apart bool, limit int64) *visitOfSeveral {
	v := &visitOfSeveral{scene: s, apart: apart}
	var served []*memory.ServedRule
	for i, l := range []rate.LimitConfig{{}, {Algorithm: rate.TokenBucket, Requests: limit}, {Requests: 3}} {
		r := s.open(core.RuleConfig{Name: []string{"a", "b", "c"}[i]}, l)
		if s.nodes > 0 {
			share(s, r, s.nodes)
		}
		refusal := answer.NewRefusal("", r.Name())
		refusal.Rejected = &v.rejected[i]
		one := &memory.ServedRule{QuotaFields: answer.NewQuotaFields(r, answer.Fields{XRateLimit: true, IETF: true}), Refusal: refusal, Allowed: new(int64)}
		if apart {
			name := r.Name()
			one.Key = func(r *http.Request) string { return name + match.HostOf(r.RemoteAddr) }
		}
		if i == 2 {
			one.Covers = func(r *http.Request) bool { return r.URL.Path != "/two" }
		}
		v.rules = append(v.rules, r)
		served = append(served, one)
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { v.passed = true })
	v.handler = ServeSeveral(s.store, v.rules, served, &memory.ServeConfig{Key: hostOf, Direct: true, Apart: apart, Next: next, Rest: v}, v)
	return v
}

// ServeHTTP decides on a request that the fast path leaves.
func (v *visitOfSeveral) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.checks, v.err = v.decide(r)
}

func (v *visitOfSeveral) Conclude(w http.ResponseWriter, r *http.Request, checks []core.Check, err error) {
	v.checks = checks
	v.err = err
}

func (v *visitOfSeveral) Finish(reservations []core.Reservation) {}

// decide takes the general path.
func (v *visitOfSeveral) decide(r *http.Request) ([]core.Check, error) {
	var checks []core.Check
	for i, rule := range v.rules {
		key := match.HostOf(r.RemoteAddr)
		if v.apart {
			key = rule.Name() + key
		}
		if i < 2 || r.URL.Path != "/two" {
			checks = append(checks, check(rule, key, 1))
		}
	}
	err := v.scene.store.Decide(checks, false)
	return checks, err
}

func TestTheFastPathOfSeveralRulesDecidesAsTheGeneralPath(t *testing.T) {
	for name, apart := range map[string]bool{"one key": false, "different keys": true} {
		random := rand.New(rand.NewSource(3))
		fastPath, all := newScene(t, false), newScene(t, false)
		way, general := openSeveral(fastPath, apart, 20), openSeveral(all, apart, 20)
		parts := [][]int64{allowedWith(1), allowedWith(2), allowedWith(0), {5000, 0, 1, 1}, {1, second, 2 * second, second}, denied(), {-1, 2 * second, 3 * second, 0}, {-3, 2 * second, 3 * second, 0}}
		short, passed, rejected, steps := 0, 0, 0, 2000
		if storetest.Interpreted() {
			steps = 400
		}
		for i := 0; i < steps; i++ {
			now := fastPath.now + random.Int63n(second)
			fastPath.now = now
			all.now = now
			rare := random.Intn(8)
			seed := random.Int63()
			said := func(c *sentCall) ([]int64, error) {
				var reply []int64
				each := rand.New(rand.NewSource(seed))
				for range c.keys {
					part := each.Intn(4)
					if rare < 3 {
						part = each.Intn(len(parts))
					}
					reply = append(reply, parts[part]...)
				}
				if rare == 3 {
					return reply[:len(reply)-1], nil
				}
				if rare == 4 && i%3 == 0 {
					return nil, ErrTimeout
				}
				return reply, nil
			}
			fastPath.answer = said
			all.answer = said
			if fastPath.server("a").breaker.Open() { // what a probe does
				for _, s := range []*scene{fastPath, all} {
					s.server("a").breaker.Probe()
					s.server("a").breaker.Probed(true)
				}
			}
			fastPath.forget()
			all.forget()
			r := httptest.NewRequest(http.MethodGet, []string{"/", "/two"}[random.Intn(2)], nil)
			r.RemoteAddr = []string{"a:1", "b:1"}[random.Intn(2)]
			w := httptest.NewRecorder()
			way.passed = false
			way.rejected = [3]int64{}
			way.handler.ServeHTTP(w, r)
			want, wantErr := general.decide(r)
			if way.passed {
				passed++
				header := http.Header{}
				verdict := &core.Verdict{}
				for n := range want {
					if !want[n].Decision.Allowed || want[n].Decision.Delay != 0 {
						t.Fatalf("%s: request %d passes; the general path: %+v", name, i, want)
					}
					if core.Tighter(&want[n].Decision, &want[verdict.Reported].Decision) {
						verdict.Reported = n
					}
				}
				answer.WriteHeaders(header, answer.Fields{XRateLimit: true, IETF: true}, want, verdict)
				if wantErr != nil || !reflect.DeepEqual(w.Header(), header) {
					t.Fatalf("%s: request %d passes with %v; the general path: %v, %v", name, i, w.Header(), header, wantErr)
				}
			} else if w.Code == http.StatusTooManyRequests {
				rejected++
				verdict := &core.Verdict{}
				if _, err := core.NewLimiter(all.store).Conclude(want[:0], want, wantErr, verdict); err != nil || verdict.Outcome != core.Reject {
					t.Fatalf("%s: request %d is rejected; the general path: %+v, %v", name, i, want, err)
				}
				header := http.Header{}
				answer.WriteHeaders(header, answer.Fields{XRateLimit: true, IETF: true}, want, verdict)
				contentType, body := answer.Body(429, false, "", want, verdict)
				header.Set("Content-Type", contentType)
				if !reflect.DeepEqual(w.Header(), header) || w.Body.String() != string(body) {
					t.Fatalf("%s: request %d is rejected with %v %q; the general path: %v %q", name, i, w.Header(), w.Body, header, body)
				}
				for n := range want {
					if counted := way.rejected[n] == 1; counted == want[n].Decision.Allowed {
						t.Fatalf("%s: request %d: rejected %v; the general path: %+v", name, i, way.rejected, want)
					}
				}
			} else {
				if (way.err == nil) != (wantErr == nil) || wantErr != nil && way.err.Error() != wantErr.Error() || len(way.checks) != len(want) {
					t.Fatalf("%s: request %d: %v, %d checks; the general path: %v, %d", name, i, way.err, len(way.checks), wantErr, len(want))
				}
				for n := range want {
					if way.checks[n].Decision != want[n].Decision {
						t.Fatalf("%s: request %d, rule %d: %+v; the general path: %+v", name, i, n, way.checks[n].Decision, want[n].Decision)
					}
				}
			}
			if len(fastPath.calls) != len(all.calls) {
				t.Fatalf("%s: request %d: %d calls, the general path has %d", name, i, len(fastPath.calls), len(all.calls))
			}
			if len(fastPath.calls) == 1 {
				short++
				a, b := fastPath.calls[0], all.calls[0]
				if strings.TrimSuffix(a.script.name, "_line") != b.script.name || strings.Join(a.keys, " ") != strings.Join(b.keys, " ") || strings.Join(a.args, " ") != strings.Join(b.args, " ") {
					t.Fatalf("%s: request %d: calls %+v, the general path %+v", name, i, a, b)
				}
			}
		}
		if short < steps/4 || passed < steps/20 || rejected < steps/20 {
			t.Errorf("%s: only %d requests were sent to Redis, %d passed by the fast path, and %d were rejected by it", name, short, passed, rejected)
		}
	}
}

// A rejection that is remembered from before a limit was changed does not count.
func TestTheFastPathOfSeveralRulesAsksAgainAfterAChangeOfALimit(t *testing.T) {
	s := newScene(t, false)
	s.answer = always(denied())
	for calls, v := range []*visitOfSeveral{openSeveral(s, false, 20), openSeveral(s, false, 30)} {
		for i := 0; i < 3; i++ { // only the first of which asks
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = "a:1"
			w := httptest.NewRecorder()
			v.handler.ServeHTTP(w, r)
			if asked := w.Code != http.StatusTooManyRequests; asked != (i == 0) || len(s.calls) != calls+1 {
				t.Errorf("request %d under limits %d: status %d, %d calls", i, calls, w.Code, len(s.calls))
			}
		}
	}
}
