package ratelimit

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

// UnmarshalJSON reads the handler's JSON as strictly as Caddy does. Its errors suggest the field that an unknown one resembles,
// name the zone, and report duplicate zones. (Caddy's own loader keeps only the last of duplicate names before it calls a module,
// so in a whole configuration the last zone counts.)
func (h *Handler) UnmarshalJSON(data []byte) error {
	type plain Handler // without this method, which would call itself
	p := struct {
		RateLimits json.RawMessage `json:"rate_limits"`
		*plain
	}{plain: (*plain)(h)}
	if err := unmarshalStrict(data, &p); err != nil {
		return err
	}
	if err := checkStoreIsObject(h.StoreRaw); err != nil {
		return err
	}
	if p.RateLimits == nil {
		return nil
	}
	return h.unmarshalZones(p.RateLimits)
}

// UnmarshalJSON reads the app's JSON as strictly as a handler's.
func (a *App) UnmarshalJSON(data []byte) error {
	type plain App // without this method, which would call itself
	if err := unmarshalStrict(data, (*plain)(a)); err != nil {
		return err
	}
	return checkStoreIsObject(a.StoreRaw)
}

// UnmarshalJSON reads the store's JSON as strictly as a handler's.
func (s *RedisStore) UnmarshalJSON(data []byte) error {
	type plain RedisStore
	return unmarshalStrict(data, (*plain)(s))
}

// UnmarshalJSON reads the settings as strictly as their store's.
func (t *ClientTLS) UnmarshalJSON(data []byte) error {
	type plain ClientTLS
	return unmarshalPart("tls", data, (*plain)(t))
}

// UnmarshalJSON reads the store's JSON as strictly as a handler's.
func (m *MemoryStore) UnmarshalJSON(data []byte) error {
	type plain MemoryStore
	return unmarshalStrict(data, (*plain)(m))
}

// UnmarshalJSON reads the store's JSON as strictly as a handler's.
func (s *StorageStore) UnmarshalJSON(data []byte) error {
	type plain StorageStore
	return unmarshalStrict(data, (*plain)(s))
}

// UnmarshalJSON reads the settings as strictly as a handler's.
func (x *Distributed) UnmarshalJSON(data []byte) error {
	type plain Distributed
	return unmarshalPart("distributed", data, (*plain)(x))
}

// storeInJSON is an example of a store in JSON.
const storeInJSON = `"store": {"store": "redis", "addresses": ["127.0.0.1:6379"]}`

// checkStoreIsObject refuses a store that is only a name. Caddy's own error for it would be about Go types.
func checkStoreIsObject(raw json.RawMessage) error {
	var object map[string]json.RawMessage
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &object) == nil {
		return nil
	}
	return fmt.Errorf("store %s: must be an object that has the store's name, such as %s", raw, storeInJSON)
}

// unmarshalZones reads an object of zones name by name, since a map would hide duplicates.
func (h *Handler) unmarshalZones(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return fmt.Errorf("rate_limits: must be an object of zones by their names")
	}
	h.RateLimits = make(map[string]*Zone)
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return fmt.Errorf("rate_limits: %w", err)
		}
		name := token.(string) // an object's keys are strings
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return fmt.Errorf("zone %q: %w", name, err)
		}
		if _, duplicate := h.RateLimits[name]; duplicate {
			return fmt.Errorf("zone %q: duplicate name; keep one", name)
		}
		if string(raw) == "null" {
			return fmt.Errorf("zone %q: is null; it needs a limit", name)
		}
		zone := new(Zone)
		if err := unmarshalStrict(raw, zone); err != nil {
			return fmt.Errorf("zone %q: %w", name, err)
		}
		if err := refuseZero(raw, "rule"); err != nil {
			return fmt.Errorf("zone %q: %w", name, err)
		}
		h.RateLimits[name] = zone
	}
	return nil
}

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

