package ratelimit_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/proxyweir/weir/deferral"
)

// sendRaw sends bytes over a connection of their own, and returns the first answer that is not an interim one. breaksOff says that the request is not
// complete, and that nothing follows.
func (s *server) sendRaw(text string, breaksOff bool) (response, error) {
	conn, err := net.Dial("tcp", s.addr)
	if err != nil {
		return response{}, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return response{}, err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return response{}, err
	}
	if breaksOff { // else this would be a client that leaves
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			return response{}, err
		}
	}
	method, _, _ := strings.Cut(text, " ")
	from := bufio.NewReader(conn)
	for {
		r, err := http.ReadResponse(from, &http.Request{Method: method})
		if err != nil {
			return response{}, err
		}
		if r.StatusCode < 200 {
			continue
		}
		body, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		return response{status: r.StatusCode, header: r.Header, body: string(body)}, err
	}
}

// stored returns what a queue has stored of a job.
func stored(t *testing.T, addr, id string) *deferral.Request {
	t.Helper()
	_, r, err := queueAt(t, addr, deferral.Config{}).RequestOf(context.Background(), id)
	if err != nil || r == nil {
		t.Fatalf("%v, %v", r, err)
	}
	return r
}

// queueAt returns the queue of a shop with those bounds, as its Caddys have it.
func queueAt(t *testing.T, addr string, c deferral.Config) *deferral.Queue {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	c.Client, c.Prefix, c.Name, c.Timeout = client, "weir:", "/orders", patience
	return deferral.NewQueue(c)
}

// slow is shop whose customers have one order in eight hours: whatever is deferred after that waits until the test is over.
func slow(site string, lines ...string) string {
	site = strings.Replace(site, "limit 1/2s", "limit 1/8h", 1)
	return strings.Replace(site, "on_limit defer {", "on_limit defer {\nmax_wait 30d\n"+strings.Join(lines, "\n"), 1)
}

