// Package match says which requests a rule covers, and what their keys are made of: sources such as a header field or the client's
// address, the canonical spelling of hosts, methods and paths, and how far addresses are masked. It knows no limit.
//
// It keeps to the Go that the interpreter Yaegi can run, and its code on the path of a request is written for it: see package core.
package match
