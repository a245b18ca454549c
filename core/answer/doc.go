// Package answer writes what a client gets: the quota fields of its response, the body of a rejection (text, problem details, or for
// gRPC), and its quotas when it asks for them. Core's fast paths write the plainest quota fields by themselves, from a memory.QuotaFields
// that NewQuotaFields makes.
//
// It keeps to the Go that the interpreter Yaegi can run, and its code on the path of a request is written for it: see package core.
package answer
