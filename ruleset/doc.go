// Package ruleset has rules as people write them outside of a proxy's own language: in files, in Envoy's descriptors, and in the
// fields that every proxy's configuration shares. It reads them, says all that is wrong with them and where, and finds those
// that a request comes under.
//
// It uses the standard library only, and runs under Yaegi. YAML, which does not, is read by package ruleset/yaml.
package ruleset
