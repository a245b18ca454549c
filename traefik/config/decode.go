package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// Objects inside a configuration arrive here undecoded, as interface{} fields: an empty one comes as an empty text from some of Traefik's
// providers, and from labels as "true", which the decoder that Traefik uses would refuse.

// decodeObject fills in a struct, given by a pointer, from an object of the configuration, and reports whether there is one. It takes names
// regardless of case, scalars as texts, and texts with commas as lists, as Traefik's decoder does. It refuses unknown keys. field is the
// object's name in messages.
func decodeObject(field string, value, into interface{}) (present bool, err error) {
	if value == nil {
		return false, nil
	}
	target := reflect.ValueOf(into).Elem()
	members, present, err := membersOf(field, value, fieldsOf(target.Interface()))
	if err != nil {
		return false, err
	}
	places := placesOf(target.Type())
	for name, member := range members {
		if err := decodeMember(field+": "+name, member, target.Field(places[name])); err != nil {
			return false, err
		}
	}
	return present, nil
}

// decodeText is decodeObject for an object of the schema of rules. It returns nil if there is none.
func decodeText(field string, value interface{}, object string) (*ruleset.Object, error) {
	if value == nil {
		var none *ruleset.Object
		return none, nil
	}
	members, present, err := membersOf(field, value, camelCased(object))
	if err != nil || !present {
		var none *ruleset.Object
		return none, err
	}
	o := &ruleset.Object{}
	for _, f := range ruleset.Schema[object] {
		name := ruleset.CamelCase(f.Name)
		member, there := members[name]
		if !there {
			continue
		}
		if err := decodeField(field+": "+name, member, &f, o); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// decodeField fills in one field of such an object.
func decodeField(name string, value reflect.Value, f *ruleset.Field, o *ruleset.Object) error {
	switch f.Kind {
	case ruleset.ManyTexts:
		var list []string
		err := decodeMember(name, value, reflect.ValueOf(&list).Elem())
		ruleset.SetList(o, f.Name, trimmed(list))
		return err
	case ruleset.NamedTexts:
		pairs, err := pairsOf(name, value)
		ruleset.SetPairs(o, f.Name, pairs)
		return err
	}
	text := ""
	err := decodeMember(name, value, reflect.ValueOf(&text).Elem())
	ruleset.SetText(o, f.Name, text)
	return err
}

// pairsOf returns named texts, in the order of the names.
func pairsOf(name string, value reflect.Value) ([]ruleset.Pair, error) {
	var pairs []ruleset.Pair
	if text, ok := scalar(value); ok && text == "" || value.Kind() == reflect.Interface { // null
		return pairs, nil
	}
	if value.Kind() != reflect.Map {
		return pairs, fmt.Errorf("%s %s: must be an object", name, asJSON(value.Interface()))
	}
	keys := value.MapKeys()
	sort.Slice(keys, func(i, j int) bool { return keys[i].String() < keys[j].String() })
	for _, key := range keys {
		text, ok := scalar(value.MapIndex(key))
		if !ok {
			return pairs, fmt.Errorf("%s: %s: must be a single value", name, key.String())
		}
		pairs = append(pairs, ruleset.Pair{Name: key.String(), Value: text})
	}
	return pairs, nil
}

// membersOf returns the members of an object of the configuration by the names of their fields, and reports whether there is an object.
func membersOf(field string, value interface{}, known []string) (members map[string]reflect.Value, present bool, err error) {
	members = make(map[string]reflect.Value)
	if value == nil {
		return members, false, nil
	}
	source := reflect.ValueOf(value)
	if source.Kind() != reflect.Map || source.Type().Key().Kind() != reflect.String {
		text := strings.ToLower(strings.TrimSpace(fmt.Sprint(source.Interface())))
		if text == "" || text == "true" {
			return members, true, nil
		}
		if text == "false" {
			return members, false, nil
		}
		return members, false, fmt.Errorf("%s %q: must be an object with some of %s", field, fmt.Sprint(value), strings.Join(known, ", "))
	}
	keys := source.MapKeys()
	unknown := make(map[string]interface{})
	for i := range keys {
		key := keys[i].String()
		member := source.MapIndex(keys[i])
		for member.Kind() == reflect.Interface && !member.IsNil() {
			member = member.Elem()
		}
		name := nameIn(known, key)
		if name == "" {
			unknown[key] = nil
			continue
		}
		if _, twice := members[name]; twice {
			return members, false, fmt.Errorf("%s: %s: duplicate, in upper and lower case; keep one", field, key)
		}
		members[name] = member
	}
	err = checkUnknown(field+": ", unknown, known)
	return members, true, err
}

// nameIn returns the name in a list that equals a key regardless of case; "": none.
func nameIn(known []string, key string) string {
	for _, name := range known {
		if strings.EqualFold(name, key) {
			return name
		}
	}
	return ""
}

// decodeMember fills in one field of a struct.
func decodeMember(name string, value, into reflect.Value) error {
	if value.Kind() == reflect.Interface { // null
		return nil
	}
	kind := into.Kind()
	if kind == reflect.Interface {
		into.Set(value)
		return nil
	}
	if kind == reflect.String {
		text, ok := scalar(value)
		if !ok {
			return fmt.Errorf("%s %s: must be a single value", name, asJSON(value.Interface()))
		}
		into.SetString(text)
		return nil
	}
	list, ok := texts(value)
	if !ok {
		return fmt.Errorf("%s %s: must be a list", name, asJSON(value.Interface()))
	}
	into.Set(reflect.ValueOf(list))
	return nil
}

// scalar returns a text, number or boolean as a text.
func scalar(v reflect.Value) (text string, ok bool) {
	for v.Kind() == reflect.Interface && !v.IsNil() {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		return v.String(), true
	case reflect.Bool, reflect.Int, reflect.Int64, reflect.Int32, reflect.Uint, reflect.Uint64, reflect.Uint32:
		return fmt.Sprint(v.Interface()), true
	case reflect.Float64, reflect.Float32:
		return strconv.FormatFloat(v.Float(), 'f', -1, 64), true
	}
	return "", false
}

// texts returns a list of texts. It may be written as one text with commas.
func texts(v reflect.Value) (list []string, ok bool) {
	if text, single := scalar(v); single {
		if text == "" {
			return list, true
		}
		list = strings.Split(text, ",")
		return list, true
	}
	if v.Kind() != reflect.Slice {
		return list, false
	}
	for i := 0; i < v.Len(); i++ {
		text, single := scalar(v.Index(i))
		if !single {
			return list, false
		}
		list = append(list, text)
	}
	return list, true
}

// asJSON writes a value for a message.
func asJSON(value interface{}) string {
	text, err := json.Marshal(value)
	if err != nil { // a map whose keys are no texts, from some decoders
		return fmt.Sprint(value)
	}
	return string(text)
}

// placesOf returns the indexes of the fields of a struct by their names in a configuration.
func placesOf(t reflect.Type) map[string]int {
	places := make(map[string]int)
	for i := 0; i < t.NumField(); i++ {
		if name := nameOf(t.Field(i)); name != "" {
			places[name] = i
		}
	}
	return places
}

// listOf returns the members of a list in the configuration, none if there is no list. An empty list comes as an empty text.
func listOf(field string, value interface{}) ([]interface{}, error) {
	var list []interface{}
	if value == nil {
		return list, nil
	}
	source := reflect.ValueOf(value)
	if text, ok := scalar(source); ok && strings.TrimSpace(text) == "" {
		return list, nil
	}
	if source.Kind() != reflect.Slice {
		return list, fmt.Errorf("%s %s: must be a list of objects, in YAML each with a dash in front", field, asJSON(value))
	}
	for i := 0; i < source.Len(); i++ {
		list = append(list, source.Index(i).Interface())
	}
	return list, nil
}

// CheckFields refuses unknown keys of a configuration. (decodeObject refuses those in objects.)
func CheckFields(c *Config) error {
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

// trimmed returns a list without the spaces around its members: lists are often written "a, b".
func trimmed(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, strings.TrimSpace(s))
	}
	return out
}

// InWords returns an error with the names that settings have in Traefik.
func InWords(m *words.Mistake) error { return errors.New(m.In(ourName)) }

// ourName is what Traefik calls a setting, or else says in its own way, for words.Mistake.
func ourName(name string) string {
	if name == "have request_header set a field to it, and take header:NAME" {
		return "write header:NAME for a field"
	}
	return ruleset.CamelCase(name)
}
