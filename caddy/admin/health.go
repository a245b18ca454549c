package admin

import (
	"net/http"

	"github.com/proxyweir/weir/caddy/adapt"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/core/metrics"
)

// healthAnswer is the answer of /rate_limit/health.
type healthAnswer struct {
	Stores      []storeAnswer        `json:"stores"`
	StoreErrors map[string]int64     `json:"store_errors"` // by kind, since the process started
	RuleFiles   *FilesAnswer         `json:"rule_files,omitempty"`
	Guards      []guardAnswer        `json:"guards,omitempty"`
	Advisor     *adapt.AdvisorAnswer `json:"advisor,omitempty"`
	Deferred    []queueAnswer        `json:"deferred,omitempty"`
	Exceptions  int                  `json:"exceptions,omitempty"` // in force
}

// storeAnswer is the state of the memory, or of one Redis server.
type storeAnswer struct {
	Store     string `json:"store"`
	Keys      *int64 `json:"keys,omitempty"`
	MaxKeys   int64  `json:"max_keys,omitempty"`
	LogBytes  *int64 `json:"log_bytes,omitempty"`
	Evictions *int64 `json:"evictions,omitempty"`
	Server    string `json:"server,omitempty"`
	Breaker   string `json:"breaker,omitempty"` // "closed", or "open": the server gets no requests

	// Of a store over a storage: other Caddys whose counts are there, how many of those cannot be read, and for how long the oldest admission has waited to be
	// told.
	Storage   string   `json:"storage,omitempty"`
	Instances *int64   `json:"instances,omitempty"`
	Damaged   *int64   `json:"damaged,omitempty"`
	Age       *float64 `json:"age_seconds,omitempty"`
	Failing   bool     `json:"failing,omitempty"` // nothing can be written, or read
}

// showHealth answers with the state of the stores and of the rule files.
func showHealth(a *View, r *http.Request) (any, error) {
	if err := checkQuery(r); err != nil {
		return nil, err
	}
	stats := a.Memory.Stats()
	answer := healthAnswer{
		Stores:      []storeAnswer{{Store: stores.MemoryName, Keys: &stats.Keys, MaxKeys: stats.MaxKeys, LogBytes: &stats.LogBytes, Evictions: &stats.Evictions}},
		StoreErrors: metrics.ByValue(metrics.StoreErrors, metrics.Read(stores.StoreErrors)),
	}
	for _, store := range stores.InRedis(a.Limiters) {
		for _, server := range store.Servers() {
			breaker := "closed"
			if server.Open {
				breaker = "open"
			}
			answer.Stores = append(answer.Stores, storeAnswer{Store: "redis", Server: server.Name, Breaker: breaker})
		}
	}
	for _, s := range stores.Storages(a.Limiters) {
		st := s.Store.Stats()
		age := float64(st.Age) / 1e6
		answer.Stores = append(answer.Stores, storeAnswer{Store: "storage", Keys: &st.Keys, Storage: s.Name, Instances: &st.Instances, Damaged: &st.Damaged, Age: &age, Failing: st.Failing})
	}
	for _, g := range a.Guards {
		answer.Guards = append(answer.Guards, guardAnswerOf(g))
	}
	answer.Advisor = a.Adapting.Health(a.AdviceSource)
	for _, d := range a.Queues {
		answer.Deferred = append(answer.Deferred, queueAnswerOf(d, d.Worker.Sums()))
	}
	answer.RuleFiles = a.Files
	answer.Exceptions = len(exceptionsOf(a))
	return answer, nil
}
