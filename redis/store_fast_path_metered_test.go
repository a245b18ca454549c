package redis

import (
	"math/rand"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

// A metered fast path allows the same requests as one without metering, and counts exactly those. Of all that it sends to Redis it times one
// in TimedShare.
func TestAMeteredFastPathDecidesTheSameAndCounts(t *testing.T) {
	random := rand.New(rand.NewSource(2))
	plain, metered := newScene(t, false), newScene(t, false)
	config := core.RuleConfig{Name: "r"}
	one, other := newVisit(plain.store, plain.open(config, rate.LimitConfig{})), &visit{store: metered.store, rule: metered.open(config, rate.LimitConfig{})}
	aside := 0
	metering := &memory.Metering{
		Allowed: new(int64), Durations: rate.NewDurations(), Path: "/metrics", Other: memory.NoPath,
		OwnPaths: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { aside++ }),
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { other.passed = true })
	other.handler = Serve(metered.store, other.rule, &memory.ServeConfig{
		QuotaFields: answer.NewQuotaFields(other.rule, answer.Fields{XRateLimit: true, IETF: true}), Key: hostOf, Direct: true, Metering: metering, Next: next, Rest: other,
	}, other)
	replies := [][]int64{allowedWith(1), allowedWith(2), allowedWith(2), denied(), {-1, 2 * second, 3 * second, 0}, {1, second, 2 * second, second}, {1, 0, -1, 0}}
	passed := int64(0)
	for i := 0; i < 1000; i++ {
		plain.now += random.Int63n(second)
		metered.now = plain.now
		said := always(replies[random.Intn(len(replies))])
		if random.Intn(50) == 0 {
			said = func(*sentCall) ([]int64, error) { return nil, errDown }
		}
		plain.answer = said
		metered.answer = said
		key := []string{"a", "b", "c"}[random.Intn(3)]
		err, same := one.ask(key), other.ask(key)
		if (err == nil) != (same == nil) || one.passed != other.passed || one.decision != other.decision {
			t.Fatalf("request %d: %v %v %+v, metered %v %v %+v", i, err, one.passed, one.decision, same, other.passed, other.decision)
		}
		if other.passed {
			passed++
		}
	}
	if *metering.Allowed != passed || passed < 100 {
		t.Errorf("%d are counted, and %d have passed", *metering.Allowed, passed)
	}
	counts, _ := metering.Durations.Read()
	if n := counts[len(counts)-1]; n < 1000/memory.TimedShare/2 || n > 2*1000/memory.TimedShare {
		t.Errorf("%d of 1000 were timed", n)
	}
	before := *metering.Allowed
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.RemoteAddr = "a:1234"
	other.passed = false
	other.handler.ServeHTTP(httptest.NewRecorder(), r)
	if aside != 1 || other.passed || *metering.Allowed != before {
		t.Errorf("a request for the path: %d aside, passed %v, %d counted", aside, other.passed, *metering.Allowed)
	}
}
