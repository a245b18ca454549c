package ratelimit_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/certmagic"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// sharedStorage returns the lines of a store over a folder.
func sharedStorage(folder, read, write string) string {
	return "store storage {\nstorage file_system " + folder + "\nread_interval " + read + "\nwrite_interval " + write + "\n}\n"
}

// remaining returns how many requests a rule's limit leaves after this request; -1: it is rejected.
func (m *member) remaining(path string) int {
	m.t.Helper()
	r, err := m.once(m.client, path)
	must.Succeed(m.t, err)
	if r.status == http.StatusTooManyRequests {
		return -1
	}
	n, err := strconv.Atoi(r.header.Get("X-RateLimit-Remaining"))
	if err != nil {
		m.t.Fatalf("%s: the answer is %+v", path, r)
	}
	return n
}

// blobs returns the files of instances in a folder.
func blobs(t *testing.T, folder string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "rate_limit", "weir", "*.tally"))
	must.Succeed(t, err)
	return names
}

// Three Caddys that share a folder keep to a limit together: what one admits is soon used up for the others, and for one that was killed and starts again.
func TestAFleetSharesALimitOverAStorage(t *testing.T) {
	folder := t.TempDir()
	site := up
	names := []string{"fixed_window", "sliding_window_counter", "sliding_window_log", "token_bucket"}
	for _, name := range names {
		site += route(name, "algorithm "+name+"\nlimit 1000/366d", sharedStorage(folder, "20ms", "20ms"))
	}
	fleet := startFleet(t, 3, site)
	for _, name := range names {
		path := "/" + name
		for i := range 60 {
			if got := fleet[0].remaining(path); got != 999-i {
				t.Fatalf("%s: after %d requests %d remain", path, i+1, got)
			}
		}
		used := 60                    // on a busy machine, and by many of the requests below: far less than the limit
		for _, m := range fleet[1:] { // each request takes one, too, and the others hear of it
			eventually(t, "the others have heard of it", func() bool {
				got := m.remaining(path)
				if got >= 0 {
					used++
				}
				return got <= 1000-used
			})
		}
		for n := 0; fleet[1].remaining(path) >= 0; n++ {
			if n == 1000 {
				t.Fatalf("%s: the limit is not used up", path)
			}
		}
		eventually(t, "it is used up for the third", func() bool { return fleet[2].remaining(path) < 0 })
		eventually(t, "it is used up for the first", func() bool { return fleet[0].remaining(path) < 0 })
	}
	fleet[0].kill()
	fleet[0].start()
	for _, name := range names {
		eventually(t, "it is used up for one that starts again", func() bool { return fleet[0].remaining("/"+name) < 0 })
	}
	if names := blobs(t, folder); len(names) < 3 {
		t.Errorf("there are %d files of instances, want three at least: %q", len(names), names)
	}
}

// A Caddy that stops tells what it has admitted, although its interval is not over. So does the configuration before, when a reload changes the intervals.
func TestWhatACaddyAdmittedIsToldWhenItStops(t *testing.T) {
	folder := t.TempDir()
	m := startMember(t, up+route("a", "limit 1000/366d", sharedStorage(folder, "1h", "1h")))
	for range 30 {
		m.remaining("/a")
	}
	must.Succeed(t, m.cmd.Process.Signal(syscall.SIGTERM))
	<-m.done
	if names := blobs(t, folder); len(names) != 1 {
		t.Fatalf("the files of instances are %q, want one", names)
	}
	m.start()
	used := 30
	eventually(t, "it goes on where it stopped", func() bool {
		used++
		return m.remaining("/a") == 1000-used
	})
}

