# make run    starts a Caddy with Weir in it, by Caddyfile.example, on http://localhost:8080, and its page on http://localhost:2020
# make demo   the same with a little traffic, so that the page has something to show
# make advisor starts the advisor on Prophet by examples/advisor/advisor.yaml, or CONFIG
# make test   everything that must pass: format, vet, lint, tests compiled and under the interpreter, fuzzing in short, and
#             the plugin in a real Traefik, which is built where there is none
# make test-long  some of the same tests for two hours: fuzzing, random histories, fleets and faults
# make bench  the benchmarks of docs/performance.md, beside the peers
# make experiment         a small run of the experiment, with its report; FULL=1 runs all of it
# make experiment-report  the chapter docs/experiment.md with its tables and pictures, from the data in the repository
# make release VERSION=v0.1.0   programs for eight platforms, packages and checksums, in bin/release: see scripts/release
# make site   the site of the manual, in bin/site: it begins with bin/site/index.html
# make lint   format, vet, staticcheck, and the bounds on lines and files alone

.PHONY: run demo advisor test test-long bench experiment experiment-report release site lint

run:
	./scripts/run

demo:
	./scripts/run demo

advisor:
	./scripts/advisor

test:
	./scripts/test

test-long:
	./scripts/test long

bench:
	./scripts/bench

experiment:
	./scripts/experiment

experiment-report:
	./scripts/experiment report

release:
	./scripts/release $(VERSION)

site:
	./scripts/site

lint:
	./scripts/test format vet house staticcheck
