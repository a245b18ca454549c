package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/fleetclock"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// continent is a region with real proxies and a real Redis. It reaches the others through relays that hold everything up.
type continent struct {
	name    string
	redis   *redistest.Server
	relays  map[string]*redistest.Proxy
	caddys  []*caddy
	proxies []func(path string) (response, error)
}

// regional are the zones of the test, by path: one of each algorithm that nodes can tell each other of.
var regional = map[string]rate.LimitConfig{
	"/fixed":    {Algorithm: rate.FixedWindow},
	"/counter":  {Algorithm: rate.SlidingWindowCounter},
	"/segments": {Algorithm: rate.SlidingWindowCounter, Segments: 6},
	"/log":      {Algorithm: rate.SlidingWindowLog},
	"/bucket":   {Algorithm: rate.TokenBucket},
	"/paid":     {Algorithm: rate.TokenBucket}, // by leases
}

// among says how regions keep to a zone together, in Caddy's words.
func (s regionsTrial) among(path string) string {
	if path == "/paid" {
		return "regions lease\n"
	}
	return fmt.Sprintf("consistency eventual %v\nregions eventual %v\n", s.nodes, s.between)
}

// asYAML writes lines of words as members of an object.
func asYAML(lines string) string {
	var members []string
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		members = append(members, strings.Replace(line, " ", ": ", 1))
	}
	return strings.Join(members, ", ")
}

// regionsTrial is what is played to regions.
type regionsTrial struct {
	nodes, between time.Duration // the intervals
	requests       int64
	period         time.Duration
	lasts          time.Duration
	load           float64 // relative to the limit
	caddys         int     // in each region
	traefiks       int     // so many regions have one
	apart          time.Duration
}

// Three regions with 80 and 150 ms between them keep to limits together, by all algorithms: beyond the limit goes no more than the documented bound. A region that is cut off
// is told of, and heard again. With WEIR_REGIONS=long it is three regions of two Caddys and a Traefik each, clocks 2 s apart, for a minute: the figures of docs/regions.md.
func TestRegionsKeepToLimitsTogether(t *testing.T) {
	t.Parallel()
	s := regionsTrial{nodes: 100 * time.Millisecond, between: 200 * time.Millisecond, requests: 40, period: 2 * time.Second, lasts: 4 * time.Second, load: 2, caddys: 1, traefiks: 1}
	if os.Getenv("WEIR_REGIONS") == "long" {
		s = regionsTrial{nodes: 100 * time.Millisecond, between: time.Second, requests: 400, period: 20 * time.Second, lasts: time.Minute, load: 2, caddys: 2, traefiks: 3, apart: 2 * time.Second}
	}
	all := s.start(t)
	s.play(t, all)
	ap := all[0]
	for _, c := range all[1:] {
		c.relays["ap"].Refuse()
		ap.relays[c.name].Refuse()
	}
	for _, c := range all {
		for peer := range c.relays {
			cut := c.name == "ap" || peer == "ap"
			eventually(t, c.name+" says whether "+peer+" is cut off", func() bool {
				return c.says(fmt.Sprintf("weir_region_cut{region=%q} 1", peer)) == cut && c.says(fmt.Sprintf("weir_region_cut{region=%q} 0", peer)) == !cut
			})
			c.relays[peer].Pass()
		}
	}
	for _, c := range all {
		for peer := range c.relays {
			eventually(t, c.name+" hears "+peer+" again", func() bool { return c.says(fmt.Sprintf("weir_region_cut{region=%q} 0", peer)) })
		}
	}
	s.killHome(t, all)
}

