package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// Reloads of every kind, while clients make requests as fast as they can: each of these paths must admit exactly its limit, and no
// request may be lost.
func TestReloadsUnderLoadLoseNoRequestAndNoCount(t *testing.T) {
	t.Parallel()
	const (
		reloads = 60
		highest = 1500
	)
	s := newSite(t)
	paths := []string{"/token_bucket", "/fixed_window", "/sliding_window_log", "/sliding_window_counter"}
	// The limit rises and falls. At the end the highest applies, since used requests stay counted.
	set := func(limit int) {
		for _, path := range paths {
			s.limit(path[1:], fmt.Sprintf("{limit: %d/366d, algorithm: %s}", limit, path[1:]))
		}
	}
	for _, path := range paths {
		s.route(path, path[1:])
		s.route(path+"/too", path[1:]) // another router with the middleware
	}
	s.route("/free")
	set(200)
	s.apply()

	l := startLoad(8, 0, func(client, n int) (response, error) {
		path := paths[(client+n)%len(paths)]
		if n%2 == 0 {
			path += "/too"
		}
		return s.try(path)
	})
	free := startLoad(1, 0, func(int, int) (response, error) { return s.try("/free") })
	for i := range reloads {
		switch i % 4 {
		case 0: // the limits
			set([]int{400, 10, 800, 300, 1200}[i/4%5])
		case 1: // another router
			s.route(fmt.Sprintf("/more/%d", i), paths[0][1:])
		case 2: // another middleware, which is sometimes wrong
			s.limit("more", []string{"limit: 5/1m", "limit: five"}[i/4%2])
			s.route("/more", "more")
		case 3: // the middlewares in other words with the same meaning
			for j := range paths {
				m := &s.middlewares[j]
				if short := strings.Replace(m.config, "key: [client_ip], ", "", 1); short != m.config {
					m.config = short
				} else {
					m.config = strings.Replace(m.config, "{limit", "{key: [client_ip], limit", 1)
				}
			}
		}
		s.apply()
	}
	set(highest)
	s.apply()
	// More than all limits together, to use up what is left.
	rest := startLoad(8, 4*highest/8, func(client, n int) (response, error) { return s.try(paths[(client+n)%len(paths)]) })
	rest.wait()
	l.stop()
	free.stop()
	if l.lost+rest.lost+free.lost+free.rejected > 0 {
		t.Errorf("of %d requests %d were lost, and %d rejected that were free: %q",
			l.requests()+rest.requests()+free.requests(), l.lost+rest.lost+free.lost, free.rejected, append(l.losses, append(rest.losses, free.losses...)...))
	}
	for _, path := range paths {
		s.reject(path)
		if n := upstream.reached(s.host(), path) + upstream.reached(s.host(), path+"/too"); n != highest {
			t.Errorf("%s: %d requests were admitted, want %d", path, n, highest)
		}
	}
	t.Logf("%d reloads, %d requests, the slowest took %v", reloads, l.requests()+rest.requests()+free.requests(), max(l.slowest, rest.slowest))
}

// A rule whose algorithm or period changes keeps to its former limit, too, for a while. With another key it cannot use the existing counters.
// It logs both.
func TestAChangedAlgorithmGivesNobodyMoreAndSaysSo(t *testing.T) {
	s := newSite(t)
	s.limit("limit", "{name: r, limit: 2/366d}")
	s.route("/", "limit")
	s.apply()
	s.exactly(2, "/")
	for _, change := range []string{
		"{name: r, limit: 4/366d, algorithm: fixed_window}",
		"{name: r, limit: 4/365d, algorithm: fixed_window}",
		"{name: r, limit: 4/1s, algorithm: token_bucket}",
		"{name: r, limit: 4/1s, algorithm: token_bucket, key: [remote_ip]}",
	} {
		from := s.logSize()
		s.limit("limit", change)
		s.apply()
		says := `rule "r" keeps to its former limit, too, for `
		if strings.Contains(change, "key") {
			says = `rule "r" starts counting afresh`
			s.admit(1, "/")
		} else {
			s.reject("/")
		}
		eventually(t, "it is said of "+change, func() bool {
			for _, e := range s.logSince(from) {
				if strings.Contains(e.Message, s.qualified("limit")) && strings.Contains(e.Message, says) {
					return true
				}
			}
			return false
		})
	}
}

// A middleware that no router uses for a moment keeps its counters: Traefik's providers often lose a service and find it again.
func TestCountsOutliveAMomentWithoutRouters(t *testing.T) {
	s := limited(t, "limit: 3/366d")
	s.admit(2, "/")
	s.unroute("/")
	s.apply()
	s.route("/", "limit")
	s.apply()
	s.exactly(1, "/")
}

// A response that a backend is still sending goes on.
func TestResponsesUnderWayGoOnThroughAReload(t *testing.T) {
	s := limited(t, "limit: 100/366d")
	proceed := make(chan struct{})
	var started sync.WaitGroup
	started.Add(4)
	upstream.handle(s.host(), func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		started.Done()
		<-proceed
		_, _ = w.Write([]byte("late"))
	})
	l := startLoad(4, 1, func(int, int) (response, error) {
		r, err := s.try("/")
		if err == nil && r.body != "late" {
			err = fmt.Errorf("body %q", r.body)
		}
		return r, err
	})
	started.Wait()
	for i := range 3 {
		s.limit("limit", fmt.Sprintf("limit: %d/366d", 200+i))
		s.apply()
	}
	close(proceed)
	l.wait().want(t, 4)
}