// unmarshalStrict refuses unknown fields, and suggests the known one that is most similar.
func unmarshalStrict(data []byte, v any) error {
	t := reflect.TypeOf(v).Elem()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if reported := new(reportedError); err == nil || errors.As(err, &reported) {
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
	if why := refusal(word, "take it out"); why != "" {
		return errors.New(why)
	}
	known := fieldNames(t)
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
	"limit": limitInJSON, "events": "max_events, with window beside it", "override": `"overrides": [{"key": ["..."], "limit": "1000/1m"}]`,
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
	"period": "1m", "limit": "100/1m", "key": clientIPPlaceholder, "algorithm": "token_bucket", "on_limit": "delay", "on_error": "local", "on_missing_key": "share", "cost": "2",
	"enforcement": "shadow", "count": "401", "penalty": "2m", "time_zone": "UTC", "refill": "interval", "headers": "ietf", "response": "auto", "source": "{http.auth.user.plan}",
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

// reportedError is an error of a part of a configuration. It is complete, so the whole adds nothing to it.
type reportedError struct{ error }

// unmarshalPart reads a part of a configuration as strictly as the whole. part is the name of its field. If v's type has a method
// UnmarshalJSON that calls this, v must be a pointer to a type without that method.
func unmarshalPart[T any](part string, data []byte, v *T) error {
	if err := unmarshalStrict(data, v); err != nil {
		return &reportedError{fmt.Errorf("%s: %w", part, err)}
	}
	return nil
}

// UnmarshalJSON reads tiers as strictly as a zone.
func (t *Tiers) UnmarshalJSON(data []byte) error {
	type plain Tiers
	return unmarshalPart("tiers", data, (*plain)(t))
}

// UnmarshalJSON reads an override as strictly as a zone.
func (o *Override) UnmarshalJSON(data []byte) error {
	type plain Override
	return unmarshalPart("overrides", data, (*plain)(o))
}

// UnmarshalJSON reads a candidate as strictly as a zone.
func (c *Candidate) UnmarshalJSON(data []byte) error {
	type plain Candidate // without this method, which would call itself
	if err := unmarshalPart("candidate", data, (*plain)(c)); err != nil {
		return err
	}
	if err := refuseZero(data, "candidate"); err != nil {
		return &reportedError{fmt.Errorf("candidate: %w", err)}
	}
	return nil
}

// UnmarshalJSON reads adapt as strictly as a zone.
func (a *Adapt) UnmarshalJSON(data []byte) error {
	type plain Adapt
	return unmarshalPart("adapt", data, (*plain)(a))
}

// UnmarshalJSON reads an advisor's settings as strictly as the app's.
func (a *Advisor) UnmarshalJSON(data []byte) error {
	type plain Advisor
	return unmarshalPart("advisor", data, (*plain)(a))
}

// UnmarshalJSON reads an entry as strictly as a handler.
func (e *DescriptorEntry) UnmarshalJSON(data []byte) error {
	type plain DescriptorEntry
	return unmarshalPart("descriptors", data, (*plain)(e))
}

// fieldNames lists the names of a struct's fields in JSON.
func fieldNames(t reflect.Type) []string {
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

// Interface guards
var (
	_ json.Unmarshaler = (*Handler)(nil)
	_ json.Unmarshaler = (*App)(nil)
	_ json.Unmarshaler = (*RedisStore)(nil)
	_ json.Unmarshaler = (*ClientTLS)(nil)
	_ json.Unmarshaler = (*MemoryStore)(nil)
	_ json.Unmarshaler = (*Tiers)(nil)
	_ json.Unmarshaler = (*Override)(nil)
	_ json.Unmarshaler = (*Candidate)(nil)
	_ json.Unmarshaler = (*Adapt)(nil)
	_ json.Unmarshaler = (*Advisor)(nil)
	_ json.Unmarshaler = (*DescriptorEntry)(nil)
)
