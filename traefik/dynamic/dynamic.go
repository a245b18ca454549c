// Package dynamic reads the middlewares of a plugin from a file of Traefik's dynamic configuration, or from the labels of a compose file, as Traefik itself does.
// Compiled programs alone use it: the plugin gets its configuration from Traefik.
package dynamic

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v3"

	"github.com/proxyweir/weir/core/words"
	"github.com/proxyweir/weir/traefik/config"
)

// Middleware is a middleware that a plugin makes.
type Middleware struct {
	Name   string         // with its provider, as Traefik has it: "api@file", or "api@docker" of a label
	Config *config.Config // as it is written
	Open   string         // a router of the file that uses it, with no authentication in front and no other plugin; "": none does
}

// Read returns the middlewares of a file in YAML, TOML or JSON, or of the labels of a compose file, whose plugin has that name in Traefik's static configuration, in
// the order of their names, and what in its routers and middlewares is most likely not intended, also if there is an error. A file without any is one, which names the plugins.
func Read(file, plugin string) (list []Middleware, doubts []string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	root, err := parse(file, text)
	if err != nil {
		if strings.Contains(string(text), "{{") {
			err = fmt.Errorf("%w (it seems to be a template; write out what Traefik makes of it)", err)
		}
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	provider := "file"
	made, of, odd := labels(root)
	for _, text := range odd {
		doubts = append(doubts, file+": "+text)
	}
	if of != "" {
		root["http"], provider = listed(member(made, "http")), of
	}
	all, routers := member(member(root, "http"), "middlewares"), member(member(root, "http"), "routers")
	if all == nil {
		return nil, doubts, fmt.Errorf("%s: has no http: middlewares:, as the dynamic configuration of a Traefik with Weir has, and no service with labels such as traefik.http.middlewares.api.plugin.weir.limit", file)
	}
	doubts = append(doubts, doubtsOf(file, plugin, provider, routers, all)...)
	others := make(map[string]bool)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		plugins := member(all[name], "plugin")
		for other := range plugins {
			others[other] = true
		}
		settings, there := plugins[plugin]
		if !there {
			continue
		}
		m := Middleware{Name: name + "@" + provider, Config: &config.Config{}, Open: openTo(name, provider, routers, all)}
		fields, isObject := settings.(map[string]any)
		if !isObject && settings != nil {
			return nil, doubts, fmt.Errorf("%s: middleware %q: plugin: %s: must be an object with Weir's settings", file, name, plugin)
		}
		if err := Decode(fields, m.Config); err != nil {
			return nil, doubts, fmt.Errorf("%s: middleware %q: %w", file, name, err)
		}
		list = append(list, m)
	}
	if len(list) > 0 {
		return list, doubts, nil
	}
	instead := "none has a plugin"
	if len(others) > 0 {
		instead = "the plugins are " + strings.Join(slices.Sorted(maps.Keys(others)), ", ") + "; --plugin says which of them is Weir"
	}
	return nil, doubts, fmt.Errorf("%s: no middleware has the plugin %s: %s", file, plugin, instead)
}

