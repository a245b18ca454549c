package ratelimit_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// twoRequests is a log of two requests by one client.
const twoRequests = `{"ts":1795255300,"status":200,"duration":0,"request":{"method":"GET","uri":"/","client_ip":"192.0.2.1","headers":{}}}
{"ts":1795255301,"status":200,"duration":0,"request":{"method":"GET","uri":"/","client_ip":"192.0.2.1","headers":{}}}
`

func TestReplayWritesTablesJSONAndAPage(t *testing.T) {
	dir := folder(t, "limits.yaml", rulesOf("{name: api, limit: 1/1m}"), "other.yaml", rulesOf("{name: api, limit: 5/1m}"), "access.log", twoRequests)
	out, problems, code := weir(t, dir, "replay", "--rules", "limits.yaml", "--candidate", "other.yaml", "--suggest=0%", "--html", "report.html", "access.log")
	if code != 0 || problems != "" {
		t.Fatalf("exit status %d, %s", code, problems)
	}
	for _, want := range []string{"2 requests from 2026-11-21 10:01:40", "1 would have been rejected (50.0 %)", "api   1/1m sliding_window_counter  2 ", "1/1m   5/1m       0               1", "api   1/1m  2/1m       0                0 %  1"} {
		must.Contain(t, out, want)
	}
	page := filepath.Join(dir, "report.html")
	info, err := os.Stat(page)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the page: %v, %v", info, err)
	}
	if text, _ := os.ReadFile(page); !strings.Contains(string(text), "<td class=\"key\">192.0.2.1</td>") {
		t.Errorf("the page is\n%s", text)
	}
	out, problems, code = weir(t, dir, "replay", "-r", "limits.yaml", "--json", "access.log")
	var report struct {
		Requests, Rejected int
		Suggestions        []any
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || problems != "" || report.Requests != 2 || report.Rejected != 1 || report.Suggestions != nil {
		t.Errorf("exit status %d, %s, %v: %+v", code, problems, err, report)
	}
}

func TestReplaySaysWhatIsWrong(t *testing.T) {
	dir := folder(t, "limits.yaml", rulesOf("{name: api, limit: 1/1m}"), "broken.yaml", rulesOf("{name: api, limt: 5/1m}"), "access.log", twoRequests, "rubbish.log", "hello\n",
		"Caddyfile.good", ":80 {\nrate_limit {\nzone all {\nlimit 5/1m\n}\n}\n}\n",
		"Caddyfile", ":80 {\nrate_limit {\nzone users {\nkey {http.auth.user.id}\nlimit 5/1m\n}\n}\n}\n")
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"access.log"}, "at least one of the flags in the group [rules traefik config] is required"},
		{[]string{"--rules", "limits.yaml", "--config", "Caddyfile", "access.log"}, "if any flags in the group [rules traefik config] are set none of the others can be"},
		{[]string{"--config", "Caddyfile", "access.log"}, `Caddyfile: has no zone that could be replayed; zone "users": is left out: a replay does not know {http.auth.user.id}`},
		{[]string{"--config", "nosuch", "access.log"}, "nosuch: no such file"},
		{[]string{"--config", "Caddyfile.good", "--html", "Caddyfile.good", "access.log"}, "html: Caddyfile.good: is "},
		{[]string{"--rules", "limits.yaml"}, "requires at least 1 arg"},
		{[]string{"--rules", "broken.yaml", "access.log"}, `broken.yaml:2:17: "limt" is not a field of a rule (did you mean limit?)`},
		{[]string{"--rules", "limits.yaml", "--candidate", "broken.yaml", "access.log"}, "1 problem in the rule files"},
		{[]string{"--rules", "limits.yaml", "access.log", "nosuch.log"}, "nosuch.log: no such file or directory"},
		{[]string{"--rules", "limits.yaml", "rubbish.log"}, "rubbish.log: has not a single line of an access log that could be read"},
		{[]string{"--rules", "limits.yaml", "--suggest=all", "access.log"}, `suggest "all": must be a share of the clients`},
		{[]string{"--rules", "limits.yaml", "--suggest", "5%", "access.log"}, "5%: no such file; if it is the share of clients, write --suggest=5%"},
		{[]string{"--rules", "limits.yaml", "--suggest=100%", "access.log"}, `suggest "100%": must be a share of the clients`},
		{[]string{"--rules", "limits.yaml", "--html", filepath.Join("nosuch", "report.html"), "access.log"}, "report.html: cannot be written: nosuch: no such file or directory; name a file in a folder that is there"},
	} {
		out, problems, code := weir(t, dir, append([]string{"replay"}, test.args...)...)
		if code == 0 || !strings.Contains(problems, test.want) || strings.Contains(out, "REQUESTS") {
			t.Errorf("%q: exit status %d, %s%s; want %s", test.args, code, out, problems, test.want)
		}
	}
}

