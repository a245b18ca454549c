// Package e2e tests Weir where it runs: in a real Traefik, with a real Redis, beside a real Caddy. It has tests alone, in a
// module of its own, so that the module that ships requires neither Traefik nor the interpreter.
//
// The tests need the program of Traefik: scripts/traefik finds or builds it.
package e2e
