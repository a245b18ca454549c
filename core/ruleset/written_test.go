package ruleset

import (
	"reflect"
	"strings"

	"github.com/proxyweir/weir/core/match"
)

// written is a RuleText as tests write one: with a field for each of the Schema's.
type written struct {
	Name, Limit, TimeZone, Algorithm, Burst, Refill, Segments, WindowStart, Jitter, Cost, IPv4Prefix, IPv6Prefix, Enforcement, OnLimit, MaxDelay, MaxWaiting, MaxWaitingPerKey string
	Concurrency, Consistency, Regions, OnError, OnMissingKey, CountRejected                                                                                                    string
	Key, Count, Penalty                                                                                                                                                        []string
	Match                                                                                                                                                                      *match.Match
	Tiers                                                                                                                                                                      *writtenTiers
	Overrides                                                                                                                                                                  []override
	Candidate                                                                                                                                                                  *candidate
	Adapt                                                                                                                                                                      *adapt
}

type writtenTiers struct {
	source string
	limits []Pair
}

type override struct {
	Key   []string
	Limit string
}

type adapt struct {
	Floor, Ceiling, Step string
	Algorithms           []string
}

type candidate struct{ Limit, Algorithm, Burst, Refill, Segments, WindowStart, TimeZone string }

// textOf makes the RuleText.
func textOf(w written) *RuleText {
	t := &RuleText{Name: w.Name}
	enter(&t.Object, "rule", reflect.ValueOf(w))
	if w.Match != nil {
		o := &Object{}
		enter(o, "match", reflect.ValueOf(*w.Match))
		for field, values := range map[string]map[string]string{"headers": w.Match.Headers, "query": w.Match.Query, "cookies": w.Match.Cookies} {
			for name, value := range values {
				SetPairs(o, field, append(o.Pairs[field], Pair{Name: name, Value: value}))
			}
		}
		AddObject(t, "match", o)
	}
	if w.Tiers != nil {
		o := &Object{}
		SetText(o, "source", w.Tiers.source)
		SetPairs(o, "limits", w.Tiers.limits)
		AddObject(t, "tiers", o)
	}
	for _, one := range w.Overrides {
		o := &Object{}
		SetText(o, "limit", one.Limit)
		SetList(o, "key", one.Key)
		AddObject(t, "overrides", o)
	}
	if w.Candidate != nil {
		o := &Object{}
		enter(o, "candidate", reflect.ValueOf(*w.Candidate))
		AddObject(t, "candidate", o)
	}
	if w.Adapt != nil {
		o := &Object{}
		enter(o, "adapt", reflect.ValueOf(*w.Adapt))
		AddObject(t, "adapt", o)
	}
	return t
}

// enter takes the texts and lists of a struct.
func enter(o *Object, object string, v reflect.Value) {
	for _, f := range Schema[object] {
		for i := 0; i < v.NumField(); i++ {
			if !strings.EqualFold(v.Type().Field(i).Name, CamelCase(f.Name)) || f.Name == "name" {
				continue
			}
			if f.Kind == ManyTexts && !v.Field(i).IsNil() {
				SetList(o, f.Name, v.Field(i).Interface().([]string))
			} else if f.Kind < ManyTexts && v.Field(i).String() != "" {
				SetText(o, f.Name, v.Field(i).String())
			}
		}
	}
}
