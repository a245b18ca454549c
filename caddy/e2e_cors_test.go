package ratelimit_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

const (
	theirPage = "https://app.example.com"
	exposed   = "Retry-After, RateLimit, RateLimit-Policy, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-RateLimit-Retry-After, X-RateLimit-Soft"
)

func TestAnswersOfTheHandlerAreForNamedOrigins(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "https://theirs.example")
		w.Header().Set("Access-Control-Expose-Headers", "X-Theirs")
		w.Header().Set("Vary", "Accept")
	}))
	defer service.Close()
	s := startSite(t, `
		rate_limit {
			cors `+theirPage+` https://*.example.org {
				credentials
			}
			zone z {
				match {
					not path /free /early
				}
				limit 2/366d
			}
		}
		header /early Access-Control-Allow-Origin https://early.example
		handle /early {
			rate_limit 1/366d
			respond ok
		}
		handle_errors 429 {
			@route header X-Route *
			respond @route "the error route"
		}
		reverse_proxy `+service.Listener.Addr().String())
	r := s.do("/", "Origin", theirPage)
	r.want(t, "Access-Control-Allow-Origin", "https://theirs.example", "Access-Control-Allow-Credentials", "-", "Access-Control-Expose-Headers", exposed+" & X-Theirs", "Vary", "Accept")
	s.admit(1, "/")
	for origin, allowed := range map[string]string{theirPage: theirPage, "https://a.example.org": "https://a.example.org", "https://example.org": "-", "null": "-", "": "-"} {
		var fields []string
		if origin != "" {
			fields = []string{"Origin", origin}
		}
		r = s.reject("/", fields...)
		r.want(t, "Access-Control-Allow-Origin", allowed, "Access-Control-Allow-Credentials", map[bool]string{true: "true", false: "-"}[allowed != "-"], "Vary", "Origin", "Access-Control-Expose-Headers", exposed, "Cache-Control", "no-store")
	}
	r = s.reject("/", "Origin", theirPage, "X-Route", "1")
	must.Equal(t, r.body, "the error route", "the body")
	r.want(t, "Access-Control-Allow-Origin", theirPage)
	s.do("/free", "Origin", theirPage).want(t, "Access-Control-Allow-Origin", "https://theirs.example", "Access-Control-Expose-Headers", exposed+" & X-Theirs")
	s.do("/early", "Origin", theirPage).want(t, "Access-Control-Allow-Origin", "https://early.example")
}

// A client that is over its bound of preflights sends requests like any.
func TestPreflightsAreNoWayRound(t *testing.T) {
	s := start(t, behindProxy, ":PORT {\nrate_limit {\ncors *\nheader_prefix X-Acme\nzone z {\nlimit 1000/366d\n}\n}\nrespond ok\n}")
	preflight := []string{"Origin", theirPage, "Access-Control-Request-Method", "PUT", "X-Forwarded-For", "192.0.2.1"}
	uncounted := 0
	for range 400 {
		r := s.do("OPTIONS /", preflight...)
		if r.header.Get("X-Acme-Remaining") == "" {
			uncounted++
		}
		r.want(t, "Access-Control-Allow-Origin", "-") // of the service's answer
	}
	if uncounted < 100 || uncounted == 400 {
		t.Errorf("%d of 400 preflights are not counted", uncounted)
	}
	r := s.do("/", "X-Forwarded-For", "192.0.2.1", "Origin", theirPage)
	r.want(t, "X-Acme-Remaining", strconv.Itoa(1000-1-(400-uncounted)), "Access-Control-Expose-Headers", "Retry-After, RateLimit, RateLimit-Policy, X-Acme-Limit, X-Acme-Remaining, X-Acme-Reset, X-Acme-Retry-After, X-Acme-Soft")
	for _, fields := range [][]string{{"Origin", theirPage}, {"Access-Control-Request-Method", "PUT"}, nil} { // no preflights
		s.do("OPTIONS /", append(fields, "X-Forwarded-For", "192.0.2.2")...)
	}
	s.do("OPTIONS /", append([]string{"X-Forwarded-For", "192.0.2.2"}, preflight[:4]...)...)
	s.do("/", "X-Forwarded-For", "192.0.2.2").want(t, "X-Acme-Remaining", "996")
}

