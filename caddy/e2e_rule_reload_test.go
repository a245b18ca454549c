package ratelimit_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// shared returns a rule that counts all requests for / together.
func shared(limit string) string {
	return "{name: shared, match: {paths: [/]}, limit: " + limit + "}"
}

// Whatever changes the contents under the files' names comes into force soon, and counters survive.
func TestAChangedFileIsInForceByItself(t *testing.T) {
	edit := func(n int) string { return rulesOf(versionOf(n), shared(fmt.Sprintf("%d/366d", 10*n))) }
	check := func(s *server, change func(n int)) {
		s.t.Helper()
		s.awaitVersion(1)
		s.admit(10, "/")
		s.reject("/")
		for n := 2; n <= 4; n++ { // raised: ten more at once
			change(n)
			s.awaitVersion(n)
			s.admit(10, "/")
			s.reject("/")
		}
		change(1) // lowered: used requests stay counted
		s.awaitVersion(1)
		if r := s.reject("/"); r.remaining(s.t) != 0 {
			s.t.Errorf("%d remaining, want 0", r.remaining(s.t))
		}
		change(5)
		s.awaitVersion(5)
		s.admit(10, "/")
		s.reject("/")
		s.awaitLog(5, saysTaken)
		s.said(0, saysRefused, saysAfresh)
	}
	t.Run("an edit in place", func(t *testing.T) {
		s := startFiles(t, byFiles(""), "a.yaml", edit(1))
		check(s, func(n int) { s.overwrite("a.yaml", edit(n)) })
	})
	link := func(t *testing.T, target, name string) {
		t.Helper()
		must.Succeed(t, os.Symlink(target, name+".new"))
		must.Succeed(t, os.Rename(name+".new", name))
	}
	t.Run("a ConfigMap", func(t *testing.T) { // its files are links into ..data, a link to a folder, which kubelet swaps
		s := newServer(t)
		rules := filepath.Join(s.dir, "rules")
		project := func(n int) {
			folder := fmt.Sprintf("..2026_11_%02d_%d", n, time.Now().UnixNano())
			s.put(filepath.Join(folder, "a.yaml"), edit(n))
			old, _ := os.Readlink(filepath.Join(rules, "..data"))
			link(t, folder, filepath.Join(rules, "..data"))
			if old != "" {
				must.Succeed(t, os.RemoveAll(filepath.Join(rules, old)))
			}
		}
		project(1)
		link(t, "..data/a.yaml", filepath.Join(rules, "a.yaml"))
		s.load(s.caddyfile("", ":PORT {\n"+strings.Replace(byFiles(""), "1s", "1h", 1)+"\n}"))
		check(s, project)
	})
	t.Run("a link to a folder that is the rules'", func(t *testing.T) {
		s := newServer(t)
		point := func(n int) {
			release := filepath.Join(s.dir, "releases", fmt.Sprint(time.Now().UnixNano()))
			s.put(filepath.Join("..", "releases", filepath.Base(release), "a.yaml"), edit(n))
			link(t, release, filepath.Join(s.dir, "rules"))
		}
		point(1)
		s.load(s.caddyfile("", ":PORT {\n"+strings.Replace(byFiles(""), "1s", "1h", 1)+"\n}"))
		check(s, point)
		s.overwrite("a.yaml", edit(6)) // in the folder to which the link now leads
		s.awaitVersion(6)
	})
	t.Run("a folder in the place of another", func(t *testing.T) {
		s := startFiles(t, byFiles(""), "a.yaml", edit(1))
		rules := filepath.Join(s.dir, "rules")
		check(s, func(n int) {
			s.put("../next/a.yaml", edit(n))
			must.Succeed(t, os.RemoveAll(rules+".old"))
			must.Succeed(t, os.Rename(rules, rules+".old"))
			must.Succeed(t, os.Rename(filepath.Join(s.dir, "next"), rules))
		})
	})
}

