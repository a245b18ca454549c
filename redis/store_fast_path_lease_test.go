package redis

import (
	"math/rand"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

// calm waits until no call aside is under way.
func calm(s *Store) LeaseStats {
	for s.LeaseStats().UnderWay > 0 {
		time.Sleep(time.Millisecond)
	}
	return s.LeaseStats()
}

// The fast paths of a leased rule, with metrics and without, do what the general path does, and leave the lease as that does.
func TestTheFastPathsOfALeaseDecideAsTheGeneralPath(t *testing.T) {
	random := rand.New(rand.NewSource(3))
	now, wall := int64(second), int64(0)
	fields := answer.Fields{XRateLimit: true, IETF: true}
	var lenders []*lender
	open := func() (*Store, *core.Rule) {
		l := newLender()
		lenders = append(lenders, l)
		s, err := NewStore(Config{Client: l, Clock: func() int64 { return now }, WallClock: func() int64 { return now + wall }})
		must.Succeed(t, err)
		s.leaseCache.closed = true // nothing is given back by the real time
		return s, openLeased(t, "r", s)
	}
	general, rule := open()
	var visits []*visit
	metering := &memory.Metering{Allowed: new(int64), Durations: rate.NewDurations(), Path: memory.NoPath, Other: memory.NoPath}
	visiting := func(m *memory.Metering) {
		s, r := open()
		v := &visit{store: s, rule: r}
		next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { v.passed = true })
		v.handler = Serve(s, r, &memory.ServeConfig{QuotaFields: answer.NewQuotaFields(r, fields), Key: hostOf, Direct: true, Next: next, Rest: v, Metering: m}, v)
		visits = append(visits, v)
	}
	visiting(nil)
	visiting(metering)
	passed := 0
	for i := 0; i < 4000; i++ {
		now += random.Int63n(2000)
		switch random.Intn(200) {
		case 0:
			now += 2 * second
		case 1:
			wall += random.Int63n(4000) - 2000
		}
		away, rejects := random.Intn(30) == 0, i/200%3 == 2
		for _, l := range lenders {
			l.away.Store(away)
			l.rejects = rejects
		}
		key := []string{"a", "a", "b", "[2001:db8::1]"}[random.Intn(4)]
		checks := []core.Check{check(rule, match.HostOf(key+":1"), 1)}
		wantErr := general.Decide(checks, false)
		want, stats := checks[0].Decision, calm(general)
		header := http.Header{}
		answer.WriteHeaders(header, fields, checks, &core.Verdict{})
		for _, v := range visits {
			err := v.ask(key)
			if got := calm(v.store); !reflect.DeepEqual(got, stats) {
				t.Fatalf("request %d: %+v; the general path: %+v", i, got, stats)
			}
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("request %d: %v; the general path: %v", i, err, wantErr)
			}
			if !v.passed && v.decision != want {
				t.Fatalf("request %d: %+v; the general path: %+v", i, v.decision, want)
			}
			if v.passed && (!want.Allowed || !reflect.DeepEqual(v.header, header)) {
				t.Fatalf("request %d passes with %v; the general path: %+v, %v", i, v.header, want, header)
			}
			if v.passed {
				passed++
			}
		}
	}
	stats := general.LeaseStats()
	if passed < 2000 || stats.Rejected < 10 || stats.Granted < 10 || stats.Failed < 3 {
		t.Errorf("%d have passed, %+v", passed, stats)
	}
	if *metering.Allowed == 0 || *metering.Allowed > int64(passed) {
		t.Errorf("%d are counted of %d", *metering.Allowed, passed)
	}
}

// The fast path of a rule whose limit was lowered spends nothing that was lent under the old one.
func TestTheFastPathOfALoweredLimitSpendsNoLeaseOfTheOldOne(t *testing.T) {
	now := int64(second)
	clock := func() int64 { return now }
	l := newLender()
	s, err := NewStore(Config{Client: l, Clock: clock, WallClock: clock})
	must.Succeed(t, err)
	s.leaseCache.closed = true // nothing is given back by the real time
	before, after := newVisit(s, openLeased(t, "r", s)), newVisit(s, openLeasedLimit(t, "r", s, 20))
	for i := 0; i < 20; i++ {
		now += 1000
		must.Succeed(t, before.ask("a"))
		calm(s)
	}
	calls := l.calls.Load()
	before.ask("a")
	if calm(s); !before.passed || l.calls.Load() != calls {
		t.Fatalf("nothing is held: %d calls, then %d", calls, l.calls.Load())
	}
	after.ask("a")
	if calm(s); after.passed || l.calls.Load() != calls+1 {
		t.Errorf("passed %v, %d calls, then %d", after.passed, calls, l.calls.Load())
	}
}
