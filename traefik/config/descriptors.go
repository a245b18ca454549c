package config

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/words"
)

// newDescriptors reads the descriptors of a configuration. Each is an object with a list of entries, or that list itself, if
// Traefik's provider can carry it.
func newDescriptors(value interface{}) ([]front.Descriptor, error) {
	list, err := listOf("descriptors", value)
	if err != nil {
		return nil, err
	}
	descriptors := make([]front.Descriptor, 0, len(list))
	for i := range list {
		field := fmt.Sprintf("descriptors[%d]", i)
		entries := list[i]
		if reflect.ValueOf(entries).Kind() != reflect.Slice {
			if members, _, _ := membersOf(field, entries, fieldsOf(DescriptorEntry{})); len(members) > 0 {
				return nil, fmt.Errorf("%s: write its entries as a list: entries: [{key: …, source: …}]", field)
			}
			var d Descriptor
			if _, err := decodeObject(field, entries, &d); err != nil {
				return nil, err
			}
			entries = d.Entries
			field += ": entries"
		}
		one, err := newDescriptor(field, entries)
		if err != nil {
			return nil, err
		}
		descriptors = append(descriptors, one)
	}
	return descriptors, nil
}

// newDescriptor reads the entries of a descriptor.
func newDescriptor(field string, value interface{}) (front.Descriptor, error) {
	list, err := listOf(field, value)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: is empty; write a list such as [{key: path, source: path}]", field)
	}
	one := make(front.Descriptor, 0, len(list))
	for i := range list {
		in := fmt.Sprintf("%s[%d]", field, i)
		var entry DescriptorEntry
		if _, err := decodeObject(in, list[i], &entry); err != nil {
			return nil, err
		}
		if entry.Key == "" {
			return nil, fmt.Errorf("%s: key: is missing; write what the rule files call it", in)
		}
		if entry.Source == "" {
			return nil, fmt.Errorf("%s: source: is missing; write what the value is taken from, such as header:X-Plan", in)
		}
		source, err := match.ParseSource(strings.TrimSpace(entry.Source))
		if err != nil {
			return nil, words.Of(err).Named("source").Within("", in)
		}
		one = append(one, front.DescriptorEntry{Key: entry.Key, Source: source})
	}
	return one, nil
}
