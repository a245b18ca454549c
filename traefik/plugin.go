// Package traefik is Weir for Traefik: a middleware plugin, which Traefik loads as source and interprets. It is a thin adapter: package core
// decides on requests.
//
// Traefik makes a handler for each router that has the middleware, and makes all of them anew whenever its configuration
// changes. Counters live longer: see registry.
package traefik

import (
	"context"
	"net/http"

	"github.com/proxyweir/weir/traefik/config"
)

// Config is the configuration of a middleware, and Rule one of its rules.
type (
	Config = config.Config
	Rule   = config.Rule
)

// CreateConfig returns the configuration that Traefik fills in.
func CreateConfig() *Config {
	return &Config{}
}

// New returns the handler of a middleware for one router. The error says which rule, field and value are wrong, and what would be accepted.
// name is the middleware's, with its provider: "api-limit@file".
func New(ctx context.Context, next http.Handler, given *Config, name string) (http.Handler, error) {
	return process.newHandler(ctx, next, given, name)
}
