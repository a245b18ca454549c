package dynamic

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// labels returns the dynamic configuration that the labels of the services of a compose file make of containers, as Traefik's provider does: docker, or if no
// service has such labels itself, swarm, of those below deploy. What compose fills in from the environment stays as it is written. provider is "" if there are none.
// odd are labels that Traefik does not take.
func labels(compose map[string]any) (root map[string]any, provider string, odd []string) {
	services := member(compose, "services")
	for _, provider := range []string{"docker", "swarm"} {
		root = make(map[string]any)
		found := false
		for _, name := range slices.Sorted(maps.Keys(services)) {
			of := field(services[name], "labels")
			if provider == "swarm" {
				of = field(field(services[name], "deploy"), "labels")
			}
			list, _ := of.([]any) // of NAME=VALUE, or an object
			object, _ := of.(map[string]any)
			for _, label := range slices.Sorted(maps.Keys(object)) {
				list = append(list, fmt.Sprint(label, "=", object[label]))
			}
			if slices.Contains(list, any("traefik.enable=false")) {
				continue
			}
			for _, one := range list {
				label, value, _ := strings.Cut(fmt.Sprint(one), "=")
				path := strings.Split(strings.ReplaceAll(label, "[", ".["), ".")
				switch {
				case len(path) < 3 || !strings.EqualFold(path[0], "traefik") || !strings.EqualFold(path[1], "http"):
				case path[0] != "traefik":
					odd = append(odd, fmt.Sprintf("service %q: the label %s must begin with traefik in lower case: Traefik leaves out all labels of the container", name, label))
				default:
					put(root, path[1:], strings.ReplaceAll(value, "$$", "$"))
					found = true
				}
			}
		}
		if found {
			return root, provider, odd
		}
	}
	return nil, "", odd
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
		object[path[0]] = namesOf(value)
	}
}

// namesOf returns a list of names, which in labels is a text with commas; nil: there is none.
func namesOf(value any) (names []any) {
	text, is := value.(string)
	if !is {
		names, _ = value.([]any)
		return names
	}
	for _, name := range strings.Split(text, ",") {
		names = append(names, strings.TrimSpace(name))
	}
	return names
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
