package traefik

import (
	"net/http"

	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
)

// corsHandler is the handler of a router whose middleware has cors, in front of its path.
type corsHandler struct {
	cors    *front.CORS
	path    http.Handler // takes back what is for answers of the plugin, before it asks the service
	general *handler     // the same, for requests that are not counted
	plain   http.Handler // takes nothing back: for requests for which an earlier handler has set the fields
	metrics string       // the path of these; pages may not read them
}

// withCORS returns the handler of a router, with cors if the middleware has it.
func withCORS(e *engine, next http.Handler) http.Handler {
	if e.cors == nil {
		return fastPath(newHandler(e, next))
	}
	of := e.cors
	behind := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		of.Leave(w.Header())
		next.ServeHTTP(w, r)
	})
	general := newHandler(e, behind)
	plain := newHandler(e, next)
	var noRule *front.Rule
	c := &corsHandler{cors: of, path: fastPath(general), general: general, metrics: e.monitoring.Metrics}
	c.plain = generalPath(plain, meteringOf(e, e.inForce(), noRule))
	return c
}

// ServeHTTP implements http.Handler.
func (c *corsHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.metrics != "" && r.URL.Path == c.metrics || !c.cors.Enter(w.Header(), r) {
		c.plain.ServeHTTP(w, r)
		return
	}
	if r.Method == http.MethodOptions && c.cors.Uncounted(r, clientAddress(&c.general.engine.addressing, r)) {
		var of *guard.Rule
		serveAllowed(c.general, w, r, of, "")
		return
	}
	c.path.ServeHTTP(w, r)
}
