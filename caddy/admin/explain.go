package admin

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/byhand"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/match"
)

// explainRequest describes an imaginary request, for which /rate_limit/explain says what would become of it.
type explainRequest struct {
	Method   string            `json:"method"`    // default: GET
	URL      string            `json:"url"`       // required, such as https://example.com/login
	Headers  map[string]string `json:"headers"`   // further header fields
	ClientIP string            `json:"client_ip"` // of the client, as Caddy would determine it; required
	User     string            `json:"user"`      // the authenticated user, if any
	Server   string            `json:"server"`    // the name of the server that would receive it; default: the one that listens at the URL's port
}

// explainAnswer is the answer of /rate_limit/explain.
type explainAnswer struct {
	Handlers []handlerAnswer `json:"handlers"` // the rate_limit handlers that the request would reach, in order
	Notes    []string        `json:"notes"`    // which parts of the configuration were not evaluated, and which values the request does not have
}

// handlerAnswer is the decision of one rate_limit handler.
type handlerAnswer struct {
	Rules   []ruleCoverage `json:"rules"`
	Verdict string         `json:"verdict"` // allow, delay, reject or unavailable
	Delay   float64        `json:"delay_seconds,omitempty"`
	Guard   *guardAnswer   `json:"guard,omitempty"` // whose decision depends on what is under way then
}

// ruleCoverage is the decision of one rule.
type ruleCoverage struct {
	byhand.Coverage
	movedLimit
	stores.InFleet
}

// explain answers with what would become of a request. The request is not charged.
func explain(a *View, r *http.Request) (any, error) {
	var given explainRequest
	if err := readBody(r, &given); err != nil {
		return nil, err
	}
	made, server, err := makeUp(a, &given)
	if err != nil {
		return nil, err
	}
	w := &walk{app: a, server: server, groups: make(map[string]bool), answer: explainAnswer{Handlers: []handlerAnswer{}, Notes: []string{}}}
	if _, err := w.routes(server.Routes, made); err != nil {
		return nil, adminError(http.StatusBadRequest, "the request: %w", err)
	}
	if len(w.answer.Handlers) == 0 {
		w.answer.Notes = append(w.answer.Notes, "the request reaches no rate_limit")
	}
	return w.answer, nil
}

// makeUp returns the request as handlers would get it, and the server that would receive it.
func makeUp(a *View, given *explainRequest) (*http.Request, *caddyhttp.Server, error) {
	bad := func(format string, v ...any) (*http.Request, *caddyhttp.Server, error) {
		return nil, nil, adminError(http.StatusBadRequest, format, v...)
	}
	address := match.ReadAddress(given.ClientIP)
	if !address.IsValid() {
		return bad("client_ip %q: must be an address, such as 192.0.2.7", given.ClientIP)
	}
	u, err := url.Parse(given.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" { // the error does not quote the URL: it may have secrets, and Caddy logs errors
		return bad("url: must be whole, such as https://example.com/login")
	}
	if u.Path == "" {
		u.Path = "/"
	}
	server, err := serverFor(a, given.Server, u)
	if err != nil {
		return nil, nil, err
	}
	method := given.Method
	if method == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequestWithContext(a.Ctx, method, u.String(), nil)
	if err != nil {
		return bad("method %q: %w", given.Method, err)
	}
	for name, value := range given.Headers {
		r.Header.Set(name, value)
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
		r.Header.Del("Host")
	}
	if u.Scheme == "https" {
		r.TLS = &tls.ConnectionState{HandshakeComplete: true, Version: tls.VersionTLS13, ServerName: u.Hostname()}
	}
	r.Body = http.NoBody
	r.RequestURI = u.RequestURI()
	r.RemoteAddr = net.JoinHostPort(address.String(), "40000")
	repl := caddy.NewReplacer()
	r = caddyhttp.PrepareRequest(r, repl, discard{}, server)
	caddyhttp.SetVar(r.Context(), caddyhttp.ClientIPVarKey, address.String())
	if given.User != "" {
		repl.Set("http.auth.user.id", given.User)
	}
	return r, server, nil
}

