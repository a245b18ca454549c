package match

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/proxyweir/weir/tools/must"
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
		{"header:host", "api.example.com"},
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
		must.Equal(t, s.Value(request, "192.0.2.1"), c.want, "%s", c.source)
	}
}

// What a client sends for a host, a method or a path has one spelling in keys, and so has what a person writes for it.
func TestSourcesTakeTheSpellingsOfOneValueForTheSame(t *testing.T) {
	for _, c := range []struct {
		source, want string
		spellings    []string
	}{
		{"host", "api.example.com", []string{"api.example.com", "API.example.COM", "api.example.com.", "api.example.com:443", "Api.example.com.:80"}},
		{"host", "::1", []string{"[::1]", "[::1]:443"}},
		{"host", "xn--bcher-kva_1.example", []string{"xn--bcher-kva_1.Example"}},
		{"host", "192.0.2.7", []string{"192.0.2.7", "192.0.2.7:80"}},
		{"header:Host", "api.example.com", []string{"API.example.COM", "api.example.com.:80"}},
		{"method", "POST", []string{"POST", "post", "pOsT"}},
		{"path", "/a%2", []string{"/A%2", "//a%2"}},
		{"path", "/a/b", []string{"/a/b", "//a/./b", "/A/B", "/x/../a/b"}},
		{"header:X-A", "A/../b", []string{"A/../b"}},
		{"header:Authorization", "Bearer sk", []string{"Bearer sk", "bearer sk", "BEARER sk", "Bearer  sk", "bearer \t sk", "Bearer \tsk"}},
		{"header:proxy-authorization", "Basic dTpw", []string{"Basic dTpw", "basic   dTpw"}},
		{"header:Authorization", "Bearer Sk", []string{"bearer Sk"}},
		{"header:Authorization", "DPoP k", []string{"dpop k", "DPoP k"}},
		{"header:Authorization", "Bearer", []string{"Bearer"}},
		{"header:Authorization", "sk", []string{"sk"}},
		{"static:A", "A", []string{"A"}},
		{"path_segment:1", "a", []string{"a", "A"}},
		{"path_regexp:^/?(.*)", "a/b", []string{"a/b", "A/B"}},
	} {
		s, err := ParseSource(c.source)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range c.spellings {
			r := &http.Request{Method: text, Host: text, URL: &url.URL{Path: text}, Header: http.Header{"X-A": {text}, "Authorization": {text}, "Proxy-Authorization": {text}}}
			must.Equal(t, s.Value(r, ""), c.want, "%s of a request with %q", c.source, text)
			must.Equal(t, s.Getter(nil)(r), c.want, "a getter of %s of a request with %q", c.source, text)
			if got, err := s.Canonicalize(text); err != nil || got != c.want {
				t.Errorf("%s, written as %q: %q, %v; want %q", c.source, text, got, err, c.want)
			}
		}
		if got, err := s.Canonicalize(""); err != nil || got != "" {
			t.Errorf("%s: what is missing is %q, %v", c.source, got, err)
		}
	}
	for _, c := range []struct{ source, value, want string }{
		{"method", "P T", `"P T": must be a method such as POST`},
		{"path", "login", `"login": must be a path, which begins with /`},
		{"path", "/a%20b", `"/a%20b": must be written decoded, without %20`},
		{"host", "https://c.test", `"https://c.test": must be a host, and is a URL; write c.test`},
		{"header:Host", "https://me@C.test.:8080/x?y", `"https://me@C.test.:8080/x?y": must be a host, and is a URL; write c.test`},
		{"host", "https://", `"https://": must be one host, such as shop.example`},
		{"host", "example.com/login", `"example.com/login": must be a host such as shop.example, without a path`},
		{"host", "me@example.com", `"me@example.com": must be one host, such as shop.example`},
		{"host", "a b", `"a b": must be one host, such as shop.example`},
		{"host", ".", `".": must be one host, such as shop.example`},
		{"host", "a:b:c", `"a:b:c": must be one host, such as shop.example`},
		{"host", "*.example.com", `"*.example.com": must be one host, such as shop.example`},
		{"host", "bücher.example", `"bücher.example": must be a host as it is sent, in Punycode: xn--…`},
		{"static:a", "b", `"b": must be "a", which is the same for all`},
		{"path_segment:1", "a/b", `"a/b": must be one segment of a path, such as the login of /login, and has no slash`},
		{"path_regexp:(a)", "a%20b", `"a%20b": must be written decoded, without %20`},
	} {
		s, _ := ParseSource(c.source)
		if _, err := s.Canonicalize(c.value); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.source, err, c.want)
		}
	}
}

