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
)

// The rule files of these tests are in the folder DIR/rules, which has no other files.

// put creates or replaces a file in one step.
func (s *server) put(name, content string) {
	s.t.Helper()
	path := filepath.Join(s.dir, "rules", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", []byte(s.fill(content)), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		s.t.Fatal(err)
	}
}

// overwrite writes into an existing file.
func (s *server) overwrite(name, content string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "rules", name), []byte(s.fill(content)), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// remove removes a file.
func (s *server) remove(name string) {
	s.t.Helper()
	if err := os.Remove(filepath.Join(s.dir, "rules", name)); err != nil {
		s.t.Fatal(err)
	}
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
	for name, site := range map[string]string{
		"one handler for each domain": `
			rate_limit {
				rules_file DIR/rules/messaging.yaml DIR/rules/auth.yaml
				domain messaging
				descriptor message_type {header.X-Message-Type}
			}
			rate_limit {
				rules_file DIR/rules/messaging.yaml DIR/rules/auth.yaml
				domain auth
				descriptor auth_type {header.X-Auth-Type}
			}
			respond ok`,
		"one handler for each file": `
			rate_limit {
				rules_file DIR/rules/messaging.yaml
				descriptor message_type {header.X-Message-Type}
			}
			rate_limit {
				rules_file DIR/rules/auth.yaml
				descriptor auth_type {header.X-Auth-Type}
			}
			respond ok`,
	} {
		t.Run(name, func(t *testing.T) {
			s := startFiles(t, site, "messaging.yaml", messaging, "auth.yaml", auth)
			for _, test := range []struct {
				field, value, rule string
				period             time.Duration
			}{
				{"X-Message-Type", "marketing", "messaging.message_type_marketing", 24 * time.Hour},
				{"X-Auth-Type", "login", "auth.auth_type_login", time.Minute},
			} {
				awaitRoom(t, test.period)
				for left := 4; left >= 0; left-- {
					r := s.do("/", test.field, test.value)
					if r.status != http.StatusOK || r.remaining(t) != left {
						t.Fatalf("%s: status %d, %d remaining, want 200 and %d", test.value, r.status, r.remaining(t), left)
					}
				}
				r := s.reject("/", test.field, test.value)
				r.seconds(t, "Retry-After", 1, int(test.period.Seconds()))
				r.want(t, "X-RateLimit-Limit", "5",
					"RateLimit-Policy", fmt.Sprintf(`"%s";q=5;w=%d`, test.rule, int(test.period.Seconds())))

				for _, other := range []string{"receipt", "Marketing", "marketing2", "LOGIN", "*", "log", test.value + " "} {
					if other == test.value+" " {
						continue // the server trims the space
					}
					r := s.do("/", test.field, other)
					if r.status != http.StatusOK {
						t.Errorf("%s %q: status %d, want 200", test.field, other, r.status)
					}
					r.want(t, "X-RateLimit-Limit", "-", "RateLimit", "-")
				}
				for _, without := range [][]string{{}, {test.field, ""}, {"X-Other", test.value}} {
					s.admit(1, "/", without...)
				}
			}
			s.reject("/", "X-Message-Type", "marketing", "X-Auth-Type", "other")
			s.reject("/", "X-Message-Type", "other", "X-Auth-Type", "login")
		})
	}
}

func TestWhatBooksPrintIsRefusedWithTheWordThatWasMeant(t *testing.T) {
	for _, test := range []struct{ name, old, printed, where, why string }{
		{"Value", "    value:", "    Value:", "book.yaml:4:5", `"Value" is not a field of a descriptor (did you mean value?)`},
		{"requests per_unit", "requests_per_unit", "requests per_unit", "book.yaml:7:7", `"requests per_unit" is not a field of rate_limit (did you mean requests_per_unit?)`},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t)
			s.put("book.yaml", strings.Replace(messaging, test.old, test.printed, 1))
			why := s.refused(s.caddyfile("", ":PORT {\n"+byFiles("descriptor message_type {header.X-Message-Type}")+"\n}"))
			for _, want := range []string{"rules_file: ", s.dir + "/rules/" + test.where + ": ", test.why} {
				if !strings.Contains(why, want) {
					t.Errorf("refused with %q, want it to say %q", why, want)
				}
			}
		})
	}
}

