package match

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// token returns a JSON Web Token with that payload, whose signature is of nobody.
func token(payload string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode([]byte(payload)) + "." + encode([]byte("signature"))
}

func TestAClaimIsTakenAsItIsWritten(t *testing.T) {
	for _, c := range []struct{ payload, claim, want string }{
		{`{"sub":"anna"}`, "sub", "anna"},
		{`{"sub":"an\u006ea"}`, "sub", "anna"},
		{`{"tenant":{"id":"acme","plan":{"name":"pro"}}}`, "tenant.id", "acme"},
		{`{"tenant":{"id":"acme","plan":{"name":"pro"}}}`, "tenant.plan.name", "pro"},
		{`{"tenant":{"id":"acme"}}`, "tenant", ""},
		{`{"tenant":{"id":"acme"}}`, "tenant.name", ""},
		{`{"https://acme.test/plan":"pro"}`, "https://acme.test/plan", "pro"},
		{`{"a.b":"own","a":{"b":"nested"}}`, "a.b", "own"},
		{`{"a":{"b.c":"x"}}`, "a.b.c", "x"},
		{`{"a":1,"a.b":{"c":"x"}}`, "a.b.c", "x"},
		{`{"id":7}`, "id", "7"},
		{`{"id":12345678901234567890}`, "id", "12345678901234567890"},
		{`{"id":1.50}`, "id", "1.50"},
		{`{"id":true}`, "id", "true"},
		{`{"id":false}`, "id", "false"},
		{`{"id":null}`, "id", ""},
		{`{"id":""}`, "id", ""},
		{`{"id":["a"]}`, "id", ""},
		{`{"id":["a"]}`, "id.0", ""},
		{`{"ID":"a"}`, "id", ""},
		{`{}`, "sub", ""},
	} {
		must.Equal(t, claimOf(token(c.payload), c.claim), c.want, "%s of %s", c.claim, c.payload)
	}
}

func TestAClaimIsNeverTakenFromWhatIsNoToken(t *testing.T) {
	good := token(`{"sub":"anna"}`)
	parts := strings.Split(good, ".")
	encode := base64.RawURLEncoding.EncodeToString
	for _, bad := range []string{
		"", ".", "..", "anna", parts[1], parts[0] + "." + parts[1], good + ".x", "." + parts[1] + "." + parts[2], parts[0] + ".." + parts[2], "x." + parts[1] + "." + parts[2],
		parts[0] + "." + parts[1] + "." + "!!", parts[0] + "." + parts[1] + "=." + parts[2], parts[0] + "=." + parts[1] + "." + parts[2], parts[0] + "." + base64.StdEncoding.EncodeToString([]byte(`{"sub":"a??>"}`)) + ".",
		token(`{"sub":"anna"`), token(`{"sub":"anna"} {}`), token(`["sub"]`), token(`"sub"`), token("null"), token("{\"sub\":\"\xff\"}"), token(""),
		encode([]byte("[]")) + "." + parts[1] + "." + parts[2], encode([]byte("null")) + "." + parts[1] + "." + parts[2],
		token(`{"sub":"anna","x":"` + strings.Repeat("a", longestToken) + `"}`), token(strings.Repeat(`{"sub":`, 2000) + "1" + strings.Repeat("}", 2000)),
	} {
		must.Equal(t, claimOf(bad, "sub"), "", "%.80q", bad)
	}
	must.Equal(t, claimOf(parts[0]+"."+parts[1]+".", "sub"), "anna", "a token without a signature, which nobody verifies")
}

func TestAClaimIsTakenFromWhereTheTokenIs(t *testing.T) {
	anna, bob := token(`{"sub":"anna"}`), token(`{"sub":"bob"}`)
	for _, c := range []struct {
		source string
		header http.Header
		want   string
	}{
		{"unverified_jwt_claim:sub", http.Header{"Authorization": {"Bearer " + anna}}, "anna"},
		{"unverified_jwt_claim:sub", http.Header{"Authorization": {"bearer  " + anna}}, "anna"},
		{"unverified_jwt_claim:sub", http.Header{"Authorization": {anna}}, ""},
		{"unverified_jwt_claim:sub", http.Header{"Authorization": {"Basic " + anna}}, ""},
		{"unverified_jwt_claim:sub", http.Header{"Authorization": {"Bearer"}}, ""},
		{"unverified_jwt_claim:sub", http.Header{"Authorization": {"Bearer " + anna, "Bearer " + bob}}, ""},
		{"unverified_jwt_claim:sub", http.Header{"Cookie": {"session=" + anna}}, ""},
		{"unverified_jwt_claim:sub", nil, ""},
		{"unverified_jwt_claim:sub@cookie:session", http.Header{"Cookie": {"a=b; session=" + anna}, "Authorization": {"Bearer " + bob}}, "anna"},
		{"unverified_jwt_claim:sub@cookie:session", http.Header{"Authorization": {"Bearer " + bob}}, ""},
		{"unverified_jwt_claim:sub@header:X-Token", http.Header{"X-Token": {anna}}, "anna"},
		{"unverified_jwt_claim:sub@header:x-token", http.Header{"X-Token": {"Bearer " + anna}}, "anna"},
		{"unverified_jwt_claim:sub@header:X-Token", http.Header{"X-Token": {anna, bob}}, ""},
	} {
		must.Equal(t, taken(t, c.source, &http.Request{URL: &url.URL{}, Header: c.header}), c.want, "%s of %.60v", c.source, c.header)
	}
	s, err := ParseSource("unverified_jwt_claim:user@acme@header:x-token")
	must.Succeed(t, err)
	must.Equal(t, s.String(), "unverified_jwt_claim:user@acme@header:X-Token", "it is written")
}
