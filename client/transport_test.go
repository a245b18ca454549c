package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// api answers each request by a function. It notes when requests came, and their bodies.
type api struct {
	answer func(n int, h http.Header) (status int)
	came   []time.Time
	bodies []string
}

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	body := ""
	if r.Body != nil {
		all, _ := io.ReadAll(r.Body)
		body = string(all)
		_ = r.Body.Close()
	}
	a.came, a.bodies = append(a.came, time.Now()), append(a.bodies, body)
	h := http.Header{}
	status := a.answer(len(a.came), h)
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

// twice rejects the first two requests for ten seconds.
func twice(n int, h http.Header) int {
	if n > 2 {
		return http.StatusOK
	}
	h.Set("Retry-After", "10")
	return http.StatusTooManyRequests
}

func request(t *testing.T, method, body string, fields ...string) *http.Request {
	t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, "http://api.test/", content)
	must.Succeed(t, err)
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	return r
}

// What is rejected is sent again after Retry-After and a random time more, where that does no harm.
func TestARejectedRequestIsSentAgainIfItMayBe(t *testing.T) {
	stream := func(r *http.Request) { r.GetBody = nil }
	for name, c := range map[string]struct {
		r      *http.Request
		change func(r *http.Request)
		sent   int
	}{
		"GET":                          {request(t, "GET", ""), nil, 3},
		"method left out":              {request(t, "GET", ""), func(r *http.Request) { r.Method = "" }, 3},
		"PUT with a body":              {request(t, "PUT", "a body"), nil, 3},
		"POST":                         {request(t, "POST", "a body"), nil, 1},
		"POST with a key":              {request(t, "POST", "a body", "Idempotency-Key", "8e03978e"), nil, 3},
		"POST of a stream with a key":  {request(t, "POST", "a body", "Idempotency-Key", "8e03978e"), stream, 1},
		"PATCH without a body":         {request(t, "PATCH", ""), nil, 1},
		"DELETE with an explicit none": {request(t, "DELETE", ""), func(r *http.Request) { r.Body = http.NoBody }, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			if c.change != nil {
				c.change(c.r)
			}
			a := &api{answer: twice}
			answer, err := (&Transport{Base: a}).RoundTrip(c.r)
			must.Succeed(t, err)
			must.Equal(t, len(a.came), c.sent, name, "requests sent")
			must.Equal(t, answer.StatusCode == http.StatusOK, c.sent == 3, name, "the answer is that of success")
			for i, body := range a.bodies {
				must.Equal(t, body, a.bodies[0], name, "the body sent again")
				if i > 0 {
					waited := a.came[i].Sub(a.came[i-1])
					must.Equal(t, waited >= 10*time.Second && waited <= 11*time.Second, true, name, "waited", waited)
				}
			}
		})
	}
}

func TestWhatIsToldOfAWaitIsKept(t *testing.T) {
	for told, want := range map[string]time.Duration{"7": 7 * time.Second, "": 0, "soon": 0, "-3": 0, "0": 0, "date": 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			a := &api{answer: func(n int, h http.Header) int {
				if n > 1 {
					return http.StatusOK
				}
				if told == "date" {
					h.Set("Retry-After", time.Now().Add(30*time.Second).UTC().Format(http.TimeFormat))
				} else {
					h.Set("Retry-After", told)
				}
				return http.StatusServiceUnavailable
			}}
			begun := time.Now()
			answer, err := (&Transport{Base: a}).RoundTrip(request(t, "GET", ""))
			must.Succeed(t, err)
			must.Equal(t, answer.StatusCode == http.StatusOK, want > 0, told, "it is sent again")
			waited := time.Since(begun)
			must.Equal(t, waited >= want && waited <= want*11/10, true, told, "waited", waited)
		})
	}
}

// Only so many requests are sent again, whatever the API says: 10, and a tenth of the requests.
func TestTheBudgetBoundsHowManyRequestsAreSentAgain(t *testing.T) {
	for share, most := range map[float64]int{0: 20, 0.5: 60, -1: 0} {
		synctest.Test(t, func(t *testing.T) {
			a := &api{answer: func(_ int, h http.Header) int { h.Set("Retry-After", "1"); return http.StatusServiceUnavailable }}
			transport := &Transport{Base: a, Retries: share}
			for range 100 {
				answer, err := transport.RoundTrip(request(t, "GET", ""))
				must.Succeed(t, err)
				must.Equal(t, answer.StatusCode, http.StatusServiceUnavailable, "status")
			}
			again := len(a.came) - 100
			must.Equal(t, again <= most && again >= most-2, true, "sent again", again)
		})
	}
}

