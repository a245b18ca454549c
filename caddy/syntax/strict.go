package syntax

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// refuseZero refuses fields that are written as zero in an object of the schema, since a zero would be taken for the default. (A
// prefix of zero is the default.)
func refuseZero(data []byte, object string) error {
	var written map[string]any
	if err := json.Unmarshal(data, &written); err != nil {
		return err
	}
	for _, f := range ruleset.Schema[object] {
		if f.Kind != ruleset.OneNumber && f.Kind != ruleset.OneDuration || strings.HasSuffix(f.Name, "_prefix") {
			continue
		}
		field := f.Name
		value, ok := written[field]
		zero := value == float64(0)
		if text, isText := value.(string); isText {
			d, err := caddy.ParseDuration(text)
			zero = err == nil && d == 0
		}
		if ok && zero {
			return fmt.Errorf("%s %v: must be more than zero; for the default leave it out", field, value)
		}
	}
	return nil
}

// UnmarshalStrict refuses unknown fields, and suggests the known one that is most similar.
func UnmarshalStrict(data []byte, v any) error {
	t := reflect.TypeOf(v).Elem()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if reported := new(ReportedError); err == nil || errors.As(err, &reported) {
		return err
	}
	if wrong := new(json.UnmarshalTypeError); errors.As(err, &wrong) {
		return wrongType(wrong, t)
	}
	_, field, found := strings.Cut(err.Error(), "unknown field ")
	if !found {
		return wrongDuration(data, t, err)
	}
	word := strings.Trim(field, `"`)
	if why := Refusal(word, "take it out"); why != "" {
		return errors.New(why)
	}
	known := FieldNames(t)
	if meant := fieldOfWord[word]; meant != "" && slices.Contains(known, "period") {
		return fmt.Errorf("unknown field %q; in JSON it is %s", word, meant)
	}
	if near := words.Nearest(word, known); near != "" {
		return fmt.Errorf("unknown field %q (did you mean %s?)", word, near)
	}
	return fmt.Errorf("unknown field %q; there are %s", word, strings.Join(known, ", "))
}

// fieldOfWord has the JSON for words of a zone in the Caddyfile that differ from their fields' names.
var fieldOfWord = map[string]string{
	"limit": LimitInJSON, "events": "max_events, with window beside it", "override": `"overrides": [{"key": ["..."], "limit": "1000/1m"}]`,
}

// wrongDuration returns an error for the field of an object, read into t, that is no duration; if there is none it returns
// otherwise.
func wrongDuration(data []byte, t reflect.Type, otherwise error) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil {
		return otherwise
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		kind, _ := fieldCalled(t, name)
		if kind != reflect.TypeFor[caddy.Duration]() || json.Unmarshal(fields[name], new(caddy.Duration)) == nil {
			continue
		}
		return fmt.Errorf("%s %s: must be a duration in quotes, such as \"10s\", \"1m\" or \"1h\"", name, fields[name])
	}
	return otherwise
}

// wrongType explains in JSON's terms that a value has the wrong type for its field, and what would be right. t is the type that was
// read into.
func wrongType(wrong *json.UnmarshalTypeError, t reflect.Type) error {
	name := wrong.Field[strings.LastIndexByte(wrong.Field, '.')+1:]
	want := jsonType(wrong.Type, name)
	if field, ok := fieldCalled(t, name); ok && field.Kind() == reflect.Slice && wrong.Type.Kind() != reflect.Slice {
		want = jsonType(field, name)
	} else if ok && field.Kind() == reflect.Map {
		want = jsonType(field, name) // of the whole, even if a value in it is wrong
	} else if ok && field == reflect.TypeFor[caddy.Duration]() {
		want = `a duration in quotes, such as "10s", "1m" or "1h"`
	}
	value, rest, _ := strings.Cut(wrong.Value, " ")
	got := map[string]string{"string": "a text", "number": "a number", "bool": "true or false", "array": "a list", "object": "an object"}[value]
	if got == "" {
		got = value
	} else if rest != "" {
		got = rest // the number
	}
	if name == "" {
		return fmt.Errorf("must be %s, not %s", want, got)
	}
	return fmt.Errorf("%s: must be %s, not %s", name, want, got)
}

