// Package e2e tests Weir where it runs: in a real Traefik, with a real Redis, next to a real Caddy. It only has tests. It is a
// separate module, so that the module that ships requires neither Traefik nor the interpreter.
//
// The tests need a Traefik binary: scripts/traefik finds or builds it.
package e2e
