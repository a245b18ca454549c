//go:build tools

// Package e2e holds the tests that need a host of their own: here, the interpreter that Traefik loads plugins with.
package e2e

import _ "github.com/traefik/yaegi/cmd/yaegi"
