// Package admin is the part of Caddy's admin API that shows the rules in force and changes what is counted, and the page that reads it.
package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/proxyweir/weir/caddy/adapt"
	"github.com/proxyweir/weir/caddy/deferred"
	"github.com/proxyweir/weir/caddy/page"
	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/words"
)

func init() {
	caddy.RegisterModule(Admin{})
}

// Admin is the part of Caddy's admin API below `/rate_limit/`. It lists the rules in force with the outcomes of their requests,
// the keys that send the most, the state of a key, the health of the stores, and what an advisor advises; it explains what would
// become of a request; it resets, blocks and unblocks keys, and freezes and reverts limits; and it lists, retries, cancels, exports and
// purges deferred requests. It is always on and has no
// settings. Errors have the form of Caddy's admin API: `{"error": "..."}`.
type Admin struct{}

// CaddyModule returns the Caddy module information.
func (Admin) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "admin.api.rate_limit",
		New: func() caddy.Module { return Admin{} },
	}
}

// Routes implements caddy.AdminRouter.
func (Admin) Routes() []caddy.AdminRoute {
	routes := []caddy.AdminRoute{{Pattern: adminPath, Handler: caddy.AdminHandlerFunc(serveRest)}}
	for _, e := range endpoints {
		routes = append(routes, caddy.AdminRoute{Pattern: adminPath + e.name, Handler: caddy.AdminHandlerFunc(e.serve)})
	}
	return routes
}

// adminPath begins the paths of the API.
const adminPath = "/rate_limit/"

// View is a configuration in force, as the API sees it.
type View struct {
	Rules    func() []*report.ActiveRule
	Limiters []*stores.Limiter  // of the handlers
	Guards   []*protect.Guarded // each once
	Queues   []*deferred.Deferral
	Memory   *memory.Store
	Adapting *adapt.Controller
	Advised  *adapt.Source // nil: there is no advisor
	Files    *FilesAnswer  // nil: there are no rule files
	Ctx      caddy.Context
}

// current returns the configuration in force; nil: it has no rate_limit. Who has the configurations sets it.
var current func() *View

// showInForce has the API show what f returns.
func Show(f func() *View) { current = f }

// endpoint is one endpoint of the API. Its answer is sent as JSON.
type endpoint struct {
	name    string
	methods []string // accepted
	answer  func(a *View, r *http.Request) (any, error)
}

var (
	reading = []string{http.MethodGet, http.MethodHead}
	writing = []string{http.MethodPost}
)

var endpoints = []endpoint{
	{name: "rules", methods: reading, answer: listRules},
	{name: "top", methods: reading, answer: listTopKeys},
	{name: "key", methods: slices.Concat(reading, writing), answer: showKey},
	{name: "health", methods: reading, answer: showHealth},
	{name: "advice", methods: reading, answer: showAdvice},
	{name: "freeze", methods: writing, answer: freeze},
	{name: "revert", methods: writing, answer: revert},
	{name: "explain", methods: writing, answer: explain},
	{name: "deferred", methods: slices.Concat(reading, writing), answer: listDeferred},
	{name: "deferred/job", methods: reading, answer: showJob},
	{name: "deferred/retry", methods: writing, answer: retryJobs},
	{name: "deferred/cancel", methods: writing, answer: cancelJobs},
	{name: "deferred/drain", methods: writing, answer: drain},
	{name: "deferred/purge", methods: writing, answer: purgeJobs},
	{name: "deferred/export", methods: writing, answer: exportJobs},
	{name: "reset", methods: writing, answer: onKey(func(l *stores.Limiter, r *core.Rule, key string) error { return l.Reset(r, key) })},
	{name: "block", methods: writing, answer: blockKey},
	{name: "unblock", methods: writing, answer: onKey(func(l *stores.Limiter, r *core.Rule, key string) error { return l.Unblock(r, key) })},
}

// serveRest serves the page at adminPath; for any other path it returns an error that lists the endpoints.
func serveRest(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Path == adminPath {
		return page.Serve(w, r)
	}
	names := make([]string, 0, len(endpoints))
	for _, e := range endpoints {
		if !strings.Contains(e.name, "/") {
			names = append(names, e.name)
		}
	}
	return adminError(http.StatusNotFound, "%s: there is no such thing; below %s there are %s", r.URL.Path, adminPath, strings.Join(names, ", "))
}