// Of what cannot be repeated nothing is stored, and of all else what was sent.
func TestHostileRequestsAreRejectedAndNotStored(t *testing.T) {
	store, up := durably(t), newWarehouse(t)
	s := startSite(t, slow(shop(store, up)))
	// The first is within the limit, and the second waits for the whole test: those after it are rejected, or wait behind it.
	if r := s.must("POST", "/orders", "first", "Prefer", "respond-async", "X-Customer", "ann"); r.status != http.StatusCreated {
		t.Fatalf("%d %s", r.status, r.body)
	}
	var waiting response
	eventually(t, "Redis has been found safe", func() bool {
		waiting = s.must("POST", "/orders", "second", "Prefer", "respond-async", "X-Customer", "ann")
		return waiting.status == http.StatusAccepted
	})
	location := waiting.header.Get("Location")
	jobs := func() []string {
		list := store.MustDo(t, "KEYS", "weir:{defer:/orders}:job:*").Strings()
		slices.Sort(list)
		return list
	}
	before := jobs()
	if len(before) != 1 {
		t.Fatalf("%d jobs", len(before))
	}
	const me = "Host: shop.example\r\nX-Customer: ann\r\n"
	const async = me + "Prefer: respond-async\r\n"
	post := func(fields string) string {
		return "POST /orders HTTP/1.1\r\n" + async + fields + "Content-Length: 1\r\n\r\nx"
	}
	get := func(fields string) string { return "GET /orders HTTP/1.1\r\n" + async + fields + "\r\n" }
	line := func(line string) string { return line + " HTTP/1.1\r\n" + async + "Content-Length: 0\r\n\r\n" }
	long := func(n int) string { return strings.Repeat("a", n) }

	for name, c := range map[string]struct {
		status int
		send   string
	}{
		// Requests that cannot be repeated.
		"WebSocket":                    {429, get("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")},
		"Connection alone":             {429, post("Connection: keep-alive, UPGRADE\r\n")},
		"CONNECT":                      {429, "CONNECT shop.example:443 HTTP/1.1\r\n" + async + "\r\n"},
		"a byte too long":              {429, "POST /orders HTTP/1.1\r\n" + async + "Content-Length: 65537\r\n\r\n" + long(65537)},
		"an exabyte, announced":        {429, "POST /orders HTTP/1.1\r\n" + async + "Content-Length: 1152921504606846976\r\n\r\nx"},
		"chunked":                      {429, "POST /orders HTTP/1.1\r\n" + async + "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"},
		"chunked, with trailers":       {429, "POST /orders HTTP/1.1\r\n" + async + "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n1\r\nx\r\n0\r\nX-Sum: 1\r\n\r\n"},
		"trailers, not chunked":        {429, post("Trailer: X-Sum\r\n")},
		"early data":                   {429, post("Early-Data: 1\r\n")},
		"a field in Latin-1":           {429, post("Accept-Language: caf\xe9\r\n")},
		"a query that is no UTF-8":     {429, line("POST /orders?q=\xff")},
		"a body with Expect, too long": {429, "POST /orders HTTP/1.1\r\n" + async + "Expect: 100-continue\r\nContent-Length: 65537\r\n\r\n"},

		// Messages that are none.
		"a body that breaks off":     {400, "POST /orders HTTP/1.1\r\n" + async + "Content-Length: 100\r\n\r\nshort"},
		"no body where one was said": {400, "POST /orders HTTP/1.1\r\n" + async + "Expect: 100-continue\r\nContent-Length: 10\r\n\r\n"},
		"a length, and chunked":      {429, "POST /orders HTTP/1.1\r\n" + async + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"},
		"a folded field":             {429, post("Early-Data:\r\n 1\r\n")},
	} {
		r, err := s.sendRaw(c.send, slices.Contains([]string{"a body that breaks off", "no body where one was said", "an exabyte, announced", "a body with Expect, too long"}, name))
		if err != nil || r.status != c.status || r.header.Get("Location") != "" {
			t.Errorf("%s: %v, %d %q %s, want %d", name, err, r.status, r.body, r.header.Get("Location"), c.status)
		}
		if now := jobs(); !slices.Equal(now, before) {
			t.Fatalf("%s: %d jobs are stored, want the one before", name, len(now))
		}
	}

	// What can be deferred is stored as it was sent, and nothing that it says of itself has an effect.
	for name, c := range map[string]struct {
		send, uri, host, once, body string
		fields                      string // "name: value" of what is stored besides, in the order of names
	}{
		"just as long as may be":     {send: "POST /orders HTTP/1.1\r\n" + async + "Content-Length: 65536\r\n\r\n" + long(64<<10), body: long(64 << 10)},
		"Expect":                     {send: post("Expect: 100-continue\r\n"), body: "x"},
		"an escaped slash":           {send: line("POST /a%2Fb/%2e%2e/c"), uri: "/a%2Fb/%2e%2e/c"},
		"an escaped NUL":             {send: line("POST /a%00b?q=%00&%ff"), uri: "/a%00b?q=%00&%ff"},
		"an absolute form":           {send: line("POST http://other.example/a"), uri: "/a", host: "other.example"},
		"a key like a name in Redis": {send: post("Idempotency-Key: } weir:{defer:/orders}:sums {\r\n"), once: "} weir:{defer:/orders}:sums {", body: "x"},
		"cookies and credentials":    {send: post("Cookie: a=1\r\nAuthorization: Basic eDp5\r\nX-Api-Key: k\r\nProxy-Authorization: Basic eDp5\r\n"), body: "x"},
		"fields for this hop":        {send: post("Connection: close, Accept\r\nAccept: text/plain\r\nContent-Language: de\r\n"), body: "x", fields: "Content-Language: de"},
		"forged addresses":           {send: post("X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Host: other\r\nForwarded: for=192.0.2.1\r\nX-Real-IP: 192.0.2.1\r\n"), body: "x"},
		"a preference among others":  {send: strings.Replace(post(""), "Prefer: respond-async", "Prefer: handling=lenient; x, RESPOND-ASYNC ; y=\"z\", wait=1e9\r\nPrefer: wait=-1, return=minimal", 1), body: "x"},
	} {
		r, err := s.sendRaw(c.send, false)
		if err != nil || r.status != http.StatusAccepted {
			t.Errorf("%s: %v, %d %q", name, err, r.status, r.body)
			continue
		}
		id := r.job(t).ID
		got := stored(t, store.Addr(), id)
		once := got.Header.Get("Idempotency-Key")
		got.Header.Del("Idempotency-Key")
		var fields bytes.Buffer
		_ = got.Header.Write(&fields) // cannot fail
		method, _, _ := strings.Cut(c.send, " ")
		if c.uri == "" {
			c.uri = "/orders"
		}
		if c.host == "" {
			c.host = "shop.example"
		}
		if c.once == "" {
			c.once = id
		}
		if got.Method != method || got.URI != c.uri || got.Host != c.host || string(got.Body) != c.body || once != c.once ||
			got.Once != (once != id) || strings.TrimSuffix(fields.String(), "\r\n") != c.fields || got.Secure || !strings.HasPrefix(got.Remote, "127.0.0.1:") {
			t.Errorf("%s: stored are %s %s of %s, with %q, %q and %d bytes", name, got.Method, got.URI, got.Host, once, fields.String(), len(got.Body))
		}
		if bytes.Contains(got.Extra, []byte("192.0.2.1")) || bytes.Contains(got.Extra, []byte("eDp5")) {
			t.Errorf("%s: stored is %s", name, got.Extra)
		}
		credentials := []string{}
		if strings.Contains(c.send, "\r\nAuthorization") {
			credentials = []string{"Authorization", "Basic eDp5"}
		}
		if r := s.must("DELETE", r.header.Get("Location"), "", credentials...); r.status != http.StatusNoContent {
			t.Errorf("%s: not cancelled: %d %s", name, r.status, r.body)
		}
	}
	if now := jobs(); !slices.Equal(now, before) {
		t.Errorf("jobs %v, want %v", now, before)
	}

	if o := s.must("GET", location, "").job(t); o.Status != "waiting" || o.Position != 1 {
		t.Errorf("%+v", o)
	}
	if got := up.got("x"); len(got) != 0 {
		t.Errorf("the warehouse got %v", got)
	}
}

// A key that is no text cannot be stored: two of them would be charged as one when they are done.
func TestRequestsOfABinaryKeyAreNotDeferred(t *testing.T) {
	store, up := durably(t), newWarehouse(t)
	s := startSite(t, strings.Replace(slow(shop(store, up)), "{header.X-Customer}", "{query.customer}", 1))
	eventually(t, "an order with a key that is a text is deferred", func() bool {
		return s.must("POST", "/orders?customer=ann", "", "Prefer", "respond-async").status == http.StatusAccepted
	})
	for i, customer := range []string{"%ff", "%fe", "a%80"} {
		for j, want := range []int{201, 429, 429} {
			r := s.must("POST", "/orders?customer="+customer, fmt.Sprint(i), "Prefer", "respond-async")
			if r.status != want {
				t.Errorf("request %d of %s: %d %s, want %d", j, customer, r.status, r.body, want)
			}
		}
	}
}

// What a handler in front has made of a request is stored as it is, or not at all.
func TestRequestsOfABinaryPlaceholderAreNotDeferred(t *testing.T) {
	store, up := durably(t), newWarehouse(t)
	s := startSite(t, "map {query.kind} {kind} {\n~(.*) \"${1}\"\n}\n"+strings.Replace(slow(shop(store, up)), "reverse_proxy", "header X-Kind {kind}\nreverse_proxy", 1))
	eventually(t, "an order whose kind is a text is deferred", func() bool {
		return s.must("POST", "/orders?kind=a", "", "X-Customer", "ann", "Prefer", "respond-async").status == http.StatusAccepted
	})
	if r := s.must("POST", "/orders?kind=%ff", "", "X-Customer", "ann", "Prefer", "respond-async"); r.status != http.StatusTooManyRequests {
		t.Errorf("%d %s, want 429", r.status, r.body)
	}
}

// Odd requests arrive deferred as they arrive directly.
func TestDeferredRequestsArriveAsDirectOnesDo(t *testing.T) {
	store, up := durably(t), newWarehouse(t)
	up.open()
	s := startSite(t, shop(store, up))
	cases := []string{
		"POST /a%2Fb/%2e%2e/c?q=%2f+%20", "PUT //a/../b;c=1/./d//", "DELETE /a%00b?q=%00&%ff", "PATCH /?&&=;%&<>{env.HOME}", "POST http://other.example/a?b",
		"BREW'~! /pot", "POST /%E2%82%AC/\u20ac", "OPTIONS /x?",
	}
	var locations []string
	eventually(t, "Redis has been found safe", func() bool {
		return s.must("POST", "/orders", "", "X-Customer", "another", "Prefer", "respond-async").status == http.StatusAccepted
	})
	for i, c := range cases {
		for _, want := range []int{http.StatusCreated, http.StatusAccepted} {
			// A customer may get room again before the second comes; then it arrives directly, too.
			eventually(t, "it is answered", func() bool {
				r, err := s.sendRaw(fmt.Sprintf("%s HTTP/1.1\r\nHost: shop.example\r\nX-Customer: %d\r\nPrefer: respond-async\r\nAccept: a, \"b\"\r\nContent-Language: \u20ac\r\nContent-Length: 2\r\n\r\n#%d", c, i, i), false)
				if err != nil || r.status != want && r.status != http.StatusCreated {
					t.Fatalf("%s: %v, %d %q", c, err, r.status, r.body)
				}
				if r.status == http.StatusAccepted {
					locations = append(locations, r.header.Get("Location"))
				}
				return r.status == want
			})
		}
	}
	for _, location := range locations {
		s.awaitJob(location, "done")
	}
	for i, c := range cases {
		got := up.got(fmt.Sprintf("#%d", i))
		if len(got) < 2 {
			t.Fatalf("%s: %d have arrived", c, len(got))
		}
		direct, later := got[0], got[len(got)-1]
		if later.method != direct.method || later.uri != direct.uri || later.host != direct.host {
			t.Errorf("%s: %s %s of %s arrives as %s %s of %s", c, direct.method, direct.uri, direct.host, later.method, later.uri, later.host)
		}
		for _, field := range []string{"Accept", "Content-Language", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
			if !slices.Equal(direct.header[field], later.header[field]) {
				t.Errorf("%s: %s %q arrives as %q", c, field, direct.header[field], later.header[field])
			}
		}
	}
}