// The old report stays until the new one is complete, and a replay never overwrites a file that it reads.
func TestThePageTakesThePlaceOfAnEarlierOneAndOfNoFileThatIsRead(t *testing.T) {
	dir := folder(t, "limits.yaml", rulesOf("{name: api, limit: 1/1m}"), "other.yaml", rulesOf("{name: api, limit: 2/1m}"), "access.log", twoRequests,
		"rubbish.log", "hello\n", "report.html", "the old one")
	at := func(name string) string { return filepath.Join(dir, name) }
	must.Succeed(t, errors.Join(os.Chmod(at("report.html"), 0o644), os.Symlink("access.log", at("soft")), os.Link(at("limits.yaml"), at("hard")), os.Symlink("report.html", at("latest.html"))))
	for _, target := range []string{"access.log", "soft", "hard", "other.yaml", "."} {
		_, problems, code := weir(t, dir, "replay", "-r", "limits.yaml", "--candidate", "other.yaml", "--html", target, "access.log")
		if code == 0 || !strings.Contains(problems, "html: "+target+": is ") || !strings.Contains(problems, "; name a") {
			t.Errorf("%s: exit status %d, %s", target, code, problems)
		}
	}
	if _, _, code := weir(t, dir, "replay", "-r", "limits.yaml", "--html", "report.html", "rubbish.log"); code == 0 {
		t.Error("rubbish is replayed")
	}
	for name, want := range map[string]string{"access.log": twoRequests, "report.html": "the old one", "limits.yaml": rulesOf("{name: api, limit: 1/1m}")} {
		if text, _ := os.ReadFile(at(name)); string(text) != want {
			t.Errorf("%s is now\n%s", name, text)
		}
	}
	if _, problems, code := weir(t, dir, "replay", "-r", "limits.yaml", "--html", "latest.html", "access.log"); code != 0 {
		t.Fatal(problems)
	}
	info, err := os.Stat(at("report.html"))
	if text, _ := os.ReadFile(at("report.html")); err != nil || info.Mode().Perm() != 0o600 || !strings.Contains(string(text), "192.0.2.1") {
		t.Errorf("%v, %v:\n%s", info, err, text)
	}
	if left, _ := filepath.Glob(at(".report-*")); len(left) > 0 {
		t.Errorf("%q are left behind", left)
	}
}

// The replay waits for a log on standard input, which does not end.
func TestAReplayThatIsToEndLeavesNothingBehind(t *testing.T) {
	for _, ends := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		t.Run(ends.String(), func(t *testing.T) {
			dir := folder(t, "limits.yaml", rulesOf("{name: api, limit: 1/1m}"))
			cmd := exec.Command(os.Args[0], "rate-limit", "replay", "-r", "limits.yaml", "--html", "report.html", "-")
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), asCaddy+"=1", "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
			var problems strings.Builder
			cmd.Stderr = &problems
			stdin, err := cmd.StdinPipe()
			must.Succeed(t, err)
			defer func() { _ = stdin.Close() }()
			must.Succeed(t, cmd.Start())
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			begun := func() bool {
				pages, _ := filepath.Glob(filepath.Join(dir, ".report-*"))
				return len(pages) > 0
			}
			eventually(t, "the replay has begun", begun)
			must.Succeed(t, cmd.Process.Signal(ends))
			select {
			case <-ended:
			case <-time.After(20 * time.Second):
				_ = cmd.Process.Kill()
				t.Fatal("the replay goes on")
			}
			if begun() || !strings.Contains(problems.String(), "interrupted") || cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("exit status %d, %s; the page is left behind: %v", cmd.ProcessState.ExitCode(), problems.String(), begun())
			}
		})
	}
}