// doubtsOf returns what is most likely not intended in the routers and all middlewares of a file.
func doubtsOf(file, plugin, provider string, routers, all map[string]any) (doubts []string) {
	doubt := func(says string, args ...any) { doubts = append(doubts, file+": "+fmt.Sprintf(says, args...)) }
	named := make(map[string]bool)
	follow := func(kind, of string, value any) {
		names, _ := field(value, "middlewares").([]any)
		for _, one := range names {
			name, from, _ := strings.Cut(fmt.Sprint(one), "@")
			own := from == "" || from == provider
			named[name] = named[name] || own
			if _, there := all[name]; own && !there {
				doubt("%s %q: the middleware \"%v\" is not in this file: unless another one of the provider has it, Traefik refuses the router, and answers its requests with 404, or by a router without the limit", kind, of, one)
			}
		}
	}
	limited := func(router string) bool {
		return slices.ContainsFunc(chainOf(routers[router], provider, all), func(name string) bool { return member(all[name], "plugin")[plugin] != nil })
	}
	sorted := slices.Sorted(maps.Keys(routers))
	for _, name := range sorted {
		follow("router", name, routers[name])
		under := func(other string) bool { return limited(other) && takes(routers[name], routers[other]) }
		if at := slices.IndexFunc(sorted, under); at >= 0 && !limited(name) {
			doubt("router %q: has no middleware of Weir's, and takes the requests of router %q if Traefik refuses that: they would come here without a limit", name, sorted[at])
		}
	}
	middlewares := slices.Sorted(maps.Keys(all))
	for _, name := range middlewares {
		follow("chain", name, field(all[name], "chain"))
	}
	for _, name := range middlewares {
		plugins := member(all[name], "plugin")
		for other, settings := range plugins {
			if other != plugin && (words.Nearest(other, []string{plugin}) != "" || isWeirs(settings)) {
				doubt("middleware %q: the plugin %q is not %s, but looks like it: without a plugin of that name Traefik says \"unknown plugin type: %[2]s\", and refuses the router", name, other, plugin)
			}
		}
		if _, is := plugins[plugin]; is && !named[name] && len(routers) > 0 {
			doubt("middleware %q: no router of this file names it: unless one of another file or provider or an entry point does, as %[1]s@%[2]s, it limits nothing", name, provider)
		}
	}
	return doubts
}

// anything is a part of a rule that all requests meet.
var anything = regexp.MustCompile("^(?:PathPrefix\\([`\"]/[`\"]\\)|(?:Host|Path)Regexp\\([`\"]\\^?(?:/?\\.[*+])?\\$?[`\"]\\))$")

// takes reports whether a router's rule is met by all requests that meet the rule of another one, since that has all its parts, and both listen at one entry point.
func takes(router, other any) bool {
	if field(router, "rule") == nil || field(other, "rule") == nil || (field(router, "tls") == nil) != (field(other, "tls") == nil) {
		return false
	}
	if mine, others := namesOf(field(router, "entryPoints")), namesOf(field(other, "entryPoints")); mine != nil && others != nil &&
		!slices.ContainsFunc(mine, func(name any) bool { return slices.Contains(others, name) }) {
		return false
	}
	parts := func(router any) (list []string) {
		for _, part := range strings.Split(strings.Join(strings.Fields(fmt.Sprint(field(router, "rule"))), ""), "&&") {
			if !anything.MatchString(part) {
				list = append(list, part)
			}
		}
		return list
	}
	has := parts(other)
	return !slices.ContainsFunc(parts(router), func(part string) bool { return strings.Contains(part, "||") || !slices.Contains(has, part) })
}

// chainOf returns the middlewares of a router, with those of chains in their places, in order.
func chainOf(router any, provider string, all map[string]any) (chain []string) {
	todo, _ := field(router, "middlewares").([]any)
	for len(todo) > 0 {
		name := strings.TrimSuffix(fmt.Sprint(todo[0]), "@"+provider)
		inner, _ := field(field(all[name], "chain"), "middlewares").([]any)
		todo = todo[1:]
		if !slices.Contains(chain, name) { // a chain may have itself
			chain, todo = append(chain, name), slices.Concat(inner, todo)
		}
	}
	return chain
}

// openTo returns a router that uses a middleware with no authentication in front, and no other plugin, which may be one or limit by address; "": none.
func openTo(middleware, provider string, routers, all map[string]any) string {
	for _, router := range slices.Sorted(maps.Keys(routers)) {
		chain := chainOf(routers[router], provider, all)
		at := slices.Index(chain, middleware)
		guarded := at < 0
		for i, name := range chain {
			kinds, known := all[name].(map[string]any)
			guarded = guarded || !known || i != at && field(kinds, "plugin") != nil
			for kind := range kinds {
				guarded = guarded || i < at && strings.HasSuffix(strings.ToLower(kind), "auth")
			}
		}
		if !guarded {
			return router
		}
	}
	return ""
}