// killHome kills home's Redis while requests come: regions go on with what they have leased, and then with their shares, and never exceed the limit.
func (s regionsTrial) killHome(t *testing.T, all []*continent) {
	apart := time.Duration(float64(s.period) / (s.load * float64(s.requests)))
	var mu sync.Mutex
	var admitted []time.Time
	slowest := time.Duration(0)
	var asking sync.WaitGroup
	begun := time.Now()
	dead, end := s.period/4, 5*s.period/4
	for n := 0; time.Duration(n)*apart < end; n++ {
		if at := time.Duration(n) * apart; at >= dead && at < dead+apart {
			all[2].redis.Kill()
		}
		time.Sleep(time.Until(begun.Add(time.Duration(n) * apart)))
		c := all[n%len(all)]
		asking.Go(func() {
			asked := time.Now()
			r, err := c.proxies[n/len(all)%len(c.proxies)]("/paid")
			mu.Lock()
			defer mu.Unlock()
			if err == nil && r.status == 200 {
				admitted = append(admitted, asked)
				slowest = max(slowest, time.Since(asked))
			}
		})
	}
	asking.Wait()
	config := regional["/paid"]
	config.Requests, config.Period = s.requests, s.period
	l, err := rate.NewLimit(config)
	must.Succeed(t, err)
	judge := fleetclock.NewJudge(l)
	slices.SortFunc(admitted, time.Time.Compare)
	excess, late := int64(0), 0
	for _, at := range admitted {
		judge.Charge(at.UnixMicro(), 1)
		excess = max(excess, judge.Over(at.UnixMicro()))
		if at.Sub(begun) > end-s.period/2 {
			late++
		}
	}
	bound := int64(float64(s.requests)*slowest.Seconds()/s.period.Seconds()) + 1 // a request is decided a moment after it was asked
	t.Logf("home's Redis is killed: %d admitted, %d beyond the limit; in the last half of a period %d, of %d of two regions' shares", len(admitted), excess, late, s.requests/10)
	if excess > bound || int64(late) < s.requests/40 || int64(late) > s.requests/5 {
		t.Errorf("home's Redis is killed: %d admitted, %d beyond the limit, with a bound of %d; in the last half of a period %d", len(admitted), excess, bound, late)
	}
}

// says reports whether a Caddy of the region has a line in its metrics, or, without a Caddy that is the courier, true.
func (c *continent) says(line string) bool {
	for _, one := range c.caddys {
		r, err := one.try("/metrics")
		if err == nil && strings.Contains(r.body, "weir_region_courier 1\n") {
			return strings.Contains(r.body, line+"\n")
		}
	}
	return false
}

func (s regionsTrial) start(t *testing.T) []*continent {
	names := []string{"ap", "eu", "us"}
	var all []*continent
	for i, name := range names {
		c := &continent{name: name, relays: make(map[string]*redistest.Proxy)}
		if s.apart > 0 {
			c.redis = redistest.Start(t, redistest.WithClock())
			keepTime(t, c.redis, s.apart*time.Duration(i)/2)
		} else {
			c.redis = redistest.Start(t)
		}
		all = append(all, c)
	}
	for i, c := range all {
		peers, object := "", ""
		for _, other := range all {
			if other == c {
				continue
			}
			relay := redistest.NewProxy(t, other.redis.Addr())
			far := 75 * time.Millisecond // each way: 150 ms to ap and back, 80 between eu and us
			if c.name != "ap" && other.name != "ap" {
				far = 40 * time.Millisecond
			}
			relay.Delay(far)
			c.relays[other.name] = relay
			peers += " " + other.name + " " + relay.Addr()
			object += ", " + other.name + ": '" + relay.Addr() + "'"
		}
		site := "metrics /metrics\nrespond /up ok\n"
		rules := ""
		for path, l := range regional {
			algorithm := fmt.Sprintf("algorithm %s\n", l.Algorithm)
			if l.Segments > 0 {
				algorithm += fmt.Sprintf("segments %d\n", l.Segments)
			}
			site += fmt.Sprintf("handle %s {\nrate_limit {\nnamespace world\nstore redis {\naddress %s\nregion %s\npeers%s\nhome us\nshare 0.1\nbackground_timeout 400ms\nnodes 3\n}\nzone %s {\nkey {header.X-Who}\nlimit %d/%v\n%s%son_error closed\n}\n}\nrespond ok\n}\n",
				path, c.redis.Addr(), c.name, peers, path[1:], s.requests, s.period, algorithm, s.among(path))
			rules += fmt.Sprintf(", {name: %s, match: {paths: ['%s']}, key: 'header:X-Who', limit: %d/%v, onError: closed, %s}",
				path[1:], path, s.requests, s.period, asYAML(algorithm+s.among(path)))
		}
		for range s.caddys {
			one := startCaddy(t, site)
			c.caddys = append(c.caddys, one)
			c.proxies = append(c.proxies, func(path string) (response, error) { return one.try(path, "X-Who", "ann") })
		}
		if i < s.traefiks {
			one := newSite(t)
			one.limit("api", "{namespace: world, rules: ["+rules[2:]+"], store: {redis: {address: '"+c.redis.Addr()+"', region: "+c.name+", peers: {"+object[2:]+"}, home: us, share: 0.1, backgroundTimeout: 400ms, nodes: 3}}}")
			one.route("/", "api")
			one.apply()
			c.proxies = append(c.proxies, func(path string) (response, error) { return one.try(path, "X-Who", "ann") })
		}
	}
	for _, c := range all {
		for i, try := range c.proxies {
			eventually(t, fmt.Sprint(c.name, ": proxy ", i, " answers"), func() bool {
				r, err := try("/log")
				return err == nil && r.status == 200
			})
		}
	}
	return all
}

