package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// newClient returns a client that connects to the entry point, whatever host a URL names, except for the API.
func (tr *traefik) newClient(from net.Addr) *http.Client {
	dialer := &net.Dialer{LocalAddr: from}
	return &http.Client{
		Timeout: 2 * time.Minute,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
				if addr != tr.admin {
					addr = tr.web
				}
				return dialer.DialContext(ctx, "tcp", addr)
			},
			MaxIdleConnsPerHost: 256,
			DisableCompression:  true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// response is the answer to a request, completely read.
type response struct {
	status  int
	header  http.Header
	body    string
	trailer http.Header
}

// send makes a request of "[METHOD ]http://host/path" or "[METHOD ]/path", with header fields in pairs.
func send(client *http.Client, host, request string, fields ...string) (response, error) {
	method, path, found := strings.Cut(request, " ")
	if !found {
		method, path = http.MethodGet, request
	}
	if strings.HasPrefix(path, "/") {
		path = "http://" + host + path
	}
	r, err := http.NewRequest(method, path, nil)
	if err != nil {
		return response{}, err
	}
	for i := 0; i < len(fields); i += 2 {
		r.Header.Add(fields[i], fields[i+1])
	}
	return exchange(client, r)
}

func exchange(client *http.Client, r *http.Request) (response, error) {
	answer, err := client.Do(r)
	if err != nil {
		return response{}, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return response{answer.StatusCode, answer.Header, string(body), answer.Trailer}, err
}

// want checks header fields, given in pairs; a field that must be absent has the value "-".
func (r response) want(t testing.TB, fields ...string) {
	t.Helper()
	for i := 0; i < len(fields); i += 2 {
		got := strings.Join(r.header.Values(fields[i]), " & ")
		if len(r.header.Values(fields[i])) == 0 {
			got = "-"
		}
		if got != fields[i+1] {
			t.Errorf("%s: %s, want %s", fields[i], got, fields[i+1])
		}
	}
}

// number reads a header field that is a single whole number, and checks that it is from least to most.
func (r response) number(t testing.TB, field string, least, most int) int {
	t.Helper()
	n, err := strconv.Atoi(strings.Join(r.header.Values(field), " & "))
	if err != nil || n < least || n > most {
		t.Errorf("%s: %q, want a number from %d to %d", field, r.header.Values(field), least, most)
	}
	return n
}

// tally counts the answers to many requests.
type tally struct {
	mu                       sync.Mutex
	admitted, rejected, lost int
	slowest                  time.Duration
	losses                   []string // the first few answers other than 200 and 429
}

func (sum *tally) add(r response, err error, took time.Duration) {
	sum.mu.Lock()
	defer sum.mu.Unlock()
	sum.slowest = max(sum.slowest, took)
	switch {
	case err == nil && r.status == http.StatusOK:
		sum.admitted++
	case err == nil && r.status == http.StatusTooManyRequests:
		sum.rejected++
	default:
		sum.lost++
		loss := "status " + strconv.Itoa(r.status)
		if err != nil {
			loss = err.Error()
		}
		if len(sum.losses) < 5 {
			sum.losses = append(sum.losses, loss)
		}
	}
}

func (sum *tally) requests() int {
	sum.mu.Lock()
	defer sum.mu.Unlock()
	return sum.admitted + sum.rejected + sum.lost
}

// want checks how many requests were admitted, and that none was lost.
func (sum *tally) want(t testing.TB, admitted int) {
	t.Helper()
	sum.mu.Lock()
	defer sum.mu.Unlock()
	if sum.admitted != admitted || sum.lost != 0 {
		t.Errorf("%d requests were admitted, %d rejected and %d lost (%q), want %d admitted and none lost",
			sum.admitted, sum.rejected, sum.lost, sum.losses, admitted)
	}
}

// load is clients that make requests, either a fixed number or until it is stopped.
type load struct {
	tally
	end     chan struct{}
	stopped sync.Once
	clients sync.WaitGroup
}

// startLoad starts that many clients. Each makes each requests, or with 0 any number. make is called with the number of the client
// and of its request.
func startLoad(clients, each int, make func(client, n int) (response, error)) *load {
	l := &load{end: newSignal()}
	for i := range clients {
		l.clients.Go(func() {
			for n := 0; each == 0 || n < each; n++ {
				select {
				case <-l.end:
					return
				default:
				}
				began := time.Now()
				r, err := make(i, n)
				l.add(r, err, time.Since(began))
			}
		})
	}
	return l
}

func newSignal() chan struct{} { return make(chan struct{}) }

// wait waits until each client has made its requests.
func (l *load) wait() *tally {
	l.clients.Wait()
	return &l.tally
}

// stop ends the clients' requests. It does nothing the second time.
func (l *load) stop() *tally {
	l.stopped.Do(func() { close(l.end) })
	return l.wait()
}