// exampleOf has example values of fields that are texts or lists of texts.
var exampleOf = map[string]string{
	"period": "1m", "limit": "100/1m", "key": ClientIPPlaceholder, "algorithm": "token_bucket", "on_limit": "delay", "on_error": "local", "on_missing_key": "share", "cost": "2",
	"enforcement": "shadow", "count": "401", "cost_response": "bytes", "penalty": "2m", "time_zone": "UTC", "refill": "interval", "headers": "ietf", "response": "auto", "source": "{http.auth.user.plan}",
	"rules_files": "/etc/caddy/limits.yaml", "addresses": "127.0.0.1:6379", "namespace": "shop", "prefix": "weir:", "rule": "login", "for": "1h", "method": "GET", "url": "https://shop.example/login",
}

// jsonType describes in JSON's terms what the value of the field of that name must be.
func jsonType(t reflect.Type, name string) string {
	example := exampleOf[name]
	if name == "key" && t.Kind() == reflect.Slice { // the values of the key's parts
		example = "192.0.2.7"
	}
	switch t.Kind() {
	case reflect.String:
		if example == "" {
			return "a text in quotes"
		}
		return fmt.Sprintf("a text in quotes, such as %q", example)
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number without quotes"
	case reflect.Float64:
		return "a number without quotes"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.String {
			if example == "" {
				return "a list of texts in quotes"
			}
			return fmt.Sprintf("a list of texts in quotes, such as [%q]", example)
		}
		return "a list"
	case reflect.Map:
		if name == "headers" {
			return `an object of texts, such as {"X-Api-Key": "sk-acme"}`
		}
	}
	return "an object"
}

// fieldCalled returns the type of the field with that name in JSON.
func fieldCalled(t reflect.Type, name string) (reflect.Type, bool) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil, false
	}
	for _, field := range reflect.VisibleFields(t) {
		if nameInJSON(field) == name && name != "" {
			return field.Type, true
		}
	}
	return nil, false
}

// ReportedError is an error of a part of a configuration. It is complete, so the whole adds nothing to it.
type ReportedError struct{ error }

// UnmarshalPart reads a part of a configuration as strictly as the whole. part is the name of its field. If v's type has a method
// UnmarshalJSON that calls this, v must be a pointer to a type without that method.
func UnmarshalPart[T any](part string, data []byte, v *T) error {
	if err := UnmarshalStrict(data, v); err != nil {
		return &ReportedError{fmt.Errorf("%s: %w", part, err)}
	}
	return nil
}

// FieldNames lists the names of a struct's fields in JSON.
func FieldNames(t reflect.Type) []string {
	var names []string
	for _, field := range reflect.VisibleFields(t) {
		if name := nameInJSON(field); name != "" {
			names = append(names, name)
		}
	}
	return names
}

func nameInJSON(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}

// Refusal says what to use in place of a word of caddy-ratelimit that Weir does not support; "" if word is none of them. remove says how to remove the word
// in the configuration's language.
func Refusal(word, remove string) string {
	if word == "disable_metrics" {
		return "disable_metrics is not supported: there are a few series for each zone, and none for a key; " + remove
	}
	return ""
}

// ResolveTexts calls ResolvePlaceholders for all texts of a struct. Errors have their names in JSON.
func ResolveTexts(repl *caddy.Replacer, settings any) error {
	v := reflect.ValueOf(settings).Elem()
	for i, name := range FieldNames(v.Type()) {
		if text, ok := v.Field(i).Addr().Interface().(*string); ok {
			if err := ResolvePlaceholders(repl, name, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// ResolvePlaceholders inserts the values of placeholders in a setting. A secret from a file ends with the file, without its last
// line break.
func ResolvePlaceholders(repl *caddy.Replacer, name string, value *string) error {
	if !strings.Contains(*value, "{") {
		return nil
	}
	resolved, err := repl.ReplaceOrErr(*value, true, true)
	if err != nil {
		for _, source := range []string{"{env.", "{file.", "{system.", "{time.", "{http."} {
			if strings.Contains(err.Error(), source) {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		// The error repeats nothing of a secret that has braces.
		return fmt.Errorf(`%s: has braces around what is no global placeholder such as {env.NAME}; write a brace that is meant as one \{`, name)
	}
	*value = strings.TrimRight(resolved, "\r\n")
	return nil
}

// Examples for a configuration in JSON.
const (
	LimitInJSON = `"requests": 100, "period": "1m"`
	EntryInJSON = `"descriptors": [[{"key": "<key>", "value": "{http.request.header.X-Key}"}]]`
)
