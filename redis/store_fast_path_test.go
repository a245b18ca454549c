package redis

import (
	"bufio"
	"io"
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
	"github.com/proxyweir/weir/tools/must"
)

// visit is the result of a request on the fast path: it has passed, with the fields in header, or the Rest has its decision or an error.
type visit struct {
	store    *Store
	rule     *core.Rule
	handler  http.Handler
	header   http.Header
	passed   bool
	decision rate.Decision
	err      error
}

func newVisit(s *Store, r *core.Rule) *visit {
	v := &visit{store: s, rule: r}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { v.passed = true })
	c := &memory.ServeConfig{QuotaFields: answer.NewQuotaFields(r, answer.Fields{XRateLimit: true, IETF: true}), Key: hostOf, Direct: true, Next: next, Rest: v}
	v.handler = Serve(s, r, c, v)
	return v
}

// hostOf is the Key of a memory.ServeConfig.
func hostOf(r *http.Request) string { return match.HostOf(r.RemoteAddr) }

// ServeHTTP decides on a request that the fast path leaves.
func (v *visit) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	checks := []core.Check{check(v.rule, hostOf(r), 1)}
	v.err = v.store.Decide(checks, false)
	v.decision = checks[0].Decision
}

func (v *visit) Conclude(w http.ResponseWriter, r *http.Request, checks []core.Check, err error) {
	v.decision = checks[0].Decision
	v.err = err
}

func (v *visit) Finish(reservations []core.Reservation) {}

// ask sends a request with that key.
func (v *visit) ask(key string) error {
	v.passed = false
	v.decision = rate.Decision{}
	v.err = nil
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = key + ":1234"
	v.handler.ServeHTTP(w, r)
	v.header = w.Header()
	return v.err
}

func TestTheFastPathDecidesAsTheGeneralPath(t *testing.T) {
	random := rand.New(rand.NewSource(1))
	fastPath, all := newScene(t, false), newScene(t, false)
	limits := []rate.LimitConfig{{}, {Algorithm: rate.LeakyBucket}, {Requests: 3}}
	rules := [][]*core.Rule{}
	ways := []*visit{}
	for _, l := range limits {
		c := core.RuleConfig{Name: "r" + string(rune('a'+len(ways))), CountRejected: len(ways) == 2}
		rules = append(rules, []*core.Rule{fastPath.open(c, l), all.open(c, l)})
		ways = append(ways, newVisit(fastPath.store, rules[len(rules)-1][0]))
	}
	replies := [][]int64{
		allowedWith(1), allowedWith(0), allowedWith(2), allowedWith(2), allowedWith(2), denied(), {-3, -1, second, 0}, {-1, 2 * second, 3 * second, 0}, {1, second, 2 * second, second},
		{5000, 0, 1, 1}, {1, 0, -1, 0}, {1, 0, longest + 1, 1}, {1, 0, 2 * second, 3 * second}, {1, 0, second, -1}, {3, 0, second, 0}, {}, {1, 0, 1}, {1, 0, 1, 1, 1}, {1, -5, 1, 1}, nil,
	}
	short, passed := 0, 0
	for i := 0; i < 3000; i++ {
		now := fastPath.now + random.Int63n(second)
		fastPath.now = now
		all.now = now
		said := always(replies[random.Intn(len(replies))])
		switch random.Intn(12) {
		case 0:
			said = func(*sentCall) ([]int64, error) { return nil, errDown }
		case 1:
			said = func(*sentCall) ([]int64, error) { return nil, ErrTimeout }
		}
		fastPath.answer = said
		all.answer = said
		which, key := random.Intn(len(ways)), []string{"a", "b", "[2001:db8::1]"}[random.Intn(3)]
		if fastPath.server("a").breaker.Open() && random.Intn(4) == 0 { // what a probe does
			for _, s := range []*scene{fastPath, all} {
				s.server("a").breaker.Probe()
				s.server("a").breaker.Probed(true)
			}
		}
		fastPath.forget()
		all.forget()
		way := ways[which]
		err := way.ask(key)
		checks := []core.Check{check(rules[which][1], match.HostOf(key+":1"), 1)}
		wantErr := all.store.Decide(checks, false)
		want := checks[0].Decision
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
			t.Fatalf("request %d: %v; the general path: %v", i, err, wantErr)
		}
		if way.passed {
			passed++
			header := http.Header{}
			answer.WriteHeaders(header, answer.Fields{XRateLimit: true, IETF: true}, checks, &core.Verdict{})
			if err != nil || !want.Allowed || want.Delay != 0 || !reflect.DeepEqual(way.header, header) {
				t.Fatalf("request %d passes with %v; the general path: %+v, %v", i, way.header, want, header)
			}
		} else if way.decision != want {
			t.Fatalf("request %d: %+v; the general path: %+v", i, way.decision, want)
		}
		if len(fastPath.calls) != len(all.calls) {
			t.Fatalf("request %d: %d calls, the general path has %d", i, len(fastPath.calls), len(all.calls))
		}
		if len(fastPath.calls) == 1 {
			short++
			a, b := fastPath.calls[0], all.calls[0]
			if strings.TrimSuffix(a.script.name, "_line") != b.script.name || strings.Join(a.keys, " ") != strings.Join(b.keys, " ") || strings.Join(a.args, " ") != strings.Join(b.args, " ") {
				t.Fatalf("request %d: calls %+v, the general path %+v", i, a, b)
			}
		}
	}
	if short < 1000 || passed < 300 {
		t.Errorf("only %d requests were sent to Redis, and %d passed by the fast path", short, passed)
	}
}

