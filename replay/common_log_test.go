package replay

import (
	"strings"
	"testing"
)

// readCommon reads a line of which the time is written as TIME, and returns what it says, or what is wrong with it.
func readCommon(line string) string {
	p := newLineParser([]string{"User-Agent"})
	var e entry
	if err := p.parse([]byte(strings.ReplaceAll(line, "TIME", "[22/Nov/2026:00:06:23 +0000]")), &e); err != nil {
		return err.Error()
	}
	agent, _ := e.find("User-Agent")
	return strings.Join(append([]string{e.format.String(), e.host, e.client, e.method, e.uri}, agent...), "|")
}

func TestTheFirstColumnsSayTheClientWithoutItsPortAndTheVirtualHost(t *testing.T) {
	const rest = ` TIME "GET /a HTTP/1.1" 200 12`
	for before, want := range map[string]string{
		"www.x.example:443 192.0.2.1 - -":           "www.x.example|192.0.2.1",
		"www.x.example:443 192.0.2.1 - alice":       "www.x.example|192.0.2.1",
		"www.x.example:443 2001:db8::1 ident alice": "www.x.example|2001:db8::1",
		"www.x.example:443 client.example.net - -":  "www.x.example|client.example.net",
		"[2001:db8::5]:443 192.0.2.1 - -":           "2001:db8::5|192.0.2.1",
		"www.x.example 192.0.2.1 - -":               "www.x.example|192.0.2.1",
		"192.0.2.1:5001 - -":                        "|192.0.2.1",
		"[2001:db8::1]:44 - -":                      "|2001:db8::1",
		"[2001:db8::1] - -":                         "|2001:db8::1",
		"2001:db8::1 - -":                           "|2001:db8::1",
		"192.0.2.1 www.x.example -":                 "|192.0.2.1",
		"6.6.6.6, 192.0.2.1:5001 - -":               "|192.0.2.1",
		"evil, 192.0.2.1 - -":                       "|192.0.2.1",
		"- - -":                                     "|",
		"client.example.net - -":                    "|client.example.net",
	} {
		if got := readCommon(before + rest); got != "common|"+want+"|GET|/a" {
			t.Errorf("%s: %s, want %s", before, got, want)
		}
	}
}

// Traefik writes X-Forwarded-For, the user's name and the query as clients send them, and no backslash before a backslash.
func TestWhatClientsWriteIntoColumnsIsNotTakenForOthers(t *testing.T) {
	const (
		real   = ` - - TIME "GET /real HTTP/1.1" 200 5 "-" "curl" 7 "web@file" "http://10.0.0.9" 8ms`
		forged = ` - - TIME "GET /victim HTTP/1.1" 200 0 "-" "-" 1 "a@file" "x" 3ms, `
		clear  = "traefik-common||203.0.113.7|GET|/real|curl"
	)
	twoWays := errTwoWays.Error()
	for _, test := range []struct{ name, line, want string }{
		{"nothing", "203.0.113.7" + real, clear},
		{"a line in the list: the name may be what is forged", "6.6.6.6" + forged + "203.0.113.7" + real, twoWays},
		{"a line behind no address", "victim" + forged + "203.0.113.7" + real, clear},
		{"with a time alone", `6.6.6.6 TIME "nothing, 203.0.113.7` + real, clear},
		{"a shorter line", `x - - TIME "GET /victim HTTP/1.1" 200 0, 203.0.113.7` + real, clear},
		{"brackets", "[, [22/Nov, 203.0.113.7" + real, clear},
		{"a name with another address", "203.0.113.7 - a, 6.6.6.6" + real, twoWays},
		{"a name with a hyphen", "203.0.113.7 - a - b" + strings.TrimPrefix(real, " - -"), clear},
		{"a query over HTTP/2", `203.0.113.7 - - TIME "GET /real?x HTTP/2.0" 200 0 "-" "-" 1 "a@file" "x" 3ms, 6.6.6.6 - - TIME "GET /victim HTTP/2.0" 200 5 "-" "curl" 7 "w" "s" 8ms`, twoWays},
		{"which is like that of one line", `203.0.113.7 - - TIME "GET /real?x HTTP/2.0" 404 0 "-" "-" 1 "a@file" "x" 3ms HTTP/2.0" 200 5 "-" "curl" 7 "w" "s" 8ms`, twoWays},
		{"blanks in a query over HTTP/2", `203.0.113.7 - - TIME "GET /real?x y HTTP/2.0" 200 5 "-" "curl" 7 "w" "s" 8ms`, "traefik-common||203.0.113.7|GET|/real?x y|curl"},
		{"a quote in a query", `203.0.113.7 - - TIME "GET /real?" HTTP/1.1" 200 5 "-" "curl" 7 "w" "s" 8ms`, `traefik-common||203.0.113.7|GET|/real?"|curl`},
		{"a backslash in a query", `203.0.113.7 - - TIME "GET /real?\x41 HTTP/1.1" 200 5 "-" "curl" 7 "w" "s" 8ms`, `traefik-common||203.0.113.7|GET|/real?\x41|curl`},
		{"a user agent that ends in a backslash", strings.Replace("203.0.113.7"+real, "curl", `curl\`, 1), clear + `\`},
		{"and a referer", strings.Replace("203.0.113.7"+real, `"-" "curl`, `"x\" "curl`, 1), clear},
		{"a user agent like a line", strings.Replace("203.0.113.7"+real, "curl", `\" 1 \"a\" \"x\" 3ms TIME \"GET / HTTP/1.1\" 200 0`, 1), strings.Replace(clear, "curl", `" 1 "a" "x" 3ms [22/Nov/2026:00:06:23 +0000] "GET / HTTP/1.1" 200 0`, 1)},
		{"and of another server", `203.0.113.7 - - TIME "GET /real HTTP/1.1" 200 5 "-" "a\" TIME \"GET / HTTP/1.1\" 200 0"`, `combined||203.0.113.7|GET|/real|a" [22/Nov/2026:00:06:23 +0000] "GET / HTTP/1.1" 200 0`},
		{"very many lines", strings.Repeat(forged[3:], 20_000) + "203.0.113.7" + real, twoWays},
		{"very many names", strings.Repeat("a - ", 250_000) + "203.0.113.7" + real, twoWays},
		{"columns of one's own", `203.0.113.7 - - TIME "GET /real HTTP/1.1" 200 5 "-" "curl" "192.0.2.9" 0.003`, "combined||203.0.113.7|GET|/real|curl"},
	} {
		if got := readCommon(test.line); got != test.want {
			t.Errorf("%s: %.300s\n%s, want\n%s", test.name, test.line, got, test.want)
		}
	}
}

func TestClientsThatAreNoAddressesAreWarnedOfOnce(t *testing.T) {
	const line = `%s - - [22/Nov/2026:00:06:23 +0000] "GET / HTTP/1.1" 200 5` + "\n"
	text := ""
	for _, client := range []string{"192.0.2.1", strings.Repeat("x", 100) + ".example", "192.0.2.1:80", "-", "other\x1b[2J"} {
		text += strings.Replace(line, "%s", client, 1)
	}
	r, _ := run(t, Config{Rules: filesOf(t, rulesOf("{name: a, limit: 9/1m}")), Candidate: filesOf(t, rulesOf("{name: a, limit: 9/1m}")), Logs: []string{logIn(t, "a.log", text)}})
	warnings := strings.Join(r.Warnings, "\n")
	if strings.Count(warnings, "no address") != 1 || !strings.Contains(warnings, "2 requests have a first column that is no address: "+strings.Repeat("x", 40)+"…;") {
		t.Errorf("%q", r.Warnings)
	}
}
