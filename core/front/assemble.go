package front

import (
	"errors"
	"net/http"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
)

// Rule is a rule in force, of a configuration or of a file. NewRule makes it; from the first request on it is read only.
type Rule struct {
	Ruled   *ruleset.Rule
	Matcher *match.Matcher // that of Ruled; nil: covers all requests
	Only    *core.Rule     // the limit of all its requests, unless Ruled.Active.Generation is not 0; nil: ruleset.LimitOf chooses among several, or there is none

	ofFile    bool // its paths are those that the client has sent: see Evaluation.Sent
	skips     bool // requests without a key are not counted
	ofAddress bool // its decision depends on the address of the connection
}

// NewRule returns the Rule of a compiled rule.
func NewRule(ruled *ruleset.Rule) *Rule {
	r := &Rule{Ruled: ruled, Matcher: ruled.Matcher, skips: ruled.SkipMissing, ofAddress: ruleset.OfAddress(ruled)}
	if ruled.Limits.Single() {
		r.Only = ruled.Limits.Own()
	}
	return r
}

// Descriptor says how a request becomes one descriptor, in the sense of Envoy's ratelimit service.
type Descriptor []DescriptorEntry

// DescriptorEntry is one pair of a descriptor: its key, and the source of its value.
type DescriptorEntry struct {
	Key    string
	Source match.Source
}

// Set has the rules of a handler. NewSet makes it; from then on it is read only.
type Set struct {
	Own   []*Rule // the configuration's; each is evaluated
	Files []*Rule // those of rule files; an index finds the ones that may cover a request

	NeedsAddress bool        // any rule or descriptor needs the client's address
	JittersReset bool        // any limit has core.Rule.JittersReset
	Respects     bool        // any limit has core.Rule.Respects
	Adapter      interface{} // the adapter's own data

	oneKey      bool         // all rules have the same key
	guards      bool         // any rule has a Covering
	index       *ruleset.Set // of Files; nil: there are none
	domain      *ruleset.Domain
	descriptors []Descriptor
	ofAddress   bool // a descriptor depends on the address of the connection
}

// NewSet returns the set of a configuration's rules, of those in files, and of the descriptors of requests if there is a domain of
// descriptors. index is the set that files was made from; nil: there are no files. domain is nil if there are no descriptors.
func NewSet(own, files []*Rule, index *ruleset.Set, domain *ruleset.Domain, descriptors []Descriptor) *Set {
	s := &Set{Own: own, Files: files, index: index, domain: domain, oneKey: true}
	if domain != nil {
		s.descriptors = descriptors
	}
	for _, one := range s.descriptors {
		for i := range one {
			s.NeedsAddress = s.NeedsAddress || one[i].Source.NeedsClient()
			s.ofAddress = s.ofAddress || one[i].Source.OfAddress()
		}
	}
	var first *Rule
	for _, r := range files {
		r.ofFile = true
	}
	for _, list := range [][]*Rule{own, files} {
		for _, r := range list {
			if first == nil {
				first = r
			}
			s.oneKey = s.oneKey && ruleset.SameKey(first.Ruled, r.Ruled)
			for _, limit := range r.Ruled.Limits.Rules() {
				s.JittersReset = s.JittersReset || limit.JittersReset
				s.Respects = s.Respects || limit.Respects != 0
			}
			s.guards = s.guards || r.Ruled.Covering != nil
			s.NeedsAddress = s.NeedsAddress || ruleset.NeedsAddress(r.Ruled)
		}
	}
	return s
}

// HasDescriptors reports whether requests of the set become descriptors.
func (s *Set) HasDescriptors() bool { return len(s.descriptors) > 0 }

// Evaluation has the state of one request while it is decided. It comes from Evaluations, and Free returns it there.
type Evaluation struct {
	Checks  []core.Check
	Verdict core.Verdict
	Set     *Set // whose rules the checks are of; nil: Assemble has not made them
	Lacking bool // a rule rejects the request because it lacks a part of the key

	// Adapters that have such requests set these before Assemble.
	Early bool // the TLS handshake is not complete: anybody can have sent the request, from any address

	// Sent is the request with the path that the client has sent, for rules of files; nil: it has that path. Stripped says that a prefix was
	// taken off, so that a rule's path may also mean what is left.
	Sent     *http.Request
	Stripped bool

	room    []byte
	rules   []*Rule
	places  []int
	lookup  *ruleset.Lookup // nil: never used
	entries []ruleset.Entry
}

// Evaluations has the Evaluations that are not in use.
var Evaluations = sync.Pool{New: func() interface{} { return &Evaluation{room: make([]byte, 0, 128)} }}