// keepTime has a Redis's clock go with the machine's, ahead of it.
func keepTime(t *testing.T, server *redistest.Server, ahead time.Duration) {
	ends := make(chan struct{})
	var done sync.WaitGroup
	server.SetTime(time.Now().Add(ahead).UnixMicro())
	done.Go(func() {
		for {
			select {
			case <-ends:
				return
			case <-time.After(time.Millisecond):
				server.SetTime(time.Now().Add(ahead).UnixMicro())
			}
		}
	})
	t.Cleanup(func() { close(ends); done.Wait() })
}

// play has requests come to all proxies in turn, and judges what was admitted.
func (s regionsTrial) play(t *testing.T, all []*continent) {
	var proxies []func(path string) (response, error)
	for n := 0; len(proxies) < len(all)*len(all[1].proxies); n++ {
		for _, c := range all {
			proxies = append(proxies, c.proxies[n%len(c.proxies)])
		}
	}
	time.Sleep(time.Until(time.Now().Truncate(s.period).Add(s.period))) // what came before counts no more in a window
	apart := time.Duration(float64(s.period) / (s.load * float64(s.requests)))
	type admission struct{ asked, answered time.Time }
	var mu sync.Mutex
	asks, without := 0, 0
	var took, beside []time.Duration
	admitted := make(map[string][]admission)
	var asking sync.WaitGroup
	begun := time.Now()
	for path := range regional {
		asking.Go(func() {
			var each sync.WaitGroup
			for n := 0; time.Duration(n)*apart < s.lasts; n++ {
				time.Sleep(time.Until(begun.Add(time.Duration(n) * apart)))
				each.Go(func() {
					asked := time.Now()
					r, err := proxies[n%len(proxies)](path)
					answered := time.Now()
					mu.Lock()
					defer mu.Unlock()
					asks++
					if err != nil || r.status != 200 && r.status != 429 {
						without++
					} else if r.status == 200 {
						admitted[path] = append(admitted[path], admission{asked, answered})
						took = append(took, answered.Sub(asked))
					}
				})
			}
			each.Wait()
		})
	}
	asking.Go(func() { // what an answer takes that no limit is asked for
		for time.Since(begun) < s.lasts {
			asked := time.Now()
			if _, err := all[1].caddys[0].try("/up"); err == nil {
				beside = append(beside, time.Since(asked))
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	asking.Wait()
	slices.Sort(took)
	slices.Sort(beside)
	if without*100 > asks { // a busy machine stands still now and then
		t.Errorf("%d of %d requests have gone by on_error", without, asks)
	}
	t.Logf("median %v, p99 %v; of answers without a limit %v, %v", took[len(took)/2], took[len(took)*99/100], beside[len(beside)/2], beside[len(beside)*99/100])
	for path, config := range regional {
		config.Requests, config.Period = s.requests, s.period
		l, err := rate.NewLimit(config)
		must.Succeed(t, err)
		judge := fleetclock.NewJudge(l)
		list := admitted[path]
		slices.SortFunc(list, func(a, b admission) int { return a.asked.Compare(b.asked) })
		excess := int64(0)
		for _, one := range list {
			judge.Charge(one.asked.UnixMicro(), 1)
			excess = max(excess, judge.Over(one.asked.UnixMicro()))
		}
		lag := 2*(s.nodes+s.between) + 150*time.Millisecond + s.apart + 100*time.Millisecond // calls within a region, on a busy machine
		bound := int64(float64(lag)/float64(apart)) + 1
		if path == "/paid" { // a request is decided a moment after it was asked
			bound = int64(float64(s.requests)*took[len(took)-1].Seconds()/s.period.Seconds()) + 1
		}
		t.Logf("%s: %d admitted, %d beyond the limit of %d, with a bound of %d", path, len(list), excess, s.requests, bound)
		if excess > bound {
			t.Errorf("%s: %d beyond the limit, with a bound of %d", path, excess, bound)
		}
		if least := float64(s.requests) * s.lasts.Seconds() / s.period.Seconds() * 0.7; path != "/paid" && float64(len(list)) < least {
			t.Errorf("%s: only %d were admitted, of %.0f that the limit allows", path, len(list), least/0.7)
		}
	}
}

// What a rule that holds across regions adds to an answer below its limit, beside the same rule of one region: in the same proxy, whose other regions are 80 and 150 ms away,
// asked in turn, in many short rounds, of which the median counts. Only with WEIR_REGIONS=long: it measures, and judges nothing but that no request waits for another region.
func TestWhatRegionsAddToAnAnswer(t *testing.T) {
	if os.Getenv("WEIR_REGIONS") != "long" {
		t.Skip("it takes two minutes")
	}
	zones := map[string]string{"eventual": "consistency eventual 100ms\n", "regions_eventual": "consistency eventual 100ms\nregions eventual 1s\n", "strict": "", "regions_lease": "regions lease\n"}
	names := []string{"ap", "eu", "us"}
	servers := make([]*redistest.Server, len(names))
	for i := range servers {
		servers[i] = redistest.Start(t)
	}
	var caddys []*caddy
	traefik := newSite(t)
	for i, name := range names {
		peers, object := "", ""
		for j, other := range names {
			if j != i {
				relay := redistest.NewProxy(t, servers[j].Addr())
				relay.Delay(map[bool]time.Duration{true: 75 * time.Millisecond, false: 40 * time.Millisecond}[i == 0 || j == 0])
				peers += " " + other + " " + relay.Addr()
				object += ", " + other + ": '" + relay.Addr() + "'"
			}
		}
		site := ""
		for zone, how := range zones {
			site += fmt.Sprintf("handle /%s {\nrate_limit {\nnamespace world\nstore redis {\naddress %s\nregion %s\npeers%s\nhome us\nshare 0.1\n}\nzone %s {\nkey {header.X-Who}\nlimit 1000000/1m\nalgorithm token_bucket\n%s}\n}\nrespond ok\n}\n",
				zone, servers[i].Addr(), name, peers, zone, how)
			if name == "eu" {
				traefik.limit(zone, "{namespace: world, rules: [{name: "+zone+", key: 'header:X-Who', limit: 1000000/1m, "+asYAML("algorithm token_bucket\n"+how)+"}], store: {redis: {address: '"+servers[i].Addr()+"', region: eu, peers: {"+object[2:]+"}, home: us, share: 0.1}}}")
				traefik.route("/"+zone, zone)
			}
		}
		caddys = append(caddys, startCaddy(t, site+"respond /up ok\n"))
	}
	traefik.route("/up")
	traefik.apply()
	besides := func() { // other regions have requests, too
		for _, i := range []int{0, 2} {
			_, _ = caddys[i].try("/regions_eventual", "X-Who", "ann")
			_, _ = caddys[i].try("/regions_lease", "X-Who", "ann")
		}
	}
	for path := range zones {
		eventually(t, "Traefik has /"+path, func() bool {
			r, err := traefik.try("/"+path, "X-Who", "ann")
			return err == nil && r.status == 200
		})
	}
	whatIsAdded(t, "Caddy", 60, 400, caddys[1].try, besides)
	whatIsAdded(t, "Traefik", 60, 200, traefik.try, besides)
}

// whatIsAdded measures a proxy in rounds of that many requests to each path.
func whatIsAdded(t *testing.T, proxy string, rounds, each int, try func(path string, fields ...string) (response, error), besides func()) {
	paths := []string{"/eventual", "/regions_eventual", "/strict", "/regions_lease", "/up"}
	medians, p99s := make(map[string][]time.Duration), make(map[string][]time.Duration) // by path, of each round
	for range rounds {
		took := make(map[string][]time.Duration)
		for n := range each {
			for i := range paths {
				path := paths[(i+n)%len(paths)]
				asked := time.Now()
				r, err := try(path, "X-Who", "ann")
				must.Succeed(t, err)
				must.Equal(t, r.status, 200, path)
				took[path] = append(took[path], time.Since(asked))
			}
			if n%10 == 0 {
				besides()
			}
		}
		for path, list := range took {
			slices.Sort(list)
			medians[path] = append(medians[path], list[len(list)/2])
			p99s[path] = append(p99s[path], list[len(list)*99/100])
		}
	}
	median := func(list []time.Duration) time.Duration { return slices.Sorted(slices.Values(list))[len(list)/2] }
	for _, path := range paths {
		t.Logf("%s, %s: median %v, p99 %v", proxy, path, median(medians[path]), median(p99s[path]))
	}
	for i := 0; i < 4; i += 2 {
		var added []time.Duration
		for n, with := range p99s[paths[i+1]] {
			added = append(added, with-p99s[paths[i]][n])
		}
		slices.Sort(added)
		t.Logf("%s, %s beside %s: %v added to p99, in the middle half of rounds %v to %v", proxy, paths[i+1], paths[i], added[rounds/2], added[rounds/4], added[rounds*3/4])
		if slowest := median(p99s[paths[i+1]]); slowest > 40*time.Millisecond {
			t.Errorf("%s, %s: p99 is %v, as if requests waited for another region", proxy, paths[i+1], slowest)
		}
	}
}