// Reloads keep one writer and the counters; files that are foreign or damaged are told in the log, once, and change nothing else.
func TestReloadsOverAStorage(t *testing.T) {
	folder := t.TempDir()
	s := newServer(t)
	site := func(lines string) string {
		return ":PORT {\n" + withMetrics("rate_limit {\nzone a {\nkey everyone\nlimit 10000/366d\n"+lines+"}\n"+sharedStorage(folder, "10ms", "10ms")+"}\nrespond ok") + "\n}"
	}
	s.load(s.caddyfile("", site("")))
	requests := 0
	remaining := func() int {
		requests++
		n, _ := strconv.Atoi(s.do("/").header.Get("X-RateLimit-Remaining"))
		return n
	}
	if got := remaining(); got != 9999 {
		t.Fatalf("%d remain", got)
	}
	eventually(t, "the first count is written", func() bool { return len(blobs(t, folder)) == 1 })
	s.settle()
	before := runtime.NumGoroutine()
	for i := range 100 {
		s.load(s.caddyfile("", site("message "+strconv.Itoa(i)+"\n")))
		if got := remaining(); got != 10000-requests {
			t.Fatalf("after %d reloads and %d requests %d remain", i+1, requests, got)
		}
	}
	s.settle()
	eventually(t, "no goroutine is left of the reloads", func() bool { return runtime.NumGoroutine() <= before+2 })
	if names := blobs(t, folder); len(names) != 1 {
		t.Errorf("after reloads the files of instances are %q, want one", names)
	}
	dir := filepath.Join(folder, "rate_limit", "weir")
	damaged := strings.Repeat("a", 32) + ".tally"
	for name, content := range map[string]string{"notes.txt": "not ours", damaged: "WEIRTLY1 cut o", strings.Repeat("b", 32) + ".tally": "foreign"} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	if err := os.Mkdir(filepath.Join(dir, strings.Repeat("c", 32)+".tally"), 0o700); err != nil { // it cannot be read
		t.Fatal(err)
	}
	const says = "the storage fails; until it works, this Caddy counts without what it cannot read or tell"
	s.awaitLog(3, says)
	m := startMember(t, up+route("b", "limit 100/366d", sharedStorage(folder, "10ms", "10ms"))+route("a", "limit 10000/366d", sharedStorage(folder, "10ms", "10ms")))
	used := requests
	eventually(t, "another Caddy counts what can be read", func() bool {
		used++
		return m.remaining("/a") == 10000-used
	})
	of := `storage="FileStorage:` + folder + `"}`
	eventually(t, "the metrics tell of them", func() bool {
		return s.metric(`weir_storage_instances{state="damaged",`+of) == "3" && s.metric(`weir_storage_instances{state="readable",`+of) == "1" &&
			s.metric("weir_storage_age_seconds{"+of) == "0"
	})
	if lines := s.logs(says); len(lines) != 3 {
		t.Errorf("the log has %d lines of three files that cannot be read: %v", len(lines), lines)
	}
}

// unnamedStorage is a storage module that does not say what it is called, and has a password among its settings.
type unnamedStorage struct {
	certmagic.Storage `json:"-"`

	Root   string `json:"root"`
	Secret string `json:"secret"`
}

func init() {
	caddy.RegisterModule(new(unnamedStorage))
}

func (*unnamedStorage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.storage.weir_test_unnamed", New: func() caddy.Module { return new(unnamedStorage) }}
}

func (u *unnamedStorage) CertMagicStorage() (certmagic.Storage, error) {
	u.Storage = &certmagic.FileStorage{Path: u.Root}
	return u, nil
}