// ErrEarly says that a rule needs the client's address, which is not verified yet.
var ErrEarly = errors.New("rate limit: the TLS handshake is not complete, so the client's address is not known to be its own")

// mostPlaces is the capacity for candidates that an Evaluation keeps at most for the next request.
const mostPlaces = 1024

// Free clears an Evaluation and returns it to Evaluations.
func Free(q *Evaluation) {
	for i := range q.Checks {
		q.Checks[i].Clear()
	}
	q.Checks = q.Checks[:0]
	q.Lacking = false
	q.Set = nil
	q.Sent = nil
	q.Stripped = false
	if cap(q.places) > mostPlaces {
		q.places = q.places[:0:0]
		q.rules = q.rules[:0:0]
	}
	Evaluations.Put(q)
}

// Assemble adds a check for each rule of a set that covers a request. address is the client's;
// it may be "" if the set does not need it. The error is ErrEarly, or that of a rule's Covering or Counts.
func Assemble(s *Set, q *Evaluation, r *http.Request, address string) error {
	var (
		ruled         *ruleset.Rule
		limit         *core.Rule
		cost          int64
		path, key     string
		missing, made bool
		generation    int32
		err           error
	)
	sent := r
	if q.Sent != nil {
		sent = q.Sent
	}
	seen := r
	q.Set = s
	rules := s.Own
	if s.index != nil {
		rules = candidates(s, q, r)
	}
	if s.guards || q.Early {
		rules, err = guarded(s, rules, q, r)
		if err != nil {
			return err
		}
	}
	for _, rule := range rules {
		ruled = rule.Ruled
		if rule.Matcher != nil {
			if path == "" { // once a request
				path = match.CleanPath(sent.URL.Path)
			}
			if !match.Covers(rule.Matcher, r, path, address) && !(q.Stripped && match.Covers(rule.Matcher, r, match.CleanPath(r.URL.Path), address)) {
				continue
			}
		}
		seen = r
		if rule.ofFile {
			seen = sent
		}
		cost = ruled.Cost
		if ruled.Asks {
			cost, err = costOf(q, ruled, r, seen, address)
			if err != nil {
				return err
			}
		}
		if !made {
			key, missing = ruleset.KeyOf(ruled, seen, address, q.room)
			made = s.oneKey
		}
		generation = atomic.LoadInt32(&ruled.Active.Generation)
		limit = rule.Only
		if limit == nil || generation != 0 {
			limit = ruleset.LimitOf(ruled, seen, address, key)
		}
		if missing {
			if rule.skips {
				continue
			}
			if ruled.RejectMissing {
				cost = rate.Unaffordable
				limit = ruled.Active.Limits().Rejecting(limit)
				q.Lacking = q.Lacking || limit != nil && !limit.Shadow
			}
		}
		if limit != nil {
			check := addCheck(q, limit, key, cost)
			if generation != 0 {
				check.Previous = ruled.Active.Previous(ruleset.TierOf(ruled, seen, address), key, limit)
			}
		}
	}
	if s.domain != nil {
		describe(s, q, r, address)
	}
	return err
}

// costOf returns what a request costs under a rule that asks the request. seen is the request with the path that the rule sees.
func costOf(q *Evaluation, ruled *ruleset.Rule, r, seen *http.Request, address string) (int64, error) {
	if ruled.Counts != nil {
		path := r.URL.Path
		if q.Sent != nil {
			path = q.Sent.URL.Path
		}
		counts, err := ruled.Counts(r, match.CleanPath(path), address)
		if err == nil && !counts && q.Stripped {
			counts, err = ruled.Counts(r, match.CleanPath(r.URL.Path), address)
		}
		if err != nil || !counts {
			return core.Spared, err
		}
	}
	if ruled.CostFrom == nil {
		return ruled.Cost, nil
	}
	return rate.ReadCost(ruled.CostFrom.Value(seen, address)), nil
}

// addCheck adds a check. Those of earlier requests are used again.
func addCheck(q *Evaluation, limit *core.Rule, key string, cost int64) *core.Check {
	n := len(q.Checks)
	if n < cap(q.Checks) {
		q.Checks = q.Checks[:n+1]
	} else {
		q.Checks = append(q.Checks, core.Check{})
	}
	c := &q.Checks[n]
	c.Rule = limit
	c.Key = key
	c.Cost = cost
	return c
}

