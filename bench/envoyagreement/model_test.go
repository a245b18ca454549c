package envoyagreement

import (
	"context"
	"regexp"
	"strings"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/ratelimit/src/config"
)

// model finds the limits of a tree as the service does since March 2026, when it began to take a * anywhere in a value for a wildcard. The
// module in go.mod may be older, since the module proxy had no newer one when this was written. So the tests compare the model with the
// service's own code for files that this code knows, and Weir with the model for all others. Only one thing is the model's own: which texts a *
// matches, and that is left to package regexp.
type model struct {
	trees []*tree

	// Of the last request:
	path    string  // of the descriptor that was found
	met     []*node // the descriptor for each entry
	fitting int     // how many wildcards matched the last entry
}

var _ config.RateLimitConfig = &model{}

func (m *model) Dump() string         { return "" }
func (m *model) IsEmptyDomains() bool { return len(m.trees) == 0 }

// GetLimit does the same as the service's. The result has no statistics.
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

// find returns the descriptor for an entry, and whether it is a wildcard: the one with the value itself, otherwise the first wildcard that
// matches, otherwise the one with the key alone.
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

// stands reports whether a wildcard matches a value.
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
