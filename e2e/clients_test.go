package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/client"
	"github.com/proxyweir/weir/tools/must"
)

// The clients of the examples, in each language, share a quota that is too small for all of them at once, and get all that they ask for. The one in JavaScript runs in a
// browser, where it has the quota alone, and beside the others where Node is installed.
func TestTheClientsOfTheExamplesKeepToTheirQuota(t *testing.T) {
	t.Parallel()
	site := "http://" + startDeferring(t, "clients", "/items.json", map[string]string{"limit 600/1m": "limit 60/2s", "limit 1/2s": "limit 3/1s\nburst 1"}).addr
	said := regexp.MustCompile(`^30 answers, 29 of them from the cache, \d rejections\norder 1: 201 Ordered: \{"ticket": 1\}\norder 2: 201 Ordered: \{"ticket": 2\}\n$`)
	b := open(t, site+"/items.json", phone, "404", "429")
	got := js[string](b, `import("/client.mjs").then((client) => client.play(location.origin, 30))`)
	must.Equal(t, said.MatchString(got), true, "in a browser", got)
	programs := programsOfExamples(t)
	var all sync.WaitGroup
	for _, program := range programs {
		all.Go(func() {
			output, err := exec.Command(program[0], append(slices.Clone(program[1:]), site, "30")...).CombinedOutput()
			if err != nil || !said.Match(output) {
				t.Errorf("%v: %v\n%s", program, err, output)
			}
		})
	}
	all.Wait()
}

// A Retry-After may be a date, and what is neither that nor a number is none: no client fails by it, or runs it.
func TestTheClientsOfTheExamplesReadWhatAnyServerSays(t *testing.T) {
	t.Parallel()
	mark := filepath.Join(t.TempDir(), "ran")
	said := map[string]func() string{
		"date":    func() string { return time.Now().Add(time.Second).UTC().Format(http.TimeFormat) },
		"past":    func() string { return "Wed, 21 Oct 2015 07:28:00 GMT" },
		"command": func() string { return "BASH_VERSINFO[$(touch " + mark + ")]" },
	}
	var rejected sync.Map
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of, what, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		what, page, _ := strings.Cut(what, "/")
		if _, was := rejected.LoadOrStore(of+what, true); !was {
			w.Header().Set("Retry-After", said[what]())
			w.WriteHeader(http.StatusServiceUnavailable)
		} else if page == "orders" {
			w.WriteHeader(http.StatusCreated)
		}
	}))
	t.Cleanup(server.Close)
	var all sync.WaitGroup
	for i, program := range programsOfExamples(t) {
		for what := range said {
			all.Go(func() {
				output, err := exec.Command(program[0], append(slices.Clone(program[1:]), fmt.Sprint(server.URL, "/", i, "/", what), "2")...).CombinedOutput()
				if err != nil || !strings.HasPrefix(string(output), "2 answers, 0 of them from the cache, ") || !strings.Contains(string(output), "\norder 1: 201 ") {
					t.Errorf("%v, %s: %v\n%s", program, what, err, output)
				}
			})
		}
	}
	all.Wait()
	if _, err := os.Stat(mark); err == nil {
		t.Error("a client has run what the server has said")
	}
}

// programsOfExamples returns how the clients of the examples are run, of which Node may be missing.
func programsOfExamples(t *testing.T) [][]string {
	programs := [][]string{{"go", "run", "../examples/clients"}, {"python3", "../examples/clients/client.py"}, {"../examples/clients/client.sh"}}
	if _, err := exec.LookPath("node"); err == nil {
		programs = append(programs, []string{"node", "../examples/clients/client.mjs"})
	}
	built := filepath.Join(t.TempDir(), "clients")
	build := exec.Command("go", "build", "-o", built, "./examples/clients")
	build.Dir = ".."
	must.Succeed(t, build.Run())
	programs[0] = []string{built}
	return programs
}

// Over real sockets, too, 20 clients that know nothing of each other use most of one limit, and are hardly ever rejected. Quotas are told in whole seconds, so with windows
// of 4 s less is used than of longer ones: docs/clients.md has those, and package client tests them on a virtual clock.
func TestTwentyClientsShareALimit(t *testing.T) {
	t.Parallel()
	const period, windows, limit = 4 * time.Second, 2, 400
	zones := ""
	for _, algorithm := range []string{"fixed_window", "token_bucket"} {
		zones += fmt.Sprintf("zone %s {\nmatch {\npath /%s\n}\nkey all\nlimit %d/%s\nalgorithm %s\n}\n", algorithm, algorithm, limit, period, algorithm)
	}
	site := startCaddy(t, "rate_limit {\n"+zones+"}\nrespond ok")
	for _, algorithm := range []string{"fixed_window", "token_bucket"} {
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			begin := time.Now().Truncate(period).Add(2 * period)
			end := begin.Add(windows * period)
			var admitted, rejected atomic.Int64
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() {
					base := &http.Transport{}
					defer base.CloseIdleConnections()
					c := &http.Client{Transport: &client.Transport{Base: base}}
					for time.Now().Before(end) {
						answer, err := c.Get("http://" + site.addr + "/" + algorithm)
						if err != nil {
							t.Error(err)
							return
						}
						_ = answer.Body.Close()
						if now := time.Now(); now.Before(begin) || !now.Before(end) {
							continue
						}
						if answer.StatusCode == http.StatusOK {
							admitted.Add(1)
						} else {
							rejected.Add(1)
						}
					}
				})
			}
			all.Wait()
			got, lost := admitted.Load(), rejected.Load()
			must.Equal(t, got > windows*limit*6/10 && lost <= (got+lost)/20, true, "admitted", got, "of", windows*limit, "and rejected", lost)
		})
	}
}
