package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mitchellh/mapstructure" // as Traefik has it

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
	plugin "github.com/proxyweir/weir/traefik"
)

// probes are the requests that each mutant gets, below its path. The first six are what a client sends who keeps to no limit.
var probes = [][]string{
	{"/"}, {"/"}, {"/"}, {"/"}, {"/"}, {"/"},
	{"/", "X-Plan", "pro"}, {"/", "X-Plan", "pro"}, {"/", "X-User", "bob"}, {"/", "X-User", "bob"}, {"/", "X-User", "bob"}, {"/", "X-User", "bob"}, {"POST /x"}, {"/", "X-Cost", "2"},
	{"/", "X-Forwarded-For", "203.0.113.9"}, {"/", "X-User", "ann"}, {"/", "Cookie", "a=b"}, {"/quotas"}, {"/metrics"},
}

const plainProbes = 6

// found is what became of a mutant's requests: for each its status, whether it has reached the service, and its quota.
type found []string

// admitted returns how many of the first requests have reached the service.
func (f found) admitted(of int) (n int) {
	for _, line := range f[:of] {
		if strings.HasPrefix(line, "200 service") {
			n++
		}
	}
	return n
}

func answered(status int, body string, header http.Header) string {
	where := "proxy"
	if body == "ok" {
		where = "service"
	}
	ietf, _, _ := strings.Cut(header.Get("RateLimit"), ";t=") // without the seconds, which pass
	return fmt.Sprintf("%d %s %q %q %q", status, where, header.Get("X-RateLimit-Limit"), header.Get("X-RateLimit-Remaining"), ietf)
}

// probe sends the requests to a middleware in Traefik.
func (s *site) probe(name string) (f found) {
	for _, p := range probes {
		method, path, other := strings.Cut(p[0], " ")
		if !other {
			method, path = http.MethodGet, p[0]
		}
		r := s.do(method+" /"+name+path, p[1:]...)
		f = append(f, answered(r.status, r.body, r.header))
	}
	return f
}

// compiled sends the same requests to the same plugin, compiled, with the configuration that Traefik has read. Its error is that of New.
func (s *site) compiled(name string, given map[string]any) (f found, err error) {
	config := plugin.CreateConfig()
	decoder, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{DecodeHook: mapstructure.StringToSliceHookFunc(","), WeaklyTypedInput: true, Result: config})
	must.Succeed(s.t, err)
	if err = decoder.Decode(given); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) })
	handler, err := plugin.New(ctx, next, config, s.qualified(name))
	if err != nil {
		return nil, err
	}
	for _, p := range probes {
		method, path, other := strings.Cut(p[0], " ")
		if !other {
			method, path = http.MethodGet, p[0]
		}
		r := httptest.NewRequest(method, "http://"+s.host()+"/"+name+path, nil)
		r.RemoteAddr = "127.0.0.1:1234"
		for i := 1; i < len(p); i += 2 {
			r.Header.Add(p[i], p[i+1])
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		f = append(f, answered(w.Code, w.Body.String(), w.Header()))
	}
	return f, nil
}

// read returns the configurations of the plugin that Traefik has read, by the names of their middlewares.
func (s *site) read() map[string]map[string]any {
	var all struct {
		Middlewares map[string]struct {
			Plugin map[string]any
		}
	}
	must.Succeed(s.t, json.Unmarshal(s.get(s.t, "/api/rawdata"), &all))
	read := make(map[string]map[string]any)
	for name, m := range all.Middlewares {
		read[name], _ = m.Plugin["weir"].(map[string]any)
	}
	return read
}

// numberOf returns the number in an environment variable, or a default.
func numberOf(t *testing.T, name string, otherwise int) int {
	t.Helper()
	n, err := strconv.Atoi(cmp.Or(os.Getenv(name), strconv.Itoa(otherwise)))
	must.Succeed(t, err)
	return n
}

// nursery is a site whose middlewares are mutants, beside a good one.
type nursery struct {
	*site
	seed  int
	files string // the folder of their rule files
	redis string // the address of their Redis
}

// batch is how many mutants are loaded at a time.
const batch = 20

// newcomer and veteran are the names of the middlewares that a mutant gets: one of its own, and one that mutants before it had.
func newcomer(number int) string { return fmt.Sprint("m", number) }
func veteran(number int) string  { return fmt.Sprint("again", number%batch) }

// reload gives Traefik a batch of mutants in place of the one before, or none.
func (n *nursery) reload(from, to int) {
	n.t.Helper()
	n.middlewares, n.routers = n.middlewares[:1], n.routers[:1]
	for number := from; number < to; number++ {
		m := newMutant(n.seed, number)
		for _, name := range []string{newcomer(number), veteran(number)} {
			file := filepath.Join(n.files, name+".json")
			must.Succeed(n.t, os.RemoveAll(file))
			if m.File != nil {
				ruleFile(n.t, file, asJSON(m.File))
			}
			n.limit(name, m.text(name, file, n.redis))
			n.route("/"+name+"/", name)
		}
	}
	n.apply()
}

