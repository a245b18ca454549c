//go:build gc
// +build gc

package traefik

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// inRedis is a middleware whose counters live in a Redis.
func inRedis(r Rule, settings object) *Config {
	return &Config{Rule: r, Store: object{"redis": settings}}
}

func TestALimitHoldsOverTwoTraefiks(t *testing.T) {
	server := redistest.Start(t)
	settings := patient(object{"address": server.Addr(), "nodes": 2})
	one, two := newStage(t), newStage(t)
	for _, algorithm := range []string{"token_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter"} {
		c := inRedis(Rule{Limit: "20/1h", Algorithm: algorithm}, settings)
		h := []http.Handler{one.handler(context.Background(), c, algorithm+"@file"), two.handler(context.Background(), c, algorithm+"@file")}
		until(t, func() bool { return get(h[0], "192.0.2.99", nil).Header.Get("X-Ratelimit-Limit") == "20" })
		admitted := 0
		for i := 0; i < 60; i++ {
			if get(h[i%2], "192.0.2.1", nil).StatusCode == 200 {
				admitted++
			}
		}
		must.Equal(t, admitted, 20, "%s: %d were admitted of 20", algorithm, admitted)
	}
	must.Equal(t, len(one.redis), 1, "%d stores for one Redis", len(one.redis))
}

