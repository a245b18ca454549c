# make run    starts a Caddy with Weir in it, by Caddyfile.example, on http://localhost:8080
# make test   everything that must pass: format, vet, lint, tests compiled and under the interpreter, fuzzing in short, and
#             the plugin in a real Traefik, which is built where there is none
# make bench  the benchmarks of docs/performance.md, beside the peers
# make lint   format, vet and staticcheck alone

.PHONY: run test bench lint

run:
	go build -o bin/caddy ./cmd/caddy
	./bin/caddy run --config Caddyfile.example

test:
	./scripts/test

bench:
	./scripts/bench

lint:
	./scripts/test format vet staticcheck
