package traefik

import (
	"net/http"

	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/memory"
)

// newGate returns a handler that passes requests which the only rule does not cover to the next handler, and the others to covered. It is a
// function literal, as the stores' fast paths are: a captured variable costs an interpreter less than a field.
func newGate(h *handler, r *front.Rule, covered http.Handler, m *memory.Metering) http.Handler {
	covers := coversFunc(h.engine, r)
	next := h.next
	metered := m != nil
	if !metered {
		m = &memory.Metering{}
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

// newAll returns the general path with a memory.Metering.
func newAll(h *handler, m *memory.Metering) http.Handler {
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
