package ratelimit_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	ratelimit "github.com/proxyweir/weir/caddy"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

func TestAKeyOfAMegabyteIsAKey(t *testing.T) {
	underrace.OneGoroutine(t)
	s := start(t, "servers {\nmax_header_size 8MB\n}\n", ":PORT {\nrate_limit 1/366d {header.X-Key}\nrespond ok\n}")
	long := strings.Repeat("k", 1<<20)
	s.admit(1, "/", "X-Key", long+"a")
	s.reject("/", "X-Key", long+"a")
	s.admit(1, "/", "X-Key", long+"b") // they differ only in the last byte
	s.admit(1, "/", "X-Key", "k")
}

// heap returns the bytes in use after a collection.
func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

func TestControlCharactersInAKey(t *testing.T) {
	s := startSite(t, "rate_limit {\nzone z {\nkey {query.k}\nlimit 1/366d\n}\nlog_key\nmessage \"{query.k}\"\n}\nrespond ok")
	odd := []string{"\x00", "\x00\x00", "a\x00", "a", "\x1b[31m", "\r\nX-Injected: yes\r\n\r\n", "\xff\xfe", "\u202e", "{http.request.host}", "}{", `"`, "\\", "é", "e\u0301"}
	for _, key := range odd {
		path := "/?k=" + url.QueryEscape(key)
		s.admit(1, path)
		s.reject(path).want(t, "X-Injected", "-")
	}
	for i, line := range s.logs("rate limit exceeded") {
		if key := strings.ToValidUTF8(odd[i], "\ufffd"); i < 6 && line["key"] != key {
			t.Errorf("line %d has the key %q, want %q", i, line["key"], key)
		}
	}
	// net/http itself refuses control characters in header fields.
	if answer := raw(t, s, "GET /?k=raw HTTP/1.1\r\nHost: x\r\nX-Key: a\x00b\r\n\r\n"); answer != http.StatusBadRequest {
		t.Errorf("status %d, want 400", answer)
	}
}

// raw sends bytes and returns the status of the answer.
func raw(t *testing.T, s *server, request string) int {
	t.Helper()
	conn, err := net.Dial("tcp", s.addr)
	must.Succeed(t, err)
	defer conn.Close()
	fmt.Fprint(conn, request)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must.Succeed(t, err)
	answer.Body.Close()
	return answer.StatusCode
}

func TestARequestWithoutAnyFields(t *testing.T) {
	s := startSite(t, `
		rate_limit {
			zone all_sources {
				key {host}{header.User-Agent}{header.X}{cookie.c}{query.q}{http.request.tls.server_name}{http.auth.user.id}{http.no.such}{http.vars.no}
				limit 1/366d
				cost {header.X-Cost}
			}
		}
		respond ok`)
	for _, want := range []int{http.StatusOK, http.StatusTooManyRequests, http.StatusTooManyRequests} {
		must.Equal(t, raw(t, s, "GET / HTTP/1.0\r\n\r\n"), want, "status")
	}
}

func TestAnAddressThatDoesNotParse(t *testing.T) {
	s := start(t, behindProxy, ":PORT {\nrate_limit {\nzone z {\nlimit 1/366d\nipv4_prefix 24\nipv6_prefix 64\n}\n}\nrespond ok\n}")
	s.admit(1, "/")
	// Caddy ignores what it cannot parse, and takes the proxy's own address, whose limit is used up.
	for _, address := range []string{"unknown", "1.2.3", "999.1.2.3", "1.2.3.4.5", ":::", "_hidden", "'; DROP", strings.Repeat("9", 5000)} {
		s.reject("/", "X-Forwarded-For", address)
	}
	s.admit(1, "/", "X-Forwarded-For", "192.0.2.1")
	s.admit(1, "/", "X-Forwarded-For", "[2001:db8::1]:1234")
	s.reject("/", "X-Forwarded-For", "2001:db8::2")

	// The same with an invalid address of the peer, which something before Caddy has made up.
	site := httpServer(t)
	for _, peer := range []string{"", "@", "nowhere", "1.2.3.4", "[::1", "[fe80::1%25eth0]:1"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "http://a.test/", nil)
		r.RemoteAddr = peer
		site.ServeHTTP(w, r)
		if w.Code != http.StatusOK && w.Code != http.StatusTooManyRequests {
			t.Errorf("peer %q: status %d", peer, w.Code)
		}
	}
}

// httpServer returns the HTTP server of the running configuration.
func httpServer(t testing.TB) *caddyhttp.Server {
	t.Helper()
	app, err := caddy.ActiveContext().AppIfConfigured("http")
	must.Succeed(t, err)
	for _, site := range app.(*caddyhttp.App).Servers {
		return site
	}
	t.Fatal("no server")
	return nil
}

// sink is a response writer that discards everything.
type sink struct{ header http.Header }

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) Write(b []byte) (int, error) { return len(b), nil }
func (s *sink) WriteHeader(int)             {}