// A storage without a name is one over reloads, whether it is Caddy's own or a store's. Its settings are in no metric and in no log.
func TestAStorageWithoutAName(t *testing.T) {
	for _, own := range []bool{true, false} {
		folder := t.TempDir()
		s := newServer(t)
		load := func(lines string) {
			store := "store storage {\nwrite_interval 1h\nread_interval 10ms\n}\n"
			if !own {
				store = sharedStorage(folder, "10ms", "1h")
			}
			config := s.caddyfile("", ":PORT {\n"+withMetrics("rate_limit {\nzone a {\nkey everyone\nlimit 10/366d\n"+lines+"}\n"+store+"}\nrespond ok")+"\n}")
			s.load(bytes.ReplaceAll(config, []byte(`"module":"file_system"`), []byte(`"module":"weir_test_unnamed","secret":"s3cr3t"`)))
		}
		load("")
		s.admit(5, "/")
		load("message changed\n")
		s.admit(5, "/")
		s.reject("/")
		if names := blobs(t, s.dir); own && len(names) != 0 {
			t.Errorf("a reload has made another store, and the former has written %v", names)
		}
		metrics := s.do("/metrics").body
		must.Contain(t, metrics, "weir_storage_keys{", "there are no metrics of storages")
		must.Succeed(t, os.MkdirAll(filepath.Join(folder, "rate_limit", "weir", strings.Repeat("a", 32)+".tally"), 0o700))
		if !own {
			s.awaitLog(1, "the storage fails; until it works, this Caddy counts without what it cannot read or tell")
		}
		for _, line := range s.logs("the storage fails; until it works, this Caddy counts without what it cannot read or tell") {
			metrics += fmt.Sprint(line)
		}
		if strings.Contains(metrics, "s3cr3t") {
			t.Errorf("the password of a storage is in the metrics or the log")
		}
	}
}

// Pipes and huge files in the folder are told, and not read: the counts of others are.
func TestPipesAndHugeFilesInTheFolder(t *testing.T) {
	folder := t.TempDir()
	dir := filepath.Join(folder, "rate_limit", "weir")
	must.Succeed(t, os.MkdirAll(dir, 0o700))
	must.Succeed(t, syscall.Mkfifo(filepath.Join(dir, strings.Repeat("0", 32)+".tally"), 0o600))
	huge := filepath.Join(dir, strings.Repeat("1", 32)+".tally")
	must.Succeed(t, os.WriteFile(huge, nil, 0o600))
	if err := os.Truncate(huge, 1<<30); err != nil { // it takes no space
		t.Fatal(err)
	}
	zone := "rate_limit {\nzone a {\nkey everyone\nlimit 10/366d\n}\n" + sharedStorage(folder, "10ms", "10ms") + "}\nrespond ok"
	s := newServer(t)
	s.load(s.caddyfile("", ":PORT {\n"+zone+"\n}"))
	lines := fmt.Sprint(s.awaitLog(2, "the storage fails; until it works, this Caddy counts without what it cannot read or tell"))
	for _, want := range []string{"it is no regular file", "the counts of a Caddy have at most"} {
		must.Contain(t, lines, want, "the log")
	}
	s.admit(1, "/")
	eventually(t, "the count is written", func() bool { return len(blobs(t, folder)) == 3 })
}

// A default is the same setting as its value: a reload that spells it out keeps the counters.
func TestDefaultsOfAStorageSpelledOut(t *testing.T) {
	s := newServer(t)
	load := func(lines string) {
		s.load(s.caddyfile("", ":PORT {\nrate_limit {\nzone a {\nkey everyone\nlimit 10/366d\n}\nstore storage"+lines+"\n}\nrespond ok\n}"))
	}
	load("")
	s.admit(5, "/")
	load(" {\nread_interval 5s\nwrite_interval 5s\npurge_age 1h\nmax_keys 1000000\n}")
	s.admit(5, "/")
	s.reject("/")
}

// A configuration of caddy-ratelimit with distributed works as it is, over the storage that all of Caddy uses.
func TestDistributedOfCaddyRatelimit(t *testing.T) {
	s := newServer(t)
	config := func(rest string) string {
		return ":PORT {\nrate_limit {\nzone a {\nkey static\nevents 10\nwindow 1h\n}\ndistributed {\nread_interval 10ms\nwrite_interval 10ms\n}\n" + rest + "}\nrespond ok\n}"
	}
	s.load(s.caddyfile("", config("")))
	s.admit(10, "/")
	s.reject("/")
	eventually(t, "the count is in Caddy's storage", func() bool { return len(blobs(t, s.dir)) == 1 })
	must.Contain(t, s.refused(s.caddyfile("", config("store memory\n"))), "distributed and store are mutually exclusive", "with a store beside it")
	s.reject("/")
}

