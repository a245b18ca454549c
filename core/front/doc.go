// Package front has the code that the adapters of all proxies share on the path of a request.
//
// It keeps to the Go that the interpreter Yaegi can run, and its code on the path of a request is written for it: see package core.
package front