// flood makes one request for each of that many clients, and returns how many were admitted. To be fast, it calls the handler
// without a server or a network.
func flood(t *testing.T, handler *ratelimit.Handler, total int) int64 {
	t.Helper()
	var next, admitted atomic.Int64
	admit := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error {
		admitted.Add(1)
		return nil
	})
	var clients sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		clients.Go(func() {
			vars := make(map[string]any)
			ctx := context.WithValue(context.Background(), caddyhttp.VarsCtxKey, vars)
			ctx = context.WithValue(ctx, caddy.ReplacerCtxKey, caddy.NewReplacer())
			r := httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
			w := &sink{header: make(http.Header)}
			address := netip.MustParseAddr("2001:db8::").As16()
			for n := next.Add(1); n <= int64(total); n = next.Add(1) {
				binary.BigEndian.PutUint64(address[8:], uint64(n))
				vars[caddyhttp.ClientIPVarKey] = netip.AddrFrom16(address).String()
				clear(w.header)
				if err := handler.ServeHTTP(w, r, admit); err != nil {
					if _, rejected := err.(caddyhttp.HandlerError); !rejected {
						t.Error(err)
					}
				}
			}
		})
	}
	clients.Wait()
	return admitted.Load()
}

func TestMillionsOfKeysStayWithinTheBoundAndDoNotResetAVictim(t *testing.T) {
	total, bound, bytes := 2_000_000, 900_000, 64.0 // by default a million are kept
	if raceDetector {
		total, bound, bytes = 100_000, 50_000, 96 // the keys are spread over as many shards, whose small tables are up to half empty
		t.Logf("under the race detector: %d keys, of which %d are kept", total, bound)
	}
	s := start(t, fmt.Sprintf("rate_limit {\nstore memory {\nmax_keys %d\n}\n}\n", bound), ":PORT {\nrate_limit {\nzone z {\nlimit 2/366d\n}\n}\nrespond ok\n}")
	s.admit(2, "/")
	s.reject("/") // the victim has used up its limit
	handler := httpServer(t).Routes[0].Handlers[0].(*ratelimit.Handler)
	before := heap()
	began := time.Now()
	admitted := flood(t, handler, total)
	t.Logf("%d keys in %s", total, time.Since(began).Round(time.Millisecond))
	must.Equal(t, admitted, int64(total), "%d clients' first requests were admitted, want %d", admitted, total)
	stats, err := ratelimit.MemoryInUse()
	must.Succeed(t, err)
	if stats.Keys > int64(bound)+100 || stats.Keys < int64(bound)*9/10 {
		t.Errorf("%d keys are in memory, want %d", stats.Keys, bound)
	}
	perKey := float64(heap()-before) / float64(stats.Keys)
	t.Logf("%d keys in memory, %.1f bytes each, %d evicted", stats.Keys, perKey, stats.Evictions)
	if perKey > bytes {
		t.Errorf("%.1f bytes a key, want at most %.0f", perKey, bytes)
	}
	s.reject("/")
}

// Defect of others: two handlers with the same zone name silently share its counter. If the zones differ, it is refused: the goldens have how.
func TestZonesOfOneNameShareUnlessNamespacesPartThem(t *testing.T) {
	two := func(first, second string) string {
		return "handle /a {\nrate_limit {\n" + first + "\n}\nrespond ok\n}\nhandle /b {\nrate_limit {\n" + second + "\n}\nrespond ok\n}"
	}
	zone := func(lines string) string { return "zone z {\nkey everyone\n" + lines + "\n}" }
	t.Run("alike they share", func(t *testing.T) {
		s := startSite(t, two(zone("limit 2/366d"), zone("limit 2/366d")))
		s.admit(1, "/a")
		s.admit(1, "/b")
		s.reject("/a")
		s.reject("/b")
	})
	t.Run("in namespaces they do not", func(t *testing.T) {
		s := startSite(t, two(zone("limit 1/366d"), zone("limit 3/366d")+"\nnamespace b"))
		s.admit(1, "/a")
		s.admit(3, "/b")
		s.reject("/a")
		s.reject("/b")
	})
}

// Caddy takes only the first handler of a named route whose directives have no matchers, so a limit behind header was silently
// lost.
func TestALimitHoldsInANamedRouteBesideOtherDirectives(t *testing.T) {
	for _, directives := range []string{
		"rate_limit 1/366d",
		"header X-Named yes\nrate_limit 1/366d",
		"header X-Named yes\nrate_limit {\nzone a {\nkey everyone\nlimit 1/366d\n}\n}\nrate_limit {\nzone b {\nkey everyone\nlimit 2/366d\n}\n}",
		"header X-Named yes\nroute /* {\nrate_limit 1/366d\n}", // docs/caddy.md says that this case needs a matcher
	} {
		t.Run(directives, func(t *testing.T) {
			s := start(t, "", "&(limited) {\n"+directives+"\n}\n:PORT {\ninvoke limited\nrespond ok\n}")
			s.admit(1, "/")
			s.reject("/")
		})
	}
}