func TestFilesComeIntoAGlobAndLeaveIt(t *testing.T) {
	s := startFiles(t, byFiles(""), "a.yaml", rulesOf("{name: a, match: {paths: [/a]}, limit: 1/366d}"))
	s.admit(1, "/a")
	s.reject("/a")
	s.admit(3, "/b")
	s.put("b.yaml", rulesOf(versionOf(1), "{name: b, match: {paths: [/b]}, limit: 1/366d}"))
	s.awaitVersion(1)
	s.admit(1, "/b")
	s.reject("/b")
	s.reject("/a")
	s.put(".hidden.yaml", "no rules")
	s.put("other.txt", "no rules")
	s.remove("b.yaml")
	eventually(t, "the rules of b.yaml are gone", func() bool { return s.do("/version").header.Get("X-RateLimit-Limit") == "" })
	s.admit(3, "/b")
	s.reject("/a")
	s.said(0, saysRefused)
	s.awaitLog(2, saysTaken)
	// The removal of the last file is refused: a mistake must not leave a site without limits.
	s.remove("a.yaml")
	line := s.awaitLog(1, saysRefused)[0]
	if line["problem"] != "no file matches" {
		t.Errorf("log: %v, want it to say that no file matches", line)
	}
	s.reject("/a")
	s.put("a.yaml", rulesOf("{name: a, match: {paths: [/a]}, limit: 1/366d}"))
	s.awaitLog(1, saysRestored)
	s.reject("/a")
}

// If the system reports no changes, the files are checked at the interval: here their folder did not exist when watching began.
func TestFilesAreLookedAtWhereTheSystemSaysNothing(t *testing.T) {
	edit := func(n int) string { return rulesOf(versionOf(n), shared("1/366d")) }
	s := startFiles(t, byFiles(""), "a.yaml", edit(1))
	s.awaitVersion(1)
	s.admit(1, "/")
	must.Succeed(t, os.RemoveAll(filepath.Join(s.dir, "rules")))
	s.awaitLog(1, saysRefused)
	s.awaitVersion(1)
	s.put("a.yaml", edit(2))
	s.awaitVersion(2)
	s.reject("/")
}

func TestARuleWhosePeriodHasChangedKeepsToItsFormerLimitAndSaysSo(t *testing.T) {
	domain := func(unit string) string {
		return "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: " + unit + ", requests_per_unit: 1}}\n"
	}
	s := startFiles(t, byFiles("descriptor k {header.K}"), "a.yaml", rulesOf(versionOf(1), shared("1/366d")), "d.yaml", domain("year"))
	s.admit(1, "/")
	s.reject("/")
	s.put("a.yaml", rulesOf(versionOf(2), shared("1/365d")))
	s.awaitVersion(2)
	s.reject("/")
	if line := s.awaitLog(1, saysKeeps)[0]; line["zone"] != "shared" {
		t.Errorf("log: %v, want it to name the rule", line)
	}
	s.admit(1, "/k", "K", "v")
	s.reject("/k", "K", "v")
	s.put("d.yaml", domain("month"))
	s.awaitLog(2, saysTaken)
	s.reject("/k", "K", "v")
	if line := s.awaitLog(2, saysKeeps)[1]; line["zone"] != "d.k" {
		t.Errorf("log: %v, want it to name the descriptor's rule", line)
	}
}

// An edit gets the same warnings as a configuration that is loaded, once however often the file is edited.
func TestAnEditIsWarnedOfAsAConfigurationIs(t *testing.T) {
	const risky = "{name: risky, match: {paths: [/risky]}, tiers: {source: \"header:X-Plan\", limits: {pro: 9/1m, \"*\": 1/1m}}}"
	const excepting = "{name: inside, match: {except_ips: [10.0.0.0/8]}, limit: 5/366d}"
	s := startFiles(t, byFiles(""), "a.yaml", rulesOf(versionOf(1)))
	for n := 2; n <= 3; n++ {
		s.put("a.yaml", rulesOf(versionOf(n), risky, excepting))
		s.awaitVersion(n)
	}
	lines := strings.Join(s.serious(), "")
	if strings.Count(lines, "\n") != 2 || !strings.Contains(lines, "rule \\\"risky\\\": tiers: the header X-Plan is what the client sends") ||
		!strings.Contains(lines, "private addresses are exempt") || !strings.Contains(lines, `"rule":"inside"`) {
		t.Errorf("log: %s, want two warnings", lines)
	}
}