// serverFor returns the server of a name, or the one that listens at a URL's port.
func serverFor(a *View, name string, u *url.URL) (*caddyhttp.Server, error) {
	mod, err := a.Ctx.AppIfConfigured("http")
	if err != nil {
		return nil, adminError(http.StatusNotFound, "the configuration in force has no HTTP server")
	}
	servers := mod.(*caddyhttp.App).Servers
	names := slices.Sorted(maps.Keys(servers))
	if name != "" {
		if servers[name] == nil {
			return nil, adminError(http.StatusNotFound, "server %q: there is none of that name; there are %s", name, strings.Join(names, ", "))
		}
		return servers[name], nil
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	for _, name := range names {
		for _, listen := range servers[name].Listen {
			if address, err := caddy.ParseNetworkAddress(listen); err == nil && contains(address, port) {
				return servers[name], nil
			}
		}
	}
	if len(servers) == 1 && u.Port() == "" { // a proxy in front of it may listen at the default ports
		return servers[names[0]], nil
	}
	var there []string
	for _, name := range names {
		there = append(there, name+" ("+strings.Join(servers[name].Listen, ", ")+")")
	}
	return nil, adminError(http.StatusBadRequest, "url: no server listens at port %s; write server beside it, one of %s, or another port", port, strings.Join(there, ", "))
}

func contains(address caddy.NetworkAddress, port string) bool {
	for offset := uint(0); offset < address.PortRangeSize(); offset++ {
		if fmt.Sprint(address.StartPort+offset) == port {
			return true
		}
	}
	return false
}

// walk follows a request through a server's routes. It runs only the handlers that rate limits may depend on, and answers nothing.
type walk struct {
	app    *View
	server *caddyhttp.Server
	groups map[string]bool // groups of which a route was taken
	answer explainAnswer
	depth  int
}

// harmless are the handlers that only change the request, and so may change what later matchers see. They are run.
var harmless = map[caddy.ModuleID]bool{
	"http.handlers.rewrite": true, "http.handlers.vars": true, "http.handlers.map": true, "http.handlers.headers": true,
}

// silent are the handlers that have no effect on rate limits. They are skipped without a note.
var silent = map[caddy.ModuleID]bool{
	"http.handlers.encode": true, "http.handlers.log_append": true, "http.handlers.tracing": true, "http.handlers.push": true,
	"http.handlers.templates": true, "http.handlers.request_body": true, "http.handlers.intercept": true, "http.handlers.timeouts": true,
	"http.handlers.copy_response": true, "http.handlers.copy_response_headers": true,
}

// answering are the handlers that answer the request, so that it goes no further.
var answering = map[caddy.ModuleID]bool{
	"http.handlers.reverse_proxy": true, "http.handlers.file_server": true, "http.handlers.static_response": true,
	"http.handlers.error": true, "http.handlers.metrics": true, "http.handlers.rate_limit_status": true, "http.handlers.rate_limit_decide": true,
}

var errNested = errors.New("named routes invoke each other without end")

// routes follows the request through a list of routes, and reports whether the request ended there.
func (w *walk) routes(list caddyhttp.RouteList, r *http.Request) (ended bool, err error) {
	if w.depth++; w.depth > 100 {
		return true, errNested
	}
	defer func() { w.depth-- }()
	for i := range list {
		route := &list[i]
		if route.Group != "" && w.groups[route.Group] {
			continue
		}
		if matches, err := route.MatcherSets.AnyMatchWithError(r); err != nil || !matches {
			if err != nil {
				return true, err
			}
			continue
		}
		if route.Group != "" {
			w.groups[route.Group] = true
		}
		for _, handler := range route.Handlers {
			if ended, err = w.handler(handler, r); ended || err != nil {
				return true, err
			}
		}
		if route.Terminal {
			return true, nil
		}
	}
	return false, nil
}

// handler evaluates one handler, and reports whether the request ended there.
func (w *walk) handler(handler caddyhttp.MiddlewareHandler, r *http.Request) (ended bool, err error) {
	switch h := handler.(type) {
	case explainer:
		return w.rateLimit(h, r)
	case *caddyhttp.Subroute:
		return w.routes(h.Routes, r)
	case *Page:
		return h.answersPath(r.URL.Path), nil
	case *caddyhttp.Invoke:
		if route := w.server.NamedRoutes[h.Name]; route != nil {
			return w.routes(caddyhttp.RouteList{*route}, r)
		}
		return false, nil
	}
	id := caddy.ModuleID(caddy.GetModuleID(handler))
	switch {
	case harmless[id]:
		return false, handler.ServeHTTP(discard{}, r, caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error { return nil }))
	case answering[id] && mayGoOn(handler):
		w.note(fmt.Sprintf("the handler %s was not run; the answer assumes that it lets the request pass", id))
	case answering[id]:
		return true, nil
	case id == "http.handlers.authentication":
		if user, _ := syntax.ReplacerOf(r).GetString("http.auth.user.id"); user == "" {
			w.note("authentication was not run; write user to say who would be authenticated")
		}
	case !silent[id]:
		w.note(fmt.Sprintf("the handler %s was not run; what it does to the request is not known", id))
	}
	return false, nil
}

