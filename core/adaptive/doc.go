// Package adaptive carries out advice: a Controller puts in force what an advisor says about the rules of a Proxy, in each Place where they decide, and
// tells each Change. It is for all adapters, and on no request's way. It keeps to the Go that the interpreter Yaegi can run.
package adaptive
