package e2e

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"
)

// Many middlewares, each with a router: counters go on over a reload of something else, and over one that changes all of them. It logs how long a real
// Traefik takes, beside its own RateLimit: bench/README.md has the figures of WEIR_MANY=3000.
func TestManyMiddlewaresAreReloaded(t *testing.T) {
	many := 50
	if text := os.Getenv("WEIR_MANY"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("WEIR_MANY: %v", err)
		}
		many = n
	}
	for _, c := range []struct {
		name   string
		config func(s *site, name string, version int)
	}{
		{"weir", func(s *site, name string, version int) {
			s.limit(name, fmt.Sprintf("{limit: 2/366d, algorithm: fixed_window, message: version %d}", version))
		}},
		{"rateLimit", func(s *site, name string, version int) {
			s.middleware(name, fmt.Sprintf("rateLimit: {average: 2, period: %dh, burst: 2}", 1000+version))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := startTraefik(t, settings{})
			s, other := tr.newSite(t), tr.newSite(t)
			change := func(version int) time.Duration {
				for i := range many {
					c.config(s, fmt.Sprint("m", i), version)
				}
				began := time.Now()
				s.apply()
				return time.Since(began)
			}
			for i := range many {
				s.route(fmt.Sprintf("/m%d/", i), fmt.Sprint("m", i))
			}
			first := change(0)
			last := fmt.Sprintf("/m%d/", many-1)
			limited := func(n int) {
				if c.name != "weir" { // its counters go with each reload
					return
				}
				s.admit(n, last)
				s.reject(last)
			}
			limited(2)
			var unrelated []time.Duration
			for i := range 3 {
				other.route(fmt.Sprint("/", i))
				began := time.Now()
				other.apply()
				unrelated = append(unrelated, time.Since(began).Round(10*time.Millisecond))
				limited(0)
			}
			all := change(1)
			limited(0)
			t.Logf("%d middlewares: first %v, a reload of something else %v, of all %v", many, first.Round(10*time.Millisecond), unrelated, all.Round(10*time.Millisecond))
		})
	}
}
