package match

import (
	"net/http/httptest"
	"testing"
)

func TestTheCallerIsCoveredWhateverPathAndMethodItAsksBy(t *testing.T) {
	for _, c := range []struct {
		match Match
		want  bool
	}{
		{Match{Methods: []string{"POST"}, Paths: []string{"/login"}, PathPrefixes: []string{"/v1"}}, true},
		{Match{Hosts: []string{"example.com"}, Paths: []string{"/login"}}, true},
		{Match{Hosts: []string{"*.example.com"}}, false},
		{Match{Headers: map[string]string{"X-Plan": "free"}}, true},
		{Match{Headers: map[string]string{"X-Plan": "pro"}}, false},
		{Match{ExceptIPs: []string{"192.0.2.0/24"}}, false},
	} {
		m, err := c.match.Compile()
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "http://example.com/quota", nil)
		r.Header.Set("X-Plan", "free")
		if got := CoversCaller(m, r, "192.0.2.1"); got != c.want {
			t.Errorf("%+v: %v", c.match, got)
		}
	}
}
