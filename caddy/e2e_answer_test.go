package ratelimit_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// answers are limits with answers of their own, each of a path of its name. FILE is a page.
const answers = `
	rate_limit {
		rules_file RULES
		zone forbidden {
			match {
				path /forbidden /both
			}
			limit 1/366d
			answer {
				status 403
			}
		}
		zone page {
			match {
				path /page
			}
			limit 1/1d
			answer {
				status 503
				file FILE
			}
		}
		zone json {
			match {
				path /json
			}
			limit 1/1d
			answer {
				type application/json
				body ` + "`" + `{"as":{"is":"\\{x\\} {none}","by":"{http.request.method}"},"rule":"{rule}","limit":{limit},"left":{remaining},"again":{retry_after},"uri":"{http.request.uri.query}"}` + "`" + `
			}
		}
		zone away {
			match {
				path /away /both
			}
			limit 1/1d
			answer {
				redirect "https://example.com/slow?by={rule}&after={retry_after}&from={http.request.uri}"
			}
		}
		zone shut {
			match {
				path /shut
			}
			limit 1/1d
			message "Go away."
			answer {
				status 503
				close
			}
		}
		response RESPONSE
	}
	respond ok
	handle_errors {
		respond "error route {http.error.status_code} {http.rate_limit.exceeded.name}"
	}`

// startAnswers runs a site with answers.
func startAnswers(t *testing.T, response string) *server {
	dir := t.TempDir()
	page, rules := filepath.Join(dir, "slow.html"), filepath.Join(dir, "rules.yaml")
	must.Succeed(t, os.WriteFile(page, []byte("<!doctype html>\n<style>p { color: red }</style><p>{rule}: {limit}, {retry_after} s, {http.request.uri.query}"), 0o600))
	must.Succeed(t, os.WriteFile(rules, []byte("rules: [{name: filed, match: {paths: [/filed]}, limit: 1/1d, answer: {status: 503, body: 'Filed under {rule}, {http.request.method}.'}}]"), 0o600))
	return startSite(t, strings.NewReplacer("FILE", page, "RULES", rules, "RESPONSE", response).Replace(answers))
}

