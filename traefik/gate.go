package traefik

import (
	"net/http"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
)

// newGate returns a handler that passes requests which the only rule does not cover to the next handler, and the others to covered. It is a
// function literal, as the stores' fast paths are: a captured variable costs an interpreter less than a field.
func newGate(h *handler, r *front.Rule, covered http.Handler, m *core.Metering) http.Handler {
	covers := coversFunc(h.engine, r)
	next := h.next
	metered := m != nil
	if !metered {
		m = &core.Metering{}
	}
	own := m.Path
	other := m.Other
	aside := m.Aside
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var path string
		if metered {
			path = r.URL.Path
			if path == own || path == other {
				aside.ServeHTTP(w, r)
				return
			}
		}
		if covers(r) {
			covered.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// newAll returns the general path with a core.Metering.
func newAll(h *handler, m *core.Metering) http.Handler {
	own := m.Path
	other := m.Other
	aside := m.Aside
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if path == own || path == other {
			aside.ServeHTTP(w, r)
			return
		}
		serve(h, w, r)
	})
}
