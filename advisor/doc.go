// Package advisor forecasts the demand of adaptable rules, and advises proxies how far to loosen their limits: `caddy rate-limit advisor`.
// docs/advice.openapi.yaml is the contract with the proxies; package advice has its documents.
//
//   - config.go, config_read.go: advisor.yaml
//   - source.go, prometheus.go: where the history of demand comes from
//   - forecast.go: the model, its band, and its skill
//   - advise.go: what follows for a rule: a limit, a threshold, or nothing
//   - advisor.go, service.go, metrics.go: documents, and the service that proxies ask
//   - dry_run.go: what it would have advised
//
// It abstains where it knows too little: where its forecasts were no better than the last value and the mean of a season, measured on the rule's own
// history. The proxies check all that it says, and it never learns of a single client.
package advisor
