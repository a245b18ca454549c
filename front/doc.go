// Package front is what every proxy's adapter does with a request, once for all of them.
//
// It keeps to the Go that the interpreter Yaegi can run, and is written for it where a request passes: see package core.
package front