// Found by a newcomer: after a key was renamed in a file that was in force, nothing said that no descriptor had its limit.
func TestAnEditThatLeavesADescriptorWithoutALimitIsWarnedOfOnce(t *testing.T) {
	const file = "domain: d\ndescriptors:\n  - {key: %s, rate_limit: {unit: year, requests_per_unit: 1}}\n  - {key: v, value: n%d, rate_limit: {unit: year, requests_per_unit: 1}}\n"
	s := startFiles(t, byFiles("domain d\ndescriptor k {header.K}\ndescriptor v {header.V}"), "d.yaml", fmt.Sprintf(file, "k", 1))
	s.admit(1, "/", "K", "v")
	s.reject("/", "K", "v")
	for n := 2; n <= 3; n++ {
		s.put("d.yaml", fmt.Sprintf(file, "other", n))
		eventually(t, "the edit is in force", func() bool { return s.do("/", "V", fmt.Sprint("n", n)).header.Get("X-RateLimit-Limit") == "1" })
	}
	must.Equal(t, strings.Count(strings.Join(s.serious(), ""), "a descriptor has no effect: the rule files have no limit for its keys"), 1, "warnings: %s", s.serious())
}

const good = "{name: shared, match: {paths: [/]}, limit: 3/366d}"

// A broken edit changes nothing. It is logged once, with the place and what would be accepted, and so is its repair.
func TestABrokenFileLeavesWhatIsInForce(t *testing.T) {
	s := startFiles(t, byFiles(""), "a.yaml", rulesOf(versionOf(1), good))
	must.Equal(t, s.metric("weir_rules_last_reload_successful"), "1", "successful at start")
	refused, taken := s.metric(`weir_rules_reloads_total{outcome="refused"}`), s.metric(`weir_rules_reloads_total{outcome="taken"}`)
	if refused == "" || taken == "" {
		t.Errorf("the counters are not there at start: %q, %q", refused, taken)
	}
	s.admit(2, "/")
	s.overwrite("a.yaml", "rules:\n  - name: shared\n    limit: 9/0s\n")
	line := s.awaitLog(1, saysRefused)[0]
	if line["line"] != 3.0 || line["column"] != 12.0 || !strings.Contains(fmt.Sprint(line["problem"]), "the period must be from 1ms to 366d") || !strings.HasSuffix(fmt.Sprint(line["file"]), "/rules/a.yaml") {
		t.Errorf("log: %v, want line 3, column 12", line)
	}
	must.Equal(t, s.metric("weir_rules_last_reload_successful"), "0", "successful")
	if value := s.metric(`weir_rules_reloads_total{outcome="refused"}`); value != next(refused) {
		t.Errorf("refused: %q, want one more than %s", value, refused)
	}
	s.awaitVersion(1)
	s.admit(1, "/")
	s.reject("/")

	// Broken in another way, which is a change; then as before; then a new one.
	s.overwrite("a.yaml", "rules: 1\n")
	s.awaitLog(2, saysRefused)
	s.overwrite("a.yaml", rulesOf(versionOf(1), good))
	s.awaitLog(1, saysRestored)
	must.Equal(t, s.metric("weir_rules_last_reload_successful"), "1", "successful")
	s.reject("/")
	s.put("a.yaml", rulesOf(versionOf(2), strings.Replace(good, "3/", "4/", 1)))
	s.awaitVersion(2)
	s.admit(1, "/")
	s.reject("/")
	s.said(2, saysRefused)
	s.awaitLog(1, saysTaken) // counted before the log line
	if value := s.metric(`weir_rules_reloads_total{outcome="taken"}`); value != next(next(taken)) {
		t.Errorf("taken: %q, want two more than %s", value, taken)
	}
}

