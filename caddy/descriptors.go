package ratelimit

import (
	"fmt"
	"net/http"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/match"
	"github.com/proxyweir/weir/ruleset"
)

// DescriptorEntry is one pair of a descriptor, in the sense of Envoy's ratelimit service.
type DescriptorEntry struct {
	// The key, as the rule files have it.
	Key string `json:"key,omitempty"`

	// The value: a text with placeholders. A descriptor with an empty value is left out.
	Value string `json:"value,omitempty"`
}

// descriptor is what makes one descriptor of requests.
type descriptor []descriptorEntry

type descriptorEntry struct {
	key   string
	value *template
}

// newDescriptors makes the handler's descriptors ready.
func (h *Handler) newDescriptors() ([]descriptor, error) {
	list := make([]descriptor, 0, len(h.Descriptors))
	for i, entries := range h.Descriptors {
		if len(entries) == 0 {
			return nil, fmt.Errorf("descriptors[%d]: is empty; it needs a key and a value", i)
		}
		made := make(descriptor, 0, len(entries))
		for _, e := range entries {
			if e.Key == "" || e.Value == "" {
				return nil, fmt.Errorf("descriptor %q %q: needs a key and a value", e.Key, e.Value)
			}
			value, err := newTemplate(e.Value)
			if err != nil {
				return nil, fmt.Errorf("descriptor %q: key %q: %w", e.Key, e.Value, err)
			}
			made = append(made, descriptorEntry{e.Key, value})
		}
		list = append(list, made)
	}
	return list, nil
}

// ofAddress reports whether the descriptor has the client's address.
func (d descriptor) ofAddress() bool {
	for _, e := range d {
		if e.value.OfAddress() {
			return true
		}
	}
	return false
}

// entries appends the descriptor of a request; ok is false where a value is empty, and there is none.
func (d descriptor) entries(r *http.Request, into []ruleset.Entry) (entries []ruleset.Entry, ok bool) {
	for i := range d {
		value := d[i].value.Value(r)
		if value == "" {
			return into, false
		}
		into = append(into, ruleset.Entry{Key: d[i].key, Value: value})
	}
	return into, true
}

// inquireFiles fills in the checks of what stands in rule files.
func (h *Handler) inquireFiles(q *inquiry, r *http.Request, f *inForce) error {
	q.inFiles = true
	address := clientIPOf(r)
	early := r.TLS != nil && !r.TLS.HandshakeComplete
	q.places = f.set.Covering(r, q.places[:0])
	path := ""
	if len(q.places) > 0 {
		path = match.CleanPath(r.URL.Path)
	}
	for _, i := range q.places {
		rule := f.set.Rules[i]
		if rule.Matcher != nil && !(early && rule.Excepts) && !match.Covers(rule.Matcher, r, path, address) {
			continue
		}
		if early && f.set.addressed[i] {
			if rule.Shadow {
				continue
			}
			return tooEarly
		}
		key, missing := ruleset.KeyOf(rule, r, address, q.key)
		cost := ruleset.CostOf(rule, r, address)
		if missing {
			if rule.SkipMissing {
				continue
			}
			if rule.RejectMissing {
				cost = core.Unaffordable
				q.lacking = q.lacking || !rule.Shadow
			}
		}
		one := ruleset.LimitOf(rule, r, address, key)
		if missing && rule.RejectMissing {
			one = rule.Limits.Rejecting(one)
		}
		if one != nil {
			q.add(one, key, cost, f.set.reporters[i])
		}
	}
	if f.domain == nil {
		return nil
	}
	for _, d := range h.descriptors {
		if early && d.ofAddress() {
			return tooEarly
		}
	}
	h.lookUp(q, r, f)
	for i := range q.lookup.Found {
		found := &q.lookup.Found[i]
		q.add(found.Rule, found.Key, found.Cost, f.reporters[found.Place])
	}
	return nil
}

// lookUp looks up which limits a request comes under by its descriptors.
func (h *Handler) lookUp(q *inquiry, r *http.Request, f *inForce) {
	q.lookup.Begin()
	for _, d := range h.descriptors {
		entries, ok := d.entries(r, q.entries[:0])
		q.entries = entries
		if ok {
			q.lookup.Add(f.domain, entries)
		}
	}
	q.lookup.Finish()
}
