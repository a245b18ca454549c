package envoyagreement

import (
	"context"
	"regexp"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/ratelimit/src/config"
)

// model says what the service has found for trees since March 2026, when it began to take a * anywhere in a value for a wildcard. The
// module that is required may be older, since the module proxy had no newer one when this was written. So the model is held to the
// service's own code wherever that knows a file's values, and Weir to the model elsewhere: what is the model's own is only which texts a
// * stands for, which is left to package regexp.
type model struct {
	trees []*tree

	// Of the last request:
	path    string  // of the descriptor that it came to
	met     []*node // for each entry
	fitting int     // how many wildcards fitted the last entry
}

var _ config.RateLimitConfig = &model{}

func (m *model) Dump() string         { return "" }
func (m *model) IsEmptyDomains() bool { return len(m.trees) == 0 }

// GetLimit has the service's meaning. Its answer has no statistics.
func (m *model) GetLimit(_ context.Context, domain string, d *common.RateLimitDescriptor) *config.RateLimit {
	m.path = domain
	m.met = nil
	var list []*node
	for _, t := range m.trees {
		if t.domain == domain {
			list = t.top
		}
	}
	var found *node
	var patterns []string
	for i, e := range d.Entries {
		var wild bool
		found, wild = m.find(list, e.Key, e.Value)
		if found == nil {
			return nil
		}
		m.met = append(m.met, found)
		m.path += "." + found.key
		if found.value != "" {
			m.path += "_" + found.value
		}
		if wild && found.share {
			if patterns == nil {
				patterns = make([]string, len(d.Entries))
			}
			patterns[i] = found.value
		}
		list = found.below
	}
	if found == nil || found.limit == nil {
		return nil
	}
	l := found.limit
	answer := &config.RateLimit{
		FullKey: m.path, Unlimited: l.unlimited, ShadowMode: found.shadow, QuotaMode: found.quota, Name: l.name, Replaces: l.replaces,
		DetailedMetric: found.detailed, ShareThresholdKeyPattern: patterns, Limit: &pb.RateLimitResponse_RateLimit{Name: l.name},
	}
	if !l.unlimited {
		answer.Limit.RequestsPerUnit = uint32(l.requests)
		answer.Limit.Unit = pb.RateLimitResponse_RateLimit_Unit(pb.RateLimitResponse_RateLimit_Unit_value[strings.ToUpper(l.unit)])
	}
	return answer
}

// find returns the descriptor that an entry comes to, and whether it does so by a wildcard: the value itself, then the first wildcard that
// fits, then the key alone.
func (m *model) find(list []*node, key, value string) (n *node, wild bool) {
	var bare, first *node
	m.fitting = 0
	for _, one := range list {
		switch {
		case one.key != key:
		case one.value == "":
			bare = one
		case one.value == value:
			return one, false
		case stands(one.value, value):
			m.fitting++
			if first == nil {
				first = one
			}
		}
	}
	if first != nil {
		return first, true
	}
	return bare, false
}

var expressions = make(map[string]*regexp.Regexp)

// stands reports whether a value is one that a wildcard stands for.
func stands(wildcard, value string) bool {
	if !strings.Contains(wildcard, "*") {
		return false
	}
	e := expressions[wildcard]
	if e == nil {
		e = regexp.MustCompile(`(?s)\A` + strings.ReplaceAll(regexp.QuoteMeta(wildcard), `\*`, `.*`) + `\z`)
		expressions[wildcard] = e
	}
	return e.MatchString(value)
}
