package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// Requests that their responses charge, in a real Traefik. Those of Caddy have more cases, and streaming_test.go has what of a response passes untouched.

// answerAsModel answers as a service that speaks the form of OpenAI's API: the tokens are those that the request asks for.
func answerAsModel(w http.ResponseWriter, r *http.Request) {
	tokens := r.FormValue("tokens")
	w.Header().Set("X-Tokens", tokens)
	switch r.FormValue("as") {
	case "stream":
		w.Header().Set("Content-Type", "text/event-stream")
		for _, data := range []string{`{"choices":[{"delta":{"content":"Hello"}}],"usage":null}`, `{"choices":[],"usage":{"total_tokens":` + tokens + `}}`, `[DONE]`} {
			fmt.Fprintf(w, "data: %s\n\n", data)
			_ = http.NewResponseController(w).Flush()
		}
	case "trailer":
		w.Header().Set("Trailer", "X-Cost")
		_, _ = io.WriteString(w, "ok")
		w.Header().Set("X-Cost", tokens)
	case "bytes":
		n, _ := strconv.Atoi(tokens)
		_, _ = io.WriteString(w, strings.Repeat("a", n))
	case "upgrade":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Tokens: %s\r\n\r\n", tokens)
		conn.Close()
	case "failure":
		w.WriteHeader(http.StatusUnauthorized)
	case "broken":
		panic(http.ErrAbortHandler)
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"choices":[{"message":{"content":%q}}],"usage":{"total_tokens":%s}}`, strings.Repeat("a", 2000), tokens)
	}
}

func remaining(r response) string { return r.header.Get("X-RateLimit-Remaining") }

// Two Traefiks on one Redis share what responses have cost, as one does in memory.
func TestTraefikChargesWhatResponsesTell(t *testing.T) {
	_, second := startPair(t)
	for _, c := range []struct{ source, query string }{
		{"json, usage.total_tokens", ""},
		{"json, usage.total_tokens", "&as=stream"},
		{"header, X-Tokens", ""},
		{"trailer, X-Cost", "&as=trailer"},
		{"bytes", "&as=bytes"},
	} {
		for _, store := range []string{"{memory: {}}", inRedis(redistest.Start(t).Addr())} {
			s := newSite(t)
			upstream.handle(s.host(), answerAsModel)
			s.limit("tokens", "{limit: 1000/366d, algorithm: token_bucket, key: 'header:X-Api-Key', cost: 0, costResponse: ["+c.source+"], metrics: {}, store: "+store+"}")
			s.route("/", "tokens")
			s.apply()
			sides := []*site{s, s}
			if strings.Contains(store, "redis") {
				sides[1] = s.at(second)
			}
			for i, left := range []string{"400", "0"} {
				sides[i].admit(1, "/?tokens=600"+c.query, "X-Api-Key", "alice")
				eventually(t, "the tokens are charged", func() bool { // a moment after the client has got the body
					return remaining(sides[i].do("/?tokens=0"+c.query, "X-Api-Key", "alice")) == left
				})
			}
			sides[0].reject("/?tokens=1", "X-Api-Key", "alice") // 200 are owed
			sides[1].admit(1, "/?tokens=1", "X-Api-Key", "bob")
		}
	}
}

// Two Traefiks on one Redis pause a key, as one does in memory, when the service that one of them has asked wants it.
func TestTraefikPausesAKeyWhenTheServiceAsks(t *testing.T) {
	_, second := startPair(t)
	for _, store := range []string{"{memory: {}}", inRedis(redistest.Start(t).Addr())} {
		s := newSite(t)
		upstream.handle(s.host(), func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/asks" {
				w.Header().Set("Retry-After", "600")
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		s.limit("calls", "{limit: 100/1m, key: 'header:X-Key', respectUpstream: 1m, store: "+store+"}")
		s.route("/", "calls")
		s.apply()
		sides := []*site{s, s}
		if strings.Contains(store, "redis") {
			sides[1] = s.at(second)
		}
		sides[0].admit(2, "/", "X-Key", "a")
		must.Equal(t, sides[0].do("HEAD /asks", "X-Key", "a").header.Get("Retry-After"), "600", "the service's own answer")
		for _, side := range sides {
			side.reject("/", "X-Key", "a").number(t, "Retry-After", 50, 60)
			side.admit(1, "/", "X-Key", "b")
		}
	}
}

// Failed logins count and others do not, in a rule's own file, too; a response that breaks off has no status that counts.
func TestTraefikCountsByStatus(t *testing.T) {
	s := newSite(t)
	upstream.handle(s.host(), answerAsModel)
	rules := ruleFile(t, t.TempDir()+"/rules.json", `{"rules": [{"name": "login", "limit": "2/366d", "algorithm": "sliding_window_log", "count": [401]}]}`)
	s.limit("limit", "{limit: 2/366d, count: ['401']}")
	s.limit("filed", "{rulesFile: ['"+rules+"']}")
	s.limit("field", "{limit: 2/366d, count: ['header:X-Tokens=7', 'trailer:X-Cost=7']}")
	s.route("/field", "field")
	s.route("/limit", "limit")
	s.route("/filed", "filed")
	s.apply()
	for _, path := range []string{"/limit", "/filed"} {
		must.Equal(t, remaining(s.admit(5, path+"?tokens=1")), "1", path)
		must.Equal(t, s.do(path+"?as=broken").status, http.StatusBadGateway, "a response that breaks off")
		for range 2 {
			must.Equal(t, s.do(path+"?as=failure").status, http.StatusUnauthorized, "a failure")
		}
		s.reject(path + "?tokens=1")
	}
	must.Equal(t, remaining(s.admit(5, "/field?tokens=1")), "1", "another value")
	must.Equal(t, s.do("/field?tokens=7&as=upgrade", "Connection", "Upgrade", "Upgrade", "echo").status, http.StatusSwitchingProtocols, "an upgrade")
	s.admit(1, "/field?tokens=7&as=trailer")
	s.reject("/field?tokens=1")
}

// Failed logins count, and who has too many is kept from the whole site, by the middleware's own rule and by one in a file.
func TestTraefikCountsSomeRequestsAndLimitsAll(t *testing.T) {
	s := newSite(t)
	upstream.handle(s.host(), answerAsModel)
	rules := ruleFile(t, t.TempDir()+"/rules.json", `{"rules": [{"name": "login", "limit": "2/366d", "count": [401], "count_match": {"paths": ["/filed/login"]}}]}`)
	s.limit("limit", "{limit: 2/366d, count: ['401'], countMatch: {paths: [/limit/login]}}")
	s.limit("filed", "{rulesFile: ['"+rules+"']}")
	s.limit("any", "{limit: 2/366d, countMatch: {paths: [/any/login]}}")
	for _, name := range []string{"limit", "filed", "any"} {
		s.route("/"+name, name)
	}
	s.apply()
	for _, path := range []string{"/limit", "/filed", "/any"} {
		must.Equal(t, remaining(s.admit(3, path+"?tokens=1")), "2", path)
		must.Equal(t, s.do(path+"?as=failure").status, http.StatusUnauthorized, "one that is no login")
		must.Equal(t, remaining(s.do(path+"?tokens=1")), "2", path)
		for range 2 {
			must.Equal(t, s.do(path+"/login?as=failure").status, http.StatusUnauthorized, "a failed login")
		}
		s.reject(path + "?tokens=1")
	}
}

// A body that the compress middleware compresses on its way to the plugin cannot be read, and that is told once. In the other order it can.
func TestTraefikTellsOfACompressedBody(t *testing.T) {
	const says = "a response that says what its request has cost came compressed, and was charged the rule's cost instead; let the compress middleware stand before this one"
	for _, c := range []struct {
		order []string
		left  string // with the cost of the request that asks
		told  int
	}{{[]string{"tokens", "gzip"}, "997", 1}, {[]string{"gzip", "tokens"}, "799", 0}} {
		s := newSite(t)
		upstream.handle(s.host(), answerAsModel)
		s.limit("tokens", "{limit: 1000/366d, algorithm: token_bucket, costResponse: [json, usage.total_tokens]}")
		s.middleware("gzip", "compress: {}\n")
		s.route("/", c.order...)
		s.apply()
		for range 2 {
			must.Equal(t, s.admit(1, "/?tokens=100", "Accept-Encoding", "gzip").header.Get("Content-Encoding"), "gzip", "%v", c.order)
		}
		eventually(t, "both are charged", func() bool { return remaining(s.do("/?tokens=0")) == c.left })
		must.Equal(t, len(s.log(says)), c.told, "%v: told", c.order)
	}
}

// A Caddy and a Traefik that are eventual hear of what responses have cost on the other, and of what is owed.
func TestProxiesThatAreEventualHearWhatResponsesTell(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newSite(t)
	upstream.handle(s.host(), answerAsModel)
	s.limit("tokens", "{namespace: fleet, rules: [{name: tokens, limit: 1000/366d, algorithm: token_bucket, key: 'header:X-Api-Key', cost: 0, costResponse: [json, usage.total_tokens], consistency: eventual 50ms}], store: "+inRedis(server.Addr())+"}")
	s.route("/", "tokens")
	s.apply()
	c := startCaddy(t, "respond /up ok\nroute /v1 {\nrate_limit {\nzone tokens {\nlimit 1000/366d\nalgorithm token_bucket\nkey {header.X-Api-Key}\ncost 0\ncost_response json usage.total_tokens\nconsistency eventual 50ms\n}\n"+
		"namespace fleet\nstore redis "+server.Addr()+" {\nnodes 1\n}\n}\nheader Content-Type application/json\nrespond `{\"usage\": {\"total_tokens\": 10}}`\n}\n")
	ask := func() response {
		r, err := c.try("/v1", "X-Api-Key", "alice")
		must.Succeed(t, err)
		return r
	}
	must.Equal(t, remaining(ask()), "1000", "nothing is used")
	s.admit(1, "/?tokens=600", "X-Api-Key", "alice")
	eventually(t, "the Caddy hears of it", func() bool { left, _ := strconv.Atoi(remaining(ask())); return left <= 400 })
	s.admit(1, "/?tokens=900", "X-Api-Key", "alice")
	eventually(t, "the Caddy hears of the debt", func() bool { return ask().status == http.StatusTooManyRequests })
	s.reject("/?tokens=1", "X-Api-Key", "alice")
}

