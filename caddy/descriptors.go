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

// newDescriptors prepares a handler's descriptors: the templates of their values, and the form in which requests are checked.
func newDescriptors(written [][]DescriptorEntry) (values [][]*syntax.Template, list []front.Descriptor, err error) {
	for i, entries := range written {
		if len(entries) == 0 {
			return nil, nil, fmt.Errorf("descriptors[%d]: is empty; it needs a key and a value", i)
		}
		templates := make([]*syntax.Template, 0, len(entries))
		one := make(front.Descriptor, 0, len(entries))
		for _, e := range entries {
			if e.Key == "" || e.Value == "" {
				return nil, nil, fmt.Errorf("descriptor %q %q: needs a key and a value", e.Key, e.Value)
			}
			value, err := syntax.NewValue(e.Value)
			if err != nil {
				return nil, nil, fmt.Errorf("descriptor %q: key %q: %w", e.Key, e.Value, err)
			}
			templates = append(templates, value)
			one = append(one, front.DescriptorEntry{Key: e.Key, Source: value.Source()})
		}
		values = append(values, templates)
		list = append(list, one)
	}
	return values, list, nil
}
