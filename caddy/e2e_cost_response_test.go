package ratelimit_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// llm is a service that speaks the form of OpenAI's API: it answers with so many tokens as the query says, in one piece, or with stream as events, of
// which the last but one has the usage. It waits for a value from next before each event, if that is not nil.
type llm struct{ next chan bool }

func (m *llm) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tokens, _ := strconv.Atoi(r.FormValue("tokens"))
	usage := fmt.Sprintf(`{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}`, tokens/4, tokens-tokens/4, tokens)
	if r.FormValue("stream") == "" {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"a \"usage\": {\"total_tokens\": 1}"}}],"usage":%s}`, usage)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, word := range []string{"Hello", " world"} {
		if m.await(r) != nil {
			return
		}
		fmt.Fprintf(w, "data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"delta\":{\"content\":%q}}],\"usage\":null}\n\n", word)
		_ = http.NewResponseController(w).Flush()
	}
	if m.await(r) == nil {
		fmt.Fprintf(w, "data: {\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":%s}\n\ndata: [DONE]\n\n", usage)
	}
}

func (m *llm) await(r *http.Request) error {
	if m.next == nil {
		return nil
	}
	select {
	case <-m.next:
		return nil
	case <-r.Context().Done():
		return r.Context().Err()
	}
}

// startModel starts a site in front of a model, with a limit on tokens. beside are more lines of the zone.
func startModel(t *testing.T, m *llm, zone, beside string) *server {
	service := httptest.NewServer(m)
	t.Cleanup(service.Close)
	return startSite(t, withMetrics("rate_limit {\nzone "+zone+" {\nkey {header.X-Api-Key}\n"+beside+"}\n}\nreverse_proxy "+service.URL))
}

const ofTokens = "limit 1000/366d\ncost 0\ncost_response json usage.total_tokens\n"

func TestTokensOfALanguageModelAreLimited(t *testing.T) {
	for _, algorithm := range []string{"token_bucket", "leaky_bucket", "fixed_window", "sliding_window_log", "sliding_window_counter"} {
		for _, stream := range []string{"", "&stream=1"} {
			zone := algorithm + strings.Trim(stream, "&=1") // counters are the process's
			s := startModel(t, &llm{}, zone, ofTokens+"algorithm "+algorithm+"\n")
			path := "POST /v1/chat/completions?tokens=400" + stream
			for i, want := range []int{1000, 600, 200} {
				r := s.do(path, "X-Api-Key", "alice")
				if algorithm == "leaky_bucket" && i > 0 { // behind the tokens of the first request it would wait for months
					if r.status != http.StatusTooManyRequests {
						t.Errorf("%s: status %d", algorithm, r.status)
					}
					break
				}
				if r.status != http.StatusOK || r.remaining(t) != want {
					t.Fatalf("%s%s, request %d: status %d, %d remain, want %d", algorithm, stream, i, r.status, r.remaining(t), want)
				}
			}
			r := s.reject(path, "X-Api-Key", "alice")
			const day = 24 * 3600
			least, most := 1, 2*366*day
			if algorithm == "token_bucket" { // 200 are owed, and one more must be free
				least, most = 201*366*day/1000-day, 201*366*day/1000+1
			}
			r.seconds(t, "Retry-After", least, most)
			s.admit(1, path, "X-Api-Key", "bob")
			if algorithm == "token_bucket" {
				must.Equal(t, s.metric(`weir_response_costs_total{outcome="read",rule="`+zone+`"}`), "4", "responses")
				must.Equal(t, s.metric(`weir_response_units_total{rule="`+zone+`"}`), "1600", "units")
			}
		}
	}
}

// What is read of a stream holds no byte of it back: the service sends an event only after the client has read the one before. A client that leaves is
// charged the rule's cost, if the response has not told it by then.
func TestAStreamThatIsMeasuredIsNotHeldBack(t *testing.T) {
	m := &llm{next: make(chan bool)}
	s := startModel(t, m, "streamed", "limit 1000/366d\nalgorithm token_bucket\ncost 5\ncost_response json usage.total_tokens\n")
	begin := func() (*http.Response, *bufio.Scanner) {
		go func() { m.next <- true }()
		answer, err := s.client.Post("http://"+s.addr+"/?tokens=100&stream=1", "application/json", nil)
		must.Succeed(t, err)
		lines := bufio.NewScanner(answer.Body)
		if !lines.Scan() || !strings.Contains(lines.Text(), "Hello") {
			t.Fatalf("the first event: %q, %v", lines.Text(), lines.Err())
		}
		return answer, lines
	}
	remaining := func() int { return s.do("/?tokens=0").remaining(t) } // with its own cost still reserved
	answer, lines := begin()
	for _, event := range []string{"world", "total_tokens"} {
		m.next <- true
		for !strings.Contains(lines.Text(), event) {
			if !lines.Scan() {
				t.Fatalf("%s: %v", event, lines.Err())
			}
		}
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
	eventually(t, "the tokens are charged", func() bool { return remaining() == 1000-100-5 })
	answer, _ = begin()
	answer.Body.Close()
	eventually(t, "the cost is charged", func() bool { return remaining() == 1000-100-5-5 })
}

func TestResponsesTellCostsInManyWays(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/trailer":
			w.Header().Set("Trailer", "X-Cost")
			_, _ = io.WriteString(w, "ok")
			w.Header().Set("X-Cost", "7")
		case "/none":
			_, _ = io.WriteString(w, "1234567890")
		default:
			w.Header().Set("X-Cost", strings.TrimPrefix(r.URL.Path, "/"))
			_, _ = io.WriteString(w, "1234567890")
		}
	}))
	t.Cleanup(service.Close)
	zone := func(name, source string) string {
		return "zone " + name + " {\nkey everyone\nlimit 1000/366d\nalgorithm token_bucket\ncost 3\ncost_response " + source + "\ncost_max 50\n}\n"
	}
	s := startSite(t, withMetrics("rate_limit {\n"+zone("head", "header X-Cost")+zone("tail", "trailer X-Cost")+zone("size", "bytes")+"}\nreverse_proxy "+service.URL))
	used := func(rule string) string { return s.metric(`weir_response_units_total{rule="` + rule + `"}`) }
	for _, c := range []struct{ path, head, tail, size string }{
		{"/20", "20", "3", "10"},
		{"/0", "20", "6", "20"},
		{"/1.5", "22", "9", "30"},
		{"/-4", "25", "12", "40"},
		{"/x", "28", "15", "50"},
		{"/9000", "78", "18", "60"},
		{"/none", "81", "21", "70"},
		{"/trailer", "84", "28", "72"},
	} {
		s.admit(1, c.path)
		if head, tail, size := used("head"), used("tail"), used("size"); head != c.head || tail != c.tail || size != c.size {
			t.Errorf("after %s: %s, %s and %s units, want %s, %s and %s", c.path, head, tail, size, c.head, c.tail, c.size)
		}
	}
	for outcome, want := range map[string]string{"read": "3", "missing": "4", "cut": "1"} {
		must.Equal(t, s.metric(`weir_response_costs_total{outcome="`+outcome+`",rule="head"}`), want, "%s", outcome)
	}
	if got := s.do("/none").remaining(t); got != 1000-84-3 {
		t.Errorf("%d remain", got)
	}
}

// A login form that answers 200 for a wrong password, too, says so in a field, which its clients do not see; and a gRPC service in a trailer.
func TestFieldsOfResponsesHaveRequestsCount(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Grpc-Status")
		if r.URL.Path == "/wrong" {
			w.Header().Set("X-Login", "failed")
		}
		_, _ = io.WriteString(w, "hello")
		if r.URL.Path == "/unauthenticated" {
			w.Header().Set("Grpc-Status", "16")
		}
	}))
	t.Cleanup(service.Close)
	s := startSite(t, "header -X-Login\nrate_limit {\nzone form {\nkey everyone\nlimit 3/366d\ncount 5xx header:X-Login=failed trailer:Grpc-Status=16\n}\n}\nreverse_proxy "+service.URL)
	s.admit(5, "/right")
	for i, path := range []string{"/wrong", "/unauthenticated", "/wrong"} {
		r := s.do(path)
		must.Equal(t, r.remaining(t), 2-i, path)
		must.Equal(t, r.header.Get("X-Login"), "", path)
	}
	s.reject("/right")
}

// With count, a response whose status does not count charges nothing, whatever it says.
func TestACostOfAStatusThatDoesNotCountIsNotCharged(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Cost", "20")
		if r.URL.Path == "/missing" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(service.Close)
	s := startSite(t, withMetrics("rate_limit {\nzone found {\nkey everyone\nlimit 1000/366d\nalgorithm token_bucket\ncost 0\ncount 2xx\ncost_response header X-Cost\n}\n}\nreverse_proxy "+service.URL))
	for _, path := range []string{"/", "/missing", "/"} {
		s.do(path)
	}
	must.Equal(t, s.metric(`weir_response_units_total{rule="found"}`), "40", "units")
	must.Equal(t, s.do("/missing").remaining(t), 960, "remaining")
}

// A body that encode compresses on its way to rate_limit cannot be read, and that is told once. In the other order it can.
func TestACompressedBodyIsToldOf(t *testing.T) {
	body := `{"usage":{"total_tokens":100},"text":"` + strings.Repeat("a", 2000) + `"}`
	limit := "rate_limit {\nzone tokens {\nkey everyone\n" + ofTokens + "}\n}\n"
	rest := "header Content-Type application/json\nrespond `" + body + "`\n"
	const says = "a response that says what its request has cost came compressed, and was charged the rule's cost instead: write encode in front of rate_limit, in a route block; " +
		"if the service itself compresses, write header_up Accept-Encoding identity into reverse_proxy"
	for name, c := range map[string]struct {
		site            string
		remaining, told int
	}{
		"outside": {strings.Replace(limit, "tokens", "outside", 1) + "encode gzip\n" + rest, 1000, 1},
		"inside":  {"route {\nencode gzip\n" + strings.Replace(limit, "tokens", "inside", 1) + rest + "}\n", 700, 0},
	} {
		s := startSite(t, c.site)
		for range 3 {
			s.admit(1, "/", "Accept-Encoding", "gzip")
		}
		remaining, told := s.do("/").remaining(t), len(s.logs(says))
		if remaining != c.remaining || told != c.told {
			t.Errorf("%s: %d remain, want %d; told %d times, want %d", name, remaining, c.remaining, told, c.told)
		}
	}
}

// A request that is under way while the configuration is replaced is charged in the counter that goes on.
func TestAReloadLosesNoCost(t *testing.T) {
	m := &llm{next: make(chan bool)}
	service := httptest.NewServer(m)
	t.Cleanup(service.Close)
	site := func(message string) string {
		return "rate_limit {\nzone tokens {\nkey everyone\n" + ofTokens + "message " + message + "\n}\n}\nreverse_proxy " + service.URL
	}
	s := startSite(t, site("before"))
	done := make(chan response)
	go func() {
		r, _ := s.try(s.client, "/?tokens=300&stream=1")
		done <- r
	}()
	m.next <- true
	s.reload(site("after"))
	m.next <- true
	m.next <- true
	if r := <-done; r.status != http.StatusOK {
		t.Fatalf("%+v", r)
	}
	if got := s.do("/?tokens=0").remaining(t); got != 700 {
		t.Errorf("%d remain, want 700", got)
	}
}

// Two Caddys on one Redis share what responses have cost, and what is owed.
func TestAFleetSharesCosts(t *testing.T) {
	redis := redistest.Start(t)
	service := httptest.NewServer(&llm{})
	t.Cleanup(service.Close)
	fleet := startFleet(t, 2, up+"route {\nrate_limit {\nzone tokens {\nkey everyone\n"+ofTokens+"}\n"+storeAt(redis.Addr(), patiently)+"}\nreverse_proxy "+service.URL+"\n}\n")
	for i, want := range []int{1000, 600, 200, -1, -1} {
		if got := fleet[i%2].remaining("/?tokens=400"); got != want {
			t.Errorf("request %d: %d remain, want %d", i, got, want)
		}
	}
}