// A Caddy and a Traefik that lease share what responses have cost, with fewer calls than requests: what is beyond the limit is owed, and no more than one response of each is.
func TestProxiesThatLeaseChargeWhatResponsesTell(t *testing.T) {
	t.Parallel()
	const limit, each = 3000, 10
	server := redistest.Start(t)
	s := newSite(t)
	upstream.handle(s.host(), answerAsModel)
	s.limit("tokens", fmt.Sprintf("{namespace: fleet, rules: [{name: tokens, limit: %d/366d, algorithm: token_bucket, key: 'header:X-Api-Key', cost: 0, costResponse: [json, usage.total_tokens], consistency: lease}], store: %s}", limit, inRedis(server.Addr())))
	s.route("/", "tokens")
	s.apply()
	c := startCaddy(t, fmt.Sprintf("respond /up ok\nroute /v1 {\nrate_limit {\nzone tokens {\nlimit %d/366d\nalgorithm token_bucket\nkey {header.X-Api-Key}\ncost 0\ncost_response json usage.total_tokens\nconsistency lease\n}\n"+
		"namespace fleet\nstore redis %s {\ntimeout 20s\nread_timeout 20s\ndial_timeout 20s\nnodes 1\n}\n}\nheader Content-Type application/json\nrespond `{\"usage\": {\"total_tokens\": %d}}`\n}\n", limit, server.Addr(), each))
	conn, err := redistest.Dial(server.Addr(), nil)
	must.Succeed(t, err)
	defer conn.Close()
	before, requests, tokens := scriptCalls(t, conn), 0, 0
	tries := []func() (response, error){
		func() (response, error) { return s.try(fmt.Sprintf("/?tokens=%d", each), "X-Api-Key", "alice") },
		func() (response, error) { return c.try("/v1", "X-Api-Key", "alice") },
	}
	for rejected := 0; rejected < 4; requests++ {
		r, err := tries[requests%2]()
		must.Succeed(t, err)
		if r.status == http.StatusOK {
			tokens += each
		} else {
			must.Equal(t, r.status, http.StatusTooManyRequests, "after %d tokens", tokens)
			rejected++
		}
	}
	calls := scriptCalls(t, conn) - before
	t.Logf("%d tokens of %d in %d requests, with %d calls", tokens, limit, requests, calls)
	if tokens < limit*9/10 || tokens > limit+2*each || calls > requests*2/3 {
		t.Errorf("%d tokens of %d in %d requests, with %d calls", tokens, limit, requests, calls)
	}
}
