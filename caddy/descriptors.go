package ratelimit

import (
	"fmt"

	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/front"
)

// DescriptorEntry is one pair of a descriptor, in the sense of Envoy's ratelimit service.
type DescriptorEntry struct {
	// The key, as the rule files have it.
	Key string `json:"key,omitempty"`

	// The value: a text with placeholders. A descriptor with an empty value is left out.
	Value string `json:"value,omitempty"`
}

// descriptor makes one descriptor of requests.
type descriptor []descriptorEntry

type descriptorEntry struct {
	key   string
	value *syntax.Template
}

// newDescriptors prepares the handler's descriptors.
func (h *Handler) newDescriptors() ([]descriptor, error) {
	list := make([]descriptor, 0, len(h.Descriptors))
	for i, entries := range h.Descriptors {
		if len(entries) == 0 {
			return nil, fmt.Errorf("descriptors[%d]: is empty; it needs a key and a value", i)
		}
		made := make(descriptor, 0, len(entries))
		described := make(front.Descriptor, 0, len(entries))
		for _, e := range entries {
			if e.Key == "" || e.Value == "" {
				return nil, fmt.Errorf("descriptor %q %q: needs a key and a value", e.Key, e.Value)
			}
			value, err := syntax.NewTemplate(e.Value)
			if err != nil {
				return nil, fmt.Errorf("descriptor %q: key %q: %w", e.Key, e.Value, err)
			}
			made = append(made, descriptorEntry{e.Key, value})
			described = append(described, front.DescriptorEntry{Key: e.Key, Source: value.Source()})
		}
		list = append(list, made)
		h.described = append(h.described, described)
	}
	return list, nil
}