func TestRulesWithAFastPath(t *testing.T) {
	one, cluster := newScene(t, false), newScene(t, true)
	has := func(s *scene, r *core.Rule) bool { return newVisit(s.store, r).handler != nil }
	if !has(one, one.open(core.RuleConfig{Name: "a"}, rate.LimitConfig{})) {
		t.Error("a plain rule has none")
	}
	if !has(cluster, cluster.open(core.RuleConfig{Name: "l", Consistency: core.Leased}, rate.LimitConfig{})) {
		t.Error("a leased one in a Cluster has none")
	}
	if has(one, one.open(core.RuleConfig{Name: "b"}, rate.LimitConfig{Calendar: rate.Day})) {
		t.Error("one that follows the calendar has one")
	}
	if has(cluster, cluster.open(core.RuleConfig{Name: "a"}, rate.LimitConfig{})) {
		t.Error("one in a Cluster has one")
	}
	if has(one, mustRule(t, core.RuleConfig{Name: "c"}, rate.LimitConfig{})) {
		t.Error("one that is not open has one")
	}
}

// An array is read as it comes, whole or in pieces, and nothing of the reply behind it. What is no array of numbers has none.
func TestTheFastPathReadsArrays(t *testing.T) {
	for text, want := range map[string]string{
		":1\r\n:-20\r\n:3\r\n+next\r\n": "1 -20 3",
		":1\r\n:-20\r\n:3\r\n":          "1 -20 3",
		":1\r\n+20\r\n:3\r\n":           "",
		":1\r\n:-20\r\n:":               "an error",
	} {
		for size := 1; size <= len(text); size++ {
			in := bufio.NewReader(io.MultiReader(strings.NewReader(text[:size]), strings.NewReader(text[size:])))
			_, _ = in.Peek(1) // what is there
			words, read, err := restOf(in, "*3\r\n", 3)
			if err == nil {
				must.Equal(t, strings.Join(words, " "), want, "%q after %d", text, size)
			}
			behind, _ := io.ReadAll(in)
			must.Equal(t, strings.TrimPrefix(read, "*3\r\n")+string(behind), text, "all of %q after %d", text, size)
			must.Equal(t, err != nil, want == "an error", "an error of %q after %d", text, size)
		}
	}
}
