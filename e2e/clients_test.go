package e2e

import (
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
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
	programs := [][]string{{"go", "run", "../examples/clients"}, {"python3", "../examples/clients/client.py"}, {"../examples/clients/client.sh"}}
	if _, err := exec.LookPath("node"); err == nil {
		programs = append(programs, []string{"node", "../examples/clients/client.mjs"})
	}
	built := filepath.Join(t.TempDir(), "clients")
	build := exec.Command("go", "build", "-o", built, "./examples/clients")
	build.Dir = ".."
	must.Succeed(t, build.Run())
	programs[0] = []string{built}
	var all sync.WaitGroup
	for _, program := range programs {
		all.Go(func() {
			output, err := exec.Command(program[0], append(program[1:], site, "30")...).CombinedOutput()
			if err != nil || !said.Match(output) {
				t.Errorf("%v: %v\n%s", program, err, output)
			}
		})
	}
	all.Wait()
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
