// Package bench compares Weir with its peers. It is a separate module, so that users of Weir need not download them.
//
//	go test -bench . -benchmem -run '^$' ./...
//	go run ./redisbench
//	go run ./caddybench
//	go run ./traefikbench
//	go run ./fleet
//	go run ./segments
//
// docs/performance.md has the results, and the machine.
package bench