// Regions hear of each other. A rule with regions needs a store of a region.
func TestRegionsHearOfEachOther(t *testing.T) {
	here, there := redistest.Start(t), redistest.Start(t)
	rule := Rule{Limit: "100000/1h", Algorithm: "fixed_window", Consistency: "eventual 10ms", Regions: "eventual 100ms"}
	s := newStage(t)
	if got, want := s.refused(inRedis(rule, patient(object{"address": here.Addr(), "nodes": 1})), "m@file"), "regions eventual: the store is of no region; give it region and peers, or remove it"; !strings.Contains(got, want) {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	eu := newStage(t).handler(context.Background(), inRedis(rule, patient(object{"address": here.Addr(), "nodes": 1, "region": "eu", "peers": object{"us": there.Addr()}})), "m@file")
	us := newStage(t).handler(context.Background(), inRedis(rule, patient(object{"address": there.Addr(), "nodes": 1, "region": "us", "peers": object{"eu": here.Addr()}})), "m@file")
	must.Equal(t, statuses(eu, "192.0.2.1", 40), strings.TrimSpace(strings.Repeat("200 ", 40)))
	asked := 0
	until(t, func() bool {
		asked++
		left, err := strconv.Atoi(get(us, "192.0.2.1", nil).Header.Get("X-Ratelimit-Remaining"))
		return err == nil && left <= 100000-asked-40
	})
}

func TestAStoreIsSharedAndClosedWhenNobodyUsesIt(t *testing.T) {
	server := redistest.Start(t, redistest.WithPassword("hunter2"))
	settings := patient(object{"address": server.Addr(), "password": "hunter2"})
	s := newStage(t)
	_, ctx, cancel := generationOf(s, inRedis(Rule{Limit: "2/1h"}, settings), "one@file", 2)
	h := s.handler(ctx, inRedis(Rule{Limit: "2/1h"}, settings), "two@file")
	must.Equal(t, statuses(h, "192.0.2.1", 3), "200 200 429")
	must.Equal(t, len(s.redis), 1, "%d stores", len(s.redis))
	if got := s.log.count("nodes is not set"); got != 2 { // once for each middleware
		t.Errorf("the log: %s", s.log)
	}
	var shared *sharedRedis
	for _, shared = range s.redis {
	}
	s.end(ctx, cancel)
	_, ctx, cancel = generationOf(s, inRedis(Rule{Limit: "3/1h"}, settings), "one@file", 1)
	s.step(lingering)
	if len(s.redis) != 1 || shared.ended.Load() {
		t.Error("closed while it is used")
	}
	s.end(ctx, cancel)
	s.step(lingering)
	if len(s.redis) != 0 || !shared.ended.Load() {
		t.Error("not closed when nobody uses it")
	}
	until(t, func() bool { // and the connection is gone
		list := server.MustDo(t, "CLIENT", "LIST").String()
		return strings.Count(list, "id=") == 1
	})
	if strings.Contains(s.log.String(), "hunter2") {
		t.Error("the log has the password in it")
	}
}

func TestRedisOverTLS(t *testing.T) {
	certificates := redistest.NewCertificates(t)
	server := redistest.Start(t, redistest.WithTLS(certificates, "yes"))
	native := object{"ca": certificates.CAFile, "clientCertificate": certificates.ClientCertFile, "clientKey": certificates.ClientKeyFile}
	dialect := object{"ca": certificates.CAFile, "cert": certificates.ClientCertFile, "key": certificates.ClientKeyFile}
	careless := object{"insecureSkipVerify": "true", "cert": certificates.ClientCertFile, "key": certificates.ClientKeyFile}
	for i, c := range []*Config{
		inRedis(Rule{Limit: "2/1h", OnError: "closed"}, patient(object{"address": server.Addr(), "tls": native})),
		{Average: "2", Period: "1h", Rule: Rule{Burst: "2", OnError: "closed"}, Redis: object{"endpoints": server.Addr(), "readTimeout": "20s", "dialTimeout": "20s", "tls": dialect}},
		{Average: "2", Period: "1h", Rule: Rule{Burst: "2", OnError: "closed"}, Redis: object{"endpoints": server.Addr(), "readTimeout": "20s", "dialTimeout": "20s", "tls": careless}},
	} {
		s := newStage(t)
		h := s.handler(context.Background(), c, "m"+strings.Repeat("x", i)+"@file")
		until(t, func() bool { return get(h, "192.0.2.99", nil).StatusCode != 503 })
		must.Equal(t, statuses(h, "192.0.2.1", 3), "200 200 429", "%d", i)
	}
}

// Certificates that cannot be used are refused with the setting that they are in, and nothing of what they are.
func TestCertificatesThatCannotBeUsedAreRefused(t *testing.T) {
	one := redistest.NewCertificates(t)
	other := redistest.NewCertificates(t)
	broken := writeFile(t, filepath.Join(t.TempDir(), "broken.pem"), "hunter2")
	missing := filepath.Join(t.TempDir(), "missing.pem")
	pem, err := os.ReadFile(one.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		dialect bool // Traefik's words, whose values may be PEM themselves
		tls     object
		want    string
	}{
		{"no such authority", false, object{"ca": missing}, "ca: open " + missing},
		{"an authority that is none", false, object{"ca": broken}, "ca: has no certificate in PEM"},
		{"a certificate without its key", false, object{"clientCertificate": one.ClientCertFile}, "clientCertificate and clientKey: need each other"},
		{"no such certificate", false, object{"clientCertificate": missing, "clientKey": one.ClientKeyFile}, "clientCertificate: open " + missing},
		{"no such key", false, object{"clientCertificate": one.ClientCertFile, "clientKey": missing}, "clientKey: open " + missing},
		{"the key of another", false, object{"clientCertificate": one.ClientCertFile, "clientKey": other.ClientKeyFile}, "clientCertificate: tls: private key does not match public key"},
		{"a key that is none", false, object{"clientCertificate": one.ClientCertFile, "clientKey": broken}, "clientCertificate: tls: failed to find any PEM data in key input"},
		{"PEM where a file is wanted", false, object{"ca": string(pem)}, "ca: open"},
		{"an authority in PEM, and no such key", true, object{"ca": string(pem), "cert": one.ClientCertFile, "key": missing}, "key: is neither a file that can be read nor PEM"},
		{"neither a file nor PEM", true, object{"ca": "hunter2"}, "ca: is neither a file that can be read nor PEM"},
	} {
		config := &Config{Rule: Rule{Limit: "1/1h"}, Store: object{"redis": object{"address": "127.0.0.1:1", "tls": c.tls}}}
		if c.dialect {
			config = &Config{Average: "2", Redis: object{"endpoints": "127.0.0.1:1", "tls": c.tls}}
		}
		said := newStage(t).refused(config, "m@file")
		if !strings.Contains(said, c.want) || strings.Contains(said, "hunter2") {
			t.Errorf("%s: %q, want %q", c.name, said, c.want)
		}
	}
}

func TestAChangedSecretTakesEffectWithTheNextReload(t *testing.T) {
	server := redistest.Start(t, redistest.WithPassword("hunter2"))
	file := writeFile(t, t.TempDir()+"/secret", "hunter1")
	c := inRedis(Rule{Limit: "2/1h", OnError: "closed"}, object{"address": server.Addr(), "password": "file:" + file})
	s := newStage(t)
	h := s.handler(context.Background(), c, "m@file")
	must.Equal(t, get(h, "192.0.2.1", nil).StatusCode, 503, "with a wrong password")
	writeFile(t, file, "hunter2")
	h = s.handler(context.Background(), c, "m@file")
	until(t, func() bool { return get(h, "192.0.2.1", nil).StatusCode != 503 })
	if text := s.log.String(); strings.Contains(text, "hunter") {
		t.Errorf("the log has a password in it: %s", text)
	}
}

func TestARedisThatIsDownIsSaidAndGoneWithout(t *testing.T) {
	server := redistest.Start(t)
	address := server.Addr()
	server.Kill()
	s := newStage(t)
	h := s.handler(context.Background(), inRedis(Rule{Limit: "4/1h"}, object{"address": address, "nodes": 2}), "m@file")
	if got := statuses(h, "192.0.2.1", 4); got != "200 200 429 429" { // half of the limit
		t.Error(got)
	}
	until(t, func() bool { return s.log.count("Redis at "+address) > 0 })
	server.Restart()
	until(t, func() bool { return s.log.count("answers again") > 0 })
	until(t, func() bool { return get(h, "192.0.2.2", nil).Header.Get("X-Ratelimit-Limit") == "4" })
}

// What the node rejects again while Redis is away, it rejects with the share of the limit that it counts by, as it has said before.
func TestARedisThatIsDownChangesNoShareOfALimit(t *testing.T) {
	server := redistest.Start(t)
	other := redistest.Start(t)
	for name, rules := range map[string][]Rule{
		"one rule":            {{Name: "a", Limit: "10/1h"}},
		"two rules":           {{Name: "a", Limit: "10/1h"}, {Name: "b", Limit: "1000/1h"}},
		"one rule, in a home": {{Name: "a", Limit: "10/1h"}},
	} {
		s := newStage(t)
		store := object{"address": server.Addr(), "nodes": 2}
		if strings.HasSuffix(name, "home") {
			store = object{"address": server.Addr(), "nodes": 2, "region": "eu", "home": "eu", "peers": object{"us": other.Addr()}}
		}
		c := inRedis(Rule{}, store)
		c.Rules = rules
		h := s.handler(context.Background(), c, "m@file")
		until(t, func() bool { return get(h, "192.0.2.9", nil).Header.Get("X-Ratelimit-Limit") == "10" })
		server.Kill()
		until(t, func() bool {
			get(h, "192.0.2.9", nil)
			return s.log.count("does not answer") > 0
		})
		must.Equal(t, statuses(h, "192.0.2.1", 5), "200 200 200 200 200", name)
		shown := func() [4]string {
			r := get(h, "192.0.2.1", nil)
			return [4]string{r.Status, r.Header.Get("X-Ratelimit-Limit"), r.Header.Get("Ratelimit-Policy"), r.Header.Get("X-Ratelimit-Remaining")}
		}
		first := shown()
		must.Equal(t, first[1], "5", name)
		e := s.newest("m@file")
		limiter := e.limiter
		e.limiter = nil // of the general path, which is not taken
		for i := 0; i < 3; i++ {
			must.Equal(t, shown(), first, name)
		}
		e.limiter = limiter
		server.Restart()
	}
}

// A configuration comes into force though its Redis does not answer. (Were it waited for, that would take a minute.)
func TestNewDoesNotWaitForRedis(t *testing.T) {
	server := redistest.Start(t)
	server.Pause()
	s := newStage(t)
	settings := object{"address": server.Addr(), "nodes": 1, "timeout": "1m", "readTimeout": "1m", "dialTimeout": "1m"}
	began := time.Now()
	_, ctx, cancel := generationOf(s, inRedis(Rule{Limit: "4/1h"}, settings), "m@file", 2)
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("New took %s", took)
	}
	s.end(ctx, cancel)
	s.step(lingering)
}