// check compares what a mutant does with what it does compiled, with a Redis of its own, and reports whether it is accepted.
func (n *nursery) check(number int, read map[string]any, redis string) bool {
	n.t.Helper()
	name, text := newcomer(number), asJSON(newMutant(n.seed, number))
	var given map[string]any
	must.Succeed(n.t, json.Unmarshal([]byte(strings.ReplaceAll(asJSON(read), n.redis, redis)), &given))
	want, err := n.compiled(name, given)
	got, again := n.probe(name), n.probe(veteran(number))
	if err != nil {
		if strings.Contains(err.Error(), n.files) { // the rules that the file had before stay in force
			again = got
		}
		for _, f := range []found{got, again} {
			if f.admitted(len(f)) > 0 || !strings.HasPrefix(f[0], "404 ") {
				n.t.Errorf("%s is refused (%v), and has a router:\n%s", text, err, strings.Join(f, "\n"))
			}
		}
		return false
	}
	for i := range want {
		if got[i] != want[i] {
			n.t.Errorf("%s: request %d %q: %s, and compiled %s; %q", text, i, probes[i], got[i], want[i], n.errors(name))
			break
		}
	}
	if more, most := again.admitted(len(again)), got.admitted(len(got)); more > most {
		n.t.Errorf("%s admits %d in place of another configuration, and by itself %d", text, more, most)
	}
	free := func(word string) bool { return strings.Contains(text, word) }
	if got.admitted(plainProbes) == plainProbes && strings.HasSuffix(got[0], `"" "" ""`) && strings.Contains(text, `"limit"`) && !slices.ContainsFunc(freeing, free) {
		n.t.Errorf("%s limits nothing", text)
	}
	return true
}

// freeing are the words for which a configuration may let requests pass without a limit.
var freeing = []string{"unlimited", "shadow", "match", "average", "skip", "none", "descriptors", "exceptIPs"}

// Mutated configurations, reloaded into a running Traefik under light load: none makes the interpreter panic, and each does what it does compiled. A router whose
// middleware is refused is not there; under one that is accepted a client gets no more than its limit, also where the middleware had another
// configuration before. A good router loses no request and no count meanwhile. With WEIR_MUTANTS, such as 1500, it takes more of them, and then reloads them
// once more: memory stays as it was.
func TestMutatedConfigurations(t *testing.T) {
	many, seed := numberOf(t, "WEIR_MUTANTS", 60), numberOf(t, "WEIR_MUTANTS_SEED", 35)
	own, other := redistest.Start(t).Addr(), redistest.Start(t).Addr()
	n := &nursery{startTraefik(t, settings{}).newSite(t), seed, t.TempDir(), own}
	t.Chdir(t.TempDir()) // for the files that mutants name
	t.Cleanup(func() {
		for _, e := range n.log("file configs") { // which Traefik cannot read
			t.Log(e.raw)
		}
	})
	const limit = 500
	n.limit("good", fmt.Sprintf("{limit: %d/366d, algorithm: fixed_window}", limit))
	n.route("/good", "good")
	n.apply()
	light := startLoad(2, 0, func(int, int) (response, error) {
		time.Sleep(5 * time.Millisecond)
		return n.try("/good")
	})
	defer light.stop()
	accepted := 0
	for from := 0; from < many; from += batch {
		n.reload(from, from+batch)
		read := n.read()
		for number := from; number < from+batch; number++ {
			if n.check(number, read[n.qualified(newcomer(number))], other) {
				accepted++
			}
		}
	}
	light.stop()
	if light.lost > 0 || light.admitted != limit && light.rejected > 0 {
		t.Errorf("the good router admitted %d of %d requests and lost %d: %q", light.admitted, light.requests(), light.lost, light.losses)
	}
	t.Logf("seed %d: of %d mutants %d are accepted", seed, many, accepted)
	if accepted < many/6 || accepted > many*5/6 {
		t.Errorf("of %d mutants %d are accepted: the mutations are too wild, or too mild", many, accepted)
	}
	if os.Getenv("WEIR_MUTANTS") == "" || t.Failed() {
		return
	}
	settle := func(calm func(f figures) bool) (f figures) {
		n.reload(0, 0)
		time.Sleep(70 * time.Second) // until the handlers before are released
		for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(4 * time.Second) {
			if f = n.figures(t); calm(f) || time.Now().After(deadline) {
				return f
			}
		}
	}
	before := settle(func(figures) bool { return true })
	for from := 0; from < many; from += batch {
		n.reload(from, from+batch)
	}
	flat := func(f figures) bool {
		return f.heapObjects < before.heapObjects+12_000 && f.heap < before.heap+2_500_000 && f.goroutines <= before.goroutines+2
	}
	after := settle(flat)
	t.Logf("before: %v; after as many again: %v", before, after)
	if !flat(after) {
		t.Errorf("%v, want what there was before", after)
	}
}