func TestPrefixesSayWhichKeyAnAddressOrANetworkNames(t *testing.T) {
	none := Prefixes{}
	for _, c := range []struct {
		prefixes   Prefixes
		text, want string
	}{
		{none, "192.0.2.7", "192.0.2.7"},
		{none, "::ffff:192.0.2.7", "192.0.2.7"},
		{none, "192.0.2.7/32", "192.0.2.7"},
		{none, "2001:DB8:0::1", "2001:db8::1"},
		{none, "2001:DB8:0::1/128", "2001:db8::1"},
		{none, "fe80::1%eth0", "fe80::1"},
		{none, "192.0.2.7:80", "192.0.2.7"},
		{Prefixes{16, 64}, "[2001:DB8::7]:443", "2001:db8::/64"},
		{Prefixes{32, 128}, "192.0.2.7", "192.0.2.7"},
		{Prefixes{16, 64}, "198.51.100.7", "198.51.0.0/16"},
		{Prefixes{16, 64}, "198.51.100.7/32", "198.51.0.0/16"},
		{Prefixes{16, 64}, "198.51.0.0/16", "198.51.0.0/16"},
		{Prefixes{16, 64}, "198.51.100.7/16", "198.51.0.0/16"},
		{Prefixes{16, 64}, "::ffff:198.51.100.7/112", "198.51.0.0/16"},
		{Prefixes{16, 64}, "2001:DB8::7", "2001:db8::/64"},
		{Prefixes{16, 64}, "2001:DB8::7/64", "2001:db8::/64"},
	} {
		if got, err := c.prefixes.Key(c.text); err != nil || got != c.want {
			t.Errorf("%v, %s: %q, %v; want %q", c.prefixes, c.text, got, err, c.want)
		}
	}
	for _, c := range []struct {
		prefixes   Prefixes
		text, want string
	}{
		{none, "evil-host", `"evil-host": must be an address, such as 192.0.2.7`},
		{none, "192.0.2.7:http", `"192.0.2.7:http": must be an address, such as 192.0.2.7`},
		{none, "192.0.02.7", `"192.0.02.7": must be an address, such as 192.0.2.7; write 192.0.2.7`},
		{none, "198.51.0.0/16", `"198.51.0.0/16": is no client: each of its addresses is counted by itself; name one, or count by such networks (ipv4_prefix 16)`},
		{Prefixes{32, 64}, "198.51.0.0/16", `"198.51.0.0/16": is no client: each of its addresses is counted by itself; name one, or count by such networks (ipv4_prefix 16)`},
		{none, "2001:db8::/64", `"2001:db8::/64": is no client: each of its addresses is counted by itself; name one, or count by such networks (ipv6_prefix 64)`},
		{none, "0.0.0.0/0", `"0.0.0.0/0": is no client, but all; what holds for all is the rule's limit itself; name one, such as 192.0.2.7`},
		{Prefixes{24, 64}, "10.0.0.0/0", `"10.0.0.0/0": is no client, but all; what holds for all is the rule's limit itself; name one, such as 192.0.2.0/24`},
		{Prefixes{24, 64}, "::/0", `"::/0": is no client, but all; what holds for all is the rule's limit itself; name one, such as 2001:db8::/64`},
		{Prefixes{24, 0}, "a", `"a": must be an address, such as 192.0.2.7, or a network such as 192.0.2.0/24`},
		{Prefixes{32, 64}, "a", `"a": must be an address, such as 192.0.2.7, or a network such as 2001:db8::/64`},
		{Prefixes{24, 64}, "a", `"a": must be an address, such as 192.0.2.7, or a network such as 192.0.2.0/24 or 2001:db8::/64`},
		{Prefixes{24, 64}, "198.51.0.0/16", `"198.51.0.0/16": is no client: it is counted by smaller networks, such as 198.51.0.0/24 (ipv4_prefix 24); name one, or count by larger ones (ipv4_prefix 16)`},
		{Prefixes{24, 64}, "198.51.100.16/28", `"198.51.100.16/28": is a part of 198.51.100.0/24, which is counted as one (ipv4_prefix 24)`},
		{Prefixes{24, 64}, "2001:db8::/80", `"2001:db8::/80": is a part of 2001:db8::/64, which is counted as one (ipv6_prefix 64)`},
	} {
		if got, err := c.prefixes.Key(c.text); err == nil || err.Error() != c.want {
			t.Errorf("%v, %s: %q, %v; want %s", c.prefixes, c.text, got, err, c.want)
		}
	}
	for address, want := range map[string]string{"198.51.100.7": "198.51.0.0/16", "198.51.100.7/32": "198.51.0.0/16", "::ffff:198.51.100.7/128": "198.51.0.0/16", "198.51.100.0/24": "", "2001:db8::7/128": "", "2001:db8::7": "", "198.51.0.0/16": "", "a": ""} {
		must.Equal(t, (Prefixes{16, 128}).Shared(address), want, "%s shares its key with", address)
	}
}