// The admin API tells how the storage does.
func TestTheAdminAPITellsOfAStorage(t *testing.T) {
	folder := t.TempDir()
	a := startAdmin(t, "", ":PORT {\nrate_limit {\nzone z {\nkey everyone\nlimit 100/1h\n}\n"+sharedStorage(folder, "10ms", "10ms")+"}\nrespond ok\n}")
	a.admit(3, "/")
	m := startMember(t, up+route("other", "limit 100/1h", sharedStorage(folder, "10ms", "10ms")))
	m.remaining("/other")
	health := func(of string) any { return at(t, a.ask("health", ""), "stores", 1, of) }
	eventually(t, "the other instance is known", func() bool {
		return health("instances") == 1.0 && health("keys") == 1.0 && health("age_seconds") == 0.0
	})
	if got := health("storage"); got != "FileStorage:"+folder || health("damaged") != 0.0 {
		t.Errorf("the storage is %v, with %v damaged", got, health("damaged"))
	}
	must.Contain(t, fmt.Sprint(at(t, a.ask("rules", ""), "rules", 0, "notes")), "eventual: counts of other instances are up to 20ms old", "the rule's notes")
	must.Succeed(t, os.RemoveAll(folder))
	if err := os.WriteFile(folder, nil, 0o600); err != nil { // so that no folder can be made there
		t.Fatal(err)
	}
	a.admit(1, "/")
	eventually(t, "it is told that the storage fails", func() bool {
		return at(t, a.ask("health", ""), "stores", 1, "age_seconds") != 0.0 && strings.Contains(fmt.Sprint(a.ask("health", "")), "failing:true")
	})
	a.admit(96, "/")
	a.reject("/")
	must.Succeed(t, os.Remove(folder))
	eventually(t, "what was admitted meanwhile is told", func() bool { return len(blobs(t, folder)) > 0 && health("age_seconds") == 0.0 })
}

// The admin API tells of rules with consistency eventual how old what a node knows of the others is, and what it has not told yet.
func TestTheAdminAPITellsOfEventualRules(t *testing.T) {
	redis := redistest.Start(t)
	a := startAdmin(t, "", ":PORT {\nrate_limit {\nzone z {\nlimit 100/1m\nconsistency eventual 3s\n}\n"+storeAt(redis.Addr(), patiently)+"}\nroute {\nrate_limit {\nzone over_a_folder {\nlimit 1000/1h\n}\n"+sharedStorage(t.TempDir(), "10ms", "10ms")+"}\n}\nrespond ok\n}")
	of := func(rule, field string) any {
		return at(t, a.ask("key?rule="+rule+"&key=127.0.0.1", ""), "rules", 0, field)
	}
	untold := 0.0
	eventually(t, "an admission waits to be told", func() bool { // a round may come between
		a.do("/")
		untold, _ = of("z", "untold").(float64)
		return untold > 0
	})
	if age, told := of("z", "synced_seconds").(float64); !told || age < 0 {
		t.Errorf("what is known of the others is %v old", age)
	}
	eventually(t, "the storage has been read", func() bool { age, told := of("over_a_folder", "synced_seconds").(float64); return told && age >= 0 })
	rules := at(t, a.ask("explain", `{"url":"http://`+a.addr+`/","client_ip":"127.0.0.1"}`), "handlers", 0, "rules")
	if _, told := rules.([]any)[0].(map[string]any)["synced_seconds"]; !told {
		t.Errorf("explain says %v", rules)
	}
}

// Defect found: two stores over one storage, with different settings, had the same series, so that /metrics failed.
func TestMetricsOfTwoStoresOverOneStorage(t *testing.T) {
	folder := t.TempDir()
	zone := func(name, interval string) string {
		return "rate_limit {\nzone " + name + " {\nkey everyone\nlimit 10/366d\n}\n" + sharedStorage(folder, interval, interval) + "}\n"
	}
	s := startSite(t, withMetrics(zone("a", "10ms")+zone("b", "20ms")+"respond ok"))
	s.admit(3, "/")
	eventually(t, "both stores are in the metrics, together", func() bool {
		return s.metric(`weir_storage_keys{storage="FileStorage:`+folder+`"}`) == "2" // each has the key of its own zone
	})
}