// Nobody sleeps past a deadline, or longer than LongestWait: the caller gets the 429.
func TestADeadlineEndsWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		deadline, longest, want time.Duration
		sent                    int
	}{
		"deadline before the wait ends": {5 * time.Second, 0, 0, 1},
		"deadline after one wait":       {15 * time.Second, 0, 10 * time.Second, 2},
		"the longest wait":              {time.Hour, 9 * time.Second, 0, 1},
		"time enough":                   {time.Hour, 0, 20 * time.Second, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &api{answer: twice}
			ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
			defer cancel()
			begun := time.Now()
			answer, err := (&Transport{Base: a, LongestWait: c.longest}).RoundTrip(request(t, "GET", "").WithContext(ctx))
			must.Succeed(t, err)
			must.Equal(t, len(a.came), c.sent, name, "requests sent")
			must.Equal(t, answer.StatusCode == http.StatusOK, c.sent == 3, name, "success")
			must.Equal(t, time.Since(begun).Round(5*time.Second), c.want, name, "waited")
		})
	}
}

// A request whose turn is far is sent after LongestWait all the same; one that ends while it waits is not sent, and its body is closed.
func TestARequestWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(_ int, h http.Header) int {
			h.Set("RateLimit-Policy", `"day";q=1000;w=86400`)
			h.Set("RateLimit", `"day";r=0;t=40000`)
			return http.StatusOK
		}}
		transport := &Transport{Base: a}
		for range 2 {
			_, err := transport.RoundTrip(request(t, "GET", ""))
			must.Succeed(t, err)
		}
		must.Equal(t, a.came[1].Sub(a.came[0]), time.Minute, "waited")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		r := request(t, "POST", "a body").WithContext(ctx)
		closed := &closing{Reader: strings.NewReader("a body")}
		r.Body = closed
		_, err := transport.RoundTrip(r)
		must.Equal(t, errors.Is(err, context.Canceled), true, "the error is", err)
		must.Equal(t, closed.closed && len(a.came) == 2, true, "the body is closed, and not sent")
		other, err := http.NewRequest("GET", "http://other.test/", nil)
		must.Succeed(t, err)
		begun := time.Now()
		_, err = transport.RoundTrip(other)
		must.Succeed(t, err)
		must.Equal(t, time.Since(begun) == 0, true, "another host's turn")
	})
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// Requests that wait for their turn when another is rejected wait for what that was told, too.
func TestARejectionHoldsWaitingRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(n int, h http.Header) int {
			if n == 2 {
				h.Set("Retry-After", "30")
				return http.StatusTooManyRequests
			}
			h.Set("RateLimit-Policy", `"api";q=10;w=10`)
			h.Set("RateLimit", `"api";r=9;t=10`)
			return http.StatusOK
		}}
		transport := &Transport{Base: a, Retries: -1}
		_, err := transport.RoundTrip(request(t, "GET", ""))
		must.Succeed(t, err)
		done := make(chan error)
		for range 2 {
			go func() {
				_, err := transport.RoundTrip(request(t, "GET", ""))
				done <- err
			}()
		}
		must.Succeed(t, <-done)
		must.Succeed(t, <-done)
		must.Equal(t, a.came[2].Sub(a.came[1]) >= 30*time.Second, true, "between the rejected and the next", a.came[2].Sub(a.came[1]))
	})
}

// fields has the quota fields of a limit.
func fields(h http.Header, policies, states string) int {
	h.Set("RateLimit-Policy", policies)
	h.Set("RateLimit", states)
	return http.StatusOK
}

// Whoever gives up while it waits leaves its turn to those who come.
func TestACancelledRequestLeavesItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(_ int, h http.Header) int { return fields(h, `"api";q=10;w=100`, `"api";r=5;t=100`) }}
		transport := &Transport{Base: a}
		for range 2 {
			_, err := transport.RoundTrip(request(t, "GET", ""))
			must.Succeed(t, err)
		}
		for range 20 { // each would come 20 s after the one before
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			_, err := transport.RoundTrip(request(t, "GET", "").WithContext(ctx))
			must.Equal(t, errors.Is(err, context.Canceled), true, "the error is %v", err)
		}
		_, err := transport.RoundTrip(request(t, "GET", ""))
		must.Succeed(t, err)
		waited := a.came[2].Sub(a.came[1]) // each has its turn up to a tenth of the 20 s sooner or later
		must.Equal(t, waited > 5*time.Second && waited < 35*time.Second, true, "waited for %s", waited)
	})
}

