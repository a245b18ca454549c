package ratelimit_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	ratelimit "github.com/proxyweir/weir/caddy"
	"github.com/proxyweir/weir/tools/must"
)

// The rule files of these tests are in the folder DIR/rules, which has no other files.

// put creates or replaces a file in one step.
func (s *server) put(name, content string) {
	s.t.Helper()
	path := filepath.Join(s.dir, "rules", name)
	must.Succeed(s.t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Succeed(s.t, os.WriteFile(path+".new", []byte(s.fill(content)), 0o600))
	must.Succeed(s.t, os.Rename(path+".new", path))
}

// overwrite writes into an existing file.
func (s *server) overwrite(name, content string) {
	s.t.Helper()
	must.Succeed(s.t, os.WriteFile(filepath.Join(s.dir, "rules", name), []byte(s.fill(content)), 0o600))
}

// remove removes a file.
func (s *server) remove(name string) {
	s.t.Helper()
	must.Succeed(s.t, os.Remove(filepath.Join(s.dir, "rules", name)))
}

// startFiles runs Caddy on one site with the given directives and rule files, given by their names and contents.
func startFiles(t testing.TB, directives string, files ...string) *server {
	t.Helper()
	s := newServer(t)
	for i := 0; i < len(files); i += 2 {
		s.put(files[i], files[i+1])
	}
	s.load(s.caddyfile("", ":PORT {\n"+directives+"\n}"))
	return s
}

// byFiles is a site that uses all files of the folder, with further lines in the handler's block. They are checked every second if
// the system does not report changes.
func byFiles(lines string) string {
	return "handle /metrics {\nmetrics\n}\nrate_limit {\nrules_file DIR/rules/*.yaml\nrules_interval 1s\n" + lines + "\n}\nrespond ok"
}

// rulesOf returns a rule file with the given rules, one a line.
func rulesOf(rules ...string) string {
	return "rules:\n  - " + strings.Join(rules, "\n  - ") + "\n"
}

// versionOf returns a rule by which a request for /version shows which edit is in force.
func versionOf(n int) string {
	return fmt.Sprintf("{name: version, match: {paths: [/version]}, limit: %d/366d}", n)
}

// awaitVersion waits until an edit is in force, and so are all other changes in the files.
func (s *server) awaitVersion(n int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("version %d is in force", n), func() bool {
		return s.do("/version").header.Get("X-RateLimit-Limit") == strconv.Itoa(n)
	})
}

// awaitLog waits until the log has that many lines with a message, and returns them.
func (s *server) awaitLog(times int, message string) []map[string]any {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("the log says %d times %q", times, message), func() bool { return len(s.logs(message)) >= times })
	lines := s.logs(message)
	if len(lines) != times {
		s.t.Fatalf("the log has %d lines %q, want %d: %v", len(lines), message, times, lines)
	}
	return lines
}

// Messages of the log about rule files.
const (
	saysTaken    = "new rule files are in force"
	saysRefused  = "the rule files are refused; the previous rules stay in force"
	saysRestored = "the rule files are again those that are in force"
	saysKeeps    = "the zone keeps to its former limit, too, for a while, since its algorithm or period has changed"
	saysAfresh   = "the zone starts counting afresh, since its algorithm, period or key has changed; keys that were blocked in it are unblocked"
)

