// Command nethttp is a plain Go server that limits its requests by the rules of a file, without a proxy. Limiter is an http.Handler to copy from.
// It needs what every program needs that uses Weir's packages: rules, a store, and the steps of ServeHTTP.
//
//	nethttp -rules limits.yaml [-redis 127.0.0.1:6379] [-listen 127.0.0.1:8080]
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/ruleset/yaml"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
)

// Limiter passes on to Next the requests that are within the rules of a file, and answers those that are not. NewLimiter makes it.
type Limiter struct {
	Next    http.Handler
	set     *front.Set
	limiter *core.Limiter
}

// NewLimiter returns a handler that limits the requests to next by the rules of a file in YAML or JSON (see docs/rules.md). They are counted in
// Redis at that address, and in memory while that fails; or in memory alone if the address is "". The error has all problems of the file, with
// their places. A program calls it once for a file, before it serves requests.
func NewLimiter(next http.Handler, file, address string) (*Limiter, error) {
	contents, problems := ruleset.Read([]string{file})
	files, found := ruleset.Parse(contents, yaml.Parse)
	if problems = append(problems, found...); len(problems) > 0 {
		return nil, problems
	}
	rules, err := ruleset.NewSet(files, "")
	if err != nil {
		return nil, err
	}
	memory := memory.New(memory.Config{})
	l := &Limiter{Next: next, limiter: core.NewLimiter(memory)}
	if address != "" {
		client, err := goredis.New(redis.ClientConfig{Addresses: []string{address}})
		if err != nil {
			return nil, err
		}
		store, err := redis.NewStore(redis.Config{Client: client})
		if err != nil {
			return nil, err
		}
		l.limiter = core.NewLimiter(store)
		l.limiter.FallBack(memory, 1) // 1: nobody else counts in this Redis
	}
	var list []*front.Rule
	for _, rule := range rules.Rules {
		for _, limit := range rule.Limits.Rules() {
			limit.TrackReservations() // some rule may make requests wait that others count, too
		}
		if _, err := l.limiter.OpenAll(rule.Limits.Rules()); err != nil {
			return nil, fmt.Errorf("rule %q: %w", rule.Name, err)
		}
		list = append(list, front.NewRule(rule))
	}
	l.set = front.NewSet(nil, list, rules, nil, nil)
	return l, nil
}

// ServeHTTP asks the limiter about the request, and passes it on, makes it wait, or answers it with a 429, or with a 503 if the store has failed
// and a rule has on_error closed.
func (l *Limiter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	address, _, _ := net.SplitHostPort(r.RemoteAddr)
	q := front.Evaluations.Get().(*front.Evaluation)
	defer front.Free(q)
	if err := front.Assemble(l.set, q, r, address); err != nil || len(q.Checks) == 0 {
		l.Next.ServeHTTP(w, r) // no rule covers it; an error can only come from a proxy's own matchers
		return
	}
	if err := l.limiter.Decide(q.Checks, false, &q.Verdict); err != nil {
		log.Print(err) // the verdict is that of each rule's on_error
	}
	if q.Verdict.Outcome == core.Unavailable {
		front.Unavailable(w, r, q.Verdict.RetryAfter, front.CannotCheck)
		return
	}
	answer.WriteHeaders(w.Header(), answer.Fields{XRateLimit: true, IETF: true}, q.Checks, &q.Verdict)
	if q.Verdict.Outcome == core.Reject {
		front.Reject(w, r, q, "", nil)
		return
	}
	if !q.Verdict.Reserved { // no rule makes requests wait, counts them by status, or counts those under way
		l.Next.ServeHTTP(w, r)
		return
	}
	reserved := core.AppendReservations(nil, q.Checks)
	if !waited(r, q.Verdict.Delay) {
		_ = l.limiter.Leave(reserved) // what cannot be given back expires
		return
	}
	l.limiter.Depart(reserved)
	seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	defer func() { _ = l.limiter.Finish(reserved, seen.status) }()
	l.Next.ServeHTTP(seen, r)
}

// waited waits for that many microseconds. It reports false if the client has left before.
func waited(r *http.Request, delay int64) bool {
	timer := time.NewTimer(time.Duration(delay) * time.Microsecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// statusWriter notes the status of a response, for rules that count by it.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController find Flush and Hijack.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func main() {
	rules := flag.String("rules", "limits.yaml", "the rule `file`")
	address := flag.String("redis", "", "the `address` of Redis; without it, requests are counted in memory")
	listen := flag.String("listen", "127.0.0.1:8080", "the `address` to serve")
	flag.Parse()
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "Hello.") })
	limited, err := NewLimiter(site, *rules, *address)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe(*listen, limited))
}