// A limit that becomes smaller, as an adaptive one does, is shared as the small one.
func TestASmallerLimitIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(n int, h http.Header) int {
			if n == 1 {
				return fields(h, `"api";q=1000;w=60`, `"api";r=900;t=60`)
			}
			return fields(h, `"api";q=10;w=60`, `"api";r=9;t=60`)
		}}
		transport := &Transport{Base: a}
		for range 3 {
			_, err := transport.RoundTrip(request(t, "GET", ""))
			must.Succeed(t, err)
		}
		waited := a.came[2].Sub(a.came[1])
		must.Equal(t, waited < 10*time.Second, true, "waited for one of nine that remain for a minute: %s", waited)
	})
}

// The clock of a client may be wrong by hours: times that the API says are by the API's clock.
func TestTimesAreByTheClockOfTheAPI(t *testing.T) {
	for _, off := range []time.Duration{-5 * time.Hour, 0, 5 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			a := &api{answer: func(n int, h http.Header) int {
				there := time.Now().Add(off).UTC()
				h.Set("Date", there.Format(http.TimeFormat))
				if n == 1 {
					h.Set("Retry-After", there.Add(30*time.Second).Format(http.TimeFormat))
					return http.StatusTooManyRequests
				}
				h.Set("X-RateLimit-Limit", "10")
				h.Set("X-RateLimit-Remaining", "0")
				h.Set("X-RateLimit-Reset", strconv.FormatInt(there.Unix()+20, 10))
				return http.StatusOK
			}}
			transport := &Transport{Base: a}
			for range 2 {
				_, err := transport.RoundTrip(request(t, "GET", ""))
				must.Succeed(t, err)
			}
			must.Equal(t, a.came[1].Sub(a.came[0]) >= 30*time.Second && a.came[1].Sub(a.came[0]) <= 33*time.Second, true, "%s off, after Retry-After: %s", off, a.came[1].Sub(a.came[0]))
			must.Equal(t, a.came[2].Sub(a.came[1]) >= 20*time.Second && a.came[2].Sub(a.came[1]) <= 25*time.Second, true, "%s off, after the reset: %s", off, a.came[2].Sub(a.came[1]))
		})
	}
}

// However many hosts there are, and whatever they send, what is remembered is bounded; and a new one costs no more than one its memory.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(n int, h http.Header) int {
			var policies, states strings.Builder
			for i := range 1000 {
				name := strconv.Itoa(1000*n + i)
				policies.WriteString(`"` + name + `";q=10;w=60,`)
				states.WriteString(`"` + name + `";r=10;t=60,`)
			}
			return fields(h, policies.String(), states.String())
		}}
		transport := &Transport{Base: a}
		for range 3 {
			_, err := transport.RoundTrip(request(t, "GET", ""))
			must.Succeed(t, err)
		}
		must.Equal(t, len(transport.pacers["api.test"].seen) <= mostSeen, true, "policies that are remembered: %d", len(transport.pacers["api.test"].seen))
		a.answer = func(_ int, h http.Header) int { h.Set("Retry-After", "30"); return http.StatusTooManyRequests }
		transport.Retries = -1
		for i := range mostKept + 10 {
			r := request(t, "GET", "")
			r.URL.Host = strconv.Itoa(i)
			_, err := transport.RoundTrip(r)
			must.Succeed(t, err)
		}
		held := 0
		for _, p := range transport.pacers {
			if transport.held(p) {
				held++
			}
		}
		must.Equal(t, held >= mostKept-1, true, "hosts of which it is known that they ask to wait")
	})
}

type idle struct{ api }

func (i *idle) CloseIdleConnections() { i.came = append(i.came, time.Now()) }

func TestIdleConnectionsOfTheBaseAreClosed(t *testing.T) {
	base := &idle{}
	(&http.Client{Transport: &Transport{Base: base}}).CloseIdleConnections()
	must.Equal(t, len(base.came), 1, "calls")
	(&http.Client{Transport: &Transport{Base: &base.api}}).CloseIdleConnections() // which has none
}