// next returns the number after a number.
func next(number string) string {
	var n int
	_, _ = fmt.Sscan(number, &n)
	return fmt.Sprint(n + 1)
}

func TestABrokenFileAmongSeveralKeepsAllAsTheyWere(t *testing.T) {
	s := startFiles(t, byFiles(""), "a.yaml", rulesOf(versionOf(1)), "b.yaml", rulesOf(shared("2/366d")))
	s.put("b.yaml", rulesOf("{name: shared, limit: broken}"))
	s.awaitLog(1, saysRefused)
	s.put("a.yaml", rulesOf(versionOf(2)))
	s.awaitLog(2, saysRefused)
	s.awaitVersion(1)
	s.put("b.yaml", rulesOf(shared("1/366d")))
	s.awaitVersion(2)
	s.admit(1, "/")
	s.reject("/")
}

// An edit cannot remove a domain that handlers need.
func TestADomainThatIsTakenOutOfTheFilesStaysInForce(t *testing.T) {
	s := startFiles(t, byFiles("domain d\ndescriptor k {header.K}"), "d.yaml", "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: year, requests_per_unit: 1}}\n")
	s.admit(1, "/", "K", "v")
	s.put("d.yaml", strings.Replace(auth, "auth", "d2", 1))
	must.Contain(t, fmt.Sprint(s.awaitLog(1, saysRefused)[0]), `domain "d": is not in the rule files, which have d2`, "log")
	s.reject("/", "K", "v")
}

// Defect found: such an edit was accepted, and the configuration could not be loaded again.
func TestAnEditToDescriptorsThatNothingUsesIsRefused(t *testing.T) {
	s := startFiles(t, byFiles(""), "a.yaml", rulesOf(shared("1/366d")))
	s.admit(1, "/")
	s.put("a.yaml", auth)
	must.Contain(t, fmt.Sprint(s.awaitLog(1, saysRefused)[0]), `the files have descriptors alone, of domain "auth"`, "log")
	s.reject("/")
}

// An edit that is refused also leaves nothing behind.
func TestAnEditThatIsRefusedKeepsNoCounts(t *testing.T) {
	domain := "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: year, requests_per_unit: 1}}\n"
	s := startFiles(t, byFiles("domain d\ndescriptor k {header.K}"), "a.yaml", rulesOf(versionOf(1), shared("1/366d")), "d.yaml", domain)
	s.admit(1, "/")
	s.put("d.yaml", strings.Replace(domain, "domain: d", "domain: d2", 1))
	s.awaitLog(1, saysRefused)
	s.put("a.yaml", rulesOf(versionOf(2)))
	s.put("d.yaml", domain)
	s.awaitVersion(2)
	s.admit(2, "/")
	s.put("a.yaml", rulesOf(versionOf(3), shared("1/366d")))
	s.awaitVersion(3)
	s.admit(1, "/") // a rule that was gone starts afresh
	s.reject("/")
}

func TestAFileThatIsMissingRefusesTheConfigurationAndOneThatVanishesDoesNot(t *testing.T) {
	s := startFiles(t, strings.Replace(byFiles(""), "*.yaml", "a.yaml", 1), "a.yaml", rulesOf(versionOf(1), good))
	s.admit(1, "/")
	why := s.refused(s.caddyfile("", ":PORT {\n"+byFiles("")+"\nrate_limit {\nrules_file DIR/rules/nosuch.yaml\n}\n}"))
	must.Contain(t, why, "rules/nosuch.yaml: no such file or directory", "refused with")
	s.admit(1, "/")
	s.remove("a.yaml")
	line := s.awaitLog(1, saysRefused)[0]
	if line["problem"] != "no such file or directory" {
		t.Errorf("log: %v", line)
	}
	s.admit(1, "/")
	s.reject("/")
	// Meanwhile, a configuration that needs the file is refused.
	s.refused(s.caddyfile("", ":PORT {\n"+byFiles("")+"\n}"))
	s.reject("/")
	s.put("a.yaml", rulesOf(versionOf(2), strings.Replace(good, "3/", "4/", 1)))
	s.awaitVersion(2)
	s.admit(1, "/")
	s.reject("/")
}

