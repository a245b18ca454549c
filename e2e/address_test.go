package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Traefik's own rateLimit and the plugin must agree on which requests come from one client. Each gets a series of requests with
// different X-Forwarded-For, under a limit of one request a year for each client: so a request is rejected if an earlier one of the
// series came from the same client. The same series begins at several places, with new counters. The pattern of rejections then
// shows which requests share a client, whatever address Traefik has found.
//
// No two of the texts are spellings of one address: for those, Traefik sees two clients and the plugin one.
func TestTheClientsAddressIsTheOneThatTraefikFinds(t *testing.T) {
	strategies := []string{
		"{depth: 0}",
		"{depth: 1}",
		"{depth: 2}",
		"{depth: 3}",
		"{excludedIPs: [10.0.0.0/8, 192.0.2.1]}",
		"{excludedIPs: ['2001:db8::/32', 10.0.0.1]}",
		"{excludedIPs: ['::ffff:10.0.0.0/104']}",
		"{excludedIPs: [10.0.0.1, 10.0.0.2, 203.0.113.9]}",
		"{depth: 1, excludedIPs: [192.0.2.1]}", // depth has priority
		"{ipv6Subnet: 64}",
		"{depth: 1, ipv6Subnet: 64}",
		"{depth: 2, ipv6Subnet: 48}",
		"{excludedIPs: [10.0.0.1], ipv6Subnet: 64}", // has no effect
	}
	row := []string{ // "" is no such field; / separates two fields
		"",
		" ",
		"192.0.2.1",
		"192.0.2.2",
		"198.51.100.1, 192.0.2.1",
		"198.51.100.1,192.0.2.1",
		"203.0.113.9, 198.51.100.1, 192.0.2.1",
		"192.0.2.1, 10.0.0.1",
		"192.0.2.2,10.0.0.1 , 10.9.9.9",
		"192.0.2.2, ::ffff:10.0.0.3",
		"10.0.0.1",
		"10.0.0.1, 10.0.0.2",
		"192.0.2.1,",
		",192.0.2.1",
		"192.0.2.1, ,10.0.0.1",
		"unknown",
		"unknown, 10.0.0.1",
		"192.0.2.77:1234",
		"192.0.2.78:1235, 10.0.0.1",
		"[2001:dc8::1]:1234",
		"2001:db8:0:1::1",
		"2001:db8:0:1::2",
		"2001:db8:0:2::1",
		"2001:db8:0:1::1, 10.0.0.1",
		"fe80::1%eth0",
		"127.0.0.1",
		"127.0.0.1 / 192.0.2.1",
		"192.0.2.1 / 127.0.0.1",
		"x, y, z",
		"192.0.2.01",
		strings.Repeat("192.0.2.1, ", 50) + "192.0.2.9",
	}
	const step = 4
	limiters := []struct{ name, words string }{
		{"native", "rateLimit: {average: 1, period: 8784h, burst: 1, sourceCriterion: {ipStrategy: STRATEGY}}"},
		{"words of rateLimit", "plugin: {weir: {average: 1, period: 8784h, burst: 1, sourceCriterion: {ipStrategy: STRATEGY}}}"},
		{"own words", "plugin: {weir: {limit: 1/366d, ipv6Prefix: 128, ipStrategy: STRATEGY}}"},
	}
	s := newSite(t)
	s.service = "ping@internal" // ten thousand requests: without a proxied one for each that is admitted
	path := func(strategy, limiter, start int) string { return fmt.Sprintf("/%d-%d-%d", strategy, limiter, start) }
	for i, strategy := range strategies {
		for j, limiter := range limiters {
			for start := 0; start < len(row); start += step {
				name := path(i, j, start)[1:]
				s.middleware(name, strings.ReplaceAll(limiter.words, "STRATEGY", strategy))
				s.route("/"+name, name)
			}
		}
	}
	s.apply()
	for i, strategy := range strategies {
		t.Run(strategy, func(t *testing.T) {
			patterns := make([][]string, len(limiters))
			var clients sync.WaitGroup
			for j := range limiters {
				clients.Go(func() {
					for start := 0; start < len(row); start += step {
						for k := range row {
							text := row[(start+k)%len(row)]
							var fields []string
							for field := range strings.SplitSeq(text, " / ") {
								if text != "" {
									fields = append(fields, "X-Forwarded-For", field)
								}
							}
							r, err := s.try(path(i, j, start), fields...)
							if err != nil {
								t.Error(err)
								return
							}
							patterns[j] = append(patterns[j], fmt.Sprintf("%d after %q, X-Forwarded-For %q", r.status, row[start], text))
						}
					}
				})
			}
			clients.Wait()
			for j, limiter := range limiters[1:] {
				for k, native := range patterns[0] {
					if k < len(patterns[j+1]) && patterns[j+1][k] != native {
						t.Errorf("%s: %s; native %s", limiter.name, patterns[j+1][k], native)
					}
				}
			}
			if all := strings.Join(patterns[0], ""); !strings.Contains(all, "200 ") || !strings.Contains(all, "429 ") {
				t.Errorf("the requests have not been through Traefik's rateLimit: %s", patterns[0][0])
			}
		})
	}
}

// Without a configuration for proxies, a client that writes X-Forwarded-For itself stays the same client.
func TestAClientCannotChooseItsAddressByDefault(t *testing.T) {
	s := limited(t, "limit: 3/366d")
	for i := range 3 {
		s.admit(1, "/", "X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i))
	}
	s.reject("/", "X-Forwarded-For", "192.0.2.77")
	s.from("127.0.0.2").admit(1, "/", "X-Forwarded-For", "192.0.2.77")
}
