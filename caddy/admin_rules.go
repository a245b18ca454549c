package ratelimit

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/words"
)

// rulesAnswer is the answer of /rate_limit/rules.
type rulesAnswer struct {
	Time    time.Time    `json:"time"`    // of the counts
	Started time.Time    `json:"started"` // when this process began: counts are of the same history while it is the same
	Rules   []ruleAnswer `json:"rules"`
}

// started is when this process began. It does not change with a reload.
var started = time.Now().UTC()

// ruleAnswer is a rule in force. Its counts begin when the process first has the rule.
type ruleAnswer struct {
	ID        string   `json:"id"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
	Key       []string `json:"key"`
	Limit     string   `json:"limit,omitempty"` // in force, as it is written; empty: unlimited
	movedLimit
	Algorithm  string           `json:"algorithm,omitempty"`
	Requests   int64            `json:"requests,omitempty"`
	Period     float64          `json:"period_seconds,omitempty"` // for a calendar period, the length of the current day, week or month; none for concurrency
	Burst      int64            `json:"burst,omitempty"`
	Segments   int64            `json:"segments,omitempty"`
	Enforce    string           `json:"enforcement"`
	Store      string           `json:"store"`
	Source     string           `json:"source"`
	Notes      []string         `json:"notes,omitempty"`
	Limits     []limitAnswer    `json:"limits,omitempty"`
	Keys       *int64           `json:"keys,omitempty"` // in memory
	Held       *int64           `json:"held,omitempty"` // units that this process has leased, and not spent
	Waiting    int64            `json:"waiting"`
	Outcomes   map[string]int64 `json:"outcomes"`
	Penalties  int64            `json:"penalties"`
	Candidates map[string]int64 `json:"candidate_decisions,omitempty"`
}

// limitAnswer is a limit that applies only to some requests.
type limitAnswer struct {
	For   string `json:"for"`
	Limit string `json:"limit"`
}

// listRules answers with the rules in force.
func listRules(a *view, r *http.Request) (any, error) {
	if err := checkQuery(r); err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	answer := rulesAnswer{Time: now, Started: started, Rules: []ruleAnswer{}}
	lent := stores.Leases.Stats()
	for _, s := range a.rules() {
		one := ruleAnswerOf(a, s, now)
		one.Held = s.leased(&lent)
		answer.Rules = append(answer.Rules, one)
	}
	return answer, nil
}

func ruleAnswerOf(a *view, s *subject, now time.Time) ruleAnswer {
	answer := ruleAnswer{
		ID: s.label, Namespace: s.namespace, Name: s.name, Key: s.keys.names, Enforce: s.enforcement, Store: s.limiter.Store,
		Source: s.source, Notes: s.notes, Waiting: s.waiting(), Outcomes: make(map[string]int64), Penalties: atomic.LoadInt64(&s.stats.Penalties),
	}
	if s.own != nil {
		answer.Limit, _ = writtenLimit(s.own)
		l := s.own.Limit
		answer.Algorithm = l.Algorithm.String()
		answer.Requests = l.Requests
		answer.Segments = l.Segments()
		answer.Period = float64(metrics.PeriodOf(l, now.UnixMicro())) / 1e6
		if l.IsBucket {
			answer.Burst = l.Quota
		}
		answer.Notes = append(answer.Notes, limitNotes(s.own)...)
		answer.movedLimit = movedLimitOf(a, s, s.own)
	}
	for _, l := range s.limits {
		written, _ := writtenLimit(l.limit)
		answer.Limits = append(answer.Limits, limitAnswer{l.of, written})
	}
	if over := s.limiter.Storage; over != nil {
		answer.Notes = append(answer.Notes, "eventual: counts of other instances are up to "+over.Store.Delay().String()+" old")
	}
	if rules := s.inMemory(); len(rules) > 0 {
		keys := keysIn(a.memory, rules)
		answer.Keys = &keys
	}
	requests, compared := metrics.Read(s.stats.Requests), metrics.Read(s.stats.Compared)
	for o, name := range front.OutcomeNames {
		answer.Outcomes[name] = requests[o]
	}
	if s.hasCandidate() {
		answer.Candidates = make(map[string]int64, front.Comparisons)
		for c, name := range [front.Comparisons]string{"both_rejected", "stricter", "laxer", "both_allowed"} {
			answer.Candidates[name] = compared[c]
		}
	}
	return answer
}

// topAnswer is the answer of /rate_limit/top.
type topAnswer struct {
	Rule   string         `json:"rule"`
	By     string         `json:"by"`
	Window int            `json:"window_seconds"` // the counts cover between half of it and all of it
	Keys   []topKeyAnswer `json:"keys"`
}

// topKeyAnswer is a key that has sent much. The count by which the list is ordered may be too high by up to Error.
type topKeyAnswer struct {
	Key        []string `json:"key"`
	ID         string   `json:"id,omitempty"` // names the key in other requests; empty if the key is cut
	Requests   uint64   `json:"requests"`
	Rejections uint64   `json:"rejections"`
	Error      uint64   `json:"error"`
}

// listTopKeys answers with the keys of a rule that have sent the most requests, or had the most rejected.
func listTopKeys(a *view, r *http.Request) (any, error) {
	if err := checkQuery(r, "rule", "by", "n"); err != nil {
		return nil, err
	}
	query := r.URL.Query()
	s, err := ruleNamed(a, query.Get("rule"))
	if err != nil {
		return nil, err
	}
	by := query.Get("by")
	if by == "" {
		by = "requests"
	}
	if err := words.CheckWord("by", by, []string{"requests", "rejections"}); err != nil {
		return nil, adminError(http.StatusBadRequest, "%w", err)
	}
	n := 10
	if text := query.Get("n"); text != "" {
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > mostCounters {
			return nil, adminError(http.StatusBadRequest, "n %q: must be from 1 to %d", text, mostCounters)
		}
	}
	counted, others := &s.stats.requests, &s.stats.rejections
	if by == "rejections" {
		counted, others = others, counted
	}
	keys := counted.list(time.Now().Unix())
	keys = keys[:min(n, len(keys))]
	beside := others.counts(keys)
	answer := topAnswer{Rule: s.label, By: by, Window: 2 * generationSeconds, Keys: make([]topKeyAnswer, 0, len(keys))}
	for i, k := range keys {
		one := topKeyAnswer{Key: s.keys.show(k.key), Requests: k.count, Rejections: beside[i], Error: k.error}
		if by == "rejections" {
			one.Requests, one.Rejections = max(beside[i], k.count), k.count
		}
		if k.cut {
			one.Key = s.keys.showCut(k.key, k.hash)
		} else {
			one.ID = idOf(s.label, k.key)
		}
		answer.Keys = append(answer.Keys, one)
	}
	return answer, nil
}