// A rule that nodes keep together is refused with its place, if there is no Redis.
func TestARuleOfAFileThatNeedsRedisIsRefusedWithItsPlace(t *testing.T) {
	s := newServer(t)
	s.put("a.yaml", rulesOf("{name: x, limit: 5/1m}", "{name: y, limit: 5/1m, consistency: lease}"))
	if why := s.refused(s.caddyfile("", ":PORT {\n"+byFiles("")+"\n}")); !strings.Contains(why, `a.yaml:3:5: rule "y": consistency lease: `) {
		t.Error(why)
	}
}

func TestAllProblemsInAllFilesAreReportedAtOnce(t *testing.T) {
	s := newServer(t)
	s.put("a.yaml", rulesOf("{name: x, limt: 5/1m}", "{name: y, limit: 5/1q}"))
	s.put("b.yaml", strings.Replace(auth, "minute", "minuet", 1))
	why := s.refused(s.caddyfile("", ":PORT {\n"+byFiles("")+"\n}"))
	at := 0
	for _, want := range []string{"3 problems", "a.yaml:2:15: ", "did you mean limit?", "a.yaml:3:22: ", `"1q" must be a duration such as`, "b.yaml:6:13: ", "did you mean minute?"} {
		next := strings.Index(why[at:], want)
		if next < 0 {
			t.Fatalf("refused with %q, want it to say %q behind %q", why, want, why[:at])
		}
		at += next
	}
}

func TestRulesOfFilesCoverWhatTheySayAndCountByTheirKeys(t *testing.T) {
	s := startFiles(t, byFiles(""), "all.yaml", rulesOf(
		"{name: login, match: {methods: [POST], paths: [/login]}, limit: 2/366d}",
		"{name: api, match: {path_prefixes: [/api], headers: {X-Plan: free}}, key: header:X-Key, limit: 1/366d}",
		"{name: both, match: {paths: [/both]}, key: [header:X-A, header:X-B], limit: 1/366d}",
		"{name: host, match: {hosts: [\"*.example.com\"], paths: [/h]}, limit: 1/366d}",
		"{name: skips, match: {paths: [/skip]}, key: header:X-Key, limit: 1/366d, on_missing_key: skip}",
		"{name: rejects, match: {paths: [/strict]}, key: header:X-Key, limit: 1/366d, on_missing_key: reject}",
		"{name: inside, match: {paths: [/inside], except_ips: [127.0.0.0/8]}, limit: 1/366d}",
		"{name: elsewhere, match: {paths: [/outside], except_ips: [10.0.0.0/8]}, limit: 1/366d}",
		"{name: counted, match: {paths: [/shadow]}, limit: 1/366d, enforcement: shadow}",
		"{name: free, match: {paths: [/free]}, limit: unlimited}",
		"{name: dear, match: {paths: [/dear]}, limit: 10/366d, cost: 4}",
		"{name: priced, match: {paths: [/priced]}, limit: 10/366d, cost: \"header:X-Cost\"}",
	))
	s.admit(2, "POST /login")
	s.reject("POST /login")
	s.admit(3, "GET /login")
	s.admit(3, "POST /login/")

	s.admit(1, "/api/x", "X-Plan", "free", "X-Key", "anna")
	s.reject("/api", "X-Plan", "free", "X-Key", "anna")
	s.admit(1, "/api", "X-Plan", "free", "X-Key", "bert")
	s.admit(3, "/api", "X-Plan", "pro", "X-Key", "anna")
	s.admit(3, "/apis", "X-Plan", "free", "X-Key", "anna")

	s.admit(1, "/both", "X-A", "a", "X-B", "bc")
	s.admit(1, "/both", "X-A", "ab", "X-B", "c")
	s.reject("/both", "X-A", "a", "X-B", "bc")

	s.admit(1, "http://a.example.com/h")
	s.reject("http://b.example.com/h")
	s.admit(2, "http://example.org/h")

	s.admit(3, "/skip")
	s.admit(1, "/skip", "X-Key", "anna")
	s.reject("/skip", "X-Key", "anna")
	s.reject("/strict").want(t, "Retry-After", "-")
	s.admit(1, "/strict", "X-Key", "anna")

	s.admit(3, "/inside")
	s.admit(1, "/outside")
	s.reject("/outside")

	for range 3 {
		s.do("/shadow").want(t, "RateLimit", "-", "X-RateLimit-Limit", "-")
	}
	if lines := s.logs("rate limit exceeded in shadow"); len(lines) != 1 || lines[0]["zone"] != "counted" {
		t.Errorf("log: %v, want one line about the shadow", lines)
	}
	s.do("/free").want(t, "RateLimit", "-")
	s.admit(2, "/dear")
	s.reject("/dear")
	s.admit(1, "/priced", "X-Cost", "9")
	s.reject("/priced", "X-Cost", "2")
	s.admit(1, "/priced")
}