// A configuration's zones are replayed with no rule file, each for the requests that come to it. What a log cannot show is left out by name.
func TestTheZonesOfAConfigurationAreReplayed(t *testing.T) {
	const zones = `(shared) {
	rate_limit {
		zone shared {
			key static
			limit 5/1m
		}
	}
}
a.example.com {
	import shared
	@page path /page* /other
	rate_limit @page {
		zone page {
			match {
				method GET
				not path /page/not
				header X-Plan *free*
			}
			limit 1/1m
			ipv4_prefix 24
		}
		zone regexp {
			match path_regexp x
			limit 1/1m
		}
		zone user {
			key {vars.user}
			limit 1/1m
		}
		zone tiers {
			key {header.X-Key}-{host}
			tiers {header.X-Plan} {
				free 1/1m
				* 9/1m
			}
			cost {query.n}
		}
	}
	handle /api/* {
		rate_limit {
			zone api {
				match path /api/x
				limit 2/1m
			}
		}
	}
	handle_path /inner/* {
		rate_limit {
			zone stripped {
				match sent_path /x
				limit 3/1m
			}
			zone inner {
				limit 3/1m
			}
		}
	}
	handle {
		rate_limit {
			zone rest {
				match sent_path /page /page/* /other
				limit 3/1m
			}
			zone outside {
				match host b.example.com
				limit 3/1m
			}
		}
	}
	handle_errors {
		rate_limit {
			zone errors {
				limit 3/1m
			}
		}
	}
}
b.example.com {
	import shared
	rate_limit {
		namespace b
		zone rest {
			limit 3/1m
		}
	}
}
c.example.com {
	rate_limit {
		rules_file limits.yaml
	}
}
*.example.org {
	@x host x.example.org
	@z host z.example.org
	rate_limit @z {
		zone posts {
			count_match method POST
			limit 1/1m
		}
		zone brought {
			limit 9/1m
			limit_from {header.X-Plan} max 9
		}
	}
	rewrite /old /new
	rate_limit @x {
		zone x {
			limit 3/1m
		}
		zone new {
			match path /new
			limit 3/1m
		}
	}
}
`
	var log strings.Builder
	for i, request := range []string{
		"GET a.example.com /page/1 free-plan 192.0.2.1", "GET a.example.com /Page/2 free 192.0.2.9", "POST a.example.com /page/1 free 192.0.2.1", "GET a.example.com /page/not free 192.0.2.1",
		"GET a.example.com /other pro 192.0.2.1", "GET b.example.com /page free 192.0.2.1", "GET a.example.com /api/x free 192.0.2.1", "GET a.example.com /api/y free 192.0.2.1",
		"GET x.example.org /old free 192.0.2.1", "GET y.example.org /new free 192.0.2.1", "GET a.example.com /inner/x free 192.0.2.1",
		"GET c.example.com /v1 free 192.0.2.1", "GET c.example.com /v2 free 192.0.2.1", "GET d.example.com /v1 free 192.0.2.1",
		"GET z.example.org / free 192.0.2.1", "POST z.example.org / free 192.0.2.1", "GET z.example.org / 0 192.0.2.1",
	} {
		f := strings.Fields(request)
		fmt.Fprintf(&log, `{"ts":%d,"status":200,"duration":0,"request":{"method":"%s","uri":"%s","host":"%s","client_ip":"%s","headers":{"X-Plan":["%s"],"X-Key":["k"]}}}`+"\n", 1795255300+i, f[0], f[2], f[1], f[4], f[3])
	}
	dir := folder(t, "Caddyfile", zones, "limits.yaml", rulesOf("{name: v1, match: {paths: [/v1]}, limit: 1/1m}", "{name: shared, limit: 1/1m}"), "access.log", log.String())
	out, problems, code := weir(t, dir, "replay", "--config", "Caddyfile", "--json", "access.log")
	var report struct {
		Rules []struct {
			Name, Limit, Place string
			Requests, Rejected int
		}
		Warnings []string
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 {
		t.Fatalf("exit status %d, %s, %v", code, problems, err)
	}
	got := ""
	for _, r := range report.Rules {
		got += fmt.Sprintf("%s %s %s: %d, %d\n", filepath.Base(r.Place), r.Name, r.Limit, r.Requests, r.Rejected)
	}
	must.Equal(t, got, `Caddyfile page 1/1m: 2, 1
Caddyfile tiers 9/1m: 5, 3
Caddyfile shared 5/1m: 9, 1
Caddyfile inner 3/1m: 1, 0
Caddyfile api 2/1m: 1, 0
Caddyfile rest 3/1m: 5, 0
Caddyfile b/rest 3/1m: 1, 0
Caddyfile brought 9/1m: 3, 1
Caddyfile posts 1/1m: 3, 1
Caddyfile x 3/1m: 1, 0
limits.yaml:2 v1 1/1m: 1, 0
`)
	for _, want := range []string{
		`zone "regexp": is left out: a replay does not know the matcher path_regexp`, `zone "user": is left out: a replay does not know {http.vars.user}`,
		`zone "stripped": is left out: a replay does not know the matcher sent_path (behind a rewrite) /x`, `zone "new": is left out: a replay does not know the matcher path (behind a rewrite) /new`,
		`zone "outside": is left out: a replay does not know the matcher host b.example.com`, `zone "errors": is left out: a replay does not know which requests come to a handler in error routes`,
		`rule "shared": is left out: another of that name, with other settings, is replayed`,
	} {
		if !slices.ContainsFunc(report.Warnings, func(w string) bool { return strings.Contains(w, want) }) {
			t.Errorf("%q is not among the warnings\n%s", want, strings.Join(report.Warnings, "\n"))
		}
	}
	must.Equal(t, len(report.Warnings), 7, strings.Join(report.Warnings, "\n"))
}
