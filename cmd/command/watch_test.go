package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

func TestWatchAddsUpThePagesOfProxies(t *testing.T) {
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, `# HELP weir_requests_total Requests.
weir_requests_total{rule="shop/logins",outcome="rejected"} 3
weir_requests_total{outcome="allowed",rule="shop/logins"} 1e+06
weir_requests_total_more{rule="a",outcome="rejected"} 3
weir_waiting{rule="shop/logins"} 5
`)
	}))
	defer page.Close()
	c, err := countsOf([]string{page.URL + "/metrics", page.URL + "/metrics"})
	must.Succeed(t, err)
	must.Equal(t, fmt.Sprint(c), "map[shop/logins:map[allowed:2e+06 rejected:6]]")
	_, _, err = weir("watch", "--metrics", page.URL+"/metric")
	must.Contain(t, fmt.Sprint(err), "/metric: HTTP 404; the page is that of metrics: address in Traefik")
	_, _, err = weir("watch", "--interval", "1ms")
	must.Contain(t, fmt.Sprint(err), "--interval 1ms: must be from 100ms to 1h")
}

// watchedOf runs a watch over readings of a second each, which ends while a proxy hangs, and returns what it writes.
func watchedOf(t *testing.T, height func() int, readings ...any) string {
	t.Helper()
	var out bytes.Buffer
	ctx, end := context.WithCancel(context.Background())
	ticks := make(chan time.Time)
	begin := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	hung := make(chan struct{})
	defer close(hung)
	next := 0
	w := &watch{out: &out, height: height, read: func() (counts, error) {
		if next == len(readings) { // all are shown
			end()
			<-hung // which nobody has to wait for
			return nil, nil
		}
		reading := readings[next]
		next++
		if c, ok := reading.(counts); ok {
			return c, nil
		}
		return nil, reading.(error)
	}}
	ended := make(chan error)
	go func() { ended <- w.run(ctx, begin, ticks) }()
	for i := range readings {
		ticks <- begin.Add(time.Duration(i+1) * time.Second)
	}
	must.Succeed(t, <-ended)
	return out.String()
}

func TestWatchShowsTheRuleThatRejectsMostFirst(t *testing.T) {
	readings := []any{
		counts{"a": {"allowed": 100, "rejected": 50}, "b": {"allowed": 7}},
		counts{"a": {"allowed": 110, "allowed_soft": 2, "rejected": 50}, "b": {"allowed": 9, "rejected": 5}, "c": {"shadow_rejected": 4}},
		errors.New("the proxy is away"),
		counts{"a": {"allowed": 3}, "b": {"allowed": 9, "rejected": 5}, "c": {"shadow_rejected": 4}}, // a has begun anew
	}
	must.Equal(t, watchedOf(t, nil, readings...), `12:00:01  b: 2.0 allowed/s, 5.0 rejected/s  a: 12.0 allowed/s, 0.0 rejected/s  c: 0.0 allowed/s, 0.0 rejected/s
12:00:02  b: 2.0 allowed/s, 5.0 rejected/s  a: 12.0 allowed/s, 0.0 rejected/s  c: 0.0 allowed/s, 0.0 rejected/s  the proxy is away
12:00:03  b: 0.0 allowed/s, 0.0 rejected/s  a: 1.5 allowed/s, 0.0 rejected/s  c: 0.0 allowed/s, 0.0 rejected/s
`)
	screens := strings.Split(watchedOf(t, func() int { return 5 }, readings...), "\x1b[H\x1b[J")
	must.Equal(t, plain(screens[1]), "ALLOWED/s REJECTED/s WOULD REJECT/s ALLOWED REJECTED WOULD REJECT RULE\n2.0 5.0 0.0 2 5 0 b\n12.0 0.0 0.0 12 0 0 a\n", "a terminal of five lines")
	must.Contain(t, screens[2], "the proxy is away\n")
}

func TestWatchSaysWhyItCannotBegin(t *testing.T) {
	w := &watch{read: func() (counts, error) { return nil, errors.New("refused") }}
	must.Equal(t, fmt.Sprint(w.run(context.Background(), time.Time{}, nil)), "refused")
}
