package ratelimit_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	ratelimit "github.com/proxyweir/weir/caddy"
)

// These tests flood Caddy with invented keys over real connections, for every algorithm with every overflow policy. The tests of
// package core cover more states; these show that Caddy behaves the same.

// floodBound is max_keys in the floods: WEIR_FLOOD if it is set, else a small number, to save time.
func floodBound(t *testing.T) int {
	text := os.Getenv("WEIR_FLOOD")
	if text == "" {
		return 1000
	}
	bound, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("WEIR_FLOOD: %v", err)
	}
	return bound
}

// floodedZone is a zone to flood. Its path is its name.
type floodedZone struct {
	title  string // its algorithm and settings
	name   string
	lines  string
	full   int    // how many requests of a key use it up
	lets   bool   // it never rejects
	waits  bool   // each victim has a request that waits
	stays  bool   // each victim has a request that is under way
	manner string // how a flood uses its keys; "": there is no flood
}

// everyFloodedZone returns a zone of each algorithm with each setting that it can have, with a limit of two requests.
func everyFloodedZone() []*floodedZone {
	var list []*floodedZone
	for _, algorithm := range []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter"} {
		for _, s := range []struct{ setting, lines string }{
			{"reject", ""}, {"soft", "enforcement soft 100% 1h"}, {"shadow", "enforcement shadow"}, {"delay", "on_limit delay\nmax_delay 1s"},
			{"delay, waiting", "on_limit delay\nmax_delay 1h\nmax_waiting_per_key 1"}, {"count", "count 200"}, {"penalty", "penalty 1d"},
			{"count_rejected", "count_rejected"}, {"candidate", "candidate {\nlimit 4/30d\n}"}, {"concurrency", "concurrency 1"},
		} {
			z := &floodedZone{title: algorithm + ", " + s.setting, full: 2, lines: "limit 2/30d\nalgorithm " + algorithm + "\n" + s.lines}
			if z.waits = s.setting == "delay, waiting" || algorithm == "leaky_bucket" && s.setting == "reject"; z.waits {
				z.lines = strings.Replace(z.lines, "30d", longPeriod(), 1)
			}
			z.lets, z.stays = s.setting == "shadow", s.setting == "concurrency"
			if s.setting == "soft" {
				z.full = 4
			}
			if algorithm == "leaky_bucket" {
				z.full = 1 // the next one waits, or is rejected since it would have to wait too long
				switch s.setting {
				case "soft", "count":
					continue
				case "reject":
					z.lines += "\nburst 1\nmax_delay 1h"
				case "delay, waiting":
					z.lines += "\nburst 1"
				case "delay":
				default:
					z.lines += "\nmax_delay 1s"
				}
			}
			if algorithm == "sliding_window_counter" && strings.HasPrefix(s.setting, "delay") {
				continue
			}
			list = append(list, z)
		}
	}
	return append(list, &floodedZone{title: "concurrency alone", full: 1, stays: true, lines: "concurrency 1"})
}

// longPeriod returns a period of about an hour, the longest that a request may wait. Its current window, which is aligned to the
// epoch, lasts for some more minutes.
func longPeriod() string {
	for _, minutes := range []int64{60, 59, 57, 53} {
		if left := minutes*60 - time.Now().Unix()%(minutes*60); left > 600 {
			return fmt.Sprint(minutes, "m")
		}
	}
	return "1h"
}

const floodVictims = 10

func victim(i int) string { return fmt.Sprint("victim-", i) }
func partly(i int) string { return fmt.Sprint("partly-", i) }

// floodScene is a Caddy with zones to flood, and the zone login, which is not flooded. Each zone has victims that are over its
// limit.
type floodScene struct {
	*admin
	bound int
	zones []*floodedZone
	open  int          // victims' requests that wait or are under way
	next  atomic.Int64 // number of the next invented key
}

