package front

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/tools/must"
)

// allowing returns a CORS for origins.
func allowing(t *testing.T, credentials bool, origins ...string) *CORS {
	c, err := NewCORS(origins, credentials, []string{"Retry-After", "RateLimit"})
	must.Succeed(t, err)
	return c
}

// from returns a request of a page.
func from(origin string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	if origin != "" {
		r.Header.Set("Origin", origin)
	}
	return r
}

func TestOriginsAreThoseThatBrowsersSend(t *testing.T) {
	c := allowing(t, false, "https://App.Example.com", "https://*.example.org", "http://localhost:3000", "capacitor://localhost", "http://*.test:8080", "http://[::1]:3000")
	for origin, want := range map[string]bool{
		"https://app.example.com": true, "https://a.example.org": true, "http://localhost:3000": true, "capacitor://localhost": true, "http://b.test:8080": true, "http://[::1]:3000": true,
		"http://app.example.com": false, "https://example.org": false, "https://.example.org": false, "https://a.b.example.org": false, "https://aexample.org": false, "https://a.example.org.evil.com": false,
		"http://a.example.org": false, "http://localhost": false, "http://b.test": false, "null": false, "": false, "https://app.example.com, https://evil.com": false,
	} {
		must.Equal(t, c.allows(origin), want, "%q", origin)
	}
	for _, bad := range []string{"", "null", "app.example.com", "https://app.example.com/", "https://app.example.com/a", "https://app.example.com:443", "http://a:80", "https://a:", "https://*", "https://*.", "https://a.*.com", "https://u@a.com", "https://a,https://b", "https://a b", "//a.com", "https://a.com?x", "*.example.com", "https://bücher.example", "https://a.com:99999"} {
		if _, err := NewCORS([]string{bad}, false, nil); err == nil {
			t.Errorf("%q is taken for an origin", bad)
		}
	}
	for _, c := range []struct {
		origins     []string
		credentials bool
		want        string
	}{
		{nil, false, `cors: names no origin; write those of the pages that may read answers, such as https://app.example.com, or * for all`},
		{[]string{"*", "https://a.com"}, false, `cors "*": stands for all origins; write it alone, or remove it`},
		{[]string{"*"}, true, `cors "*": excludes credentials, since browsers refuse answers with both; name the origins`},
	} {
		_, err := NewCORS(c.origins, c.credentials, nil)
		must.Equal(t, fmt.Sprint(err), c.want, "%q", c.origins)
	}
}

func TestOnlyAnswersOfTheProxyAllowOrigins(t *testing.T) {
	named, all := allowing(t, true, "https://a.com"), allowing(t, false, "*")
	for _, c := range []struct {
		cors           *CORS
		origin         string
		before, during string
		own            bool
	}{
		{named, "https://a.com", "map[]", "map[Access-Control-Allow-Credentials:[true] Access-Control-Allow-Origin:[https://a.com] Access-Control-Expose-Headers:[Retry-After, RateLimit] Vary:[Origin]]", true},
		{named, "https://b.com", "map[]", "map[Access-Control-Expose-Headers:[Retry-After, RateLimit] Vary:[Origin]]", true},
		{named, "", "map[]", "map[Access-Control-Expose-Headers:[Retry-After, RateLimit] Vary:[Origin]]", true},
		{named, "https://a.com", "map[Access-Control-Expose-Headers:[X-Id] Vary:[Accept]]", "map[Access-Control-Allow-Credentials:[true] Access-Control-Allow-Origin:[https://a.com] Access-Control-Expose-Headers:[X-Id Retry-After, RateLimit] Vary:[Accept Origin]]", true},
		{all, "https://b.com", "map[]", "map[Access-Control-Allow-Origin:[*] Access-Control-Expose-Headers:[Retry-After, RateLimit]]", true},
		{named, "https://a.com", "map[Access-Control-Allow-Origin:[https://site.com]]", "map[Access-Control-Allow-Origin:[https://site.com] Access-Control-Expose-Headers:[Retry-After, RateLimit]]", false},
	} {
		h := http.Header{}
		switch c.before {
		case "map[Access-Control-Expose-Headers:[X-Id] Vary:[Accept]]":
			h["Access-Control-Expose-Headers"], h["Vary"] = []string{"X-Id"}, []string{"Accept"}
		case "map[Access-Control-Allow-Origin:[https://site.com]]":
			h["Access-Control-Allow-Origin"] = []string{"https://site.com"}
		}
		must.Equal(t, fmt.Sprint(h), c.before, "before")
		own := c.cors.Enter(h, from(c.origin))
		must.Equal(t, fmt.Sprint(h), c.during, "the answer to %q", c.origin)
		must.Equal(t, own, c.own, "whether there is anything to take back")
		if own {
			c.cors.Leave(h)
			exposed := h["Access-Control-Expose-Headers"]
			must.Equal(t, exposed[len(exposed)-1], "Retry-After, RateLimit", "what the service's answer exposes")
			if h["Access-Control-Expose-Headers"] = exposed[:len(exposed)-1]; len(exposed) == 1 {
				delete(h, "Access-Control-Expose-Headers")
			}
			must.Equal(t, fmt.Sprint(h), c.before, "what is left for the service")
		}
	}
}

func TestPreflightsPassWithinTheirBound(t *testing.T) {
	now := int64(1_000_000_000)
	c := allowing(t, false, "https://a.com")
	must.Succeed(t, c.Count(memory.New(memory.Config{Clock: func() int64 { return now }}), "n"))
	defer c.Release()
	preflight := func(method, origin, asks, address string) bool {
		r := from(origin)
		r.Method = method
		if asks != "" {
			r.Header.Set("Access-Control-Request-Method", asks)
		}
		return c.Uncounted(r, address)
	}
	for _, not := range [][3]string{{"OPTIONS", "", "PUT"}, {"OPTIONS", "https://a.com", ""}, {"GET", "https://a.com", "PUT"}, {"OPTIONS", "https://b.com", "PUT"}, {"OPTIONS", "null", "PUT"}, {"OPTIONS", "https://a.com", "a method"}} {
		must.Equal(t, preflight(not[0], not[1], not[2], "192.0.2.9"), false, "%q passes", not)
	}
	for i := 0; i < 101; i++ {
		must.Equal(t, preflight("OPTIONS", "https://a.com", "PUT", "192.0.2.1"), i < 100, "preflight %d", i+1)
	}
	must.Equal(t, preflight("OPTIONS", "https://a.com", "PUT", "192.0.2.2"), true, "another client's")
	for i := 0; i < 101; i++ { // all of a network
		must.Equal(t, preflight("OPTIONS", "https://a.com", "PUT", fmt.Sprintf("2001:db8::%x", i)), i < 100, "preflight %d", i+1)
	}
	now += 100_000
	must.Equal(t, preflight("OPTIONS", "https://a.com", "PUT", "192.0.2.1"), true, "the next, after a tenth of a second")
	must.Equal(t, preflight("OPTIONS", "https://a.com", "PUT", "192.0.2.1"), false, "and one more")
}
