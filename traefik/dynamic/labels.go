package dynamic

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// labels returns the dynamic configuration that the labels of the services of a compose file make of containers, as Traefik's provider does, and the provider's
// name; "": there are none of Traefik's. What compose fills in from the environment stays as it is written.
func labels(compose map[string]any) (root map[string]any, provider string) {
	services := member(compose, "services")
	root = make(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(services)) {
		for _, of := range []struct {
			provider string
			labels   any
		}{{"docker", field(services[name], "labels")}, {"swarm", field(field(services[name], "deploy"), "labels")}} {
			list, _ := of.labels.([]any) // of NAME=VALUE, or an object
			object, _ := of.labels.(map[string]any)
			for _, label := range slices.Sorted(maps.Keys(object)) {
				list = append(list, fmt.Sprint(label, "=", object[label]))
			}
			for _, one := range list {
				label, value, _ := strings.Cut(fmt.Sprint(one), "=")
				if path := strings.Split(strings.ReplaceAll(label, "[", ".["), "."); len(path) > 2 && strings.EqualFold(path[0], "traefik") {
					put(root, path[1:], strings.ReplaceAll(value, "$$", "$"))
					provider = of.provider
				}
			}
		}
	}
	return root, provider
}

// put sets a value of an object, at a path. The names of middlewares are a list.
func put(object map[string]any, path []string, value string) {
	for ; len(path) > 1; path = path[1:] {
		inner := member(object, path[0])
		if inner == nil {
			inner = make(map[string]any)
			object[path[0]] = inner
		}
		object = inner
	}
	object[path[0]] = value
	if strings.EqualFold(path[0], "middlewares") {
		var names []any
		for _, name := range strings.Split(value, ",") {
			names = append(names, strings.TrimSpace(name))
		}
		object[path[0]] = names
	}
}

// listed returns a value whose objects with names such as [0] are lists, in the order of these texts, as Traefik has them.
func listed(value any) any {
	object, is := value.(map[string]any)
	if !is {
		return value
	}
	names := slices.Sorted(maps.Keys(object))
	var list []any
	for _, name := range names {
		object[name] = listed(object[name])
		if strings.HasPrefix(name, "[") {
			list = append(list, object[name])
		}
	}
	if len(list) > 0 && len(list) == len(names) {
		return list
	}
	return object
}