// mayGoOn reports whether a handler that usually answers may pass requests on: a reverse_proxy that asks another server first
// (forward_auth), or a file_server that passes on requests for files that do not exist.
func mayGoOn(handler caddyhttp.MiddlewareHandler) bool {
	var settings struct {
		HandleResponse []json.RawMessage `json:"handle_response"`
		PassThru       bool              `json:"pass_thru"`
	}
	text, err := json.Marshal(handler)
	return err == nil && json.Unmarshal(text, &settings) == nil && (len(settings.HandleResponse) > 0 || settings.PassThru)
}

func (w *walk) note(text string) {
	if !slices.Contains(w.answer.Notes, text) {
		w.answer.Notes = append(w.answer.Notes, text)
	}
}

// Explained is what a rate_limit handler would decide on a request.
type Explained struct {
	*front.Evaluation
	Failure   error    // of the store
	Uncovered []string // the labels of zones that do not cover the request
	Missing   []string // values that the request does not have
	Limiter   *stores.Limiter
	Guarded   *protect.Guarded
}

// explainer is a rate_limit handler. It decides on a request without charging it.
type explainer interface {
	Explain(r *http.Request) (*Explained, error)
}

// rateLimit adds the decision of a rate_limit handler to the answer, and reports whether it would end the request.
func (w *walk) rateLimit(h explainer, r *http.Request) (ended bool, err error) {
	q, err := h.Explain(r)
	if err != nil {
		return true, err
	}
	if q.Failure != nil {
		w.note("the store has failed, and the rules' on_error has decided: " + q.Failure.Error())
	}
	answer := handlerAnswer{Verdict: q.Verdict.Outcome.String(), Delay: stores.Seconds(q.Verdict.Delay), Rules: []ruleCoverage{}}
	subjects := make(map[string]*report.ActiveRule)
	for _, s := range w.app.Rules() {
		subjects[s.Label] = s
	}
	var rows []core.Check
	for i := range q.Checks {
		rows = append(append(rows, q.Checks[i]), q.Checks[i].Parts()...)
	}
	for i := range rows {
		c := &rows[i]
		label := report.Of(c).Stats.Label
		one := ruleCoverage{Coverage: subjects[label].Coverage(q.Limiter.Limiter, c, &q.Verdict)}
		one.InFleet = q.Limiter.Stands(c.Rule, c.Key)
		if !one.Candidate && !one.Former {
			one.movedLimit = movedLimitOf(w.app, subjects[label], c.Rule)
		}
		answer.Rules = append(answer.Rules, one)
	}
	for _, label := range q.Uncovered {
		answer.Rules = append(answer.Rules, ruleCoverage{Coverage: byhand.Coverage{Rule: label, Allowed: true}})
	}
	for _, text := range q.Missing {
		w.note(text)
	}
	if q.Guarded != nil {
		state := guardAnswerOf(q.Guarded)
		answer.Guard = &state
		if state.UnderWay >= state.Limit {
			w.note("the guard's limit is used: if the request came now, it would be turned away with status 503")
		}
		if state.Pressure != nil && state.Pressure.Acts {
			w.note("the pressure on the service is high, and has a part in the guard's limit")
		}
	}
	w.answer.Handlers = append(w.answer.Handlers, answer)
	ended = q.Verdict.Outcome == core.Reject || q.Verdict.Outcome == core.Unavailable
	if ended && w.server.Errors != nil {
		w.note("error routes were not run")
	}
	return ended, nil
}

// discard is a response writer that discards everything.
type discard struct{}

// Header implements http.ResponseWriter.
func (discard) Header() http.Header { return make(http.Header) }

// Write implements http.ResponseWriter.
func (discard) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader implements http.ResponseWriter.
func (discard) WriteHeader(int) {}
