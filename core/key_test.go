package core

import (
	"net/http"
	"net/url"
	"testing"
)

func TestSourcesTakeTheirPartOfARequest(t *testing.T) {
	request := &http.Request{
		Method:     "POST",
		Host:       "API.Example.com:8443",
		RemoteAddr: "[2001:db8::1]:4711",
		URL:        &url.URL{Path: "/v1/a b", RawQuery: "token=x%20y&token=z&empty="},
		Header: http.Header{
			"X-Plan":   {"free"},
			"X-Twice":  {"a", "b"},
			"Cookie":   {"session=s1; other=s2"},
			"X-Secret": nil,
		},
	}
	for _, c := range []struct{ source, want string }{
		{"client_ip", "192.0.2.1"},
		{"remote_ip", "2001:db8::1"},
		{"host", "api.example.com"},
		{"method", "POST"},
		{"path", "/v1/a b"},
		{"header:x-plan", "free"},
		{"header:X-Twice", "a,b"},
		{"header:X-Secret", ""},
		{"header:Absent", ""},
		{"header:host", "API.Example.com:8443"},
		{"cookie:session", "s1"},
		{"cookie:Session", ""},
		{"query:token", "x y"},
		{"query:empty", ""},
		{"query:absent", ""},
		{"static:all:of them", "all:of them"},
	} {
		s, err := ParseSource(c.source)
		if err != nil {
			t.Errorf("%s: %v", c.source, err)
			continue
		}
		if got := s.Value(request, "192.0.2.1"); got != c.want {
			t.Errorf("%s: %q, want %q", c.source, got, c.want)
		}
	}
}

func TestParseSourceSaysWhatIsWrong(t *testing.T) {
	kinds := "client_ip, remote_ip, host, method, path, header, cookie, query, static"
	for _, c := range []struct{ source, want string }{
		{"", `key "": the source must be one of ` + kinds},
		{"ip", `key "ip": the source must be one of ` + kinds},
		{"clientip", `key "clientip": the source must be one of ` + kinds + " (did you mean client_ip?)"},
		{"headers:X", `key "headers:X": the source must be one of ` + kinds + " (did you mean header?)"},
		{"Header:X", `key "Header:X": the source must be one of ` + kinds + " (did you mean header?)"},
		{"header", `key "header": write header:NAME`},
		{"header:", `key "header:": write header:NAME`},
		{"header:A B", `key "header:A B": "A B" cannot be the name of a header field`},
		{"cookie", `key "cookie": write cookie:NAME`},
		{"query:", `key "query:": write query:NAME`},
		{"static", `key "static": write static:TEXT`},
		{"client_ip:x", `key "client_ip:x": client_ip takes no name`},
		{"path:", `key "path:": path takes no name`},
	} {
		if _, err := ParseSource(c.source); err == nil || err.Error() != c.want {
			t.Errorf("%q:\n got %v\nwant %s", c.source, err, c.want)
		}
	}
}

func TestSourcesAreWrittenAsTheyAreRead(t *testing.T) {
	for _, text := range []string{"client_ip", "remote_ip", "host", "method", "path", "header:X-Plan", "cookie:a", "query:b", "static:c:d"} {
		if s, err := ParseSource(text); err != nil || s.String() != text {
			t.Errorf("%s: %s, %v", text, s.String(), err)
		}
	}
}

