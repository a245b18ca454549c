// Package match says which requests a rule covers, and what their keys are made of: sources such as a header field or the client's
// address, the one spelling of hosts, methods and paths that limits go by, and how far addresses are masked. It knows no limit.
//
// It keeps to the Go that the interpreter Yaegi can run, and is written for it where a request passes: see package core.
package match