// metric returns the value of a metric at /metrics, or "".
func (s *server) metric(name string) string {
	s.t.Helper()
	for line := range strings.Lines(s.do("/metrics").body) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// awaitRoom waits until the current window of a period that is aligned to the epoch has at least a quarter of a minute left.
func awaitRoom(t testing.TB, period time.Duration) {
	t.Helper()
	eventually(t, "the window has room", func() bool {
		now := time.Now()
		return now.Add(15 * time.Second).Truncate(period).Equal(now.Truncate(period))
	})
}

const (
	messaging = `domain: messaging
descriptors:
  - key: message_type
    value: marketing
    rate_limit:
      unit: day
      requests_per_unit: 5
`
	auth = `domain: auth
descriptors:
  - key: auth_type
    value: login
    rate_limit:
      unit: minute
      requests_per_unit: 5
`
)

func TestTheTwoDescriptorsThatEveryoneKnowsLimitRealRequests(t *testing.T) {
	s := startFiles(t, `
		rate_limit {
			rules_file DIR/rules/messaging.yaml DIR/rules/auth.yaml
			domain messaging
			descriptor message_type {header.X-Message-Type}
		}
		rate_limit {
			rules_file DIR/rules/auth.yaml
			descriptor auth_type {header.X-Auth-Type}
		}
		respond ok`, "messaging.yaml", messaging, "auth.yaml", auth)
	for _, test := range []struct {
		field, value, rule string
		period             time.Duration
	}{
		{"X-Message-Type", "marketing", "messaging.message_type_marketing", 24 * time.Hour},
		{"X-Auth-Type", "login", "auth.auth_type_login", time.Minute},
	} {
		awaitRoom(t, test.period)
		s.admit(5, "/", test.field, test.value)
		r := s.reject("/", test.field, test.value)
		r.seconds(t, "Retry-After", 1, int(test.period.Seconds()+min(60, test.period.Seconds()/10)))
		r.want(t, "X-RateLimit-Limit", "5", "RateLimit-Policy", fmt.Sprintf(`"%s";q=5;w=%d`, test.rule, int(test.period.Seconds())))
		s.do("/", test.field, "other").want(t, "X-RateLimit-Limit", "-", "RateLimit", "-")
		s.do("/", test.field, "").want(t, "RateLimit", "-") // a descriptor with an empty value is left out
	}
}

// A rule that nodes keep together is refused with its place, if there is no Redis.
func TestARuleOfAFileThatNeedsRedisIsRefusedWithItsPlace(t *testing.T) {
	s := newServer(t)
	s.put("a.yaml", rulesOf("{name: x, limit: 5/1m}", "{name: y, limit: 5/1m, consistency: lease}"))
	must.Contain(t, s.refused(s.caddyfile("", ":PORT {\n"+byFiles("")+"\n}")), `a.yaml:3:5: rule "y": consistency lease: `)
}

func TestRulesOfFilesCoverWhatTheySayAndCountByTheirKeys(t *testing.T) {
	s := startFiles(t, byFiles(""), "all.yaml", rulesOf(
		"{name: login, match: {methods: [POST], paths: [/login]}, limit: 2/366d}",
		"{name: api, match: {path_prefixes: [/api], headers: {X-Plan: free}}, key: [header:X-Key, client_ip], limit: 1/366d, on_missing_key: reject}",
		"{name: counted, match: {paths: [/shadow]}, limit: 1/366d, enforcement: shadow}",
		"{name: priced, match: {paths: [/priced]}, limit: 10/366d, cost: \"header:X-Cost\"}",
	))
	s.admit(2, "POST /login")
	s.reject("POST /login")
	s.admit(3, "GET /login")
	s.admit(1, "/api/x", "X-Plan", "free", "X-Key", "anna")
	s.reject("/api", "X-Plan", "free", "X-Key", "anna")
	s.admit(1, "/api", "X-Plan", "free", "X-Key", "bert")
	s.reject("/api", "X-Plan", "free").want(t, "Retry-After", "-")
	for range 3 {
		s.do("/shadow").want(t, "RateLimit", "-", "X-RateLimit-Limit", "-")
	}
	if lines := s.logs("rate limit exceeded in shadow"); len(lines) != 1 || lines[0]["zone"] != "counted" {
		t.Errorf("log: %v, want one line about the shadow", lines)
	}
	s.admit(1, "/priced", "X-Cost", "9")
	s.reject("/priced", "X-Cost", "2")
	s.admit(1, "/priced")
}

// A zone, a rule of a file and a descriptor are decided together: if one rejects, the others are not charged.
func TestZonesRulesAndDescriptorsAreDecidedTogether(t *testing.T) {
	s := startFiles(t, byFiles("descriptor kind {header.X-Kind}\nzone z {\nkey {header.X-Zone}\nlimit 2/366d\n}"),
		"rules.yaml", rulesOf("{name: r, key: header:X-Rule, limit: 2/366d}"),
		"domain.yaml", "domain: d\ndescriptors:\n  - {key: kind, rate_limit: {unit: year, requests_per_unit: 2}}\n")
	s.admit(2, "/", "X-Zone", "used", "X-Rule", "1", "X-Kind", "1")
	s.admit(2, "/", "X-Zone", "2", "X-Rule", "used", "X-Kind", "2")
	s.admit(2, "/", "X-Zone", "3", "X-Rule", "3", "X-Kind", "used")
	for _, rejected := range [][3]string{{"used", "a", "a"}, {"a", "used", "a"}, {"a", "a", "used"}} {
		for range 3 {
			s.reject("/", "X-Zone", rejected[0], "X-Rule", rejected[1], "X-Kind", rejected[2])
		}
	}
	r := s.do("/", "X-Zone", "a", "X-Rule", "a", "X-Kind", "a")
	if r.status != http.StatusOK || r.remaining(t) != 1 {
		t.Errorf("status %d, %d remaining, want 200 and 1: rejected requests cost nothing", r.status, r.remaining(t))
	}
	r.want(t, "RateLimit-Policy", `"z";q=2;w=31622400, "r";q=2;w=31622400, "d.kind";q=2;w=31536000`)
	// A descriptor with an empty value is left out, although a key alone matches any value.
	s.do("/", "X-Zone", "b", "X-Rule", "b").want(t, "RateLimit-Policy", `"z";q=2;w=31622400, "r";q=2;w=31622400`)
}

func TestABareHandlerGoesByTheGlobalFiles(t *testing.T) {
	const global = "rate_limit {\nrules_file DIR/rules/*.yaml\nrules_interval 1s\n}"
	s := newServer(t)
	s.put("rules.yaml", rulesOf(versionOf(1), "{name: r, match: {paths: [/r]}, limit: 2/366d}"))
	s.put("domain.yaml", "domain: d\ndescriptors:\n  - {key: kind, rate_limit: {unit: year, requests_per_unit: 1}}\n")
	s.load(s.caddyfile(global, `
		http://one.test:PORT {
			rate_limit
			respond ok
		}
		http://two.test:PORT {
			rate_limit
			respond ok
		}
		http://descriptors.test:PORT {
			rate_limit {
				descriptor kind {header.X-Kind}
			}
			respond ok
		}
		http://zones.test:PORT {
			rate_limit 1/366d {header.X-Own}
			respond ok
		}
		http://both.test:PORT {
			rate_limit {
				zone own {
					key {header.X-Own}
					limit 9/366d
					on_missing_key skip
				}
				descriptor kind {header.X-Kind}
			}
			respond ok
		}
		http://apart.test:PORT {
			rate_limit {
				namespace apart
			}
			respond ok
		}`))
	// Sites with the same rule share its counters; a namespace separates them.
	s.admit(1, "http://one.test/r")
	s.admit(1, "http://two.test/r")
	s.reject("http://one.test/r")
	s.reject("http://two.test/r")
	s.reject("http://descriptors.test/r", "X-Kind", "a")
	s.admit(2, "http://apart.test/r")
	s.reject("http://apart.test/r")
	s.admit(1, "http://descriptors.test/", "X-Kind", "a")
	s.reject("http://descriptors.test/", "X-Kind", "a")
	s.reject("http://both.test/", "X-Kind", "a") // it also has a descriptor
	// A handler with its own zones does not use the global files.
	s.admit(1, "http://zones.test/r", "X-Own", "a")
	s.reject("http://zones.test/r", "X-Own", "a")

	s.put("rules.yaml", rulesOf("{name: version, match: {paths: [/version]}, limit: 2/366d}", "{name: r, match: {paths: [/r]}, limit: 3/366d}"))
	s.awaitVersionAt("http://one.test/version", 2)
	s.admit(1, "http://two.test/r")
	s.reject("http://one.test/r")
	s.admit(1, "http://apart.test/r")
}

func (s *server) awaitVersionAt(request string, n int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("version %d is in force", n), func() bool {
		return s.do(request).header.Get("X-RateLimit-Limit") == strconv.Itoa(n)
	})
}

