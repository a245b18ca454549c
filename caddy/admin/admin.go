// Package admin is the part of Caddy's admin API that shows the rules in force and changes what is counted, and the page that reads it.
package admin

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyweir/weir/caddy/page"
)

func init() {
	caddy.RegisterModule(Admin{})
}

// Admin is the part of Caddy's admin API below `/rate_limit/`. It lists the rules in force with the outcomes of their requests,
// the keys that send the most, the state of a key, the health of the stores, and what an advisor advises; it explains what would
// become of a request; it decides on what applications ask; it gives single keys other limits until a time, and units back, resets, blocks and unblocks them; it freezes and reverts
// limits; and it lists, retries, cancels, exports and purges deferred requests. It is always on and has no
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
	routes = append(routes, caddy.AdminRoute{Pattern: adminPath + "blocked", Handler: caddy.AdminHandlerFunc(serveBlocked)})
	for _, e := range endpoints {
		routes = append(routes, caddy.AdminRoute{Pattern: adminPath + e.name, Handler: caddy.AdminHandlerFunc(e.serve)})
	}
	return routes
}

// adminPath begins the paths of the API.
const adminPath = "/rate_limit/"

// endpoint is one endpoint of the API. Its answer is sent as JSON.
type endpoint struct {
	name    string
	methods []string // accepted
	answer  func(a *View, r *http.Request) (any, error)
}

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
	{name: "exceptions", methods: reading, answer: listExceptions},
	{name: "decide", methods: writing, answer: decide},
	{name: "limit", methods: writing, answer: limitKey},
	{name: "end", methods: writing, answer: endLimit},
	{name: "credit", methods: writing, answer: creditKey},
	{name: "reset", methods: writing, answer: resetKey},
	{name: "block", methods: writing, answer: blockKey},
	{name: "unblock", methods: writing, answer: unblockKey},
}

// serveRest serves the page at adminPath; for any other path it returns an error that lists the endpoints.
func serveRest(w http.ResponseWriter, r *http.Request) error {
	if r.URL.Path == adminPath {
		return page.Serve(w, r)
	}
	names := []string{"blocked"}
	for _, e := range endpoints {
		if !strings.Contains(e.name, "/") {
			names = append(names, e.name)
		}
	}
	return adminError(http.StatusNotFound, "%s: there is no such thing; below %s there are %s", r.URL.Path, adminPath, strings.Join(names, ", "))
}

// serve checks a request's method and content type, and writes the endpoint's answer.
func (e endpoint) serve(w http.ResponseWriter, r *http.Request) error {
	if err := e.check(w, r); err != nil {
		return err
	}
	a := current()
	if a == nil {
		return adminError(http.StatusNotFound, "the configuration in force has no rate_limit")
	}
	answer, err := e.answer(a, r)
	if err != nil {
		return err
	}
	return writeAnswer(w, answer)
}

// check checks a request's method and content type.
func (e endpoint) check(w http.ResponseWriter, r *http.Request) error {
	if !slices.Contains(e.methods, r.Method) {
		w.Header().Set("Allow", strings.Join(e.methods, ", "))
		takes := strings.Replace(strings.Join(e.methods, " and "), " and HEAD", "", 1) // HEAD is implied by GET
		return adminError(http.StatusMethodNotAllowed, "method %s: %s takes %s", r.Method, e.name, takes)
	}
	// A web page can send other content types to this address without a preflight request.
	if r.Method == http.MethodPost && !isJSON(r.Header.Get("Content-Type")) {
		return adminError(http.StatusUnsupportedMediaType, "Content-Type %q: must be application/json", r.Header.Get("Content-Type"))
	}
	return nil
}

func writeAnswer(w http.ResponseWriter, answer any) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	return json.NewEncoder(w).Encode(answer)
}

// Interface guard
var _ caddy.AdminRouter = Admin{}
