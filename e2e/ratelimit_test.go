package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// sideBySide returns a site with the same configuration for Traefik's rateLimit at /native and for the plugin at /plugin.
func sideBySide(t *testing.T, config string) *site {
	t.Helper()
	s := newSite(t)
	s.middleware("native", "rateLimit: "+config)
	s.middleware("plugin", "plugin: {weir: "+config+"}")
	s.route("/native", "native")
	s.route("/plugin", "plugin")
	s.apply()
	return s
}

// The requests come at once, and no token returns while the test runs. So it does not matter that rateLimit lets a request wait for
// a token that is due within half a second, and the plugin does not.
func TestTheWordsOfRateLimitMeanWhatTheyMeanInTraefik(t *testing.T) {
	redis := redistest.Start(t)
	const year = "average: 1, period: 8784h"
	for _, c := range []struct {
		config   string
		requests [][]string // header fields; Host sets the host
	}{
		{"{" + year + "}", repeat(3)},
		{"{" + year + ", burst: 1}", repeat(3)},
		{"{" + year + ", burst: 5}", repeat(8)},
		{"{" + year + ", burst: 0}", repeat(3)},
		{"{average: 3, period: 8784h, burst: 2}", repeat(4)},
		{"{average: 1, period: '31622400', burst: 2}", repeat(4)}, // seconds
		{"{average: 1, period: 31622400, burst: 2}", repeat(4)},
		{"{average: 0, burst: 2}", repeat(9)}, // no limit
		{"{" + year + ", burst: 2, sourceCriterion: {requestHeaderName: X-User}}", [][]string{
			{"X-User", "a"}, {"X-User", "a"}, {"X-User", "a"}, {"X-User", "b"}, {}, {}, {}, {"x-user", "b"}, {"X-User", "b"}, {"X-User", ""},
		}},
		{"{" + year + ", burst: 2, sourceCriterion: {ipStrategy: {depth: 2}}}", [][]string{
			{"X-Forwarded-For", "192.0.2.1, 10.0.0.1"}, {"X-Forwarded-For", "192.0.2.1, 10.0.0.2"}, {"X-Forwarded-For", "192.0.2.1, 10.0.0.3"},
			{"X-Forwarded-For", "192.0.2.2, 10.0.0.1"}, {"X-Forwarded-For", "192.0.2.2"}, {}, {},
		}},
		{"{" + year + ", burst: 1, sourceCriterion: {ipStrategy: {excludedIPs: [10.0.0.0/8]}}}", [][]string{
			{"X-Forwarded-For", "192.0.2.1, 10.0.0.1"}, {"X-Forwarded-For", "192.0.2.1"}, {"X-Forwarded-For", "192.0.2.2, 10.0.0.9"},
		}},
		{"{" + year + ", burst: 2, sourceCriterion: {requestHost: true}}", repeat(4)},
		{"{" + year + ", burst: 3, redis: {endpoints: ['" + redis.Addr() + "'], readTimeout: 10s, dialTimeout: 10s}}", repeat(5)},
		{"{" + year + ", burst: 3, redis: {endpoints: ['" + redis.Addr() + "'], db: 1, poolSize: 3, minIdleConns: 1, readTimeout: 10s, writeTimeout: 10s, dialTimeout: 10s}}", repeat(5)},
	} {
		t.Run(c.config, func(t *testing.T) {
			s := sideBySide(t, c.config)
			admitted := 0
			for i, fields := range c.requests {
				native, plugin := s.do("/native", fields...), s.do("/plugin", fields...)
				must.Equal(t, native.status, plugin.status, "request %d, %q: status %d, from rateLimit", i+1, fields, plugin.status)
				if native.status == http.StatusOK {
					admitted++
				}
			}
			if admitted == 0 {
				t.Error("rateLimit has admitted nothing")
			}
		})
	}
	if n := len(redis.MustDo(t, "KEYS", "weir:*").List); n == 0 {
		t.Error("there is nothing of the plugin's in Redis")
	}
}

func repeat(n int) [][]string { return make([][]string, n) }

// The plugin refuses what rateLimit refuses, and says why.
func TestWhatRateLimitRefusesIsRefused(t *testing.T) {
	for _, config := range []string{
		"{average: 1, period: -1s}",
		"{average: 1, sourceCriterion: {ipStrategy: {depth: 1}, requestHost: true}}",
		"{average: 1, sourceCriterion: {ipStrategy: {depth: 1}, requestHeaderName: X-User}}",
		"{average: 1, sourceCriterion: {requestHost: true, requestHeaderName: X-User}}",
		"{average: 1, sourceCriterion: {ipStrategy: {excludedIPs: [10.0.0]}}}",
		"{average: 1, sourceCriterion: {ipStrategy: {ipv6Subnet: 129}}}",
	} {
		t.Run(config, func(t *testing.T) {
			s := sideBySide(t, config)
			must.Equal(t, s.do("/native").status, http.StatusNotFound, "rateLimit does not refuse it")
			if plugin := s.do("/plugin").status; plugin != http.StatusNotFound {
				t.Errorf("status %d, want 404", plugin)
			}
			if list := s.errors("plugin"); len(list) != 1 {
				t.Errorf("the log says %q", list)
			}
		})
	}
}

// In the long run the rate is the average, in both; rateLimit may be ahead by the requests that it lets wait.
func TestTheAverageIsKeptInTheLongRun(t *testing.T) {
	s := sideBySide(t, "{average: 20, period: 1s, burst: 5}")
	const lasting = 2 * time.Second
	for _, path := range []string{"/native", "/plugin"} {
		began := time.Now()
		l := startLoad(2, 0, func(int, int) (response, error) { return s.try(path) })
		eventually(t, "there were enough requests", func() bool { return time.Since(began) > lasting })
		sum := l.stop()
		took := time.Since(began).Seconds()
		if most := 5 + 20*took + 1; float64(sum.admitted) > most || sum.admitted < 20 || sum.lost > 0 {
			t.Errorf("%s: %d requests were admitted in %.2f s, want 20 to %.0f; %d were lost", path, sum.admitted, took, most, sum.lost)
		}
	}
}

// A migration changes one line; unlike rateLimit, the plugin keeps its counters through a reload.
func TestCountsSurviveWhereRateLimitForgets(t *testing.T) {
	s := sideBySide(t, "{average: 1, period: 8784h, burst: 2}")
	for _, path := range []string{"/native", "/plugin"} {
		s.exactly(2, path)
	}
	s.route("/more")
	s.apply()
	s.reject("/plugin")
	s.admit(1, "/native")
}

// Both have the header fields that their users expect: the plugin keeps rateLimit's Retry-After, and adds others.
func TestARejectionHasTheFieldsOfRateLimit(t *testing.T) {
	s := sideBySide(t, "{average: 1, period: 1h, burst: 1}")
	var waits []int
	for _, path := range []string{"/native", "/plugin"} {
		s.admit(1, path)
		waits = append(waits, s.reject(path).number(t, "Retry-After", 3500, 3600))
	}
	if difference := waits[0] - waits[1]; difference < -60 || difference > 60 {
		t.Errorf("Retry-After is %d, from rateLimit %d", waits[1], waits[0])
	}
	must.Contain(t, s.reject("/plugin").header.Get("RateLimit-Policy"), ";q=1;w=3600", "RateLimit-Policy")
}