func startFlood(t *testing.T, zones ...*floodedZone) *floodScene {
	t.Helper()
	s := &floodScene{bound: floodBound(t)}
	var stay atomic.Int64 // requests under way
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		stay.Add(1)
		<-r.Context().Done()
	}))
	t.Cleanup(upstream.Close)
	login := &floodedZone{title: "login", name: "login", full: 5, lines: "limit 5/366d"}
	text := ""
	s.zones = append([]*floodedZone{login}, zones...)
	for i, z := range s.zones {
		if z != login {
			z.name = fmt.Sprint("zone", i)
		}
		text += fmt.Sprintf("zone %s {\nmatch {\npath /%s\n}\nkey {header.X-Key}\n%s\n}\n", z.name, z.name, z.lines)
	}
	s.admin = startAdmin(t, fmt.Sprintf("rate_limit {\nstore memory {\nmax_keys %d\n}\n}\n", s.bound),
		":PORT {\nroute {\nrate_limit {\n"+text+"}\n@stay header X-Stay *\nreverse_proxy @stay "+upstream.URL+"\nrespond ok\n}\n}")

	ctx, leave := context.WithCancel(context.Background())
	var opened sync.WaitGroup
	linger := func(path, key string, fields ...string) {
		s.open++
		opened.Go(func() {
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+path, nil)
			r.Header.Set("X-Key", key)
			for _, field := range fields {
				r.Header.Set(field, "yes")
			}
			if answer, err := s.client.Do(r); err == nil {
				t.Errorf("%s: %s is answered %d, and must wait or be under way", path, key, answer.StatusCode)
				answer.Body.Close()
			}
		})
	}
	t.Cleanup(func() {
		leave()
		opened.Wait()
	})
	waiting, staying := 0, 0
	for _, z := range s.zones {
		for i := range floodVictims {
			if !z.lets {
				s.ask("block", fmt.Sprintf(`{"rule": %q, "key": ["out-%d"], "for": "10h"}`, z.name, i))
			}
			if z.stays {
				linger("/"+z.name, victim(i), "X-Stay")
				staying++
				continue
			}
			s.admit(z.full, "/"+z.name, "X-Key", victim(i))
			if z.waits {
				linger("/"+z.name, victim(i))
				waiting++
			}
		}
	}
	for i := range floodVictims {
		s.admit(3, "/login", "X-Key", partly(i))
	}
	eventually(t, "they wait and are under way", func() bool { return int(stay.Load()) == staying && waitingAtMost(1000) == waiting })
	for _, z := range s.zones {
		if n := s.readmitted(z); n > 0 {
			t.Fatalf("%s: %d victims are not over their limit", z.title, n)
		}
	}
	return s
}

// full reports whether the admin API says that a request of the key would not be allowed.
func (s *floodScene) full(z *floodedZone, key string) bool {
	s.t.Helper()
	for _, rule := range at(s.t, s.ask("key?rule="+z.name+"&key="+key, ""), "rules").([]any) {
		if fmt.Sprint(at(s.t, rule, "allowed")) == "false" {
			return true
		}
	}
	return false
}

// readmitted returns how many victims of a zone are no longer rejected.
func (s *floodScene) readmitted(z *floodedZone) int {
	s.t.Helper()
	n := 0
	for i := range floodVictims {
		let := z.lets && !s.full(z, victim(i))
		if status := s.do("/"+z.name, "X-Key", victim(i)).status; let || !z.lets && status != http.StatusTooManyRequests {
			n++
		}
	}
	return n
}

// requests returns how many requests each key of a flood makes.
func (z *floodedZone) requests() int {
	switch z.manner {
	case "used once":
		return 1
	case "used up":
		return z.full
	}
	return z.full + 1
}

