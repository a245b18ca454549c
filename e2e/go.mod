module github.com/proxyweir/weir/e2e

go 1.26.0

replace github.com/proxyweir/weir => ../

require (
	github.com/proxyweir/weir v0.0.0
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	go.yaml.in/yaml/v3 v3.0.5
)

require (
	github.com/BurntSushi/toml v1.6.0 // indirect
	github.com/traefik/yaegi v0.16.1 // indirect
	golang.org/x/exp/typeparams v0.0.0-20231108232855-2478ac86f678 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	golang.org/x/tools v0.51.0 // indirect
	honnef.co/go/tools v0.8.2 // indirect
)

tool (
	github.com/traefik/yaegi/cmd/yaegi
	honnef.co/go/tools/cmd/staticcheck
)
