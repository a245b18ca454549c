package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// fleetRules are the rules that the proxies of a fleet have in common, by name: settings in Traefik, and lines of a zone. Each has a fast path of its own in
// Traefik.
var fleetRules = []struct{ name, inTraefik, inCaddy string }{
	{"strict", "limit: 3/366d, algorithm: fixed_window", "limit 3/366d\nalgorithm fixed_window"},
	{"leased", "limit: 3/366d, algorithm: token_bucket, consistency: lease", "limit 3/366d\nalgorithm token_bucket\nconsistency lease"},
	{"penal", "limit: 3/366d, penalty: [1ms]", "limit 3/366d\npenalty 1ms"},
	{"tiered", "limit: 3/366d, overrides: [{key: other, limit: 4/366d}]", "limit 3/366d\noverride other 4/366d"},
	{"log", "limit: 3/366d, algorithm: sliding_window_log, cost: 'header:X-Cost'", "limit 3/366d\nalgorithm sliding_window_log\ncost {header.X-Cost}"},
}

// exceptional is a fleet of two Caddys and a Traefik on one Redis.
type exceptional struct {
	t      *testing.T
	redis  *redistest.Server
	site   *site
	caddys []*caddy
	admins []string
}

func startExceptional(t *testing.T) *exceptional {
	t.Helper()
	f := &exceptional{t: t, redis: redistest.Start(t), site: newSite(t)}
	f.configure("")
	f.caddys = make([]*caddy, 2)
	f.admins = make([]string, 2)
	for i := range f.caddys {
		f.startCaddy(i)
	}
	return f
}

// configure configures the Traefik. other takes the place of the rule strict.
func (f *exceptional) configure(other string) {
	f.site.middlewares, f.site.routers = nil, nil
	for _, r := range fleetRules {
		config := r.inTraefik
		if r.name == "strict" && other != "" {
			config = other
		}
		f.site.limit(r.name, "{namespace: fleet, rules: [{name: "+r.name+", key: 'header:X-Key', "+config+"}], store: "+inRedis(f.redis.Addr())+"}")
		f.site.route("/"+r.name, r.name)
	}
	f.site.apply()
}

func (f *exceptional) startCaddy(i int) {
	f.t.Helper()
	var handlers strings.Builder
	for _, r := range fleetRules {
		fmt.Fprintf(&handlers, "route /%s {\nrate_limit {\nzone %s {\nkey {header.X-Key}\n%s\n}\nnamespace fleet\n}\nrespond ok\n}\n", r.name, r.name, r.inCaddy)
	}
	handlers.WriteString("route /address {\nrate_limit {\nzone address {\nlimit 1/366d\npenalty 1h\n}\nnamespace fleet\n}\nrespond ok\n}\n")
	f.admins[i] = freeAddr()
	global := "rate_limit {\nstore redis " + f.redis.Addr() + " {\ntimeout 20s\nread_timeout 20s\ndial_timeout 20s\nnodes 1\n}\n}"
	f.caddys[i] = startCaddyWithGlobal(f.t, f.admins[i], global, "respond /up ok\n"+handlers.String())
	eventually(f.t, "its admin endpoint has the rules, which may be after it serves", func() bool {
		r, err := http.Get("http://" + f.admins[i] + "/rate_limit/rules")
		if err == nil {
			_ = r.Body.Close()
		}
		return err == nil && r.StatusCode == http.StatusOK
	})
}

