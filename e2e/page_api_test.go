package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// adminAPI answers as the API of rate_limit at Caddy's admin endpoint, with rules, keys and failures that a test chooses. Its clock
// advances two seconds with each poll of the rules, however fast those come.
type adminAPI struct {
	addr string

	mu        sync.Mutex
	now       time.Time
	started   time.Time // the process
	polls     int
	rules     []*apiRule
	keys      map[string][]apiKey // the top keys, by rule
	stores    []map[string]any
	errors    map[string]int
	ruleFiles map[string]any
	guards    []map[string]any
	deferred  []map[string]any
	jobs      []map[string]any // of all queues, in all lists
	advice    map[string]any   // nil: there is no advisor
	excepted  []map[string]any
	ended     bool // the advisor has gone since health was asked
	down      bool
	fails     string // the error of every request, if not empty
	refuses   string // the error of every action, if not empty
	acted     []action
	block     map[string]bool // the blocked keys, by rule and key
	keyFails  string          // the store's error about keys, if it has failed
	held      map[string]any  // what the proxy has leased of every key; nil: no rule is leased
	asked     []string        // the keys that were looked up
}

// apiRule is a rule with its rates in a second.
type apiRule struct {
	id, limit, algorithm string
	key                  []string
	more                 map[string]any                               // further fields
	rates                func(at float64) (allowed, rejected float64) // at: seconds since the start
	outcomes             map[string]float64
	gives                map[string]string // other outcomes, which replace allowed and rejected
}

// apiKey is one of a rule's top keys.
type apiKey struct {
	parts                       []string
	requests, rejections, error int
	cut                         bool // too long to have an id
}

// action is a POST request.
type action struct {
	path, contentType string
	body              map[string]any
}

// startAPI starts an API with only a memory without keys.
func startAPI(t testing.TB) *adminAPI {
	t.Helper()
	began := time.Date(2026, 11, 21, 22, 30, 0, 123456000, time.UTC)
	a := &adminAPI{now: began, started: began, keys: make(map[string][]apiKey), block: make(map[string]bool),
		stores: []map[string]any{{"store": "memory", "keys": 0, "max_keys": 1000000, "evictions": 0, "log_bytes": 0}}, errors: make(map[string]int)}
	mux := http.NewServeMux()
	for path, answer := range map[string]func(*http.Request) (any, error){
		"GET /rate_limit/rules": a.answerRules, "GET /rate_limit/top": a.answerTop, "POST /rate_limit/key": a.answerKey, "GET /rate_limit/health": a.answerHealth,
		"POST /rate_limit/reset": a.answerAction, "POST /rate_limit/block": a.answerAction, "POST /rate_limit/unblock": a.answerAction, "POST /rate_limit/limit": a.answerAction, "POST /rate_limit/credit": a.answerAction,
		"POST /rate_limit/explain": a.answerExplain, "GET /rate_limit/advice": a.answerAdvice, "POST /rate_limit/freeze": a.answerAction, "POST /rate_limit/revert": a.answerAction,
		"GET /rate_limit/exceptions": a.answerExceptions, "POST /rate_limit/end": a.answerAction, "POST /rate_limit/deferred": a.answerJobs, "GET /rate_limit/deferred/job": a.answerJob,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { a.answer(w, r, answer) })
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	a.addr = s.Listener.Addr().String()
	return a
}

// answer answers as Caddy does: only to the endpoint's own origin, and with errors in JSON. An API that is down closes the
// connection.
func (a *adminAPI) answer(w http.ResponseWriter, r *http.Request, how func(*http.Request) (any, error)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	if origin := r.Header.Get("Origin"); origin != "http://"+a.addr {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "client is not allowed to access from origin '" + origin + "'"})
		return
	}
	if a.fails != "" {
		w.WriteHeader(http.StatusInternalServerError)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": a.fails})
		return
	}
	value, err := how(r)
	if err != nil {
		status := http.StatusBadRequest
		if errors.Is(err, errNoAdvisor) {
			status = http.StatusNotFound
		}
		w.WriteHeader(status)
		value = map[string]string{"error": err.Error()}
	}
	_ = json.NewEncoder(w).Encode(value)
}