// A request earns its share of a retry once, however often it is held.
func TestAHeldRequestEarnsOneShareOfARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(_ int, h http.Header) int { return http.StatusOK }}
		transport := &Transport{Base: a, spent: 5}
		transport.pacers = map[string]*pacer{"api.test": {hold: time.Now().Add(time.Second), seen: map[string]policy{}}}
		for i := range 20 {
			time.AfterFunc(time.Duration(i)*time.Second+time.Millisecond, func() {
				transport.mu.Lock()
				transport.pacers["api.test"].hold = time.Now().Add(time.Second)
				transport.mu.Unlock()
			})
		}
		_, err := transport.RoundTrip(request(t, "GET", ""))
		must.Succeed(t, err)
		must.Equal(t, transport.spent, 4.9, "retries that are spent")
	})
}

func TestKeysSeparateQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{answer: func(_ int, h http.Header) int {
			h.Set("X-RateLimit-Limit", "5")
			h.Set("X-RateLimit-Reset", "50")
			return http.StatusOK
		}}
		transport := &Transport{Base: a, Key: func(r *http.Request) string { return r.Header.Get("Authorization") }}
		for i := range mostKept + 1 {
			_, err := transport.RoundTrip(request(t, "GET", "", "Authorization", strconv.Itoa(i)))
			must.Succeed(t, err)
		}
		must.Equal(t, a.came[mostKept].Equal(a.came[0]), true, "keys of their own do not wait")
		must.Equal(t, len(transport.pacers), mostKept, "keys that are remembered")
	})
}

// Each form of the fields has the second request wait as long as what remains is spread over the time until the reset.
func TestTheFieldsAreReadInEachForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			fields []string
			gap    float64 // in seconds
		}{
			"IETF":                      {[]string{"RateLimit-Policy", `"a";q=100;w=60`, "RateLimit", `"a";r=51;t=50`}, 1},
			"several, the slowest":      {[]string{"RateLimit-Policy", `"a";q=100;w=60, "b";q=10;w=60`, "RateLimit", `"a";r=51;t=50, "b";r=5;t=49`}, 10},
			"with other parameters":     {[]string{"RateLimit-Policy", `"a, \"b\"";qu="requests;q=9";q=100;w=60;pk=:YQ==:`, "RateLimit", `"a, \"b\"" ; r=51 ; t=50`}, 1},
			"a token for a name":        {[]string{"RateLimit-Policy", `default;q=100;w=60`, "RateLimit", `default;r=51;t=50`}, 1},
			"without a policy":          {[]string{"RateLimit", `"a";r=50;t=49`}, 1},
			"no reset: those under way": {[]string{"RateLimit-Policy", `"a";q=2;qu="concurrent-requests"`, "RateLimit", `"a";r=0`}, 0},
			"X-":                        {[]string{"X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "51", "X-RateLimit-Reset", "50"}, 1},
			"X-, beside IETF":           {[]string{"RateLimit-Policy", `"a";q=100;w=60`, "RateLimit", `"a";r=51;t=50`, "X-RateLimit-Limit", "9", "X-RateLimit-Reset", "40"}, 1},
			"X- in time":                {[]string{"X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "51", "X-RateLimit-Reset", strconv.FormatInt(time.Now().Unix()+50, 10)}, 1},
			"a time that has passed":    {[]string{"X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.FormatInt(time.Now().Unix()-50, 10)}, 0},
			"an earlier draft":          {[]string{"RateLimit-Limit", "100", "RateLimit-Remaining", "51", "RateLimit-Reset", "50"}, 1},
			"nonsense":                  {[]string{"RateLimit-Policy", `;;"q=1`, "RateLimit", `r=1;t=,,`, "X-RateLimit-Limit", "many"}, 0},
			"a limit of none":           {[]string{"RateLimit-Policy", `"a";q=0;w=60`, "RateLimit", `"a";r=0`, "X-RateLimit-Limit", "0"}, 0},
		} {
			h := http.Header{}
			for i := 0; i < len(c.fields); i += 2 {
				h.Set(c.fields[i], c.fields[i+1])
			}
			transport, p := &Transport{}, &pacer{seen: map[string]policy{}}
			transport.learn(p, &http.Response{StatusCode: http.StatusOK, Header: h}, time.Now())
			if gap := p.gap.Seconds(); gap < c.gap*0.95 || gap > c.gap*1.05 {
				t.Errorf("%s: %v between requests, want %v s", name, p.gap, c.gap)
			}
		}
	})
}