// isWeirs reports whether settings are right for Weir, and limit something.
func isWeirs(settings any) bool {
	fields, _ := settings.(map[string]any)
	c := &config.Config{}
	if Decode(fields, c) != nil || config.CheckFields(c) != nil {
		return false
	}
	s, err := config.Read(c, "")
	return err == nil && len(s.Rules)+len(s.Files) > 0
}

// parse parses a file, by the end of its name.
func parse(file string, text []byte) (root map[string]any, err error) {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".json":
		err = json.Unmarshal(text, &root)
	case ".toml":
		err = toml.Unmarshal(text, &root)
	default:
		err = yaml.Unmarshal(text, &root)
	}
	plain, _ := plainOf(root).(map[string]any)
	return plain, err
}

// plainOf returns a value whose lists are all of type []any, and whose objects are of type map[string]any.
func plainOf(value any) any {
	v := reflect.ValueOf(value)
	switch v.Kind() {
	case reflect.Slice:
		list := make([]any, v.Len())
		for i := range list {
			list[i] = plainOf(v.Index(i).Interface())
		}
		return list
	case reflect.Map:
		object := make(map[string]any, v.Len())
		for _, key := range v.MapKeys() {
			object[fmt.Sprint(key.Interface())] = plainOf(v.MapIndex(key).Interface())
		}
		return object
	}
	return value
}

// member returns the object of that name, in upper or lower case, in another; nil: there is none.
func member(of any, name string) map[string]any {
	found, _ := field(of, name).(map[string]any)
	return found
}

// field returns the value of that name, in upper or lower case, in an object; nil: there is none.
func field(of any, name string) any {
	object, _ := of.(map[string]any)
	for key, value := range object {
		if strings.EqualFold(key, name) {
			return value
		}
	}
	return nil
}

// Decode fills in a Config as Traefik does: by mapstructure, weakly typed, with texts split at commas for lists. Names go by
// the fields', regardless of case; what is no field goes to the one that takes what remains.
func Decode(in map[string]any, into *config.Config) error {
	return decode(in, reflect.ValueOf(into).Elem())
}

func decode(in map[string]any, into reflect.Value) error {
	fields, rest := make(map[string]reflect.Value), make(map[string]any)
	var remain reflect.Value
	var collect func(of reflect.Value)
	collect = func(of reflect.Value) {
		for i := range of.NumField() {
			switch field := of.Type().Field(i); field.Tag.Get("mapstructure") {
			case ",squash":
				collect(of.Field(i))
			case ",remain":
				remain = of.Field(i)
			default:
				fields[strings.ToLower(field.Name)] = of.Field(i)
			}
		}
	}
	collect(into)
	for name, value := range in {
		field, known := fields[strings.ToLower(name)]
		if !known {
			rest[name] = value
		} else if err := decodeInto(value, field); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(rest) > 0 {
		remain.Set(reflect.ValueOf(rest))
	}
	return nil
}

func decodeInto(value any, into reflect.Value) error {
	if value == nil { // as if it were not written
		return nil
	}
	switch into.Kind() {
	case reflect.Interface:
		into.Set(reflect.ValueOf(value))
		return nil
	case reflect.String:
		text := ""
		switch v := value.(type) {
		case string:
			text = v
		case bool:
			text = map[bool]string{true: "1", false: "0"}[v]
		case int, int64, uint64:
			text = fmt.Sprint(v)
		case float64:
			text = strconv.FormatFloat(v, 'f', -1, 64)
		default:
			return fmt.Errorf("is a %T", value)
		}
		into.SetString(text)
		return nil
	case reflect.Slice:
		var list []any
		switch v := value.(type) {
		case string:
			for _, part := range strings.Split(v, ",") {
				list = append(list, part)
			}
		case []any:
			list = v
		default:
			list = []any{v}
		}
		slice := reflect.MakeSlice(into.Type(), len(list), len(list))
		for i := range list {
			if err := decodeInto(list[i], slice.Index(i)); err != nil {
				return err
			}
		}
		into.Set(slice)
		return nil
	case reflect.Struct:
		if v, ok := value.(map[string]any); ok {
			return decode(v, into)
		}
	}
	return fmt.Errorf("is a %T", value)
}
