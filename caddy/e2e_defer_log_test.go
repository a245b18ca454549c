package ratelimit_test

import (
	"fmt"
	"strings"
	"testing"
)

// attempts returns the lines of the access log about attempts at jobs.
func (s *server) attempts() []map[string]any { return s.logs("handled deferred request") }

func TestTheAccessLogHasWhatBecameOfADeferredRequest(t *testing.T) {
	redis, up := durably(t), newWarehouse(t)
	site := strings.Replace(shop(redis, up, "headers Cookie\nencrypt "+deferKey), "reverse_proxy", "request_header X-Later yes\nreverse_proxy", 1)
	s := startSite(t, "log\nlog_skip /quiet\nroute {\n"+site+"}\n")
	me := []string{"X-Customer", "ann", "Cookie", "session=hidden"}
	first := s.deferred("one", me...)
	quiet := s.must("POST", "/quiet", "two", append([]string{"Prefer", "respond-async"}, me...)...)
	last := s.must("POST", "/orders", "three", append([]string{"Prefer", "respond-async"}, me...)...)
	if got := s.attempts(); len(got) > 0 {
		t.Errorf("before they are done: %v", got)
	}
	up.open()
	s.awaitJob(quiet.header.Get("Location"), "done")
	s.awaitJob(last.header.Get("Location"), "done")
	lines := s.attempts()
	if len(lines) != 2 {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	one := lines[0]
	for field, want := range map[string]any{"level": "info", "job": first.job(t).ID, "attempt": 1.0, "status": 201.0, "size": float64(len("ordered one")), "bytes_read": 3.0} {
		if one[field] != want {
			t.Errorf("%s: %v, want %v", field, one[field], want)
		}
	}
	if logger, _ := one["logger"].(string); !strings.HasPrefix(logger, "http.log.access") {
		t.Errorf("it is of the logger %q", logger)
	}
	for field, want := range map[string]string{"method": "POST", "uri": "/orders?kind=book", "host": "shop.example", "client_ip": "127.0.0.1", "remote_ip": "127.0.0.1"} {
		if got := at(t, one, "request", field); got != want {
			t.Errorf("%s: %v, want %s", field, got, want)
		}
	}
	if got := fmt.Sprint(at(t, one, "resp_headers", "X-Order")); got != "[o-one]" {
		t.Errorf("X-Order: %s", got)
	}
	if text := fmt.Sprint(lines); strings.Contains(text, "hidden") || strings.Contains(text, "secret=1") {
		t.Errorf("it has credentials: %s", text)
	}
	if fields := fmt.Sprint(at(t, one, "request", "headers")); strings.Contains(fields, "X-Later") || len(up.got("one")) == 0 || up.got("one")[0].header.Get("X-Later") == "" {
		t.Errorf("it is not as it was before the handlers behind: %s", fields)
	}
	// The line of the 202 has the job's id, too.
	found := false
	for _, line := range s.logs("handled request") {
		if line["status"] == 202.0 {
			found = found || strings.Contains(fmt.Sprint(at(t, line, "resp_headers", "Location")), one["job"].(string))
		}
	}
	if !found {
		t.Error("no line has the 202 of the first")
	}
}

func TestWithoutAnAccessLogDeferredRequestsAreNotLogged(t *testing.T) {
	redis, up := durably(t), newWarehouse(t)
	s := startSite(t, shop(redis, up))
	location := s.deferred("one", "X-Customer", "ann").header.Get("Location")
	up.open()
	s.awaitJob(location, "done")
	if got := s.attempts(); len(got) > 0 {
		t.Errorf("%v", got)
	}
}