// serve checks a request's method and content type, and writes the endpoint's answer.
func (e endpoint) serve(w http.ResponseWriter, r *http.Request) error {
	if !slices.Contains(e.methods, r.Method) {
		w.Header().Set("Allow", strings.Join(e.methods, ", "))
		takes := strings.Replace(strings.Join(e.methods, " and "), " and HEAD", "", 1) // HEAD is implied by GET
		return adminError(http.StatusMethodNotAllowed, "method %s: %s takes %s", r.Method, e.name, takes)
	}
	// A web page can send other content types to this address without a preflight request.
	if r.Method == http.MethodPost && !isJSON(r.Header.Get("Content-Type")) {
		return adminError(http.StatusUnsupportedMediaType, "Content-Type %q: must be application/json", r.Header.Get("Content-Type"))
	}
	a := current()
	if a == nil {
		return adminError(http.StatusNotFound, "the configuration in force has no rate_limit")
	}
	answer, err := e.answer(a, r)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	return json.NewEncoder(w).Encode(answer)
}

func isJSON(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(mediaType), "application/json")
}

func adminError(status int, format string, v ...any) error {
	return caddy.APIError{HTTPStatus: status, Err: fmt.Errorf(format, v...)}
}

// longestBody is the longest request body that is read, in bytes.
const longestBody = 1 << 20

// readBody reads a request's JSON body. It refuses unknown fields, and anything after the object.
func readBody(r *http.Request, into any) error {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, longestBody))
	if err == nil {
		err = syntax.UnmarshalStrict(body, into)
	}
	if err == nil && !json.Valid(body) {
		err = errors.New("unexpected text after the object")
	}
	if err != nil {
		return adminError(http.StatusBadRequest, "the request's body: %w", err)
	}
	return nil
}

// ruleNamed returns the rule that a request names.
func ruleNamed(a *View, label string) (*report.ActiveRule, error) {
	if label == "" {
		return nil, adminError(http.StatusBadRequest, "rule: is missing; write a name that /rate_limit/rules has")
	}
	subjects := a.Rules()
	i := slices.IndexFunc(subjects, func(s *report.ActiveRule) bool { return s.Label == label })
	if i >= 0 {
		return subjects[i], nil
	}
	hint := ""
	if near := words.Nearest(label, report.LabelsOf(subjects)); near != "" {
		hint = fmt.Sprintf(" (did you mean %s?)", near)
	}
	return nil, adminError(http.StatusNotFound, "rule %q: there is none of that name%s", label, hint)
}

// keyOf returns the key that a request names, either by its parts or by the id that a list of top keys has for it.
func keyOf(s *report.ActiveRule, parts []string, id string) (string, error) {
	if id == "" {
		key, err := s.Keys.Of(parts)
		if err != nil {
			return "", adminError(http.StatusBadRequest, "%w", err)
		}
		return key, nil
	}
	if len(parts) > 0 {
		return "", adminError(http.StatusBadRequest, "key and id are mutually exclusive: remove one")
	}
	now := time.Now().Unix()
	for _, list := range [][]report.TopKey{s.Stats.TopRequests.List(now), s.Stats.TopRejections.List(now)} {
		for _, k := range list {
			if !k.Cut && report.IdOf(s.Label, k.Key) == id {
				return k.Key, nil
			}
		}
	}
	return "", adminError(http.StatusNotFound, "id %q: is none of the rule's top keys any more; name the key by its parts", id)
}

// checkQuery refuses unknown parameters, so that a misspelt one is not silently ignored, and duplicates. Only "key" may be
// repeated, once for each part of the key.
func checkQuery(r *http.Request, known ...string) error {
	for name, values := range r.URL.Query() {
		if len(known) == 0 {
			return adminError(http.StatusBadRequest, "parameter %q: this takes none", name)
		}
		if err := words.CheckWord("parameter", name, known); err != nil {
			return adminError(http.StatusBadRequest, "%w", err)
		}
		if len(values) > 1 && name != "key" {
			return adminError(http.StatusBadRequest, "parameter %q: duplicate; keep one", name)
		}
	}
	return nil
}

// Interface guard
var _ caddy.AdminRouter = Admin{}
