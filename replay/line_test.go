package replay

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// seconds is a time, as nanoseconds since the epoch.
func seconds(s float64) int64 { return int64(s * 1e9) }

func TestLinesOfEachFormatAreRead(t *testing.T) {
	const caddyRequest = `"request":{"remote_ip":"10.0.0.1","client_ip":"192.0.2.1","method":"GET","host":"example.com","uri":"/a?b=c","headers":{"X-Api-Key":["a","b\"\u00e9\\"]}}`
	second := time.Date(2026, 11, 21, 19, 48, 38, 0, time.UTC).UnixNano()
	for _, test := range []struct {
		name, line string
		want       string
	}{
		{"Caddy's JSON", `{"level":"info","ts":1700000000.1234567,"logger":"http.log.access.log0","msg":"handled request",` + caddyRequest + `,"duration":0.1,"status":201}`,
			"caddy-json 1700000000023456700 1700000000123456700 201 GET example.com /a?b=c 192.0.2.1 10.0.0.1 [a b\"é\\]"},
		{"with other members first, and blanks", "  { \"duration\" : 1.5e-3 , \"status\":0, \"ts\" : 1700000000 ,\"msg\":\"NOP\", " + caddyRequest + " }\r",
			"caddy-json 1699999999998500000 1700000000000000000 200 GET example.com /a?b=c 192.0.2.1 10.0.0.1 [a b\"é\\]"},
		{"with milliseconds", `{"ts":1700000000123.5,"duration":250,"status":429,` + caddyRequest + `}`,
			"caddy-json 1699999999873500000 1700000000123500000 429 GET example.com /a?b=c 192.0.2.1 10.0.0.1 [a b\"é\\]"},
		{"with nanoseconds", `{"ts":1700000000123456789,"duration":1000000,"status":200,` + caddyRequest + `}`,
			"caddy-json 1700000000122456789 1700000000123456789 200 GET example.com /a?b=c 192.0.2.1 10.0.0.1 [a b\"é\\]"},
		{"with a time as text, and a duration", `{"ts":"2026/11/21 19:48:38.250","duration":"250ms","status":200,` + caddyRequest + `}`,
			fmt.Sprintf("caddy-json %d %d 200 GET example.com /a?b=c 192.0.2.1 10.0.0.1 [a b\"é\\]", second, second+seconds(0.25))},
		{"with a time in RFC 3339", `{"time":"2026-11-21T20:48:38.000000001+01:00","status":200,` + caddyRequest + `}`,
			fmt.Sprintf("caddy-json %d %d 200 GET example.com /a?b=c 192.0.2.1 10.0.0.1 [a b\"é\\]", second+1, second+1)},
		{"with a time in ISO 8601", `{"ts":"2026-11-21T19:48:38.001Z","status":200,` + caddyRequest + `}`,
			fmt.Sprintf("caddy-json %d %d 200 GET example.com /a?b=c 192.0.2.1 10.0.0.1 [a b\"é\\]", second+1e6, second+1e6)},
		{"with whole seconds, of which the duration takes whole ones", `{"ts":"21/Nov/2026:19:48:38 +0000","duration":2.9,"status":200,` + caddyRequest + `}`,
			fmt.Sprintf("caddy-json coarse %d %d 200 GET example.com /a?b=c 192.0.2.1 10.0.0.1 [a b\"é\\]", second-2e9, second)},
		{"with a duration below 0", `{"ts":1700000000,"duration":-5.5,"status":200,` + caddyRequest + `}`,
			"caddy-json 1700000000000000000 1700000000000000000 200 GET example.com /a?b=c 192.0.2.1 10.0.0.1 [a b\"é\\]"},
		{"with one that is absurd", `{"ts":1700000000,"duration":1e300,"status":200,` + caddyRequest + `}`, errDuration.Error()},
		{"with one longer than all time", `{"ts":1700000000,"duration":8e9,"status":200,` + caddyRequest + `}`,
			fmt.Sprintf("caddy-json %d 1700000000000000000 200 GET example.com /a?b=c 192.0.2.1 10.0.0.1 [a b\"é\\]", 1700000000*seconds(1)-longest)},
		{"Caddy's JSON without headers, and of the peer alone", `{"ts":1700000000,"status":200,"request":{"remote_ip":"10.0.0.1","method":"GET","host":"","uri":"/"}}`,
			"caddy-json 1700000000000000000 1700000000000000000 200 GET  / 10.0.0.1 10.0.0.1 unlogged"},
		{"of a request without a host, which Caddy refuses", `{"ts":1700000000,"status":400,"request":{"remote_ip":"10.0.0.1","proto":"HTTP/1.1","method":"GET","host":"","uri":"/"}}`, errOther.Error()},
		{"or not, in HTTP/1.0", `{"ts":1700000000,"status":400,"request":{"remote_ip":"10.0.0.1","proto":"HTTP/1.0","method":"GET","host":"","uri":"/"}}`,
			"caddy-json 1700000000000000000 1700000000000000000 400 GET  / 10.0.0.1 10.0.0.1 unlogged"},
		{"an error of a handler of Caddy", `{"ts":1700000000,"logger":"http.log.error","msg":"boom",` + caddyRequest + `,"duration":0.1,"status":500}`, errHandler.Error()},
		{"another message of Caddy", `{"level":"info","ts":1700000000.1,"msg":"serving initial configuration"}`, errMessage.Error()},
		{"Caddy's JSON without a time", `{"status":200,` + caddyRequest + `}`, errTime.Error()},
		{"with a year far away", `{"ts":99999999999,"status":200,` + caddyRequest + `}`, errTime.Error()},
		{"with a time that is no number", `{"ts":nan,"status":200,` + caddyRequest + `}`, errTime.Error()},
		{"with a text in another year", `{"ts":"9999-01-01T00:00:00Z","status":200,` + caddyRequest + `}`, errTime.Error()},
		{"with an object for a time", `{"ts":{},"status":200,` + caddyRequest + `}`, errTime.Error()},
		{"without a method", `{"ts":1700000000,"request":{"uri":"/"}}`, errRequest.Error()},
		{"Traefik's JSON", `{"ClientAddr":"10.0.0.1:4711","ClientHost":"192.0.2.1","DownstreamStatus":404,"Duration":1500000,"OriginStatus":200,"RequestHost":"example.com","RequestMethod":"POST","RequestPath":"/a?b=c","StartUTC":"2026-11-21T19:48:38.5Z","request_X-Api-Key":"a,b"}`,
			fmt.Sprintf("traefik-json %d %d 404 POST example.com /a?b=c 192.0.2.1 10.0.0.1 [a,b]", second+5e8, second+5e8+1500000)},
		{"Traefik's JSON with a list of addresses", `{"ClientAddr":"[2001:db8::1]:4711","ClientHost":"192.0.2.9, 192.0.2.1","OriginStatus":200,"Duration":-7,"RequestMethod":"GET","RequestPath":"/","StartUTC":"2026-11-21T19:48:38.5Z"}`,
			fmt.Sprintf("traefik-json %d %d 200 GET ? / 192.0.2.1 2001:db8::1 doubtful", second+5e8, second+5e8)},
		{"Traefik's common format", `192.0.2.1 - alice [21/Nov/2026:19:48:38 +0000] "GET /a HTTP/2.0" 200 12 "-" "curl \"8\"" 17 "web@file" "http://10.0.0.9:80" 1250ms`,
			fmt.Sprintf("traefik-common coarse %d %d 200 GET ? /a 192.0.2.1 192.0.2.1 unlogged", second, second+1e9)},
		{"the combined format", `2001:db8::1 - - [21/Nov/2026:20:48:38 +0100] "GET /a HTTP/1.1" 304 - "https://example.com/\x22" "Mozilla/5.0 (\x5c)"`,
			fmt.Sprintf("combined coarse %d %d 304 GET ? /a 2001:db8::1 2001:db8::1 unlogged", second, second)},
		{"the common format", `example.net ident user [21/Nov/2026:19:48:38 +0000] "GET / HTTP/1.0" 200 1`,
			fmt.Sprintf("common coarse %d %d 200 GET ? / example.net example.net unlogged", second, second)},
		{"something else than HTTP", `192.0.2.1 - - [21/Nov/2026:19:48:38 +0000] "\x16\x03\x01" 400 0 "-" "-"`, errOther.Error()},
		{"a day that there is not", `192.0.2.1 - - [31/Feb/2026:19:48:38 +0000] "GET / HTTP/1.1" 200 0`, errTime.Error()},
		{"a line that is cut off", `192.0.2.1 - - [21/Nov/2026:19:48:38 +0000] "GET / HT`, errFormat.Error()},
		{"JSON that is cut off", `{"ts":1700000000,"status":200,"request":{`, "is no JSON, or is cut off"},
		{"other JSON", `{"a":1}`, errMessage.Error()},
		{"a request in JSON of another server", `{"time":"2026-11-21T19:48:38Z","remote_addr":"192.0.2.1","request":"GET / HTTP/1.1","status":200}`, errMessage.Error()},
		{"a text", `hello, world`, errFormat.Error()},
		{"nothing", "\r", errBlank.Error()},
		{"bytes", "\x00\xff\xfe[\x00]", errFormat.Error()},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newLineParser([]string{"X-Api-Key"})
			var e entry
			got := ""
			if err := p.parse([]byte(test.line), &e); err != nil {
				got = err.Error()
			} else {
				got = describe(&e)
			}
			if got != test.want {
				t.Errorf("%s\n%s, want\n%s", test.line, got, test.want)
			}
			for _, prefix := range []string{"caddy  | ", "caddy-1  | ", "shop_caddy.1 | ", "caddy-1  | 2026-11-21T19:48:38.001234567Z ", "\x1b[36mcaddy-1  | \x1b[0m", "\x1b[1;36mcaddy-1  |\x1b[0m "} {
				got := ""
				var e entry
				if err := p.parse([]byte(prefix+test.line+"\n"), &e); err != nil {
					got = err.Error()
				} else {
					got = describe(&e)
				}
				must.Equal(t, got, test.want, "behind %q", prefix)
			}
		})
	}
}

