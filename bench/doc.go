// Package bench compares Weir with its peers. It is a separate module, so that users of Weir need not download them.
//
//	go test -bench . -benchmem -run '^$' ./...
//	go run ./redisbench
//	go run ./caddybench
//	go run ./traefikbench
//	go run ./fleet
//	go run ./segments
//	go run ./clients
//	go run ./herd
//	go run ./layers
//
// docs/performance.md has the machine, and what helps to choose; README.md all other results; fleet/README.md, docs/algorithms.md, docs/clients.md and docs/layers.md those of the last five.
package bench