// watchers returns how many watchers of rule files there are.
func watchers() int { return strings.Count(stacks(), "weir/caddy.(*watcher).run(") }

func TestCaddyReloadsWhileFilesChange(t *testing.T) {
	edit := func(n int) string { return rulesOf(versionOf(n), shared(fmt.Sprintf("%d/366d", 1_000_000+n))) }
	s := startFiles(t, byFiles(""), "a.yaml", edit(1))
	s.admit(5, "/")
	var edits atomic.Int64
	edits.Store(1)
	stop := make(chan struct{})
	var editor sync.WaitGroup
	editor.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				s.put("a.yaml", edit(int(edits.Add(1))))
			}
		}
	})
	for i := range 20 {
		s.reload(strings.Replace(byFiles(""), "respond ok", fmt.Sprintf("respond ok%d", i), 1))
		s.admit(1, "/")
	}
	close(stop)
	editor.Wait()
	s.awaitVersion(int(edits.Load()))
	if r := s.do("/"); r.remaining(t) != 1_000_000+int(edits.Load())-26 {
		t.Errorf("%d remaining after %d edits, want what 26 requests leave of %d", r.remaining(t), edits.Load(), 1_000_000+edits.Load())
	}
	eventually(t, "only one watcher is left", func() bool { return watchers() == 1 })
	s.said(0, saysRefused, saysAfresh, saysKeeps)
	// A configuration that is refused leaves no watcher, nor does one without files.
	s.refused(s.json(`{"weir_test_failing":{},"rate_limit":{"rules_files":["DIR/rules/a.yaml"]},` + httpApp(`[{"handler":"rate_limit"}]`)[1:]))
	eventually(t, "a configuration that was refused leaves no watcher", func() bool { return watchers() == 1 })
	s.awaitVersion(int(edits.Load()))
	s.reload("respond ok")
	eventually(t, "no watcher is left", func() bool { return watchers() == 0 && !strings.Contains(stacks(), "fsnotify.") })
}

func TestRulesOfFilesCountInRedisAndAnEditKeepsThem(t *testing.T) {
	redis := redistest.Start(t)
	domain := func(n int) string {
		return fmt.Sprintf("domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: year, requests_per_unit: %d}}\n", n)
	}
	edit := func(n int) string { return rulesOf(versionOf(n), shared(fmt.Sprintf("%d/366d", 2*n))) }
	s := startFiles(t, byFiles("descriptor k {header.K}\n"+storeAt(redis.Addr(), patiently)), "a.yaml", edit(1), "d.yaml", domain(2))
	s.awaitVersion(1)
	s.admit(2, "/")
	s.reject("/")
	s.admit(2, "/k", "K", "v")
	s.reject("/k", "K", "v")
	if list := keys(t, redis); len(list) != 3 { // version, shared, k
		t.Errorf("Redis has %q, want 3 keys", list)
	}
	s.put("d.yaml", domain(3))
	s.put("a.yaml", edit(2))
	s.awaitVersion(2)
	eventually(t, "the descriptor is raised", func() bool { return s.do("/k", "K", "w").header.Get("X-RateLimit-Limit") == "3" })
	s.admit(2, "/")
	s.reject("/")
	s.admit(1, "/k", "K", "v")
	s.reject("/k", "K", "v")
	// The counters are in Redis: a new configuration in a process that has forgotten everything finds them.
	s.reload("respond ok")
	s.reload(byFiles("descriptor k {header.K}\n" + storeAt(redis.Addr(), patiently)))
	s.reject("/")
	s.reject("/k", "K", "v")
}

