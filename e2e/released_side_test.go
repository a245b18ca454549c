package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// side is one of two Caddys that are compared, with its own copy of the release's examples and its own Redis, whose clock stands still. What its methods
// return is text without what differs from one process to another: addresses, folders, times and durations.
type side struct {
	*caddy  // at its admin endpoint
	t       testing.TB
	program string
	fastCGI string // the address of a service
	dir     string
	site    string // the address of the example's first site
	second  string // and of its second
	redis   *redistest.Server
	ours    *strings.Replacer // names for addresses and folders
	behind  *strings.Replacer // the examples' services, by those that are there
}

func newSide(t testing.TB, program, fastCGI string) *side {
	t.Helper()
	s := &side{t: t, program: program, fastCGI: fastCGI, dir: t.TempDir(), redis: redistest.Start(t, redistest.WithClock(), redistest.WithConfig("databases 400"))}
	s.redis.SetTime(1_790_000_000_000_000)
	must.Succeed(t, extractReleased(s.dir, "Caddyfile.example", "examples", "e2e/sites", "caddy/testdata"))
	must.Succeed(t, os.Symlink("caddy/testdata", filepath.Join(s.dir, "testdata")))
	for file, text := range s.files("*/rules/*.yaml") {
		s.write(file, small(text))
	}
	admin := freeAddr()
	s.caddy = runProgram(t, program, s.dir, admin, "/config/", "admin "+admin, "")
	s.move()
	return s
}

// move gives the sites new addresses, since a server that is shutting down may still accept connections at the old ones.
func (s *side) move() {
	s.site, s.second = freeAddr(), freeAddr()
	s.ours = strings.NewReplacer(s.site, "SITE", s.second, "SECOND", s.dir, "DIR", s.redis.Addr(), "REDIS")
	service := strings.TrimPrefix(upstream.url, "http://")
	s.behind = strings.NewReplacer("localhost:3000", service, "localhost:9091", service, "localhost:50051", service, "localhost:9000", s.fastCGI, "localhost:8081", s.second,
		`"/srv"`, `"`+s.dir+`/examples"`, "/tmp/shared-by-caddys", s.dir+"/shared", "{env.WEIR_TEST_REDIS_PASSWORD}", "0123456789abcdef0123456789abcdef")
}

// files returns the files in the side's folder that match a pattern, with what they contain.
func (s *side) files(patterns ...string) map[string]string {
	list := make(map[string]string)
	for _, pattern := range patterns {
		names, _ := filepath.Glob(filepath.Join(s.dir, pattern))
		for _, name := range names {
			text, err := os.ReadFile(name)
			must.Succeed(s.t, err)
			list[strings.TrimPrefix(name, s.dir+"/")] = string(text)
		}
	}
	return list
}

func (s *side) write(file, text string) {
	must.Succeed(s.t, os.WriteFile(filepath.Join(s.dir, file), []byte(text), 0o600))
}

// examples returns the Caddyfiles of the release by their names: examples, sites, and golden files. Those of errors, and no others, begin with e.
func (s *side) examples() map[string]string {
	list := make(map[string]string)
	for file, text := range s.files("Caddyfile.example", "examples/*/Caddyfile", "e2e/sites/*/Caddyfile", "testdata/adapt/[^e]*.caddyfiletest") {
		name := strings.TrimSuffix(strings.TrimSuffix(file, "/Caddyfile"), ".caddyfiletest")
		list[filepath.Base(name)], _, _ = strings.Cut(text, "\n----------\n")
	}
	return list
}

// run returns what `caddy rate-limit` prints.
func (s *side) run(args ...string) string {
	program := exec.Command(s.program, append([]string{"rate-limit"}, args...)...)
	program.Dir = s.dir
	text, err := program.CombinedOutput()
	return fmt.Sprintln(string(logged.ReplaceAll(text, nil)), err)
}

var logged = regexp.MustCompile(`(?m)^\{"level".*\n`)

// admin returns the answer of the admin endpoint; with a body, to a POST.
func (s *side) admin(path, kind, body string) string {
	r, err := http.NewRequest(http.MethodPost, "http://"+s.addr+path, strings.NewReader(body))
	if err != nil {
		return err.Error()
	}
	if body == "" {
		r.Method = http.MethodGet
	}
	r.Header.Set("Content-Type", kind)
	answer, err := exchange(s.client, r)
	if err != nil {
		return err.Error()
	}
	return s.ours.Replace(answer.body)
}

// adapt is `caddy adapt`.
func (s *side) adapt(text string) string { return s.admin("/adapt", "text/caddyfile", text) }

