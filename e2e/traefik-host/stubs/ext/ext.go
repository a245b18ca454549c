// Package ext stands in for the extension point that Traefik's own go.mod replaces with a folder of its repository.
package ext

// HTTP extends dynamic.HTTPConfiguration by nothing.
type HTTP struct{}

// Router extends dynamic.Router by nothing.
type Router struct{}