func TestARuleHasAnAnswerOfItsOwn(t *testing.T) {
	s := startAnswers(t, "direct")
	do := s.do
	for _, path := range []string{"/forbidden", "/page", "/json", "/away", "/shut", "/filed"} {
		s.admit(1, path)
	}
	r := do("/forbidden")
	must.Equal(t, r.status, 403, "the status")
	r.want(t, "Cache-Control", "no-store", "Content-Type", "text/plain; charset=utf-8", "Content-Length", strconv.Itoa(len(r.body)))
	r.seconds(t, "Retry-After", 1, 366*86400)
	must.Contain(t, r.body, "Too many requests")

	r = do("/page?<script>")
	again := r.seconds(t, "Retry-After", 1, 86400)
	must.Equal(t, r.body, "<!doctype html>\n<style>p { color: red }</style><p>page: 1, "+strconv.Itoa(again)+" s, &lt;script&gt;", "the page")
	r.want(t, "Content-Type", "text/html; charset=utf-8", "Content-Length", strconv.Itoa(len(r.body)))
	must.Equal(t, r.status, 503, "the status")
	head := do("HEAD /page?<script>")
	head.want(t, "Content-Length", strconv.Itoa(len(r.body)), "Content-Type", "text/html; charset=utf-8")
	must.Equal(t, head.status, 503, "the status of HEAD")

	for _, accept := range []string{"*/*", "application/json"} {
		r = do(`/json?"\`, "Accept", accept)
		var said struct {
			Rule, URI          string
			As                 map[string]string
			Limit, Left, Again int
		}
		must.Succeed(t, json.Unmarshal([]byte(r.body), &said))
		must.Equal(t, said.As["is"]+" "+said.As["by"], `\{x\} {none} GET`, "what is no placeholder, and what is one within braces")
		if r.status != 429 || said.Rule != "json" || said.Limit != 1 || said.Left != 0 || said.Again < 1 || said.URI == "" {
			t.Errorf("%d %s", r.status, r.body)
		}
		r.want(t, "Content-Type", "application/json")
	}

	r = do("/away?a=b&c=%0d%0aX:%20y")
	must.Equal(t, r.status, 302, "the status")
	r.want(t, "Location", "https://example.com/slow?by=away&after="+r.header.Get("Retry-After")+"&from=%2Faway%3Fa%3Db%26c%3D%250d%250aX%3A%2520y", "X", "-", "Cache-Control", "no-store")

	r = do("/shut")
	must.Equal(t, strconv.Itoa(r.status)+r.body, "503Go away.\n", "the answer")

	must.Equal(t, do("POST /filed").body, "Filed under filed, POST.", "a rule of a file")

	// Of several, it is that of the longest wait.
	must.Equal(t, do("/both").status, 403, "the status")

	// Clients that ask for JSON get a problem, and are not redirected.
	for path, status := range map[string]int{"/forbidden": 403, "/page": 503, "/away": 429, "/shut": 503} {
		var problem struct{ Status int }
		r = do(path, "Accept", "application/problem+json")
		must.Succeed(t, json.Unmarshal([]byte(r.body), &problem))
		must.Equal(t, strconv.Itoa(r.status)+" "+strconv.Itoa(problem.Status), strconv.Itoa(status)+" "+strconv.Itoa(status), "%s as a problem", path)
		r.want(t, "Location", "-", "Content-Type", "application/problem+json")
	}
}

func TestErrorRoutesSeeTheStatusOfARule(t *testing.T) {
	s := startAnswers(t, "auto")
	for path, want := range map[string]string{"/forbidden": "403 error route 403 forbidden", "/shut": "503 error route 503 shut", "/page": "503 <!doctype html>", "/away": "302 Too many"} {
		s.admit(1, path)
		r := s.do(path)
		must.Contain(t, strconv.Itoa(r.status)+" "+r.body, want)
	}
	s.reload("rate_limit {\nzone z {\nlimit 1/366d\nanswer {\nstatus 403\n}\n}\nresponse error_routes\n}\nrespond ok\nhandle_errors 403 {\nrespond forbidden\n}")
	s.admit(1, "/")
	must.Equal(t, s.do("/").body, "forbidden", "the error route's answer")
}

func TestAConcurrencyHasAnAnswer(t *testing.T) {
	arrived, release := make(chan bool), make(chan bool)
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- true
		<-release
	}))
	defer upstream.Close()
	s := startSite(t, "rate_limit {\nzone many {\nkey everyone\nconcurrency 1\nanswer {\nstatus 503\nbody \"At most {limit} at a time. {rul}\"\n}\n}\n}\nreverse_proxy "+upstream.Listener.Addr().String())
	ended := make(chan bool)
	go func() {
		defer close(ended)
		_, _ = s.try(s.client, "/")
	}()
	awaitOne(t, "the first request", arrived)
	r := s.do("/")
	must.Equal(t, strconv.Itoa(r.status)+r.body, "503At most 1 at a time. {rul}", "the answer")
	s.said(1, "answer: body {rul}: stands for nothing, and clients get it as it is (did you mean {rule}?)")
	release <- true
	awaitOne(t, "its answer", ended)
}

// A connection ends with its answer in every version of HTTP that says so in its own way.
func TestAnAnswerClosesTheConnection(t *testing.T) {
	s := startTLS(t, "rate_limit {\nzone z {\nkey everyone\nlimit 1/366d\nanswer {\nclose\n}\n}\n}\nrespond ok")
	for version := 1; version <= 3; version++ {
		client, ends := s.clientOf(version), 0
		for range 4 {
			r, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) {
				if !c.Reused {
					ends++
				}
			}}), http.MethodGet, s.url("/"), nil)
			must.Succeed(t, err)
			answer, err := client.Do(r)
			must.Succeed(t, err)
			_, err = io.ReadAll(answer.Body)
			must.Succeed(t, err)
			answer.Body.Close()
			must.Equal(t, answer.StatusCode == 429 && version == 1, answer.Close, "whether HTTP/%d says that the connection ends", version)
		}
		if version < 3 && ends < 3 {
			t.Errorf("HTTP/%d: 4 requests over %d connections", version, ends)
		}
	}
}
