// Package envoyagreement has only tests. They compare Weir with the code of Envoy's ratelimit service: for the same files and requests Weir
// finds the same limits, its keys distinguish the same requests, and it refuses the same files.
//
// Intended differences are in the list of differences, which is that of docs/rules.md. Each has a case that shows it. To find differences that
// the list lacks, tests make random files with errors.
package envoyagreement