var (
	limits  = regexp.MustCompile(`\b(\d+)/(\d+[a-z]\w*|day|week|month)\b`)
	numbers = regexp.MustCompile(`\b(burst|cost|events) (\d+)`)
	costly  = regexp.MustCompile(`\$2a\$14\$\S{53}`) // hashes of passwords
)

// small makes limits so small that a few requests reach them, and so long that no window ends while they are made: as many requests as the limit has
// digits.
func small(text string) string {
	if !strings.Contains(text, "max_delay") {
		text = strings.ReplaceAll(text, "leaky_bucket", "leaky_bucket\nmax_delay 1s")
	}
	text = numbers.ReplaceAllStringFunc(text, func(setting string) string {
		name, n, _ := strings.Cut(setting, " ")
		return fmt.Sprint(name, " ", len(n))
	})
	text = limits.ReplaceAllStringFunc(text, func(limit string) string {
		n, period, _ := strings.Cut(limit, "/")
		if period[0] <= '9' {
			period = "366d"
		}
		return fmt.Sprint(len(n), "/", period)
	})
	text = costly.ReplaceAllString(text, "$$2a$$04$$zj4YTA1X9mOi0KggK4v5t.pUt5Ofef78u92T/AAzN9vjl1xo4cIHS")
	return strings.NewReplacer("window 1m", "window 366d", "soft 20%", "soft 50%").Replace(text)
}

// load runs an example with the side's addresses, and with a namespace of its own. It returns the error, if there is one.
func (s *side) load(text, name string, inRedis bool, database int) string {
	var adapted struct{ Result map[string]any }
	if err := json.Unmarshal([]byte(s.adapt(text)), &adapted); err != nil || adapted.Result == nil {
		return s.adapt(text)
	}
	s.move()
	c := adapted.Result
	c["admin"] = map[string]any{"listen": s.addr, "config": map[string]any{"persist": false}}
	if app := within(c, "apps", "rate_limit"); inRedis && app["store"] == nil {
		app["store"] = map[string]any{"store": "redis"}
	}
	each(c, func(o map[string]any) {
		switch {
		case o["listen"] != nil && o["routes"] != nil:
			address := s.site
			if fmt.Sprint(o["listen"]) == "[:8081]" {
				address = s.second
			}
			o["listen"], o["automatic_https"] = []any{address}, map[string]any{"disable": true}
		case o["store"] == "redis":
			maps.DeleteFunc(o, func(setting string, _ any) bool {
				return !slices.Contains([]string{"store", "prefix", "nodes", "key_secret", "plain_keys"}, setting)
			})
			o["addresses"], o["database"] = []any{s.redis.Addr()}, database
			o["timeout"], o["read_timeout"], o["dial_timeout"] = "20s", "20s", "20s"
		case o["handler"] == "rate_limit" && o["namespace"] == nil:
			o["namespace"] = name
		}
	})
	config, err := json.Marshal(c)
	if err != nil {
		return err.Error()
	}
	return s.admin("/load", "application/json", s.behind.Replace(string(config)))
}

// each calls f with each object within a value.
func each(value any, f func(map[string]any)) {
	switch v := value.(type) {
	case map[string]any:
		f(v)
		for _, inner := range v {
			each(inner, f)
		}
	case []any:
		for _, inner := range v {
			each(inner, f)
		}
	}
}

var timely = regexp.MustCompile(`(_seconds(?:_bucket|_sum)?(?:\{.*\})?|weir_lease_(?:calls|requests)_total.*) \S+`)

// metrics returns Weir's families, with the values that do not depend on the time.
func (s *side) metrics() string {
	var b strings.Builder
	for line := range strings.Lines(s.admin("/metrics", "", "")) {
		if strings.HasPrefix(line, "weir_") {
			line = timely.ReplaceAllString(line, "$1 …")
		}
		if strings.Contains(line, "weir_") {
			b.WriteString(line)
		}
	}
	return s.ours.Replace(b.String())
}

var moments = regexp.MustCompile(`"20\d\d-[^"]*"`)

// rules returns what the admin endpoint shows of the rules.
func (s *side) rules() string {
	return strings.ReplaceAll(moments.ReplaceAllString(s.admin("/rate_limit/rules", "", ""), `"…"`), ",", ",\n")
}

var varying = regexp.MustCompile(`"(ts|wait|interval)":[^,}]*|"(request_id|id|job)":"[^"]*"`)

// What lines of the log have that the release's have not: the address of the peer and what it is, which programs that ban addresses read.
var added = regexp.MustCompile(`"remote_ip":"[^"]*",|"trusted_proxy":true,`)

