package ratelimit

import (
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/proxyweir/weir/redis"
)

// healthAnswer is what /rate_limit/health answers.
type healthAnswer struct {
	Stores      []storeAnswer    `json:"stores"`
	StoreErrors map[string]int64 `json:"store_errors"` // by kind, since the process started
	RuleFiles   *filesAnswer     `json:"rule_files,omitempty"`
}

// storeAnswer is the memory, or a server.
type storeAnswer struct {
	Store     string `json:"store"`
	Keys      *int64 `json:"keys,omitempty"`
	MaxKeys   int64  `json:"max_keys,omitempty"`
	LogBytes  *int64 `json:"log_bytes,omitempty"`
	Evictions *int64 `json:"evictions,omitempty"`
	Server    string `json:"server,omitempty"`
	Breaker   string `json:"breaker,omitempty"` // "closed", or "open": the server is not asked
}

// filesAnswer is whether the rule files that are there are those in force.
type filesAnswer struct {
	Successful bool      `json:"successful"`
	Loaded     time.Time `json:"loaded"` // when rule files were last put in force
}

// showHealth answers with how the stores are.
func showHealth(a *App, r *http.Request) (any, error) {
	if err := checkQuery(r); err != nil {
		return nil, err
	}
	stats := a.memory.store.Stats()
	answer := healthAnswer{
		Stores:      []storeAnswer{{Store: memoryName, Keys: &stats.Keys, MaxKeys: stats.MaxKeys, LogBytes: &stats.LogBytes, Evictions: &stats.Evictions}},
		StoreErrors: make(map[string]int64),
	}
	for _, store := range a.redisStores() {
		for _, server := range store.Servers() {
			breaker := "closed"
			if server.Open {
				breaker = "open"
			}
			answer.Stores = append(answer.Stores, storeAnswer{Store: "redis", Server: server.Name, Breaker: breaker})
		}
	}
	for _, kind := range storeErrorKinds {
		answer.StoreErrors[kind] = int64(storeErrorsOf(kind))
	}
	if len(a.files.inUse()) > 0 {
		answer.RuleFiles = filesNow()
	}
	return answer, nil
}

// redisStores returns the stores in Redis that handlers count in, each once.
func (a *App) redisStores() []*redis.Store {
	var list []*redis.Store
	seen := make(map[*redis.Store]bool)
	for _, h := range a.handlers {
		if store := h.limiter.redis; store != nil && !seen[store] {
			seen[store] = true
			list = append(list, store)
		}
	}
	return list
}

func storeErrorsOf(kind string) float64 {
	var m dto.Metric
	_ = storeErrors.WithLabelValues(kind).Write(&m) // a counter never fails to
	return m.GetCounter().GetValue()
}

// filesNow returns what the metrics of rule files say.
func filesNow() *filesAnswer {
	var successful, loaded dto.Metric
	_ = rulesSuccessful.Write(&successful)
	_ = rulesLoaded.Write(&loaded)
	return &filesAnswer{successful.GetGauge().GetValue() == 1, time.UnixMilli(int64(loaded.GetGauge().GetValue() * 1000)).UTC()}
}
