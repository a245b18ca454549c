package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
)

// inRedis is a store with long timeouts, for tests that are not about missing answers.
func inRedis(addr string) string {
	return "{redis: {address: '" + addr + "', timeout: 20s, readTimeout: 20s, dialTimeout: 20s, nodes: 1}}"
}

// startPair returns two Traefiks. The first is the one that all tests share.
func startPair(t testing.TB) (first, second *traefik) {
	t.Helper()
	return sharedTraefik(t), startTraefik(t, settings{})
}

// at returns the same site at another Traefik, under the same names.
func (s *site) at(other *traefik) *site {
	s.t.Helper()
	twin := other.newSite(s.t)
	twin.name, twin.middlewares, twin.routers, twin.service = s.name, s.middlewares, s.routers, s.service
	twin.apply()
	return twin
}

var algorithms = []struct{ name, config string }{
	{"token_bucket", "{limit: 300/366d, algorithm: token_bucket, "},
	{"token_bucket_by_intervals", "{limit: 300/366d, algorithm: token_bucket, refill: interval, "},
	{"fixed_window", "{limit: 300/366d, algorithm: fixed_window, "},
	{"calendar", "{limit: 300/month, timeZone: Asia/Tokyo, "},
	{"sliding_window_log", "{limit: 300/366d, algorithm: sliding_window_log, "},
	{"sliding_window_counter", "{limit: 300/366d, algorithm: sliding_window_counter, "},
	{"segments", "{limit: 300/366d, segments: 12, "},
	{"first_request", "{limit: 300/366d, algorithm: fixed_window, windowStart: first_request, "},
	{"spread", "{limit: 300/366d, algorithm: fixed_window, windowStart: spread, "},
	{"spread_segments", "{limit: 300/366d, segments: 12, windowStart: spread, "},
	{"day_of_renewal", "{limit: 300/month on 17, timeZone: Asia/Tokyo, "},
}

func TestTwoTraefiksAdmitExactlyTheLimitTogether(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	// This clock stands still, so that nothing leaks out of a leaky bucket.
	standing := redistest.Start(t, redistest.WithClock())
	standing.SetTime(1_790_000_000_000_000)
	first, second := startPair(t)
	s := first.newSite(t)
	for _, a := range algorithms {
		s.limit(a.name, a.config+"store: "+inRedis(redis.Addr())+"}")
		s.route("/"+a.name, a.name)
	}
	s.limit("leaky_bucket", "{limit: 1000/1s, algorithm: leaky_bucket, burst: 299, store: "+inRedis(standing.Addr())+"}")
	s.route("/leaky_bucket", "leaky_bucket")
	s.apply()
	twin := s.at(second)
	for _, r := range s.routers {
		t.Run(r.path[1:], func(t *testing.T) {
			sum := startLoad(16, 30, func(client, n int) (response, error) {
				return []*site{s, twin}[(client+n)%2].try(r.path)
			}).wait()
			sum.want(t, 300)
		})
	}
}

// With the same namespace, name, limit and key, the proxies share a counter. They must also mask addresses alike: by default Caddy
// masks none, and the plugin masks IPv6.
func TestATraefikAndACaddyAdmitExactlyTheLimitTogether(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := newSite(t)
	var handlers strings.Builder
	for _, a := range algorithms {
		words := map[string]string{
			"token_bucket_by_intervals": "algorithm token_bucket\nlimit 300/366d\nrefill interval",
			"segments":                  "limit 300/366d\nsegments 12",
			"calendar":                  "limit 300/month\ntime_zone Asia/Tokyo",
			"first_request":             "limit 300/366d\nalgorithm fixed_window\nwindow_start first_request",
			"spread":                    "limit 300/366d\nalgorithm fixed_window\nwindow_start spread",
			"spread_segments":           "limit 300/366d\nsegments 12\nwindow_start spread",
			"day_of_renewal":            "limit 300/month on 17\ntime_zone Asia/Tokyo",
		}[a.name]
		if words == "" {
			words = "limit 300/366d\nalgorithm " + a.name
		}
		s.limit(a.name, "{namespace: fleet, rules: [{name: "+a.name+", "+a.config[1:]+"}], store: "+inRedis(redis.Addr())+"}")
		s.route("/"+a.name, a.name)
		handlers.WriteString("route /" + a.name + " {\nrate_limit {\nzone " + a.name + " {\n" + words + "\nipv6_prefix 64\n}\nnamespace fleet\n" +
			"store redis " + redis.Addr() + " {\ntimeout 20s\nread_timeout 20s\ndial_timeout 20s\nnodes 1\n}\n}\nrespond ok\n}\n")
	}
	s.apply()
	c := startCaddy(t, "respond /up ok\n"+handlers.String())
	for _, a := range algorithms {
		t.Run(a.name, func(t *testing.T) {
			var byCaddy, byTraefik tally
			startLoad(16, 30, func(client, n int) (r response, err error) {
				if (client+n)%2 == 0 {
					r, err = c.try("/" + a.name)
					byCaddy.add(r, err, 0)
				} else {
					r, err = s.try("/" + a.name)
					byTraefik.add(r, err, 0)
				}
				return r, err
			}).wait().want(t, 300)
			if byCaddy.admitted == 0 || byTraefik.admitted == 0 {
				t.Errorf("Caddy has admitted %d, and Traefik %d", byCaddy.admitted, byTraefik.admitted)
			}
		})
	}
}