func TestHostOfLeavesThePortOut(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"example.com:80", "example.com"}, {"example.com", "example.com"}, {"192.0.2.1:1", "192.0.2.1"},
		{"[2001:db8::1]:80", "2001:db8::1"}, {"[2001:db8::1]", "2001:db8::1"}, {"2001:db8::1", "2001:db8::1"},
		{"[fe80::1%eth0]:80", "fe80::1%eth0"}, {":80", ""}, {"", ""}, {"@", "@"}, {"[]", ""}, {"]", ""}, {"[", ""}, {"]:", ""},
	} {
		if got := HostOf(c.text); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

func TestPartsOfAKeyCannotRunTogether(t *testing.T) {
	join := func(parts ...string) string {
		var key []byte
		for _, p := range parts {
			key = AppendKeyPart(key, p)
		}
		return string(key)
	}
	if got := join("a", "bc"); got != "1:a2:bc" {
		t.Errorf("a and bc: %q", got)
	}
	for _, pair := range [][2]string{
		{join("a", "bc"), join("ab", "c")},
		{join("", "a"), join("a", "")},
		{join("1:a"), join("a")},
		{join("a", "1:b"), join("a1:", "b")},
		{join(), join("")},
	} {
		if pair[0] == pair[1] {
			t.Errorf("two keys are %q", pair[0])
		}
	}
}

func TestMaskMakesOneKeyOfANetwork(t *testing.T) {
	for _, c := range []struct {
		prefixes      Prefixes
		address, want string
	}{
		{Prefixes{}, "192.0.2.77", "192.0.2.77"},
		{Prefixes{IPv4: 32}, "192.0.2.77", "192.0.2.77"},
		{Prefixes{IPv4: 24}, "192.0.2.77", "192.0.2.0/24"},
		{Prefixes{IPv4: 1}, "192.0.2.77", "128.0.0.0/1"},
		{Prefixes{IPv4: 24, IPv6: 64}, "::ffff:192.0.2.77", "192.0.2.0/24"},
		{Prefixes{}, "::ffff:192.0.2.77", "192.0.2.77"},
		{Prefixes{IPv6: 64}, "192.0.2.77", "192.0.2.77"},
		{Prefixes{IPv6: 64}, "2001:db8:1:2:3::4", "2001:db8:1:2::/64"},
		{Prefixes{IPv6: 64}, "2001:0DB8:1:2::4", "2001:db8:1:2::/64"},
		{Prefixes{}, "2001:0DB8::4", "2001:db8::4"},
		{Prefixes{IPv6: 128}, "2001:0DB8::4", "2001:db8::4"},
		{Prefixes{IPv6: 64}, "fe80::1%eth0", "fe80::/64"},
		{Prefixes{IPv6: 128}, "fe80::1%eth0", "fe80::1"},
		{Prefixes{}, "fe80::1%eth0", "fe80::1%eth0"},
		{Prefixes{IPv4: 24, IPv6: 64}, "", ""},
		{Prefixes{IPv4: 24, IPv6: 64}, "unknown", "unknown"},
		{Prefixes{IPv4: 24, IPv6: 64}, "192.0.2.077", "192.0.2.077"},
		{Prefixes{IPv4: 24, IPv6: 64}, "192.0.2.77:80", "192.0.2.77:80"},
		{Prefixes{IPv4: 24, IPv6: 64}, "192.0.2.0/24", "192.0.2.0/24"},
	} {
		if got := c.prefixes.Mask(c.address); got != c.want {
			t.Errorf("%s masked by %+v: %s, want %s", c.address, c.prefixes, got, c.want)
		}
	}
}

func TestPrefixesAreChecked(t *testing.T) {
	for _, c := range []struct {
		prefixes Prefixes
		want     string
	}{
		{Prefixes{33, 0}, "ipv4_prefix 33: must be from 1 to 32"},
		{Prefixes{-1, 0}, "ipv4_prefix -1: must be from 1 to 32"},
		{Prefixes{0, 129}, "ipv6_prefix 129: must be from 1 to 128"},
		{Prefixes{0, -1}, "ipv6_prefix -1: must be from 1 to 128"},
	} {
		if err := c.prefixes.Check(); err == nil || err.Error() != c.want {
			t.Errorf("%+v: %v, want %s", c.prefixes, err, c.want)
		}
	}
	if err := (Prefixes{32, 128}).Check(); err != nil {
		t.Error(err)
	}
}
