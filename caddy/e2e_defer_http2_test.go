package ratelimit_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// The same over HTTP/2, which net/http's server passes on unlike HTTP/1: it checks lengths only while a body is read, and has WebSockets as CONNECT, if the
// environment says so. The server is a process of its own, since net/http reads that once.
func TestHostileRequestsOverHTTP2AreRejectedAndNotStored(t *testing.T) {
	t.Setenv("GODEBUG", "http2xconnect=1")
	store, up := durably(t), newWarehouse(t)
	s := startMemberWith(t, "servers {\nprotocols h1 h2c\n}\n", "respond /up 200\n"+slow(shop(store, up)))
	if r := s.must("POST", "/orders", "first", "Prefer", "respond-async", "X-Customer", "ann"); r.status != http.StatusCreated {
		t.Fatalf("%d %s", r.status, r.body)
	}
	eventually(t, "Redis has been found safe", func() bool {
		return s.must("POST", "/orders", "second", "Prefer", "respond-async", "X-Customer", "ann").status == http.StatusAccepted
	})
	before := jobsIn(t, store)
	if len(before) != 1 {
		t.Fatalf("%d jobs", len(before))
	}
	head := func(method, path, fields string) string {
		return ":method: " + method + "\n:scheme: http\n:authority: shop.example\n:path: " + path + "\nx-customer: ann\nprefer: respond-async\n" + fields
	}
	post := func(fields string) string { return head("POST", "/orders", fields) }
	connect := func(protocol string) string {
		return ":protocol: " + protocol + "\n" + head("CONNECT", "/orders", "sec-websocket-version: 13\n")
	}
	x := []string{"x"}
	for name, c := range map[string]struct {
		status int
		frames
	}{
		// Requests that cannot be repeated.
		"WebSocket":                  {429, frames{fields: connect("websocket"), data: x, open: true}},
		"another protocol":           {429, frames{fields: connect("connect-udp"), data: x, open: true}},
		"a protocol, but no CONNECT": {429, frames{fields: ":protocol: websocket\n" + head("GET", "/orders", "")}},
		"CONNECT":                    {429, frames{fields: ":method: CONNECT\n:authority: shop.example:443\nx-customer: ann\nprefer: respond-async\n"}},
		"no length":                  {429, frames{fields: post(""), data: x}},
		"no length, no body":         {429, frames{fields: post(""), data: []string{""}}},
		"trailers":                   {429, frames{fields: post("content-length: 1\ntrailer: x-sum\n"), data: x, trailers: "x-sum: 1\n"}},
		"trailers, no body":          {429, frames{fields: post("content-length: 0\ntrailer: x-sum\n"), trailers: "x-sum: 1\n"}},
		"trailers, no length":        {429, frames{fields: post("trailer: x-sum\n"), data: x, trailers: "x-sum: 1\n"}},
		"a byte too long":            {429, frames{fields: post("content-length: 65537\n"), data: x}},
		"an exabyte, announced":      {429, frames{fields: post("content-length: 1152921504606846976\n"), data: x}},
		"GET with a body":            {429, frames{fields: head("GET", "/orders", "content-length: 1\n"), data: x}},
		"GET with a body, no length": {429, frames{fields: head("GET", "/orders", ""), data: x}},
		"gRPC":                       {200, frames{fields: post("content-type: application/grpc\nte: trailers\n"), data: []string{"\x00\x00\x00\x00\x00"}}},
	} {
		r, err := s.sendFrames(c.frames)
		if err != nil || r.status != c.status || c.status == http.StatusOK && r.header.Get("Grpc-Status") == "" || r.header.Get("Location") != "" {
			t.Errorf("%s: %v, %d %q %s, want %d", name, err, r.status, r.body, r.header.Get("Location"), c.status)
		}
		if now := jobsIn(t, store); !slices.Equal(now, before) {
			t.Fatalf("%s: %d jobs are stored, want the one before", name, len(now))
		}
	}
	// Messages that are none. A server resets their streams, or says that it cannot read them.
	for name, f := range map[string]frames{
		"longer than announced":                {fields: post("content-length: 1\n"), data: []string{"xy"}},
		"longer than announced, in two frames": {fields: post("content-length: 1\n"), data: []string{"x", "y"}},
		"longer than nothing":                  {fields: post("content-length: 0\n"), data: x},
		"shorter than announced":               {fields: post("content-length: 100\n"), data: x},
		"shorter than announced, trailers":     {fields: post("content-length: 100\n"), data: x, trailers: "x-sum: 1\n"},
		"no body where one was announced":      {fields: post("content-length: 1\n")},
		"an empty body, announced longer":      {fields: post("content-length: 1\n"), data: []string{""}},
		"a client that gives up":               {fields: post("content-length: 2\n"), data: x, open: true, reset: true},
		"a client that gives up at once":       {fields: post("content-length: 2\n"), open: true, reset: true},
		"one in the trailers":                  {fields: post("content-length: 1\n"), data: x, trailers: ":path: /other\n"},
	} {
		r, err := s.sendFrames(f)
		if err != nil || r.status != 0 && r.status != http.StatusBadRequest || r.header.Get("Location") != "" {
			t.Errorf("%s: %v, %d %q %s, want 400 or a reset", name, err, r.status, r.body, r.header.Get("Location"))
		}
		if now := jobsIn(t, store); !slices.Equal(now, before) {
			t.Fatalf("%s: %d jobs are stored, want the one before", name, len(now))
		}
	}

	// What can be deferred is stored as it was sent.
	for name, c := range map[string]struct {
		frames
		body string
	}{
		"a body":                    {frames{fields: post("content-length: 1\n"), data: x}, "x"},
		"a body in frames":          {frames{fields: post("content-length: 3\n"), data: []string{"", "x", "yz", ""}}, "xyz"},
		"no body":                   {frames{fields: post("")}, ""},
		"no body, and its length":   {frames{fields: post("content-length: 0\n"), data: []string{""}}, ""},
		"trailers that nobody sees": {frames{fields: post("content-length: 1\n"), data: x, trailers: "x-sum: 1\n"}, "x"}, // since they were not announced
		"just as long as may be":    {frames{fields: post("content-length: 65536\n"), data: slices.Repeat([]string{strings.Repeat("x", 16<<10)}, 4)}, strings.Repeat("x", 64<<10)},
	} {
		r, err := s.sendFrames(c.frames)
		if err != nil || r.status != http.StatusAccepted {
			t.Errorf("%s: %v, %d %q", name, err, r.status, r.body)
			continue
		}
		if got := stored(t, store.Addr(), r.job(t).ID); string(got.Body) != c.body || got.Method != "POST" || got.URI != "/orders" || got.Host != "shop.example" {
			t.Errorf("%s: stored are %s %s of %s, and %d bytes", name, got.Method, got.URI, got.Host, len(got.Body))
		}
		if r := s.must("DELETE", r.header.Get("Location"), ""); r.status != http.StatusNoContent {
			t.Errorf("%s: not cancelled: %d %s", name, r.status, r.body)
		}
	}
	if now := jobsIn(t, store); !slices.Equal(now, before) {
		t.Errorf("jobs %v, want %v", now, before)
	}
	if got := up.got("x"); len(got) != 0 {
		t.Errorf("the warehouse got %v", got)
	}
}
