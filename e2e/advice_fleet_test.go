package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// adviser is an advisor that says what a test wants.
type adviser struct {
	*httptest.Server

	mu     sync.Mutex
	serial int64
	limit  int           // that it advises
	lasts  time.Duration // until the advice expires
	issued time.Time
	asked  string   // the token of the proxy that asked last
	told   []string // who asked when since the last advice, and the limit that was told
}

func startAdviser(t *testing.T) *adviser {
	a := &adviser{}
	a.advise(100, time.Hour)
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.asked = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		a.told = append(a.told, fmt.Sprint(time.Now().Format("05.000 "), a.asked, " ", a.limit))
		at := a.issued.Format(time.RFC3339Nano)
		fmt.Fprintf(w, `{"version":1,"serial":%d,"config":%q,"issued_at":%q,"effective_at":%q,"expires_at":%q,"model":{"name":"test","horizon_seconds":600,"skill_vs_last":0.1},`+
			`"rules":[{"rule":"shop/api","limit":{"requests":%d},"reason":"growth"}]}`, a.serial, r.Header.Get("Weir-Config"), at, at, a.issued.Add(a.lasts).Format(time.RFC3339Nano), a.limit)
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *adviser) advise(limit int, lasts time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serial, a.limit, a.lasts, a.issued, a.told = a.serial+1, limit, lasts, time.Now().UTC(), nil
}

// history returns who asked since the last advice.
func (a *adviser) history() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.told
}

func (a *adviser) lastAsked() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.asked
}

// proxies are told limits by name.
type proxies map[string]func() (response, error)

// change waits until all proxies tell a limit, and returns the time between the first and the last, and how long the slowest answer took.
func (p proxies) change(t *testing.T, limit string) (apart, slowest time.Duration) {
	t.Helper()
	var mu sync.Mutex
	var done sync.WaitGroup
	var first, last time.Time
	told := make(map[string]string) // when each has told it
	for name, try := range p {
		done.Go(func() {
			found := await(func() bool {
				begun := time.Now()
				r, err := try()
				now := time.Now()
				mu.Lock()
				defer mu.Unlock()
				slowest = max(slowest, now.Sub(begun))
				if err != nil || r.header.Get("X-RateLimit-Limit") != limit {
					return false
				}
				if first.IsZero() {
					first = now
				}
				last = now
				told[name] = now.Format("05.000")
				return true
			})
			if !found {
				t.Errorf("%s does not tell a limit of %s", name, limit)
			}
		})
	}
	done.Wait()
	t.Logf("a limit of %s: %v apart: %v", limit, last.Sub(first), told)
	return last.Sub(first), slowest
}

// Two Caddys and a Traefik on one Redis agree on one document, whichever of them fetches it, and also if that one stops.
//
// The test is not parallel to others: Traefik interprets what a node does each second, and while the others have it load their configurations again and
// again, that takes seconds on a busy machine.
func TestTwoCaddysAndATraefikFollowAdviceTogether(t *testing.T) {
	redis := redistest.Start(t)
	a := startAdviser(t)
	start := func(name string) *caddy {
		global := "rate_limit {\nstore redis " + redis.Addr() + " {\nnodes 3\ntimeout 20s\nread_timeout 20s\ndial_timeout 20s\n}\nadvisor " + a.URL +
			" {\nmode apply\ngates bounds\ninterval 1s\nfleet shop\ntoken " + name + "\n}\n}"
		return startCaddyWithGlobal(t, "off", global, "respond /up ok\nrate_limit {\nnamespace shop\nzone api {\nlimit 100/1m\nipv6_prefix 64\nadapt {\nceiling 200/1m\nstep 100% 1s\n}\n}\n}\nrespond ok")
	}
	one := start("one")
	eventually(t, "the first Caddy asks", func() bool { return a.lastAsked() == "one" })
	two := start("two")
	s := newSite(t)
	s.limit("api", "{namespace: shop, rules: [{name: api, limit: 100/1m, adapt: {ceiling: 200/1m, step: '100% 1s'}}], store: "+inRedis(redis.Addr())+
		", advisor: {url: '"+a.URL+"', mode: apply, gates: bounds, interval: 1s, fleet: shop, token: three}}")
	s.route("/api", "api")
	s.apply()
	all := proxies{
		"the first Caddy":  func() (response, error) { return one.try("/api") },
		"the second Caddy": func() (response, error) { return two.try("/api") },
		"the Traefik":      func() (response, error) { return s.try("/api") },
	}
	together := func(p proxies, limit string) {
		t.Helper()
		apart, slowest := p.change(t, limit)
		if apart > time.Second+slowest {
			t.Errorf("between the first and the last that tell %s are %v, and an answer took up to %v; the advisor was asked %v", limit, apart, slowest, a.history())
		}
	}
	together(all, "100")
	eventually(t, "one Caddy asks for all", func() bool { return a.lastAsked() == "one" })
	a.advise(150, time.Hour)
	together(all, "150")

	// The one that leads is stopped before the next document.
	must.Succeed(t, one.process.Signal(syscall.SIGSTOP))
	left := proxies{"the second Caddy": all["the second Caddy"], "the Traefik": all["the Traefik"]}
	a.advise(180, time.Hour)
	together(left, "180")
	leads := a.lastAsked()
	if leads == "one" {
		t.Error("a stopped Caddy asks")
	}
	must.Succeed(t, one.process.Signal(syscall.SIGCONT))
	all.change(t, "180")

	// The next that leads is killed, if it is a Caddy.
	if leads == "two" {
		must.Succeed(t, two.process.Kill())
		delete(all, "the second Caddy")
	}
	a.advise(200, 20*time.Second)
	together(all, "200")

	// Without the advisor the limit holds until the advice expires, and then is the configured one.
	a.CloseClientConnections()
	a.Close()
	together(all, "100")
}
