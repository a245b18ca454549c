//go:build gc
// +build gc

package match

// Yaegi leaves this file out: it has no fuzzing.

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/proxyweir/weir/tools/must"
)

func FuzzParseSource(f *testing.F) {
	for _, s := range []string{"client_ip", "header:X-Plan", "cookie:a", "query:b", "static:c:d", "header", "header:", "path:", ":", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		source, err := ParseSource(s)
		if err != nil {
			return
		}
		again, err := ParseSource(source.String())
		if err != nil || again.String() != source.String() {
			t.Errorf("%q is written %q, which is another: %v", s, source, err)
		}
	})
}

// A claim is one of the payload's own texts, and of a token in three parts; a key that takes it cannot be another source's.
func FuzzClaimOf(f *testing.F) {
	for _, payload := range []string{`{"sub":"anna"}`, `{"a":{"b":1.0}}`, `{"a.b":true}`, "[]", "null", `{"sub":"\ud800"}`, ""} {
		f.Add(token(payload), "sub")
		f.Add(token(payload), "a.b")
	}
	f.Add("a.b.c", "")
	f.Fuzz(func(t *testing.T, text, name string) {
		value := claimOf(text, name)
		if value == "" {
			return
		}
		parts := strings.Split(text, ".")
		payload, err := base64.RawURLEncoding.DecodeString(parts[1])
		var object map[string]any
		if err != nil || json.Unmarshal(payload, &object) != nil || len(parts) != 3 || len(text) > longestToken || !utf8.ValidString(value) {
			t.Errorf("%q has the claim %q", text, value)
		}
		s, err := ParseKey("first(unverified_jwt_claim:sub, client_ip)")
		must.Succeed(t, err)
		r := &http.Request{URL: &url.URL{}, Header: http.Header{"Authorization": {"Bearer " + text}}}
		if got := s.Value(r, value); name == "sub" && got != "unverified_jwt_claim:sub="+value {
			t.Errorf("%q is the key %q", text, got)
		}
	})
}

func FuzzParseKey(f *testing.F) {
	for _, s := range []string{"first(header:X-User, client_ip)", "first(path_regexp:^/(a{1,2}), query:a,b)", "first(", "first(host,path),x", "path_segment:2", `first(path_regexp:(\)), host)`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		source, err := ParseKey(s)
		if err != nil {
			return
		}
		again, err := ParseKey(source.String())
		if err != nil || again.String() != source.String() {
			t.Errorf("%q is written %q, which is another: %v", s, source, err)
		}
		joined := Joined(strings.Split(source.String(), ","))
		if len(source.Alternatives()) > 0 && (len(joined) != 1 || joined[0] != source.String()) {
			t.Errorf("%q, split at commas, is joined to %q", source, joined)
		}
	})
}

func FuzzMask(f *testing.F) {
	f.Add("192.0.2.77", 24, 64)
	f.Add("::ffff:192.0.2.77", 24, 64)
	f.Add("2001:db8::1", 32, 56)
	f.Add("fe80::1%eth0", 0, 128)
	f.Add(" [2001:db8::1]:443", 24, 64)
	f.Add("not an address", 8, 8)
	f.Fuzz(func(t *testing.T, address string, v4, v6 int) {
		p := Prefixes{v4, v6}
		if v4 < 0 || v4 > 32 || v6 < 0 || v6 > 128 {
			return
		}
		masked := p.Mask(address)
		ip := ReadAddress(address)
		if !ip.IsValid() {
			must.Equal(t, masked, address, "%q is no address, and becomes", address)
			return
		}
		// All of one network have one key, and the key of an address is in its network.
		if network, err := netip.ParsePrefix(masked); err == nil {
			if !network.Contains(ip) || network != network.Masked() {
				t.Errorf("%s is not in %s", address, masked)
			}
			must.Equal(t, p.Mask(network.Addr().String()), masked, "%s is in %s, whose first address is in", address, masked)
		} else if whole, err := netip.ParseAddr(masked); err != nil || whole.WithZone("") != ip {
			t.Errorf("%s becomes %q", address, masked)
		}
	})
}

func FuzzParseNetwork(f *testing.F) {
	for _, s := range []string{"10.0.0.0/8", "10.1.2.3", "::1", "::ffff:10.0.0.0/104", "::ffff:10.0.0.0/8", "fe80::1%eth0", "1.2.3.4/33", "/", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParseNetwork(s)
		if err != nil {
			return
		}
		if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() || p.Addr().Zone() != "" {
			t.Errorf("%q is read as %s", s, p)
		}
		if again, err := ParseNetwork(p.String()); err != nil || again != p {
			t.Errorf("%q is written %s, which is %s: %v", s, p, again, err)
		}
	})
}

// Two lists of parts have one key only if they are one list: the key can be read back.
func FuzzAppendKeyPart(f *testing.F) {
	f.Add("a", "bc", "ab", "c")
	f.Add("1:a", "", "a", "")
	f.Add("", "1:", "0:", "1")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		one := string(AppendKeyPart(AppendKeyPart(nil, a), b))
		two := string(AppendKeyPart(AppendKeyPart(nil, c), d))
		must.Equal(t, (one == two), a == c && b == d, "%q and %q, %q and %q: %q and %q", a, b, c, d, one, two)
		if single := string(AppendKeyPart(nil, a)); single == one || !strings.HasPrefix(one, single) {
			t.Errorf("%q alone is %q, with %q %q", a, single, b, one)
		}
	})
}