func TestTiersAndOverridesOfRulesInFiles(t *testing.T) {
	s := startFiles(t, byFiles(""), "tiers.yaml", `rules:
  - name: plan
    match: {paths: [/]}
    key: header:X-Key
    tiers:
      source: header:X-Plan
      limits: {free: 2/366d, pro: 4/366d, staff: unlimited, "*": 1/366d}
    overrides:
      - {key: vip, limit: 6/366d}
      - {key: robot, limit: unlimited}
`)
	s.admit(2, "/", "X-Key", "anna", "X-Plan", "free")
	s.reject("/", "X-Key", "anna", "X-Plan", "free")
	// What has been used moves along.
	if r := s.do("/", "X-Key", "anna", "X-Plan", "pro"); r.status != http.StatusOK || r.remaining(t) != 1 {
		t.Errorf("status %d, %d remaining, want 200 and 1", r.status, r.remaining(t))
	}
	s.admit(5, "/", "X-Key", "anna", "X-Plan", "staff")
	s.admit(1, "/", "X-Key", "anna", "X-Plan", "pro")
	s.reject("/", "X-Key", "anna", "X-Plan", "pro")
	s.reject("/", "X-Key", "anna")
	s.admit(1, "/", "X-Key", "bert")
	s.reject("/", "X-Key", "bert", "X-Plan", "nosuch")
	s.admit(6, "/", "X-Key", "vip", "X-Plan", "free")
	s.reject("/", "X-Key", "vip", "X-Plan", "staff")
	s.admit(20, "/", "X-Key", "robot", "X-Plan", "free")
	if lines := s.serious(); len(lines) != 1 || !strings.Contains(lines[0], "tiers.yaml:2:5: rule \\\"plan\\\": tiers: the header X-Plan is what the client sends") {
		t.Errorf("log: %q, want one warning that clients choose their tier", lines)
	}
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

func TestDescriptorsAsEnvoyLooksThemUp(t *testing.T) {
	s := startFiles(t, byFiles(`
			descriptor a {header.A}
			descriptor a {header.A} b {header.B}
			descriptor c {header.C}
			descriptor client {client_ip} path {path}`),
		"d.yaml", `domain: d
descriptors:
  - key: a
    value: limited
    rate_limit: {unit: year, requests_per_unit: 3, name: outer}
    descriptors:
      - key: b
        value: inner
        rate_limit: {unit: year, requests_per_unit: 2}
      - key: b
        value: instead
        rate_limit: {unit: year, requests_per_unit: 5, replaces: [{name: outer}]}
      - key: b
        value: free
        rate_limit: {unlimited: true, replaces: [{name: outer}]}
  - key: c
    value: never
    rate_limit: {unit: year, requests_per_unit: 0}
  - key: c
    value: shadowed
    rate_limit: {unit: year, requests_per_unit: 0}
    shadow_mode: true
  - key: c
    value: "wild/*"
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: c
    value: "shared/*"
    share_threshold: true
    rate_limit: {unit: year, requests_per_unit: 1}
  - key: c
    value: wild/exact
    rate_limit: {unit: year, requests_per_unit: 2}
  - key: c
    rate_limit: {unit: year, requests_per_unit: 4}
`)
	// A descriptor with an empty value is left out, although a key alone would match any value.
	s.do("/").want(t, "RateLimit", "-")
	s.do("/", "A", "limited-not", "C", "").want(t, "RateLimit", "-")
	// Two descriptors, two limits; the inner is the stricter.
	s.admit(2, "/", "A", "limited", "B", "inner")
	r := s.reject("/", "A", "limited", "B", "inner")
	r.want(t, "RateLimit-Policy", `"d.a_limited";q=3;w=31536000, "d.a_limited.b_inner";q=2;w=31536000`)
	s.admit(1, "/", "A", "limited")
	s.reject("/", "A", "limited")
	s.reject("/", "A", "limited", "B", "other")
	// A descriptor that replaces the outer applies alone; one without a limit leaves none.
	s.admit(5, "/", "A", "limited", "B", "instead")
	s.reject("/", "A", "limited", "B", "instead")
	s.do("/", "A", "limited", "B", "free").want(t, "RateLimit", "-", "X-RateLimit-Limit", "-")
	// A limit of zero: there is no time at which to try again.
	r = s.reject("/", "C", "never")
	r.want(t, "Retry-After", "-", "X-RateLimit-Remaining", "0")
	r = s.do("/", "C", "shadowed")
	if r.status != http.StatusOK {
		t.Errorf("shadow_mode: status %d, want 200", r.status)
	}
	r.want(t, "RateLimit", "-")
	// The value itself has priority, then the wildcard, then the key alone. Each value has its own count, unless they share it.
	for _, test := range []struct {
		value  string
		admits int
	}{{"wild/1", 1}, {"wild/2", 1}, {"wild/exact", 2}, {"wild", 4}, {"other", 4}, {"another", 4}, {"shared/1", 1}, {"shared/2", 0}} {
		s.admit(test.admits, "/", "C", test.value)
		s.reject("/", "C", test.value)
	}
}

// A * stands for any text anywhere in a value, as in Envoy's service. Fields of that service that are irrelevant to limits are
// accepted, and the log says that they have no effect.
func TestDescriptorsWithAStarAnywhere(t *testing.T) {
	s := startFiles(t, byFiles("descriptor path {path}\ndescriptor tenant {header.T} resource {header.R}"),
		"d.yaml", `domain: d
descriptors:
  - key: path
    value: /api/*/action
    metadata: {route: {name: api}}
    rate_limit: {unit: year, requests_per_unit: 2}
  - key: path
    value: "*/shared/*.pdf"
    share_threshold: true
    quota_mode: true
    rate_limit: {unit: year, requests_per_unit: 3}
  - key: path
    value: /api/7/action
    value_to_metric: true
    rate_limit: {unit: year, requests_per_unit: 4}
  - key: tenant
    value: t*prod
    share_threshold: true
    descriptors:
      - key: resource
        value: "*v2"
        rate_limit: {unit: year, requests_per_unit: 1}
`)
	for _, test := range []struct {
		path   string
		admits int
	}{{"/api/1/action", 2}, {"/api/2/action", 2}, {"/api/7/action", 4}, {"/a/shared/b.pdf", 3}, {"/c/d/shared/.pdf", 0}} {
		s.admit(test.admits, test.path)
		s.reject(test.path)
	}
	for _, path := range []string{"/api/1/actions", "/api/action", "/a/shared/b.txt"} {
		s.do(path).want(t, "RateLimit", "-")
	}
	s.admit(1, "/", "T", "t1prod", "R", "a-v2")
	s.reject("/", "T", "t2prod", "R", "a-v2") // the tenants share a count
	s.admit(1, "/", "T", "t2prod", "R", "b-v2")
	s.do("/", "T", "t2prod", "R", "b-v3").want(t, "RateLimit", "-")
	file := filepath.Join(s.dir, "rules", "d.yaml")
	s.awaitLog(1, file+":5:15: metadata: has no effect: it is for Envoy, which routes requests by it")
	s.awaitLog(1, file+":10:17: quota_mode: has no effect: the limit rejects like any other; Envoy's service rejects a request when all its limits with quota_mode are exceeded")
	s.awaitLog(1, file+":14:22: value_to_metric: has no effect: no value of a request is ever the label of a metric")
}

// Hosts, methods and paths are looked up normalized, so no request has a value in another spelling. The log warns of it, since its
// limit would be silently lost.
func TestAValueThatNoRequestHasIsWarnedOf(t *testing.T) {
	s := startFiles(t, byFiles("descriptor path {path}\ndescriptor tenant {header.T} method {method}\ndescriptor text at-{path}"),
		"d.yaml", `domain: d
descriptors:
  - {key: path, value: /Login, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: path, value: "/API/*/action", rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: path, value: /login, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: path, value: "*.pdf", rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: text, value: At-/Login, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: text, value: at-/Logout, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: text, value: "at-/Logs/*", rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: text, value: "at-/logs/*", rate_limit: {unit: year, requests_per_unit: 1}}
  - key: tenant
    value: Acme
    descriptors:
      - {key: method, value: post, rate_limit: {unit: year, requests_per_unit: 1}}
      - {key: method, value: "P*", rate_limit: {unit: year, requests_per_unit: 1}}
`)
	told := make(map[string]bool)
	for _, line := range s.awaitLog(5, "a descriptor's value is met by no request") {
		told[fmt.Sprint(line["domain"], " ", line["key"], " ", line["value"])] = true
	}
	for _, want := range []string{`d path "/Login": requests have "/login"`, `d path "/API/*/action": requests have "/api/*/action"`, `d text "at-/Logout": requests have "at-/logout"`,
		`d text "at-/Logs/*": requests have "at-/logs/*"`, `d method "post": requests have "POST"`} {
		if !told[want] {
			t.Errorf("the log lacks %s: %v", want, told)
		}
	}
	s.do("/Login").want(t, "X-RateLimit-Limit", "1") // the value in the spelling of requests
	s.reject("/login")
}

// Defects found: the log warned of a value that requests do have, by another line for the same key; and it did not warn of
// wildcards that no request matches.
func TestAValueIsWarnedOfWhereNoLineForItsKeysMeetsIt(t *testing.T) {
	s := startFiles(t, byFiles("descriptor path {path}\ndescriptor path {header.Path}\ndescriptor host {host}\ndescriptor host {http.request.tls.server_name}"),
		"d.yaml", `domain: d
descriptors:
  - {key: path, value: /Login, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: host, value: "*.example.com:*", rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: host, value: "*.example.com", rate_limit: {unit: year, requests_per_unit: 1}}
`)
	lines := s.awaitLog(1, "a descriptor's value is met by no request")
	if want := `"*.example.com:*": requests have hosts without a port`; len(lines) != 1 || lines[0]["value"] != want {
		t.Errorf("the log has %v, want %s alone", lines, want)
	}
	s.do("/", "Path", "/Login").want(t, "X-RateLimit-Limit", "1")
}

// RateLimit lists a rule once, in however many ways it covers a request; but if two descriptors of a request share a count, the
// request costs two.
func TestARuleIsListedOnceInTheHeader(t *testing.T) {
	s := startFiles(t, byFiles("descriptor k {header.A}\ndescriptor k {header.B}"),
		"d.yaml", "domain: d\ndescriptors:\n  - {key: k, rate_limit: {unit: year, requests_per_unit: 5}}\n")
	r := s.do("/", "A", "1", "B", "2")
	if list := r.header.Values("RateLimit"); len(list) != 1 || strings.Count(list[0], `"d.k"`) != 1 {
		t.Errorf("RateLimit: %q, want the rule once", list)
	}
	r = s.do("/", "A", "same", "B", "same")
	if r.status != http.StatusOK || r.remaining(t) != 3 {
		t.Errorf("status %d, %d remaining, want 200 and 3", r.status, r.remaining(t))
	}
}

func TestConfigurationsOfFilesThatCannotBeAreRefused(t *testing.T) {
	for _, test := range []struct{ name, site, why string }{
		{"a descriptor without files", "rate_limit {\ndescriptor a {header.A}\n}", "descriptor: needs rules_file"},
		{"a domain without descriptors", byFiles("domain d"), `domain "d": has no effect without a descriptor`},
		{"a domain that is not there", byFiles("domain massaging\ndescriptor a {header.A}"), `domain "massaging": is not in the rule files, which have messaging (did you mean messaging?)`},
		{"descriptors that nothing makes", byFiles(""), "write a line such as descriptor"},
		{"a key with a placeholder", byFiles("descriptor {header.A} {header.A}"), "the key is a text"},
		{"a key without a value", byFiles("descriptor a"), "takes keys, each with a placeholder behind it"},
		{"an interval that is too short", byFiles("descriptor a {header.A}\n") + "\nrate_limit {\nrules_file x\nrules_interval 10ms\n}", "must be a duration from 1s to 1h"},
		{"a file twice", "rate_limit {\nrules_file a b a\n}", "rules_file a: duplicate"},
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
	if err != nil {
		t.Fatal(err)
	}
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
	if len(s.logs(told)) != 0 {
		t.Error("it is told of an interval that has an effect")
	}
}
