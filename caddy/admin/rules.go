package admin

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/rate"
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
	Start      string           `json:"window_start,omitempty"` // absent: clock
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
func listRules(a *View, r *http.Request) (any, error) {
	if err := checkQuery(r); err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	answer := rulesAnswer{Time: now, Started: started, Rules: []ruleAnswer{}}
	lent := stores.Leases.Stats()
	for _, s := range a.Rules() {
		one := ruleAnswerOf(a, s, now)
		one.Held = s.Leased(&lent)
		answer.Rules = append(answer.Rules, one)
	}
	return answer, nil
}

func ruleAnswerOf(a *View, s *report.ActiveRule, now time.Time) ruleAnswer {
	answer := ruleAnswer{
		ID: s.Label, Namespace: s.Namespace, Name: s.Name, Key: s.Keys.Names, Enforce: s.Enforcement, Store: s.Limiter.Store,
		Source: s.Source, Notes: s.Notes, Waiting: s.Waiting(), Outcomes: make(map[string]int64), Penalties: atomic.LoadInt64(&s.Stats.Penalties),
	}
	if s.Own != nil {
		answer.Limit, _ = describe.WrittenLimit(s.Own)
		l := s.Own.Limit
		answer.Algorithm = l.Algorithm.String()
		answer.Requests = l.Requests
		answer.Segments = l.Segments()
		if l.Start != rate.ByClock {
			answer.Start = l.Start.String()
		}
		answer.Period = float64(metrics.PeriodOf(l, now.UnixMicro())) / 1e6
		if l.IsBucket {
			answer.Burst = l.Quota
		}
		answer.Notes = append(answer.Notes, describe.LimitNotes(s.Own)...)
		answer.movedLimit = movedLimitOf(a, s, s.Own)
	}
	for _, l := range s.Limits {
		written, _ := describe.WrittenLimit(l.Limit)
		answer.Limits = append(answer.Limits, limitAnswer{l.Of, written})
	}
	if over := s.Limiter.Storage; over != nil {
		answer.Notes = append(answer.Notes, "eventual: counts of other instances are up to "+over.Store.Delay().String()+" old")
	}
	if rules := s.InMemory(); len(rules) > 0 {
		keys := report.KeysIn(a.Memory, rules)
		answer.Keys = &keys
	}
	requests, compared := metrics.Read(s.Stats.Requests), metrics.Read(s.Stats.Compared)
	for o, name := range front.OutcomeNames {
		answer.Outcomes[name] = requests[o]
	}
	if s.HasCandidate() {
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
func listTopKeys(a *View, r *http.Request) (any, error) {
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
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > report.MostCounters {
			return nil, adminError(http.StatusBadRequest, "n %q: must be from 1 to %d", text, report.MostCounters)
		}
	}
	counted, others := &s.Stats.TopRequests, &s.Stats.TopRejections
	if by == "rejections" {
		counted, others = others, counted
	}
	keys := counted.List(time.Now().Unix())
	keys = keys[:min(n, len(keys))]
	beside := others.Counts(keys)
	answer := topAnswer{Rule: s.Label, By: by, Window: 2 * report.GenerationSeconds, Keys: make([]topKeyAnswer, 0, len(keys))}
	for i, k := range keys {
		one := topKeyAnswer{Key: s.Keys.Show(k.Key), Requests: k.Count, Rejections: beside[i], Error: k.Error}
		if by == "rejections" {
			one.Requests, one.Rejections = max(beside[i], k.Count), k.Count
		}
		if k.Cut {
			one.Key = s.Keys.ShowCut(k.Key, k.Hash)
		} else {
			one.ID = describe.IdOf(s.Label, k.Key)
		}
		answer.Keys = append(answer.Keys, one)
	}
	return answer, nil
}