// api asks the admin API of a Caddy; "" is a GET.
func (f *exceptional) api(i int, path, body string) string {
	f.t.Helper()
	url := "http://" + f.admins[i] + "/rate_limit/" + path
	var r *http.Response
	var err error
	if body == "" {
		r, err = http.Get(url)
	} else {
		r, err = http.Post(url, "application/json", strings.NewReader(body))
	}
	must.Succeed(f.t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	must.Succeed(f.t, err)
	if r.StatusCode != http.StatusOK {
		f.t.Fatalf("%s %s: %d %s", path, body, r.StatusCode, text)
	}
	return strings.TrimSpace(string(text))
}

// each calls try for every proxy that runs.
func (f *exceptional) each(do func(name string, try func(request string, fields ...string) (response, error))) {
	do("Traefik", f.site.try)
	for i, c := range f.caddys {
		if c != nil {
			do("Caddy "+strconv.Itoa(i), c.try)
		}
	}
}

// obeyed waits until each proxy answers a key's requests under a rule with that status and limit.
func (f *exceptional) obeyed(what, rule, key string, status int, limit string) {
	f.t.Helper()
	f.each(func(name string, try func(request string, fields ...string) (response, error)) {
		f.t.Helper()
		var last response
		obeys := await(func() bool {
			r, err := try("/"+rule, "X-Key", key, "X-Cost", "1")
			last = r
			return err == nil && r.status == status && r.header.Get("X-RateLimit-Limit") == limit
		})
		if !obeys {
			f.t.Fatalf("%s: %s, %s: the last answer was %d with the limit %q, and never %d with %q", what, name, rule, last.status, last.header.Get("X-RateLimit-Limit"), status, limit)
		}
	})
}

// tellsOfPenalties checks that each Caddy lists the address that is under a penalty when its requests come, wherever that has begun, until it is ended anywhere.
func (f *exceptional) tellsOfPenalties() {
	f.t.Helper()
	blocked := func(i int) string { return f.api(i, "blocked?format=text", "") }
	for i := range f.caddys {
		must.Equal(f.t, blocked(i), "", "at first")
	}
	for _, i := range []int{0, 0, 1} {
		_, err := f.caddys[i].try("/address")
		must.Succeed(f.t, err)
	}
	for i := range f.caddys {
		must.Contain(f.t, blocked(i), "127.0.0.1 peer 20", "Caddy %d", i)
		must.Contain(f.t, blocked(i), " penalty fleet/address", "Caddy %d", i)
	}
	f.api(0, "unblock", `{"rule":"fleet/address","key":["127.0.0.1"]}`)
	must.Equal(f.t, blocked(0), "", "where it was ended")
	eventually(f.t, "the other Caddy learns that it was ended", func() bool { return blocked(1) == "" })
}

// A fleet obeys what one of its Caddys was told about single keys, while nodes and Redis come and go. Other keys keep their limit.
func TestAFleetObeysExceptions(t *testing.T) {
	t.Parallel()
	f := startExceptional(t)
	f.tellsOfPenalties()
	named := func(rule, more string) string { return `{"rule":"fleet/` + rule + `","key":["acme"]` + more + `}` }
	for _, r := range fleetRules {
		for i := 0; i < 4; i++ { // all know the key, and that it is over its limit
			f.each(func(name string, try func(request string, fields ...string) (response, error)) {
				_, err := try("/"+r.name, "X-Key", "acme", "X-Cost", "1")
				must.Succeed(t, err)
			})
		}
		f.obeyed("over the limit", r.name, "acme", 429, "3")
		f.api(0, "limit", named(r.name, `,"limit":"+1000","until":"today","note":"launch","by":"ann"`))
	}
	for _, r := range fleetRules {
		f.obeyed("a higher limit", r.name, "acme", 200, "1003")
		f.obeyed("another key", r.name, "other"+r.name, 200, "3")
	}

	must.Succeed(t, f.caddys[0].process.Kill())
	f.caddys[0] = nil
	for _, r := range fleetRules {
		f.api(1, "limit", named(r.name, `,"limit":"5000/366d","for":"100d"`))
		f.obeyed("another limit, by another Caddy", r.name, "acme", 200, "5000")
	}

	f.redis.Kill()
	f.redis.Restart() // without what it had
	f.startCaddy(0)
	for _, r := range fleetRules {
		f.obeyed("after Redis has lost all", r.name, "acme", 200, "5000")
	}
	var list struct {
		Exceptions []struct{ Rule, Kind, Limit, Note string }
		Total      int
	}
	must.Succeed(t, json.Unmarshal([]byte(f.api(0, "exceptions", "")), &list))
	if list.Total != len(fleetRules) || list.Exceptions[0].Limit != "5000/366d" {
		t.Errorf("%+v", list)
	}

	for _, r := range fleetRules {
		f.api(0, "block", named(r.name, `,"for":"1d","note":"abuse"`))
		f.obeyed("a block", r.name, "acme", 429, "5000")
	}
	f.configure("limit: 30/365d, algorithm: sliding_window_log") // which counts elsewhere, where the key was never blocked
	f.obeyed("a block and another algorithm", "strict", "acme", 429, "5000")
	for _, r := range fleetRules {
		f.api(1, "unblock", named(r.name, ""))
		f.obeyed("unblocked", r.name, "acme", 200, "5000")
		f.api(1, "end", named(r.name, ""))
	}
	for _, r := range fleetRules[1:] {
		f.each(func(name string, try func(request string, fields ...string) (response, error)) {
			eventually(t, name+" has the configured limit of "+r.name+" again", func() bool {
				a, err := try("/"+r.name, "X-Key", "acme", "X-Cost", "1")
				return err == nil && a.header.Get("X-RateLimit-Limit") == "3"
			})
		})
		f.api(1, "reset", named(r.name, ""))
	}
}

// Units that are given back can be used once, by whichever node: none goes on rejecting from memory.
func TestAFleetUsesUnitsThatWereGivenBack(t *testing.T) {
	t.Parallel()
	f := startExceptional(t)
	for _, r := range fleetRules {
		if r.name == "penal" { // a penalty stays
			continue
		}
		f.each(func(name string, try func(request string, fields ...string) (response, error)) {
			eventually(t, name+" rejects", func() bool {
				a, err := try("/"+r.name, "X-Key", "acme", "X-Cost", "1")
				return err == nil && a.status == 429
			})
		})
		must.Equal(t, f.api(0, "credit", `{"rule":"fleet/`+r.name+`","key":["acme"],"units":1}`), `{"given":1}`, r.name)
		eventually(t, "Traefik admits a request under "+r.name, func() bool {
			a, err := f.site.try("/"+r.name, "X-Key", "acme", "X-Cost", "1")
			return err == nil && a.status == 200
		})
		f.each(func(name string, try func(request string, fields ...string) (response, error)) {
			a, err := try("/"+r.name, "X-Key", "acme", "X-Cost", "1")
			must.Succeed(t, err)
			must.Equal(t, a.status, 429, name+", "+r.name)
		})
	}
}

// In memory a file keeps what was decided beyond the end of the process, however it ends.
func TestAFileKeepsExceptionsBeyondTheProcess(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/exceptions.json"
	f := &exceptional{t: t, admins: make([]string, 1), caddys: make([]*caddy, 1)}
	start := func() {
		f.admins[0] = freeAddr()
		f.caddys[0] = startCaddyWithGlobal(t, f.admins[0], "rate_limit {\nexceptions_file "+file+"\n}",
			"respond /up ok\nrate_limit {\nzone api {\nkey {header.X-Key}\non_missing_key skip\nlimit 1/366d\n}\n}\nrespond ok\n")
	}
	status := func(key string) string {
		r, err := f.caddys[0].try("/", "X-Key", key)
		must.Succeed(t, err)
		return fmt.Sprint(r.status, " of ", r.header.Get("X-RateLimit-Limit"))
	}
	start()
	f.api(0, "limit", `{"rule":"api","key":["acme"],"limit":"+4","for":"1h"}`)
	f.api(0, "block", `{"rule":"api","key":["eve"],"for":"1h"}`)
	must.Succeed(t, f.caddys[0].process.Kill())
	start()
	must.Equal(t, status("eve"), "429 of 1", "the first request of a blocked key")
	must.Equal(t, status("acme"), "200 of 5", "a key with a limit of its own")
	must.Equal(t, status("bob"), "200 of 1", "another key")
	f.api(0, "end", `{"rule":"api","key":["acme"]}`)
	f.api(0, "unblock", `{"rule":"api","key":["eve"]}`)
	must.Succeed(t, f.caddys[0].process.Kill())
	start()
	must.Equal(t, f.api(0, "exceptions", ""), `{"exceptions":[],"total":0}`, "what was ended")
}