// is calls f while no request is answered.
func (a *adminAPI) is(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// pollsSoFar returns how often the rules were requested.
func (a *adminAPI) pollsSoFar() (n int) {
	a.is(func() { n = a.polls })
	return n
}

// actions returns the POST requests so far.
func (a *adminAPI) actions() (acted []action) {
	a.is(func() { acted = append(acted, a.acted...) })
	return acted
}

const pollStep = 2 * time.Second

func (a *adminAPI) answerRules(*http.Request) (any, error) {
	a.polls++
	a.now = a.now.Add(pollStep)
	at := float64(a.polls) * pollStep.Seconds()
	rules := make([]map[string]any, 0, len(a.rules))
	for _, rule := range a.rules {
		if rule.rates != nil {
			allowed, rejected := rule.rates(at)
			rule.count("allowed", allowed*pollStep.Seconds())
			rule.count("rejected", rejected*pollStep.Seconds())
		}
		outcomes := make(map[string]int)
		for _, name := range []string{"allowed", "allowed_soft", "delayed", "rejected", "shadow_rejected", "shadow_delayed", "error_open", "error_closed", "fallback"} {
			outcomes[name] = int(rule.outcomes[name])
		}
		namespace, name, found := strings.Cut(rule.id, "/")
		if !found {
			namespace, name = "", rule.id
		}
		as := map[string]any{"id": rule.id, "namespace": namespace, "name": name, "key": rule.key, "algorithm": rule.algorithm, "enforcement": "hard",
			"store": "memory", "source": "zone", "outcomes": outcomes, "penalties": 0, "waiting": 0, "notes": []string{}}
		if rule.limit != "" {
			as["limit"] = rule.limit
		}
		for field, value := range rule.more {
			as[field] = value
		}
		rules = append(rules, as)
	}
	return map[string]any{"time": a.now.Format(time.RFC3339Nano), "started": a.started.Format(time.RFC3339Nano), "rules": rules}, nil
}

func (r *apiRule) count(outcome string, n float64) {
	if other := r.gives[outcome]; other != "" {
		outcome = other
	}
	if r.outcomes == nil {
		r.outcomes = make(map[string]float64)
	}
	r.outcomes[outcome] += n
}

// keyID returns a key's id in the API.
func keyID(parts []string) string {
	return fmt.Sprintf("id-%x", strings.Join(parts, "\x00"))[:min(60, 3+2*len(strings.Join(parts, "\x00")))]
}

func (a *adminAPI) answerTop(r *http.Request) (any, error) {
	rule, by := r.FormValue("rule"), r.FormValue("by")
	keys := []map[string]any{}
	for _, k := range a.keys[rule] {
		if by == "requests" || k.rejections > 0 {
			one := map[string]any{"key": k.parts, "id": keyID(k.parts), "requests": k.requests + a.polls, "rejections": k.rejections, "error": k.error}
			if k.cut {
				delete(one, "id")
			}
			keys = append(keys, one)
		}
	}
	count := func(k map[string]any) int { return k[by].(int) }
	for i := range keys { // there are few
		for j := i + 1; j < len(keys); j++ {
			if count(keys[j]) > count(keys[i]) {
				keys[i], keys[j] = keys[j], keys[i]
			}
		}
	}
	return map[string]any{"rule": rule, "by": by, "window_seconds": 600, "keys": keys[:min(10, len(keys))]}, nil
}

func (a *adminAPI) answerKey(r *http.Request) (any, error) {
	var asked struct {
		Rule, ID string
		Key      []string
	}
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(text, &asked)
	}
	if err != nil {
		return nil, err
	}
	a.asked = append(a.asked, string(text))
	rule, id, parts := asked.Rule, asked.ID, asked.Key
	if id == "" {
		id = keyID(parts)
	}
	if a.keyFails != "" {
		return map[string]any{"key": parts, "rules": []any{map[string]any{"rule": rule, "limit_text": "5/1m", "error": a.keyFails}}}, nil
	}
	out := a.block[rule+" "+id]
	state := map[string]any{"rule": rule, "allowed": !out, "limit": 5, "remaining": 3, "reset_seconds": 41.5, "retry_after_seconds": 0}
	if out {
		state["remaining"], state["retry_after_seconds"] = 0, 3600
	}
	maps.Copy(state, a.held)
	return map[string]any{"key": parts, "rules": []any{state}}, nil
}

func (a *adminAPI) answerAction(r *http.Request) (any, error) {
	did := action{path: r.URL.Path, contentType: r.Header.Get("Content-Type")}
	if err := json.NewDecoder(r.Body).Decode(&did.body); err != nil {
		return nil, err
	}
	a.acted = append(a.acted, did)
	if a.refuses != "" {
		return nil, fmt.Errorf("%s", a.refuses)
	}
	of := fmt.Sprint(did.body["rule"], " ", did.body["id"])
	switch did.path {
	case "/rate_limit/block":
		a.block[of] = true
	case "/rate_limit/unblock":
		delete(a.block, of)
	case "/rate_limit/end":
		a.excepted = nil
	}
	return struct{}{}, nil
}