func TestFilesInJSON(t *testing.T) {
	s := newServer(t)
	s.put("r.yaml", rulesOf("{name: r, match: {paths: [/r]}, limit: 1/366d}"))
	s.put("d.json", `{"domain": "d", "descriptors": [{"key": "kind", "value": "a", "rate_limit": {"unit": "YEAR", "requests_per_unit": 1}}]}`)
	s.load(s.json(httpApp(`[{"handler": "rate_limit", "rules_files": ["DIR/rules/r.yaml", "DIR/rules/*.json"], "rules_interval": "2s",
		"domain": "d", "descriptors": [[{"key": "kind", "value": "{http.request.header.X-Kind}"}]]},
		{"handler": "static_response", "body": "ok"}]`)))
	s.admit(1, "/r")
	s.reject("/r")
	s.admit(1, "/", "X-Kind", "a")
	s.reject("/", "X-Kind", "a")
	s.admit(2, "/", "X-Kind", "b")
}

func TestANameThatDiffersElsewhereIsRefused(t *testing.T) {
	const file = "{name: shared, key: header:X-Key, limit: 5/366d}"
	for _, test := range []struct{ name, site, why string }{
		{"in a zone of the same handler", byFiles("zone shared {\nlimit 5/366d\nipv6_prefix 64\n}"), "another key"},
		{"in a zone of another handler", byFiles("") + "\nrate_limit {\nzone shared {\nkey {http.auth.user.id}\nlimit 6/366d\n}\n}", "another key"},
		{"in another file of another handler", byFiles("") + "\nrate_limit {\nrules_file DIR/rules/other/x.yaml\n}", "another limit: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t)
			s.put("a.yaml", rulesOf(file))
			s.put("other/x.yaml", rulesOf(strings.Replace(file, "5/", "7/", 1)))
			why := s.refused(s.caddyfile("", ":PORT {\n"+test.site+"\n}"))
			if !strings.Contains(why, test.why) || !strings.Contains(why, `"shared"`) || !strings.Contains(why, ".yaml:2") {
				t.Errorf("refused with %q, want it to say %q, and where", why, test.why)
			}
		})
	}
	t.Run("by an edit", func(t *testing.T) {
		s := startFiles(t, byFiles("")+"\nrate_limit /z {\nzone shared {\nkey {http.auth.user.id}\nlimit 6/366d\n}\n}", "a.yaml", rulesOf(versionOf(1)))
		s.put("a.yaml", rulesOf(versionOf(2), file))
		lines := s.awaitLog(1, saysRefused)
		if told := lines[0]; !strings.Contains(told["problem"].(string), "another key") || told["line"] != 3.0 || !strings.HasSuffix(told["file"].(string), "a.yaml") {
			t.Errorf("log: %v, want it to say what differs, and where", lines[0])
		}
		s.awaitVersion(1)
	})
	t.Run("but not where it is the same, or in another namespace", func(t *testing.T) {
		s := startFiles(t, byFiles("")+"\nrate_limit {\nnamespace n\nzone shared {\nkey {header.X-Key}\nlimit 6/366d\n}\n}", "a.yaml", rulesOf(file))
		s.admit(5, "/")
		s.reject("/")
	})
}

