package traefik

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Objects inside a configuration arrive here undecoded, as interface{} fields: an empty one comes as an empty text from
// some of Traefik's providers, and from labels as "true", which the decoder that Traefik uses would refuse.

// decodeObject fills in a struct, given by a pointer, from an object of the configuration, and reports whether there is one.
// It takes names regardless of case, scalars for texts, and texts with commas for lists, as Traefik's decoder does. The keys that
// there are no fields for are refused. field is what messages call the object.
func decodeObject(field string, value, into interface{}) (present bool, err error) {
	if value == nil {
		return false, nil
	}
	target := reflect.ValueOf(into).Elem()
	known := fieldsOf(target.Interface())
	source := reflect.ValueOf(value)
	if source.Kind() != reflect.Map || source.Type().Key().Kind() != reflect.String {
		text := strings.ToLower(strings.TrimSpace(fmt.Sprint(source.Interface())))
		if text == "" || text == "true" {
			return true, nil
		}
		if text == "false" {
			return false, nil
		}
		return false, fmt.Errorf("%s %q: must be an object with some of %s", field, fmt.Sprint(value), strings.Join(known, ", "))
	}
	keys := source.MapKeys()
	unknown := make(map[string]interface{})
	set := make(map[int]bool)
	for i := range keys {
		key := keys[i].String()
		member := source.MapIndex(keys[i])
		for member.Kind() == reflect.Interface && !member.IsNil() {
			member = member.Elem()
		}
		index := fieldIndex(target.Type(), key)
		if index < 0 {
			unknown[key] = nil
			continue
		}
		if set[index] {
			return false, fmt.Errorf("%s: %s: is there twice, in upper and lower case; keep one", field, key)
		}
		set[index] = true
		if err := decodeMember(field+": "+key, member, target.Field(index)); err != nil {
			return false, err
		}
	}
	return true, checkUnknown(field+": ", unknown, known)
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
	if kind == reflect.Map {
		return decodeMap(name, value, into)
	}
	list, ok := texts(value)
	if !ok {
		return fmt.Errorf("%s %s: must be a list", name, asJSON(value.Interface()))
	}
	into.Set(reflect.ValueOf(list))
	return nil
}

// decodeMap fills in a map of texts.
func decodeMap(name string, value, into reflect.Value) error {
	if text, ok := scalar(value); ok && text == "" {
		return nil
	}
	if value.Kind() != reflect.Map {
		return fmt.Errorf("%s %s: must be an object", name, asJSON(value.Interface()))
	}
	m := make(map[string]string)
	keys := value.MapKeys()
	for i := range keys {
		text, ok := scalar(value.MapIndex(keys[i]))
		if !ok {
			return fmt.Errorf("%s: %s: must be a single value", name, keys[i].String())
		}
		m[keys[i].String()] = text
	}
	into.Set(reflect.ValueOf(m))
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

// texts returns a list of texts, which may be written as one text with commas.
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

// fieldIndex returns which field of a struct has that name in a configuration, in whichever case; -1: none.
func fieldIndex(t reflect.Type, name string) int {
	for i := 0; i < t.NumField(); i++ {
		if strings.EqualFold(nameOf(t.Field(i)), name) {
			return i
		}
	}
	return -1
}

// listOf returns the members of a list in the configuration, none where there is no list. An empty one comes as an empty text.
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