func TestACommandThatOneRuleLacksIsSaidAndLeavesTheOthers(t *testing.T) {
	server := redistest.Start(t, redistest.WithUser("weir", "hunter2", "~weir:* +evalsha +eval +time +get +psetex"))
	s := newStage(t)
	c := &Config{Store: object{"redis": patient(object{"address": server.Addr(), "username": "weir", "password": "hunter2", "nodes": 1})}, Rules: []Rule{
		{Name: "plain", Match: object{"paths": []interface{}{"/plain"}}, Limit: "1000/1h", OnError: "closed"},
		{Name: "places", Match: object{"paths": []interface{}{"/places"}}, Concurrency: "5", OnError: "closed"},
	}}
	h := s.handler(context.Background(), c, "one@file")
	ask := func(path string) int {
		return get(h, "192.0.2.1", func(r *http.Request) { r.URL.Path = path }).StatusCode
	}
	for i := 0; i < 20; i++ {
		if got := ask("/places"); got != 503 {
			t.Fatalf("request %d under the rule that lacks a command: %d", i, got)
		}
	}
	must.Equal(t, ask("/plain"), 200, "under the other rule")
	s.step(30 * time.Second)
	ask("/places")
	must.Equal(t, s.log.count(`rule "places" of "one.file" needs the command `), 1, "said times: %s", s.log)
	s.step(31 * time.Second)
	ask("/places")
	must.Equal(t, s.log.count(`rule "places" of "one.file" needs the command `), 2, "a minute later: said times: %s", s.log)
}