// AddCheck adds the check of a rule that is known to cover a request, with what the rule has read in it before.
func AddCheck(q *Evaluation, rule *Rule, tier, key string, cost int64) {
	active := rule.Ruled.Active
	limit := active.Of(tier, key)
	if limit == nil {
		return
	}
	check := addCheck(q, limit, key, cost)
	if atomic.LoadInt32(&active.Generation) != 0 {
		check.Previous = active.Previous(tier, key, limit)
	}
}

// guarded returns those of some rules that a proxy's own matchers say cover the request, and that do not depend on an address that is
// not verified yet. A shadow rule skips such requests.
func guarded(s *Set, rules []*Rule, q *Evaluation, r *http.Request) ([]*Rule, error) {
	kept := q.rules[:0]
	for _, rule := range rules {
		ruled := rule.Ruled
		if ruled.Covering != nil {
			covers, err := ruled.Covering(r)
			if err != nil {
				return kept, err
			}
			if !covers {
				continue
			}
		}
		if q.Early && rule.ofAddress && (rule.Matcher == nil || ruled.Excepts || q.Sent != nil || rule.Matcher.Covers(r, "")) {
			if ruled.Shadow {
				continue
			}
			return kept, ErrEarly
		}
		kept = append(kept, rule)
	}
	q.rules = kept
	if q.Early && s.ofAddress {
		return kept, ErrEarly
	}
	return kept, nil
}

// candidates returns the rules that may cover a request, for a set that has files.
func candidates(s *Set, q *Evaluation, r *http.Request) []*Rule {
	q.rules = append(q.rules[:0], s.Own...)
	q.places = q.places[:0]
	if q.Sent != nil {
		q.places = s.index.Covering(q.Sent, q.places)
	}
	if q.Sent == nil || q.Stripped {
		q.places = s.index.Covering(r, q.places)
	}
	if q.Stripped {
		q.places = onceEach(q.places)
	}
	for _, place := range q.places {
		q.rules = append(q.rules, s.Files[place])
	}
	return q.rules
}

// onceEach sorts some places, and leaves each of them once.
func onceEach(places []int) []int {
	sort.Ints(places)
	n := 0
	for i := range places {
		if i == 0 || places[i] != places[i-1] {
			places[n] = places[i]
			n++
		}
	}
	return places[:n]
}

// describe adds a check for each limit that the descriptors of a request match. It leaves out a descriptor if the request lacks one of its
// values, as Envoy does.
func describe(s *Set, q *Evaluation, r *http.Request, address string) {
	if q.lookup == nil {
		q.lookup = &ruleset.Lookup{}
	}
	lookup := q.lookup
	for _, one := range s.descriptors {
		q.entries = q.entries[:0]
		for i := range one {
			value := one[i].Source.Value(r, address)
			if value == "" {
				break
			}
			q.entries = append(q.entries, ruleset.Entry{Key: one[i].Key, Value: value})
		}
		if len(q.entries) == len(one) {
			lookup.Add(s.domain, q.entries)
		}
	}
	lookup.Finish()
	all := s.domain.Active()
	for i := range lookup.Found {
		f := &lookup.Found[i]
		check := addCheck(q, f.Rule, f.Key, f.Cost)
		if active := all[f.Place]; atomic.LoadInt32(&active.Generation) != 0 {
			check.Previous = active.Previous("", f.Key, f.Rule)
		}
	}
	lookup.Begin() // which forgets the request
	for i := range q.entries {
		q.entries[i] = ruleset.Entry{}
	}
}

// Quotas adds a check for each of some rules of a set that covers the client of a request, whatever the request is for, and for the
// limits of its descriptors: most checks at most. It leaves out shadow rules.
func Quotas(s *Set, rules []*Rule, most int, q *Evaluation, r *http.Request, address string) {
	var alone Set
	var rule Rule
	list := []*Rule{&rule}
	alone.Own = list
	for i := range rules {
		ruled := rules[i].Ruled
		if ruled.Shadow || ruled.Matcher != nil && !match.CoversCaller(ruled.Matcher, r, address) {
			continue
		}
		rule = *rules[i]
		rule.Matcher = nil
		rule.skips = ruled.SkipMissing || ruled.RejectMissing
		before := len(q.Checks)
		_ = Assemble(&alone, q, r, address)                         // which has nothing to guard
		if len(q.Checks) > before && q.Checks[before].Rule.Shadow { // for a key that is not enforced
			q.Checks = q.Checks[:before]
		}
		if len(q.Checks) >= most {
			break
		}
	}
	if s.domain != nil && len(q.Checks) < most {
		describe(s, q, r, address)
	}
	q.Set = s
}