func TestParseSourceSaysWhatIsWrong(t *testing.T) {
	kinds := "client_ip, remote_ip, host, method, path, path_segment, path_regexp, header, cookie, query, unverified_jwt_claim, client_cert, static"
	for _, c := range []struct{ source, want string }{
		{"", `key "": the source must be one of ` + kinds},
		{"ip", `key "ip": the source must be one of ` + kinds},
		{"clientip", `key "clientip": the source must be one of ` + kinds + " (did you mean client_ip?)"},
		{"headers:X", `key "headers:X": the source must be one of ` + kinds + " (did you mean header?)"},
		{"Header:X", `key "Header:X": the source must be one of ` + kinds + " (did you mean header?)"},
		{"X-User", `key "X-User": the source must be one of ` + kinds + " (did you mean header:X-User?)"},
		{"cf-ipcountry", `key "cf-ipcountry": the source must be one of ` + kinds + " (did you mean header:Cf-Ipcountry?)"},
		{"Authorization", `key "Authorization": the source must be one of ` + kinds + " (did you mean header:Authorization?)"},
		{"X User", `key "X User": the source must be one of ` + kinds},
		{"header", `key "header": write header:NAME`},
		{"header:", `key "header:": write header:NAME`},
		{"header:A B", `key "header:A B": "A B" cannot be the name of a header field`},
		{"header:http_x_real_ip", `key "header:http_x_real_ip": "http_x_real_ip" is a variable of CGI; write the field itself, X-Real-Ip`},
		{"header:trailer", `key "header:trailer": Trailer: is not among the fields of a request, since the proxy takes it out`},
		{"cookie:a=b", `key "cookie:a=b": "a=b" cannot be the name of a cookie`},
		{"query:?token", `key "query:?token": must have the name of the parameter alone, such as query:token`},
		{"cookie", `key "cookie": write cookie:NAME`},
		{"query:", `key "query:": write query:NAME`},
		{"static", `key "static": write static:TEXT`},
		{"path_segment", `key "path_segment": write path_segment:N`},
		{"path_segment:0", `key "path_segment:0": must have the number of a segment, from 1 to 100: path_segment:2 is the acme of /orders/acme`},
		{"path_segment:-1", `key "path_segment:-1": must have the number of a segment, from 1 to 100: path_segment:2 is the acme of /orders/acme`},
		{"path_regexp:", `key "path_regexp:": write path_regexp:REGEXP`},
		{"path_regexp:^/t/[^/]+", `key "path_regexp:^/t/[^/]+": has 0 groups, and must have one, which is the value: path_regexp:^/t/([^/]+); a group that is not is written (?:…)`},
		{"path_regexp:(a)(b)", `key "path_regexp:(a)(b)": has 2 groups, and must have one, which is the value: path_regexp:^/t/([^/]+); a group that is not is written (?:…)`},
		{"path_regexp:(a", "key \"path_regexp:(a\": is no regular expression: missing closing ): `(?i)(a`"},
		{"unverified_jwt_claim:", `key "unverified_jwt_claim:": write unverified_jwt_claim:NAME`},
		{"unverified_jwt_claim:@cookie:a", `key "unverified_jwt_claim:@cookie:a": must have the name of a claim, of 1 to 200 bytes, such as sub, or sub@cookie:session`},
		{"unverified_jwt_claim:sub@cookie:a b", `key "unverified_jwt_claim:sub@cookie:a b": "a b" cannot be the name of a cookie`},
		{"client_cert:cn", `key "client_cert:cn": the field must be one of fingerprint, subject, common_name, issuer, serial, dns, uri`},
		{"client_cert:common-name", `key "client_cert:common-name": the field must be one of fingerprint, subject, common_name, issuer, serial, dns, uri (did you mean common_name?)`},
		{"unverified_jwt_claim:sub@body:x", `key "unverified_jwt_claim:sub@body:x": has a token in "@body:x", and it can be in @header:NAME or @cookie:NAME alone`},
		{"jwt:sub", `key "jwt:sub": the source must be one of ` + kinds + ` (did you mean unverified_jwt_claim?)`},
		{"path_segments:2", `key "path_segments:2": the source must be one of ` + kinds + ` (did you mean path_segment?)`},
		{"first(client_ip, host)", `key "first(client_ip, host)": is only for the key of a rule; write one source here`},
		{"client_ip:x", `key "client_ip:x": client_ip takes no name`},
		{"path:", `key "path:": path takes no name`},
	} {
		if _, err := ParseSource(c.source); err == nil || err.Error() != c.want {
			t.Errorf("%q:\n got %v\nwant %s", c.source, err, c.want)
		}
	}
}