func (a *adminAPI) answerExplain(r *http.Request) (any, error) {
	var asked map[string]any
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		return nil, err
	}
	a.acted = append(a.acted, action{path: r.URL.Path, contentType: r.Header.Get("Content-Type"), body: asked})
	if url, _ := asked["url"].(string); !strings.HasPrefix(url, "http") {
		return nil, fmt.Errorf("url %q: an absolute URL is wanted", url)
	}
	login := map[string]any{"rule": "login", "covers": true, "key": []string{fmt.Sprint(asked["client_ip"])}, "limit": "5/1m", "allowed": false, "remaining": 0, "retry_after_seconds": 12.3}
	maps.Copy(login, a.held)
	return map[string]any{"handlers": []any{map[string]any{"verdict": "reject", "rules": []any{
		login,
		map[string]any{"rule": "everyone", "covers": false},
	}}}, "notes": []string{"matchers that look at the response are not tried"}}, nil
}

func (a *adminAPI) answerHealth(*http.Request) (any, error) {
	health := map[string]any{"stores": a.stores, "store_errors": a.errors}
	if a.guards != nil {
		health["guards"] = a.guards
	}
	if a.deferred != nil {
		health["deferred"] = a.deferred
	}
	if a.advice != nil {
		health["advisor"] = map[string]any{"mode": a.advice["mode"]}
	}
	if a.ruleFiles != nil {
		health["rule_files"] = a.ruleFiles
	}
	if len(a.excepted) > 0 {
		health["exceptions"] = len(a.excepted)
	}
	return health, nil
}

func (a *adminAPI) answerExceptions(*http.Request) (any, error) {
	return map[string]any{"exceptions": a.excepted, "total": len(a.excepted) + 3}, nil
}

// answerJobs answers with a page of the jobs. after is the number of those before it.
func (a *adminAPI) answerJobs(r *http.Request) (any, error) {
	var asked struct {
		Rule, Status, After string
		Key                 []string
		Limit               int
	}
	text, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(text, &asked)
	}
	if err != nil {
		return nil, err
	}
	a.asked = append(a.asked, string(text))
	if a.keyFails != "" {
		return nil, errors.New(a.keyFails)
	}
	from, _ := strconv.Atoi(asked.After) // "" is 0
	rest := a.jobs[from:]
	answer := map[string]any{"rule": asked.Rule, "jobs": rest[:min(asked.Limit, len(rest))]}
	if len(rest) >= asked.Limit {
		answer["next"] = strconv.Itoa(from + asked.Limit)
	}
	return answer, nil
}

func (a *adminAPI) answerJob(r *http.Request) (any, error) {
	for _, job := range a.jobs {
		if job["id"] == r.FormValue("id") {
			one := maps.Clone(job)
			if _, unreadable := job["error"]; !unreadable {
				maps.Copy(one, map[string]any{"key": []string{"<b>ann</b>"}, "method": "POST", "host": "shop.example", "request_path": "/orders/<i>1</i>", "body_bytes": 2048})
			}
			return one, nil
		}
	}
	return nil, fmt.Errorf("job %q: there is no such job", r.FormValue("id"))
}

var errNoAdvisor = errors.New("the configuration in force has no advisor")

func (a *adminAPI) answerAdvice(*http.Request) (any, error) {
	if a.ended {
		return nil, errNoAdvisor
	}
	return a.advice, nil
}

// steady returns constant rates.
func steady(allowed, rejected float64) func(float64) (float64, float64) {
	return func(float64) (float64, float64) { return allowed, rejected }
}

// lively returns rates like those of traffic, around means: waves, and noise that is the same in each run.
func lively(allowed, rejected, phase float64) func(float64) (float64, float64) {
	return func(at float64) (float64, float64) {
		chance := math.Sin(at*12.9898+phase*78.233) * 43758.5453
		chance -= math.Floor(chance)
		wave := 1 + 0.28*math.Sin(at/47+phase) + 0.12*math.Sin(at/11+2*phase) + 0.25*(chance-0.5)
		surge := 0.25 + math.Pow(math.Max(0, math.Sin(at/70+phase)), 4)*2.2
		return allowed * wave, rejected * surge * (0.7 + 0.6*chance)
	}
}