// Defects found: the log warned of a value that requests do have, by another line for the same key; and it did not warn of
// wildcards that no request matches.
func TestAValueIsWarnedOfWhereNoLineForItsKeysMeetsIt(t *testing.T) {
	s := startFiles(t, byFiles("descriptor path {path}\ndescriptor path {header.Path}\ndescriptor host {host}\ndescriptor host {http.request.tls.server_name}"),
		"d.yaml", `domain: d
descriptors:
  - {key: path, value: /Login, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: host, value: "*.example.com:*", rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: host, value: "*.example.com", metadata: {route: {name: api}}, rate_limit: {unit: year, requests_per_unit: 1}}
`)
	s.awaitLog(1, filepath.Join(s.dir, "rules", "d.yaml")+":5:51: metadata: has no effect: it is for Envoy, which routes requests by it")
	lines := s.awaitLog(1, "a descriptor's value is met by no request")
	if want := `"*.example.com:*": requests have hosts without a port`; len(lines) != 1 || lines[0]["value"] != want || lines[0]["domain"] != "d" || lines[0]["key"] != "host" {
		t.Errorf("the log has %v, want %s alone", lines, want)
	}
	s.do("/", "Path", "/Login").want(t, "X-RateLimit-Limit", "1")
}

func TestConfigurationsOfFilesThatCannotBeAreRefused(t *testing.T) {
	for _, test := range []struct{ name, site, why string }{
		{"a domain that is not there", byFiles("domain massaging\ndescriptor a {header.A}"), `domain "massaging": is not in the rule files, which have messaging (did you mean messaging?)`},
		{"descriptors that nothing makes", byFiles(""), "write a line such as descriptor"},
		{"a file that is not there", "rate_limit {\nrules_file DIR/rules/nosuch.yaml\n}", "rules/nosuch.yaml: no such file or directory"},
		{"a glob that names none", "rate_limit {\nrules_file DIR/rules/*.yml\n}", "rules/*.yml: no file matches"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t)
			s.put("m.yaml", messaging)
			config, err := s.adapt("", ":PORT {\n"+test.site+"\n}")
			if err == nil {
				err = caddy.Load(config, true)
			}
			if err == nil || !strings.Contains(err.Error(), test.why) {
				t.Errorf("%v, want an error that says %q", err, test.why)
			}
		})
	}
}

