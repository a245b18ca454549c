// Package bench measures Weir side by side with its peers. It is a module of its own, so that nobody who uses Weir has to
// load them.
//
//	go test -bench . -benchmem -run '^$' ./...
//	go run ./redisbench
//	go run ./caddybench
//	go run ./traefikbench
//
// docs/performance.md says what came out, and on which machine.
package bench