// A key with the same meaning is one key in both proxies, alone and combined with others.
func TestATraefikAndACaddyShareKeysThatMeanTheSame(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := newSite(t)
	var handlers strings.Builder
	keys := []struct{ name, inTraefik, inCaddy string }{
		{"header", "'header:X-Who'", "{header.X-Who}"},
		{"cookie_and_query", "['cookie:id', 'query:q']", "{cookie.id}|{query.q}"},
		{"all", "[client_ip, method, path, 'header:X-Who']", "{client_ip} {method} {path} {header.X-Who}"},
	}
	for _, k := range keys {
		prefix := ""
		if strings.Contains(k.inCaddy, "client_ip") {
			prefix = "\nipv6_prefix 64"
		}
		s.limit(k.name, "{namespace: fleet, rules: [{name: "+k.name+", limit: 300/366d, key: "+k.inTraefik+"}], store: "+inRedis(redis.Addr())+"}")
		s.route("/"+k.name, k.name)
		handlers.WriteString("route /" + k.name + " {\nrate_limit {\nzone " + k.name + " {\nlimit 300/366d\nkey \"" + k.inCaddy + "\"" + prefix + "\n}\nnamespace fleet\n" +
			"store redis " + redis.Addr() + " {\ntimeout 20s\nread_timeout 20s\ndial_timeout 20s\nnodes 1\n}\n}\nrespond ok\n}\n")
	}
	s.apply()
	c := startCaddy(t, "respond /up ok\n"+handlers.String())
	for _, k := range keys {
		t.Run(k.name, func(t *testing.T) {
			var byCaddy, byTraefik tally
			startLoad(15, 60, func(client, n int) (r response, err error) {
				request, fields := "/"+k.name+"?q=7", []string{"X-Who", "ann", "Cookie", "id=8"}
				if (client+n)%2 == 0 {
					r, err = c.try(request, fields...)
					byCaddy.add(r, err, 0)
				} else {
					r, err = s.try(request, fields...)
					byTraefik.add(r, err, 0)
				}
				return r, err
			}).wait().want(t, 300)
			if byCaddy.admitted == 0 || byTraefik.admitted == 0 {
				t.Errorf("Caddy has admitted %d, and Traefik %d", byCaddy.admitted, byTraefik.admitted)
			}
		})
	}
}

// Counters in Redis survive a new Traefik, and reloads.
func TestCountsInRedisOutliveTraefik(t *testing.T) {
	redis := redistest.Start(t)
	first, second := startPair(t)
	s := first.newSite(t)
	s.limit("limit", "{limit: 5/366d, store: "+inRedis(redis.Addr())+"}")
	s.route("/", "limit")
	s.apply()
	s.admit(3, "/")
	s.limit("limit", "{limit: 6/366d, store: "+inRedis(redis.Addr())+"}")
	s.apply()
	s.admit(1, "/")
	twin := s.at(second)
	twin.exactly(2, "/")
	s.reject("/")
}

func TestMiddlewaresWithOneRedisCountApartUnlessTheyShareANamespace(t *testing.T) {
	redis := redistest.Start(t)
	s := newSite(t)
	store := "store: " + inRedis(redis.Addr()) + "}"
	s.limit("one", "{rules: [{name: r, limit: 2/366d}], "+store)
	s.limit("two", "{rules: [{name: r, limit: 2/366d}], "+store)
	s.limit("three", "{namespace: together, rules: [{name: r, limit: 3/366d}], "+store)
	s.limit("four", "{namespace: together, rules: [{name: r, limit: 3/366d}], "+store)
	for _, name := range []string{"one", "two", "three", "four"} {
		s.route("/"+name, name)
	}
	s.apply()
	s.exactly(2, "/one")
	s.exactly(2, "/two")
	s.admit(2, "/three")
	s.exactly(1, "/four")
	s.reject("/three")
}

// Everything that a server can require of a client, with secrets in a file and in the environment.
func TestRedisWithTLSAndAPassword(t *testing.T) {
	certificates := redistest.NewCertificates(t)
	redis := redistest.Start(t, redistest.WithTLS(certificates, "yes"), redistest.WithUser("weir", "sesame", "~limits:*", "+@all"))
	tr := startTraefik(t, settings{env: []string{"REDIS_PASSWORD=sesame"}})
	s := tr.newSite(t)
	s.limit("limit", `
		limit: 2/366d
		onError: closed
		store:
		  redis:
		    address: `+redis.Addr()+`
		    username: weir
		    password: env:REDIS_PASSWORD
		    database: 2
		    prefix: "limits:"
		    plainKeys: true
		    timeout: 20s
		    tls:
		      ca: `+certificates.CAFile+`
		      clientCertificate: `+certificates.ClientCertFile+`
		      clientKey: `+certificates.ClientKeyFile)
	s.route("/", "limit")
	s.apply()
	eventually(t, "Redis decides", func() bool { return s.do("/").status != http.StatusServiceUnavailable })
	s.exactly(1, "/")
	c, err := redistest.Dial(redis.Addr(), certificates.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err = c.Do("SELECT", "2"); err != nil {
		t.Fatal(err)
	}
	keys, err := c.Do("KEYS", "limits:{127.0.0.1}:*")
	if err != nil || len(keys.List) != 1 {
		t.Errorf("%v, %v, want one key of the client", keys, err)
	}
	for _, e := range s.log() {
		if strings.Contains(e.raw, "sesame") {
			t.Errorf("the log has the password: %s", e.raw)
		}
	}
}