func TestOfSeveralIntervalsTheShortestCounts(t *testing.T) {
	s := newServer(t)
	s.put("a.yaml", rulesOf(good))
	s.load(s.caddyfile("rate_limit {\nrules_file DIR/rules/a.yaml\nrules_interval 20m\n}\n", ":PORT {\n"+strings.Replace(byFiles(""), "1s", "5m", 1)+"\n"+byFiles("")+"\n"+strings.Replace(byFiles(""), "1s", "1h", 1)+"\n}"))
	app, err := caddy.ActiveContext().App("rate_limit")
	must.Succeed(t, err)
	if got := app.(*ratelimit.App).RulesInterval; got != caddy.Duration(time.Second) {
		t.Errorf("%v, want 1s", time.Duration(got))
	}
}

// An interval of nothing is told at load. Zones with files of their own read them at the global interval.
func TestAnIntervalWithoutRuleFilesIsToldAtLoad(t *testing.T) {
	const told = "the rules_interval of the global option has no effect: no rule files are read; write rules_file, or take it out"
	if s := start(t, "rate_limit {\nrules_interval 5s\n}", ":PORT {\nrate_limit 3/1m\nrespond ok\n}"); len(s.logs(told)) != 1 {
		t.Error("it is not told")
	}
	s := newServer(t)
	s.put("a.yaml", "rules: [{name: a, limit: 3/1m}]")
	s.load(s.caddyfile("rate_limit {\nrules_interval 5s\n}", ":PORT {\nrate_limit {\nrules_file DIR/rules/a.yaml\n}\nrespond ok\n}"))
	must.Equal(t, len(s.logs(told)), 0, "it is told of an interval that has an effect")
}
