package match

import (
	"net/http/httptest"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

func TestAGetterReturnsTheValue(t *testing.T) {
	r := httptest.NewRequest("GET", "http://Example.com:80/a?q=1", nil)
	r.Header["X-One"] = []string{"one"}
	r.Header["X-Two"] = []string{"one", "two"}
	r.Header["X-Address"] = []string{"2001:db8::1"}
	r.Header.Set("Cookie", "session=a:b")
	for _, text := range []string{"remote_ip", "host", "method", "path", "header:X-One", "header:X-Two", "header:X-Address", "header:X-None", "header:Host", "cookie:session", "cookie:none", "query:q", "static:a:b",
		"path_segment:1", "path_regexp:^/(.)"} {
		source, err := ParseSource(text)
		if err != nil {
			t.Fatal(err)
		}
		want := source.Value(r, "")
		must.Equal(t, source.Getter(nil)(r), want, "%s", text)
		if text == "header:X-Address" || text == "cookie:session" || text == "static:a:b" {
			want = "<" + want + ">"
		}
		must.Equal(t, source.Getter(func(value string) string { return "<" + value + ">" })(r), want, "%s: with a function for values that have a colon", text)
	}
}