// Each source is read as it is written, and takes something of a request.
func TestEverySourceTakesItsPartOfARequest(t *testing.T) {
	r := httptest.NewRequest("GET", "http://example.com/list?b=2", nil)
	r.Header.Set("X-Plan", "gold")
	r.Header.Set("Cookie", "a=1")
	want := map[string]string{"client_ip": "192.0.2.7", "remote_ip": "192.0.2.1", "host": "example.com", "method": "GET", "path": "/list",
		"header:X-Plan": "gold", "cookie:a": "1", "query:b": "2", "static:c:d": "c:d", "path_segment:1": "list", "path_regexp:^/l(.)": "i", "unverified_jwt_claim:sub": "anna",
		"client_cert:common_name": "till-7"}
	r.Header.Set("Authorization", "Bearer "+token(`{"sub":"anna"}`))
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{Subject: pkix.Name{CommonName: "till-7"}}}}}
	seen := make(map[string]bool)
	for text, value := range want {
		s, err := ParseSource(text)
		if err != nil || s.String() != text || s.Value(r, "192.0.2.7") != value {
			t.Errorf("%s: %s, %q, %v", text, s.String(), s.Value(r, "192.0.2.7"), err)
		}
		seen[s.kind] = true
	}
	for _, kind := range sourceKinds {
		if !seen[kind] {
			t.Errorf("no request has a value of %s", kind)
		}
	}
}

func TestHostOfLeavesThePortOut(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"example.com:80", "example.com"}, {"example.com", "example.com"}, {"192.0.2.1:1", "192.0.2.1"},
		{"[2001:db8::1]:80", "2001:db8::1"}, {"[2001:db8::1]", "2001:db8::1"}, {"2001:db8::1", "2001:db8::1"},
		{"[fe80::1%eth0]:80", "fe80::1%eth0"}, {":80", ""}, {"", ""}, {"@", "@"}, {"[]", ""}, {"]", ""}, {"[", ""}, {"]:", ""},
	} {
		must.Equal(t, HostOf(c.text), c.want, "%q", c.text)
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
	must.Equal(t, join("a", "bc"), "1:a2:bc", "a and bc")
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
		{Prefixes{}, "fe80::1%eth0", "fe80::1"},
		{Prefixes{IPv4: 24, IPv6: 64}, "", ""},
		{Prefixes{IPv4: 24, IPv6: 64}, "unknown", "unknown"},
		{Prefixes{IPv4: 24, IPv6: 64}, "192.0.2.077", "192.0.2.077"},
		{Prefixes{IPv4: 24, IPv6: 64}, "192.0.2.77:80", "192.0.2.0/24"},
		{Prefixes{IPv4: 24, IPv6: 64}, "[2001:DB8:1:2::4]:80", "2001:db8:1:2::/64"},
		{Prefixes{IPv4: 24, IPv6: 64}, "_hidden:80", "_hidden:80"},
		{Prefixes{IPv4: 24, IPv6: 64}, "192.0.2.0/24", "192.0.2.0/24"},
	} {
		must.Equal(t, c.prefixes.Mask(c.address), c.want, "%s masked by %+v", c.address, c.prefixes)
	}
}