// flood sends the requests of that many new keys over several connections, many at once on each. Each key is for one of the flooded
// zones.
func (s *floodScene) flood(keys int, flooded ...*floodedZone) {
	s.t.Helper()
	var clients sync.WaitGroup
	last := s.next.Load() + int64(keys)
	for number := range 4 {
		clients.Go(func() {
			random := rand.New(rand.NewSource(int64(number)))
			conn, err := net.Dial("tcp", s.addr)
			if err != nil {
				s.t.Error(err)
				return
			}
			defer conn.Close()
			answers := bufio.NewReaderSize(conn, 64<<10)
			var batch bytes.Buffer
			for more := true; more; {
				sent := 0
				batch.Reset()
				for sent < 100 {
					n := s.next.Add(1)
					if more = n <= last; !more {
						break
					}
					z := flooded[random.Intn(len(flooded))]
					for range z.requests() {
						fmt.Fprintf(&batch, "GET /%s HTTP/1.1\r\nHost: x\r\nX-Key: invented-%d\r\n\r\n", z.name, n)
						sent++
					}
				}
				if _, err := conn.Write(batch.Bytes()); err != nil {
					s.t.Error(err)
					return
				}
				for range sent {
					answer, err := http.ReadResponse(answers, nil)
					if err != nil {
						s.t.Error(err)
						return
					}
					_, _ = answers.Discard(int(answer.ContentLength))
					if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusTooManyRequests {
						s.t.Errorf("status %d, want 200 or 429", answer.StatusCode)
						return
					}
				}
			}
		})
	}
	clients.Wait()
	s.next.Store(last)
}

// check checks what a flood must not change.
func (s *floodScene) check(when string) {
	s.t.Helper()
	for _, z := range s.zones {
		says := func(n int, what string) {
			s.t.Helper()
			if n > 0 {
				s.t.Errorf("%s: %s, flooded by keys %q: %d of %d %s", when, z.title, z.manner, n, floodVictims, what)
			}
		}
		if z.manner == "" || z.manner == "used once" {
			says(s.readmitted(z), "victims are admitted")
		}
		out, reset := 0, 0
		for i := range floodVictims {
			if !z.lets && !s.full(z, fmt.Sprint("out-", i)) {
				out++
			}
			if z.name == "login" && fmt.Sprint(at(s.t, s.ask("key?rule=login&key="+partly(i), ""), "rules", 0, "remaining")) != "2" {
				reset++
			}
		}
		says(out, "clients that were blocked by hand are admitted")
		says(reset, "counters were reset")
	}
	stats, err := ratelimit.MemoryInUse()
	if err != nil {
		s.t.Fatal(err)
	}
	if most := s.bound + 2*s.open; stats.Keys > int64(most) {
		s.t.Errorf("%s: %d keys are in memory, want at most %d, and those of the %d requests under way", when, stats.Keys, s.bound, s.open)
	}
}

// Each zone alone is flooded with keys that are used once, and then, in the same memory, with keys that are rejected.
func TestAFloodOverConnectionsKeepsVictimsOverTheirLimits(t *testing.T) {
	for number, z := range everyFloodedZone() {
		if raceDetector && number%7 != 0 {
			continue // there are many, and the detector is slow
		}
		t.Run(z.title, func(t *testing.T) {
			s := startFlood(t, z)
			for _, z.manner = range []string{"used once", "rejected"} {
				if z.manner == "rejected" && z.waits {
					continue // their requests would wait
				}
				s.flood(s.bound*6/5, z)
				s.check("alone")
			}
		})
	}
}

// Several zones of any algorithm and settings are flooded at once, each in its own manner or not at all.
func TestAFloodOverConnectionsOfMixedZones(t *testing.T) {
	rounds := 3
	if os.Getenv("WEIR_FLOOD") != "" {
		rounds = 24
	}
	for round := range rounds {
		random := rand.New(rand.NewSource(int64(round)))
		all := everyFloodedZone()
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		zones := all[:2+(5*round+1)%7]
		var flooded []*floodedZone
		title := ""
		for i, z := range zones {
			z.manner = []string{"used once", "used up", "rejected", ""}[random.Intn(4)]
			if z.manner != "" && z.waits || i == 0 && z.manner == "" {
				z.manner = "used once"
			}
			if z.manner != "" {
				flooded = append(flooded, z)
			}
			title += fmt.Sprintf("; %s %q", z.title, z.manner)
		}
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			t.Log(title[2:])
			s := startFlood(t, zones...)
			s.flood(s.bound*2, flooded...)
			s.check("mixed")
		})
	}
}