// messages returns what Weir has logged, sorted.
func (s *side) messages() string {
	var list []string
	for line := range strings.Lines(s.files("caddy.log")["caddy.log"]) {
		if strings.Contains(line, `"logger":"http.`) && strings.Contains(line, "rate_limit") {
			list = append(list, varying.ReplaceAllString(added.ReplaceAllString(line, ""), "…"))
		}
	}
	slices.Sort(list)
	return addresses.ReplaceAllString(s.ours.Replace(strings.Join(list, "")), "ADDRESS")
}

var (
	addresses = regexp.MustCompile(`127\.0\.0\.1:\d+`)
	siteLine  = regexp.MustCompile(`(?m)^([\w.*]+\.example\S*) \{`)
	waits     = regexp.MustCompile(`(;t=|Retry-After:\[|Reset:\[|"retry_after":|again in )\d+`)
	digits    = regexp.MustCompile(`\d`)
	requests  = []string{
		"/other", "POST /other", "/login", "POST /login", "/api/x", "POST /api/login", "/search", "POST /orders", "POST /wp-login.php", "/admin", "/private/secret.txt", "/chat", "/slow", "POST /shop.Orders/List",
	}
)

// answers makes those of the requests whose folder the example mentions, five times each, and returns a line for each answer.
func (s *side) answers(text string) string {
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableCompression: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", s.site)
	}}}
	defer client.CloseIdleConnections()
	hosts := []string{"localhost"}
	if written := siteLine.FindAllStringSubmatch(text, -1); written != nil {
		hosts = nil
		for _, match := range written {
			hosts = append(hosts, strings.ReplaceAll(match[1], "*", "shop"))
		}
	}
	var b strings.Builder
	for _, host := range hosts {
		for _, request := range requests {
			_, path, _ := strings.Cut(request, "/")
			if folder, _, _ := strings.Cut(path, "/"); !strings.Contains(text, "/"+folder) && !strings.Contains(text, "rules_file") && folder != "other" {
				continue
			}
			fields := []string{"X-Api-Key", "a", "X-User", "ann", "Remote-User", "ann", "X-Message-Type", "marketing"}
			if strings.HasPrefix(request, "POST /shop.") {
				fields = append(fields, "Content-Type", "application/grpc", "Te", "trailers")
			}
			if request == "POST /other" {
				fields = append(fields, "Accept", "application/json")
			}
			if request == "/admin" {
				fields = append(fields, "Authorization", "Basic YWxpY2U6cGFzc3dvcmQ=") // not alice's password
			}
			for range 5 {
				r, err := send(client, host, request, fields...)
				r.header.Del("Date")
				fmt.Fprintf(&b, "%s %s: %d %v %q %v %v\n", host, request, r.status, r.header, r.body, r.trailer, err)
			}
		}
	}
	return s.ours.Replace(waits.ReplaceAllStringFunc(b.String(), func(wait string) string { // a second more or less makes no difference
		if strings.Contains(text, "jitter") {
			return "at random"
		}
		return digits.ReplaceAllString(wait, "#")
	}))
}

var node = regexp.MustCompile(`holder [0-9a-f]{16}|[0-9a-f]{12}$`) // what tells processes apart: who asks the advisor, who has read rule files

// keys returns what is in a database: names, types, expiry and values. What nodes lease depends on the time, so those values only have a length.
func (s *side) keys(database int, leased bool) string {
	conn, err := s.redis.Dial()
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	do := func(args ...string) redistest.Reply {
		reply, err := conn.Do(args...)
		if err != nil {
			s.t.Error(args, err)
		}
		return reply
	}
	do("SELECT", fmt.Sprint(database))
	var list []string
	for _, key := range do("KEYS", "*").Strings() {
		if leased && strings.HasSuffix(key, ":d") { // the demand, if a node has seen enough of it
			continue
		}
		kind := do("TYPE", key).String()
		read := map[string][]string{
			"string": {"GET", key}, "hash": {"HGETALL", key}, "list": {"LRANGE", key, "0", "-1"}, "set": {"SMEMBERS", key}, "zset": {"ZRANGE", key, "0", "-1", "WITHSCORES"}, "stream": {"XRANGE", key, "-", "+"},
		}[kind]
		value := fmt.Sprintf("%q", node.ReplaceAllString(do(read...).String(), "…"))
		if leased {
			value = fmt.Sprint(len(do(read...).Text), " bytes")
		}
		list = append(list, fmt.Sprintf("%s %q PTTL %s %s\n", kind, key, do("PTTL", key), value))
	}
	slices.Sort(list)
	return strings.Join(list, "")
}