// The answers of the guard are for the same origins, and a preflight comes under the guard.
func TestTheGuardsAnswersAreForNamedOrigins(t *testing.T) {
	arrived, release := make(chan bool), make(chan bool)
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- true
		<-release
	}))
	defer service.Close()
	s := startSite(t, "rate_limit {\ncors "+theirPage+"\nguard {\nmax 1\n}\n}\nreverse_proxy "+service.Listener.Addr().String())
	ended := make(chan bool)
	go func() {
		defer close(ended)
		_, _ = s.try(s.client, "/")
	}()
	awaitOne(t, "the first request", arrived)
	for _, request := range []string{"/", "OPTIONS /"} {
		r := s.do(request, "Origin", theirPage, "Access-Control-Request-Method", "PUT")
		must.Equal(t, r.status, 503, "the status")
		r.want(t, "Access-Control-Allow-Origin", theirPage, "Vary", "Origin", "Access-Control-Expose-Headers", exposed)
	}
	release <- true
	awaitOne(t, "its answer", ended)
}

func TestADeferredRequestsAnswersAreForNamedOrigins(t *testing.T) {
	up := newWarehouse(t)
	s := startSite(t, strings.Replace(shop(durably(t), up), "rate_limit {", "rate_limit {\ncors "+theirPage, 1))
	s.must("POST", "/orders", "first", "X-Customer", "anna", "Origin", theirPage).want(t, "Access-Control-Allow-Origin", "-", "Access-Control-Expose-Headers", exposed+", Location, Preference-Applied")
	r := s.deferred("second", "X-Customer", "anna", "Origin", theirPage)
	r.want(t, "Access-Control-Allow-Origin", theirPage, "Access-Control-Expose-Headers", exposed+", Location, Preference-Applied", "Vary", "Origin")
	s.do(r.header.Get("Location"), "X-Customer", "anna", "Origin", theirPage).want(t, "Access-Control-Allow-Origin", theirPage)
	up.open()
	s.awaitJob(r.header.Get("Location"), "done", "X-Customer", "anna")
	s.do(r.header.Get("Location")+"/result", "X-Customer", "anna", "Origin", theirPage).want(t, "Access-Control-Allow-Origin", theirPage)
}

// A page may read the quota of its user where it may read the answers of the limit. A preflight for it is the service's affair, as any.
func TestQuotasAreForNamedOrigins(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "https://theirs.example")
	}))
	defer service.Close()
	s := startSite(t, `
		rate_limit_status /quota z
		rate_limit_status /others other
		rate_limit_status /both z other
		rate_limit {
			cors `+theirPage+`
			zone z {
				limit 9/366d
			}
		}
		rate_limit {
			zone other {
				match path /other
				limit 9/366d
			}
		}
		reverse_proxy `+service.Listener.Addr().String())
	for path, allowed := range map[string]string{"/quota": theirPage, "/others": "-", "/both": "-"} {
		r := s.do(path, "Origin", theirPage)
		must.Contain(t, r.body, `"limit":9`)
		r.want(t, "Access-Control-Allow-Origin", allowed, "Vary", map[bool]string{true: "Origin", false: "-"}[allowed != "-"])
	}
	s.do("/quota", "Origin", "https://other.example").want(t, "Access-Control-Allow-Origin", "-", "Vary", "Origin")
	s.do("PUT /quota", "Origin", theirPage).want(t, "Access-Control-Allow-Origin", theirPage, "Allow", "GET, HEAD")
	s.do("OPTIONS /quota", "Origin", theirPage, "Access-Control-Request-Method", "GET").want(t, "Access-Control-Allow-Origin", "https://theirs.example", "Allow", "-", "Cache-Control", "-")
	must.Contain(t, s.do("/quota").body, `"remaining":9`)
}

// A request that comes before its TLS handshake is complete, and is refused with a 425, is answered as others are.
func TestRefusalsOfEarlyDataAreForNamedOrigins(t *testing.T) {
	startSite(t, "route {\nrate_limit_status /quota z\nrate_limit {\ncors "+theirPage+"\nzone z {\nlimit 9/366d\n}\n}\nrespond ok\n}")
	early := func(path string) string {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		r.TLS = new(tls.ConnectionState)
		r.Header.Set("Origin", theirPage)
		w := httptest.NewRecorder()
		httpServer(t).ServeHTTP(w, r)
		return fmt.Sprint(w.Code, " ", w.Header().Get("Access-Control-Allow-Origin"))
	}
	for _, path := range []string{"/quota", "/"} {
		must.Equal(t, early(path), "425 "+theirPage, path)
	}
}