// openFiles returns how many file descriptors this process has; 0 if the system does not say.
func openFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		if runtime.GOOS == "linux" {
			t.Fatal(err)
		}
		t.Log("file descriptors are not counted here:", err)
	}
	return len(list)
}

// The rules of an edit apply at once and completely, and those of a broken edit never do. Edits come faster than they are read, in
// both ways in which editors write. The test waits for every tenth.
func TestAThousandEditsUnderLoadLoseNoRequestAndNoCount(t *testing.T) {
	edits := 1000
	if raceDetector {
		edits = 200
	}
	const limit = 100_000_000
	edit := func(n int) string {
		return rulesOf(versionOf(n), shared(fmt.Sprintf("%d/366d", limit+n)), fmt.Sprintf("{name: other-%d, match: {paths: [/other]}, limit: 1/1m}", n)) +
			fmt.Sprintf("domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: year, requests_per_unit: %d}}\n", limit+n)
	}
	broken := []string{"", "rules: [", "rules:\n  - {name: shared, limit: 1/366d, nosuch: 1}\n", rulesOf(shared("1/366d"), shared("1/366d")), "domain: d\n" + rulesOf(shared("1/366d")) + "descriptors: 1\n"}

	s := startFiles(t, byFiles("descriptor k {header.K}"), "a.yaml", edit(1))
	s.awaitVersion(1)
	s.client.CloseIdleConnections()
	eventually(t, "Caddy has closed the connections", func() bool { return !strings.Contains(stacks(), "net/http.(*conn).serve") })
	goroutines, files := runtime.NumGoroutine(), openFiles(t)

	var admitted atomic.Int64
	var clients sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		client := s.newClient(nil)
		clients.Go(func() {
			defer client.CloseIdleConnections()
			for {
				select {
				case <-done:
					return
				default:
				}
				r, err := s.once(client, "/", "K", "v")
				if err != nil || r.status != http.StatusOK || len(r.header.Get("X-RateLimit-Limit")) != len(fmt.Sprint(limit)) || strings.Count(r.header.Get("RateLimit"), ";r=") != 2 {
					t.Errorf("a request was lost: status %d, %v, %v", r.status, err, r.header)
					return
				}
				admitted.Add(1)
			}
		})
	}
	last := 1
	for n := 2; n <= edits+1; n++ {
		refused := len(s.logs(saysRefused))
		write := s.put
		if n%2 == 0 {
			write = s.overwrite
		}
		if n%3 == 0 {
			write("a.yaml", broken[n/3%len(broken)]+"\n"+strings.Repeat("# so that it is as long as the others\n", 8)) // else the test waits for it
		} else {
			write("a.yaml", edit(n))
			last = n
		}
		if n%10 == 0 && n%3 != 0 {
			s.awaitVersion(n)
		} else if n%30 == 0 {
			eventually(t, "the broken edit is refused", func() bool { return len(s.logs(saysRefused)) > refused })
		}
	}
	s.put("a.yaml", edit(last))
	s.awaitVersion(last)
	close(done)
	clients.Wait()

	for _, r := range []response{s.do("/"), s.do("/k", "K", "v")} {
		counted := int64(limit + last - r.remaining(t))
		if want := admitted.Load() + 1; counted != want {
			t.Errorf("%d requests were admitted and %d counted (%s)", want, counted, r.header.Get("RateLimit"))
		}
	}
	t.Logf("%d requests admitted during %d edits, of which %d were taken and %d refused", admitted.Load(), edits, len(s.logs(saysTaken)), len(s.logs(saysRefused)))
	s.client.CloseIdleConnections()
	settledGoroutines(t, goroutines)
	eventually(t, "no file descriptor is left open", func() bool { return openFiles(t) <= files })
	must.Succeed(t, caddy.Stop())
	eventually(t, "no watcher is left", func() bool { return watchers() == 0 && !strings.Contains(stacks(), "fsnotify.") })
}