// asOfAShop gives the API the rules of a shop on a busy evening.
func (a *adminAPI) asOfAShop() {
	a.rules = []*apiRule{
		{id: "shop/login", limit: "5/1m", algorithm: "sliding_window_counter", key: []string{"client_ip"}, rates: lively(14, 9, 4.0),
			more: map[string]any{"requests": 5, "period_seconds": 60, "keys": 4211, "notes": []string{"penalty 1m 10m 1h", "counts 401 403"}, "penalties": 38}},
		{id: "shop/search", limit: "20/1s", algorithm: "token_bucket", key: []string{"client_ip"}, rates: lively(310, 3.2, 1.9),
			more: map[string]any{"requests": 20, "period_seconds": 1, "burst": 40, "keys": 9127, "notes": []string{"candidate 15/1s"},
				"candidate_decisions": map[string]int{"both_allowed": 90211, "stricter": 1204, "laxer": 0, "both_rejected": 877}}},
		{id: "api/per-key", limit: "100/1m", algorithm: "sliding_window_counter", key: []string{"header:X-Api-Key"}, rates: lively(84, 1.6, 5.6),
			more: map[string]any{"requests": 100, "period_seconds": 60, "store": "redis", "source": "/etc/caddy/rules/api.yaml:12", "enforcement": "soft 20% 30s",
				"limits": []map[string]string{{"for": "tier gold", "limit": "1000/1m"}, {"for": "tier partner", "limit": ""}}}},
		{id: "api/exports", limit: "1000/day", algorithm: "fixed_window", key: []string{"header:X-Api-Key", "client_ip"}, rates: lively(0.6, 0.25, 4.4),
			more: map[string]any{"requests": 1000, "period_seconds": 86400, "store": "redis", "notes": []string{"concurrency 5"}, "source": "/etc/caddy/rules/api.yaml:31"}},
		{id: "everyone", limit: "300/1m", algorithm: "sliding_window_counter", key: []string{"client_ip"}, rates: lively(402, 0.12, 5.2),
			more: map[string]any{"requests": 300, "period_seconds": 60, "keys": 18344}},
		{id: "shop/checkout", limit: "10/1m", algorithm: "sliding_window_log", key: []string{"cookie:session"}, rates: lively(6.5, 0.9, 2.6), gives: map[string]string{"rejected": "shadow_rejected"},
			more: map[string]any{"requests": 10, "period_seconds": 60, "enforcement": "shadow", "keys": 611}},
		{id: "thumbnails", limit: "50/1s", algorithm: "leaky_bucket", key: []string{"static:thumbnails"}, rates: lively(31, 0, 0.9), gives: map[string]string{"allowed": "delayed"},
			more: map[string]any{"requests": 50, "period_seconds": 1, "burst": 200, "keys": 1, "waiting": 17, "notes": []string{"delays up to 10s"}}},
	}
	for _, rule := range a.rules {
		allowed, rejected := rule.rates(0)
		rule.count("allowed", math.Floor(allowed*7200))
		rule.count("rejected", math.Floor(rejected*7200))
	}
	a.keys["shop/login"] = []apiKey{
		{parts: []string{"203.0.113.41"}, requests: 2912, rejections: 2863},
		{parts: []string{"198.51.100.7"}, requests: 1467, rejections: 1402, error: 12},
		{parts: []string{"2001:db8:4f1:22::/64"}, requests: 842, rejections: 790, error: 12},
		{parts: []string{"192.0.2.180"}, requests: 101, rejections: 54, error: 12},
		{parts: []string{"203.0.113.9"}, requests: 77, rejections: 21, error: 12},
		{parts: []string{"192.0.2.14"}, requests: 41, rejections: 0, error: 12},
	}
	a.stores = []map[string]any{
		{"store": "memory", "keys": 32294, "max_keys": 1000000, "evictions": 0, "log_bytes": 48211},
		{"store": "redis", "server": "10.0.4.12:6379", "breaker": "closed"},
	}
	a.errors = map[string]int{"timeout": 3, "connection": 0, "reply": 0, "unavailable": 0}
	a.ruleFiles = map[string]any{"successful": true, "loaded": "2026-11-21T20:12:09Z"}
}

// hostileKeys are keys that clients may send.
var hostileKeys = []string{
	`<img src=x onerror="window.hacked=1">`,
	`</script><script>window.hacked=2</script>`,
	`"><svg onload=window.hacked=3>`,
	"javascript:window.hacked=4",
	"{{constructor.constructor('window.hacked=5')()}}",
	"\x00\x01\x1b[31m\x7f\u0085 control",
	"line\nbreak\r\ttab",
	"\u202egnp.exe\u202c \u2066isolated\u2069",
	"zero\u200bwidth\ufeff\u2060\u00ad",
	"",
	" spaces at  its ends ",
	"\u05d0\u05d1\u05d2 \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
	"Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031e\u0349\u035a\u032f\u031e\u0320\u034da\u036b\u0357\u0334\u0362\u0335\u031c\u0330\u0354lgo",
	strings.Repeat("a", 8192),
	strings.Repeat("\U0001F600", 2048),
	strings.Repeat("\u202e", 8192),
}