// The file has what a Traefik 3 wrote, of which accessLog.fields.headers kept X-Api-Key and redacted Authorization.
func TestWhatTraefikWritesIsRead(t *testing.T) {
	data, err := os.ReadFile("testdata/traefik.log")
	must.Succeed(t, err)
	p := newLineParser([]string{"Authorization", "User-Agent", "X-Api-Key"})
	got := ""
	for line := range strings.Lines(string(data)) {
		var e entry
		if err := p.parse([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		lacks := ""
		for _, name := range []string{"Authorization", "User-Agent"} {
			f, _ := newField("header:" + name)
			lacks += " " + [...]string{"known", "doubtful", "unlogged", "redacted"}[f.lackIn(&e)]
		}
		got += describe(&e) + lacks + "\n"
	}
	want := `traefik-json 1795302867221060851 1795302867221094632 404 GET 127.0.0.1 / 127.0.0.1 127.0.0.1 doubtful doubtful doubtful
traefik-json 1795302868270876748 1795302868274057357 200 GET shop.example.com /v1/a%20b?c=d&e=%22 127.0.0.1 127.0.0.1 [a "quoted" key] redacted doubtful
traefik-json 1795302868301042403 1795302868302530740 200 POST 127.0.0.1 /login 198.51.100.7 127.0.0.1 doubtful doubtful doubtful
traefik-common coarse 1795302870000000000 1795302870000000000 200 GET ? /v1/a%20b?c=d&e=%22 127.0.0.1 127.0.0.1 unlogged unlogged unlogged
traefik-common coarse 1795302870000000000 1795302870000000000 200 POST ? /login 198.51.100.7 198.51.100.7 unlogged unlogged unlogged
`
	if got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

// describe writes an entry as the tests above have it.
func describe(e *entry) string {
	f, _ := newField("header:X-Api-Key")
	values, there := e.find("X-Api-Key")
	key := strings.Join(values, " ")
	if there {
		key = "[" + key + "]"
	} else {
		key = [...]string{"none", "doubtful", "unlogged", "redacted"}[f.lackIn(e)]
	}
	host, coarse := e.host, ""
	if !e.hasHost {
		host = "?"
	}
	if e.coarse {
		coarse = " coarse"
	}
	return fmt.Sprintf("%s%s %d %d %d %s %s %s %s %s %s", e.format, coarse, e.start, e.end, e.status, e.method, host, e.uri, e.client, e.remote, key)
}

func TestHeadersThatAServerLogsAreKnownAndOthersAreNot(t *testing.T) {
	p := newLineParser([]string{"Referer", "User-Agent", "X-Api-Key"})
	var e entry
	must.Succeed(t, p.parse([]byte(`192.0.2.1 - - [21/Nov/2026:19:48:38 +0000] "GET / HTTP/1.1" 200 1 "-" "a \"b\" \x41\t\q"`), &e))
	if values, there := e.find("Referer"); !there || len(values) != 0 {
		t.Errorf("Referer: %q, %v; the request had none", values, there)
	}
	if values, _ := e.find("User-Agent"); len(values) != 1 || values[0] != "a \"b\" A\tq" {
		t.Errorf("User-Agent: %q", values)
	}
	if _, there := e.find("X-Api-Key"); there {
		t.Error("X-Api-Key is there")
	}
}

// What a parser makes of any line keeps to what the rest of the package takes for granted.
func FuzzLine(f *testing.F) {
	source := newTraffic(10)
	for _, write := range writers {
		var line strings.Builder
		write(&line, source.next())
		f.Add([]byte(line.String()))
	}
	f.Add([]byte(`{"ts":"2026/11/21 19:48:38.250","duration":"250ms","status":200,"request":{"method":"CONNECT","uri":"example.com:443","headers":{"X-Api-Key":"a"}}}`))
	f.Add([]byte(`{"ts":1e9,"duration":-1e300,"status":-1,"request":{"method":"GET","uri":"http://[::1]/%zz","headers":{"Cookie":["REDACTED"]}}}`))
	f.Add([]byte(`a - - [21/Nov/2026:19:48:38 -2359] "GET * HTTP/1.1" 999999 0 "\x`))
	fields := &fieldTable{}
	rules, err := newRules(filesOf(f, strings.Replace(everyField, "REPLACED", "{name: by-tier, tiers: {source: \"query:p\", limits: {a: 1/1s, \"*\": 2/1s}}}", 1)), fields)
	must.Succeed(f, err)
	f.Fuzz(func(t *testing.T, line []byte) {
		p := newLineParser(fields.headers())
		var e entry
		if err := p.parse(line, &e); err != nil {
			return
		}
		if e.start < earliest || e.start > e.end || e.end > latest || e.method == "" || e.uri == "" || e.format == noFormat {
			t.Fatalf("%q: %+v", line, e)
		}
		s := newSorter(fields)
		if s.take(&e) != nil {
			return
		}
		checks, keys := s.sort(rules, &e, nil, nil)
		for _, c := range checks {
			if c.begin < 0 || c.begin > c.end || c.end > len(keys) || c.lack == known && c.limit == nil {
				t.Fatalf("%q: %+v", line, c)
			}
			_ = showKey(rules.set.Rules[c.rule], string(keys[c.begin:c.end]), false)
		}
	})
}

// everyField asks for all that a line may lack.
const everyField = `
rules:
  - {name: all, key: [client_ip, remote_ip, host, method, path, "header:X-Api-Key", "cookie:s", "query:q", "static:s"], limit: 1/1s, cost: "header:X-Cost"}
  - {name: match, match: {hosts: [a.example], headers: {Authorization: "*", X-A: b}, except_ips: [10.0.0.0/8], methods: [GET], paths: [/]}, limit: 1/1s}
  - REPLACED
`

func FuzzTime(f *testing.F) {
	for _, text := range []string{"1700000000.1", "21/Nov/2026:19:48:38 +0000", "2026-11-21T19:48:38.001Z", "2026/11/21 19:48:38", "9e99", "-1", "31/Dec/2016:23:59:60 +0000"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if nanos, ok := parseCommonTime(text); ok {
			want, err := time.Parse(commonLogTime, text)
			if err == nil && want.UnixNano() != nanos {
				t.Errorf("%q: %d, time.Parse says %d", text, nanos, want.UnixNano())
			}
		}
		if nanos, _, ok := parseTextTime(text); ok && nanos < 0 && !strings.HasPrefix(text, "19") && !strings.Contains(text, "1970") {
			t.Errorf("%q: %d", text, nanos)
		}
		if nanos, ok := parseNumberDuration([]byte(text)); ok && (nanos < 0 || nanos > longest) {
			t.Errorf("%q: %d", text, nanos)
		}
		if nanos, ok := parseNumberTime([]byte(text)); ok && (nanos < 0 || nanos > latest+seconds(1)) {
			t.Errorf("%q: %d", text, nanos)
		}
	})
}

// What stands in columns that clients can write is never read as a line of its own behind a prefix.
func TestAClientCannotWriteThePrefixOfALine(t *testing.T) {
	p := newLineParser(nil)
	var e entry
	const forged = `{"ts":1700000000,"status":200,"request":{"client_ip":"203.0.113.9","method":"GET","uri":"/forged"}}`
	for _, line := range []string{
		`a | ` + forged + ` - - [21/Nov/2026:19:48:38 +0000] "GET /a HTTP/2.0" 200 12 "-" "-" 17 "web@file" "http://10.0.0.9:80" 1ms`,
		`192.0.2.1 - a | ` + forged + ` [21/Nov/2026:19:48:38 +0000] "GET /a HTTP/2.0" 200 12 "-" "-" 17 "web@file" "http://10.0.0.9:80" 1ms`,
		`192.0.2.1 - - [21/Nov/2026:19:48:38 +0000] "GET /a HTTP/1.1" 200 12 "-" "a | ` + forged + `"`,
	} {
		if err := p.parse([]byte(line), &e); err == nil && e.uri != "/a" {
			t.Errorf("%s: read as a request for %s of %s", line, e.uri, e.client)
		}
	}
}

func TestLinesThatAreNoRequestsDifferFromThoseThatCannotBeRead(t *testing.T) {
	b := &batch{file: &logFile{name: "a\x1b[2J.log"}}
	b.note(1, errOther)
	for n := range 9 {
		b.note(n, errors.New("is wrong"))
	}
	if b.others != 1 || b.wrong != 9 || len(b.examples) != mostExamples || b.examples[0].File != `a\x1b[2J.log` {
		t.Errorf("%+v", b)
	}
}
