package match

import (
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// A user named as an address is not that address.
func TestTheFirstSourceThatHasAValueCounts(t *testing.T) {
	const source = "first(header:X-User,  unverified_jwt_claim:sub, client_ip)"
	for _, c := range []struct {
		header http.Header
		want   string
	}{
		{http.Header{"X-User": {"anna"}, "Authorization": {"Bearer " + token(`{"sub":"bob"}`)}}, "header:X-User=anna"},
		{http.Header{"Authorization": {"Bearer " + token(`{"sub":"anna"}`)}}, "unverified_jwt_claim:sub=anna"},
		{http.Header{"X-User": {""}}, "client_ip=192.0.2.1"},
		{http.Header{"X-User": {"192.0.2.1"}}, "header:X-User=192.0.2.1"},
		{http.Header{"X-User": {"client_ip=192.0.2.1"}}, "header:X-User=client_ip=192.0.2.1"},
	} {
		must.Equal(t, taken(t, source, &http.Request{URL: &url.URL{}, Header: c.header}), c.want, "%v", c.header)
	}
	s, err := ParseKey(source)
	must.Succeed(t, err)
	must.Equal(t, s.String(), "first(header:X-User, unverified_jwt_claim:sub, client_ip)", "it is written")
	must.Equal(t, s.Value(&http.Request{URL: &url.URL{}}, ""), "", "it is missing")
	if !s.NeedsClient() || !s.OfAddress() || s.IsAddress() || !s.MayHoldAddress() || !s.ClientChooses() || s.OfRequest() || s.Static() || s.Rewrites() {
		t.Errorf("%+v", s)
	}
	for value, want := range map[string]string{"header:X-User=Anna": "header:X-User=Anna", "client_ip=::ffff:192.0.2.1": "client_ip=192.0.2.1", "": ""} {
		if got, err := s.Canonicalize(value); got != want || err != nil {
			t.Errorf("%s: %q, %v", value, got, err)
		}
	}
	for value, want := range map[string]string{
		"anna":        `"anna": must have the source that it comes from in front, such as header:X-User=…`,
		"client_ip=x": `"x": must be an address, such as 192.0.2.7`,
	} {
		if _, err := s.Canonicalize(value); err == nil || err.Error() != want {
			t.Errorf("%s: %v", value, err)
		}
	}
	if s, err = ParseKey("first(path_regexp:^/(?:t|u)/([^/,]{1,3}), query:t)"); err != nil || len(s.Alternatives()) != 2 || !s.OfRequest() || s.MayHoldAddress() {
		t.Errorf("%v, %v", s, err)
	}
}

func TestParseKeySaysWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ key, want string }{
		{"first(header:X-User, client_ip", `must end where its parenthesis closes: first(header:X-User, client_ip)`},
		{"first(header:X-User, client_ip), host", `must end where its parenthesis closes: first(header:X-User, client_ip)`},
		{"first(header:X-User)", `must have several sources, with commas between: first(header:X-User, client_ip)`},
		{"first()", `must have several sources, with commas between: first(header:X-User, client_ip)`},
		{"first(header:X-User, clientip)", `key "clientip": the source must be one of`},
		{"first(header:X-User, first(host, path))", `key "first(host, path)": is only for the key of a rule; write one source here`},
		{"first(path, client_ip)", `every request has path, so that client_ip is never taken; write it in front`},
		{"first(static:a, client_ip)", `every request has static:a, so that client_ip is never taken; write it in front`},
		{"first(header:X-User, header:x-user)", `header:X-User and header:X-User could not be told apart; remove one`},
		{"first(unverified_jwt_claim:a, unverified_jwt_claim:a=b)", `unverified_jwt_claim:a and unverified_jwt_claim:a=b could not be told apart; remove one`},
	} {
		if _, err := ParseKey(c.key); err == nil || !strings.HasPrefix(err.Error(), "key "+quoted(c.key)+": "+c.want) {
			t.Errorf("%s:\n got %v\nwant %s", c.key, err, c.want)
		}
	}
}

func quoted(text string) string { return `"` + text + `"` }

// YAML and labels split lists at commas.
func TestPiecesOfASourceAreJoined(t *testing.T) {
	for _, c := range []struct{ pieces, want []string }{
		{[]string{"client_ip", "header:X"}, []string{"client_ip", "header:X"}},
		{[]string{"first(header:X-User", " client_ip)", "host"}, []string{"first(header:X-User, client_ip)", "host"}},
		{[]string{"host", "first(path_regexp:^/([a-z]{2", "3})", "client_ip)"}, []string{"host", "first(path_regexp:^/([a-z]{2,3}),client_ip)"}},
		{[]string{"path_regexp:^/([a-z]{2", "3})", "host"}, []string{"path_regexp:^/([a-z]{2,3})", "host"}},
		{[]string{"first(host", "path"}, []string{"first(host,path"}},
		{nil, nil},
	} {
		if got := Joined(c.pieces); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %q, want %q", c.pieces, got, c.want)
		}
	}
}
