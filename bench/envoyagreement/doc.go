// Package envoyagreement has tests alone: that Weir finds the limits that Envoy's ratelimit service finds for the same files and the
// same requests, counts them by keys that tell the same requests apart, and refuses the files that the service refuses. It asks the
// service's own code.
//
// Where the two part on purpose is in the list of differences, which is that of docs/rules.md: each has a case that shows it, and files
// that are not quite right are made at random to find what it lacks.
package envoyagreement
