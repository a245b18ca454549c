// Package ruleset reads rules that are written outside of a proxy's own language: in files, in Envoy's descriptors, and in the fields that
// all proxies' configurations share. It reports all errors in them, with their places, and finds the rules that cover a request.
//
// It uses the standard library only, and runs under Yaegi. YAML, which does not, is read by package yaml below it.
package ruleset
