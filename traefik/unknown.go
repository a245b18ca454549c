package traefik

import (
	"fmt"
	"reflect"
	"sort"
	"strings"

	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// checkFields refuses unknown keys of a configuration. (decodeObject refuses those in objects.)
func checkFields(c *Config) error {
	if len(c.Rule.Unknown) > 0 { // of the top
		known := fieldsOf(Config{})
		for _, field := range camelCased("rule") {
			if nameIn(known, field) == "" {
				known = append(known, field)
			}
		}
		if err := checkUnknown("", c.Rule.Unknown, known); err != nil {
			return err
		}
	}
	for i := range c.Rules {
		r := &c.Rules[i]
		if len(r.Unknown) == 0 {
			continue
		}
		where := fmt.Sprintf("rule %q: ", r.Name)
		if r.Name == "" {
			where = fmt.Sprintf("rules[%d]: ", i)
		}
		if err := checkUnknown(where, r.Unknown, camelCased("rule")); err != nil {
			return err
		}
	}
	return nil
}

// checkUnknown refuses the first of some unknown keys, and names the field that was most likely meant. where is the beginning of the message.
func checkUnknown(where string, unknown map[string]interface{}, known []string) error {
	if len(unknown) == 0 {
		return nil
	}
	keys := make([]string, 0, len(unknown))
	for key := range unknown {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	text := fmt.Sprintf("%s%q is not a field; there are %s", where, keys[0], strings.Join(known, ", "))
	if near := words.Nearest(keys[0], known); near != "" {
		text = fmt.Sprintf("%s%q is not a field (did you mean %s?)", where, keys[0], near)
	}
	return fmt.Errorf("%s", text)
}

// camelCased returns the names in Traefik of the fields of an object of the schema of rules.
func camelCased(object string) []string {
	names := ruleset.Names(object)
	for i := range names {
		names[i] = ruleset.CamelCase(names[i])
	}
	return names
}

// fieldsOf returns the names in a configuration of the fields of a struct.
func fieldsOf(v interface{}) []string {
	t := reflect.TypeOf(v)
	names := make([]string, 0, t.NumField())
	for i := 0; i < t.NumField(); i++ {
		if name := nameOf(t.Field(i)); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// nameOf returns the name of a field in a configuration, "" for one that only the decoder uses.
func nameOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" {
		return ""
	}
	return name
}

// firstSet returns the name of the first field of a rule that is set at the top, or "". A name that the middleware has too is the middleware's
// there.
func firstSet(r Rule) string {
	value := reflect.ValueOf(r)
	for i := 0; i < value.NumField(); i++ {
		f := value.Field(i)
		if f.IsZero() || f.Kind() == reflect.Slice && f.Len() == 0 {
			continue
		}
		if name := nameOf(value.Type().Field(i)); name != "" && nameIn(fieldsOf(Config{}), name) == "" {
			return name
		}
	}
	return ""
}
