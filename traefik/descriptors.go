package traefik

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/match"
	"github.com/proxyweir/weir/ruleset"
)

// descriptor says how a request becomes one descriptor.
type descriptor []descriptorEntry

type descriptorEntry struct {
	key    string
	source match.Source
}

// newDescriptors reads the descriptors of a configuration. Each is an object with a list of entries, or that list itself, where
// Traefik's provider can carry it.
func newDescriptors(value interface{}) ([]descriptor, error) {
	list, err := listOf("descriptors", value)
	if err != nil {
		return nil, err
	}
	descriptors := make([]descriptor, 0, len(list))
	for i := range list {
		field := fmt.Sprintf("descriptors[%d]", i)
		entries := list[i]
		if reflect.ValueOf(entries).Kind() != reflect.Slice {
			if hasMember(entries, "key") || hasMember(entries, "source") {
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
func newDescriptor(field string, value interface{}) (descriptor, error) {
	list, err := listOf(field, value)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: is empty; write a list such as [{key: path, source: path}]", field)
	}
	one := make(descriptor, 0, len(list))
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
			return nil, fmt.Errorf("%s: source %s", in, strings.TrimPrefix(err.Error(), "key "))
		}
		one = append(one, descriptorEntry{key: entry.Key, source: source})
	}
	return one, nil
}

// hasMember reports whether an object of the configuration has a member of that name, in whichever case.
func hasMember(value interface{}, name string) bool {
	source := reflect.ValueOf(value)
	if source.Kind() != reflect.Map || source.Type().Key().Kind() != reflect.String {
		return false
	}
	keys := source.MapKeys()
	for i := range keys {
		if strings.EqualFold(keys[i].String(), name) {
			return true
		}
	}
	return false
}

func descriptorsNeedAddress(descriptors []descriptor) bool {
	for _, one := range descriptors {
		for i := range one {
			if one[i].source.String() == "client_ip" {
				return true
			}
		}
	}
	return false
}

// describe adds a check for each limit that the descriptors of a request come under. One of which the request lacks a value is left
// out, as in Envoy.
func describe(e *engine, domain *ruleset.Domain, q *inquiry, r *http.Request, address string) {
	if q.lookup == nil {
		q.lookup = &ruleset.Lookup{}
	}
	lookup := q.lookup
	lookup.Begin()
	for _, one := range e.descriptors {
		q.entries = q.entries[:0]
		for i := range one {
			value := one[i].source.Value(r, address)
			if value == "" {
				break
			}
			q.entries = append(q.entries, ruleset.Entry{Key: one[i].key, Value: value})
		}
		if len(q.entries) == len(one) {
			lookup.Add(domain, q.entries)
		}
	}
	lookup.Finish()
	for i := range lookup.Found {
		f := &lookup.Found[i]
		q.checks = append(q.checks, core.Check{Rule: f.Rule, Key: f.Key, Cost: f.Cost})
	}
}