// A rule that two proxies share in Redis has two counters where they take other networks for one client: nothing else would show it.
func TestProxiesThatMaskAddressesOtherwiseAreWarnedOf(t *testing.T) {
	server := redistest.Start(t)
	settings := patient(object{"address": server.Addr(), "nodes": 2})
	rule := func(prefix string) *Config {
		c := inRedis(Rule{Limit: "20/1h", IPv6Prefix: prefix}, settings)
		c.Namespace = "fleet"
		return c
	}
	compare := func(s *stage) {
		for _, shared := range s.redis {
			until(t, func() bool { return shared.store.Check(time.Second) == nil })
			shared.store.Compare()
		}
	}
	one, same, other := newStage(t), newStage(t), newStage(t)
	one.handler(context.Background(), rule(""), "limit@file")
	compare(one)
	same.handler(context.Background(), rule("64"), "limit@file")
	compare(same)
	must.Equal(t, same.log.count("takes other networks"), 0, "of the same networks: %s", same.log)
	other.handler(context.Background(), rule("128"), "limit@file")
	compare(other)
	if got := other.log.count(`rule "limit" in namespace "fleet": another proxy that shares it by Redis takes other networks for one client, so each of them counts apart and lets the whole limit through: ` +
		`ipv4Prefix 32 and ipv6Prefix 128 here, 32 and 64 there`); got != 1 {
		t.Errorf("said %d times: %s", got, other.log)
	}
}
