// Package answer is what a client is told: the header fields of its quota, the body of a rejection, in text, as problem details or for
// gRPC, and what it is told when it asks how it stands. Core's fast paths compose the plainest header fields by themselves; what those are
// is said by core.QuotaFields, which NewQuotaFields makes.
//
// It keeps to the Go that the interpreter Yaegi can run, and is written for it where a request passes: see package core.
package answer
