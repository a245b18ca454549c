package envoyagreement

import (
	"math/rand"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// breaks is how often a test tries each way to break a file, on trees that have a place for it.
const breaks = 30

// broken has the ways to break a file for which the service has a check. Each changes a tree's nodes at a random place, and reports whether
// there was such a place.
var broken = map[string]func(r *rand.Rand, root *yaml.Node) bool{
	"empty domain":   func(r *rand.Rand, root *yaml.Node) bool { return set(root, "domain", text("")) },
	"no domain":      func(r *rand.Rand, root *yaml.Node) bool { return remove(root, "domain") },
	"null domain":    func(r *rand.Rand, root *yaml.Node) bool { return set(root, "domain", null()) },
	"empty key":      onDescriptor(func(r *rand.Rand, d *yaml.Node) bool { return set(d, "key", text("")) }),
	"no key":         onDescriptor(func(r *rand.Rand, d *yaml.Node) bool { return remove(d, "key") }),
	"null key":       onDescriptor(func(r *rand.Rand, d *yaml.Node) bool { return set(d, "key", null()) }),
	"key is a map":   onDescriptor(func(r *rand.Rand, d *yaml.Node) bool { return set(d, "key", newMap("name", text("a"))) }),
	"value is a map": onDescriptor(func(r *rand.Rand, d *yaml.Node) bool { return set(d, "value", newMap("name", text("a"))) }),
	"key is a list": onDescriptor(func(r *rand.Rand, d *yaml.Node) bool {
		return set(d, "key", &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{text("a")}})
	}),

	"duplicate composite key": func(r *rand.Rand, root *yaml.Node) bool {
		list := oneOf(r, lists(root))
		if len(list.Content) == 0 {
			return false
		}
		first := oneOf(r, list.Content)
		second := newMap("key", get(first, "key"))
		if v := get(first, "value"); v != nil {
			add(second, "value", v)
		}
		list.Content = append(list.Content, second)
		return true
	},

	"bad unit":           onLimit(false, func(r *rand.Rand, l *yaml.Node) bool { return set(l, "unit", text(oneOf(r, badUnits))) }),
	"no unit":            onLimit(false, func(r *rand.Rand, l *yaml.Node) bool { return remove(l, "unit") }),
	"null unit":          onLimit(false, func(r *rand.Rand, l *yaml.Node) bool { return set(l, "unit", null()) }),
	"empty rate_limit":   onLimit(false, func(r *rand.Rand, l *yaml.Node) bool { l.Content = nil; return true }),
	"unlimited and unit": onLimit(true, func(r *rand.Rand, l *yaml.Node) bool { return set(l, "unit", text(oneOf(r, units))) }),
	"replaces itself": onAnyLimit(func(r *rand.Rand, l *yaml.Node) bool {
		set(l, "name", text("own"))
		return insert(r, l, "replaces", newMap("name", text("own")))
	}),
	"replaces nothing":   onAnyLimit(func(r *rand.Rand, l *yaml.Node) bool { return insert(r, l, "replaces", newMap("name", text(""))) }),
	"replaces an empty":  onAnyLimit(func(r *rand.Rand, l *yaml.Node) bool { return insert(r, l, "replaces", newMap()) }),
	"replaces null":      onAnyLimit(func(r *rand.Rand, l *yaml.Node) bool { return insert(r, l, "replaces", newMap("name", null())) }),
	"replaces is a text": onAnyLimit(func(r *rand.Rand, l *yaml.Node) bool { return set(l, "replaces", text("n1")) }),
	"replaces is a map":  onAnyLimit(func(r *rand.Rand, l *yaml.Node) bool { return set(l, "replaces", newMap("name", text("n1"))) }),
	"requests are no number": onLimit(false, func(r *rand.Rand, l *yaml.Node) bool {
		return set(l, "requests_per_unit", text(oneOf(r, []string{"many", "5/minute", "", "five"})))
	}),
	"requests below 0":        onLimit(false, func(r *rand.Rand, l *yaml.Node) bool { return set(l, "requests_per_unit", number(-1-r.Intn(9))) }),
	"requests above 32 bits":  onLimit(false, func(r *rand.Rand, l *yaml.Node) bool { return set(l, "requests_per_unit", number(1<<32+r.Intn(9))) }),
	"requests are a fraction": onLimit(false, func(r *rand.Rand, l *yaml.Node) bool { return set(l, "requests_per_unit", plain("!!float", "1.5")) }),
	"rate_limit is a number":  onDescriptor(func(r *rand.Rand, d *yaml.Node) bool { return set(d, "rate_limit", number(5)) }),
	"rate_limit is a list": onDescriptor(func(r *rand.Rand, d *yaml.Node) bool {
		return set(d, "rate_limit", &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{newMap("unit", text("day"))}})
	}),
	"unlimited is no truth":   onAnyLimit(func(r *rand.Rand, l *yaml.Node) bool { return set(l, "unlimited", text("perhaps")) }),
	"shadow_mode is no truth": onDescriptor(func(r *rand.Rand, d *yaml.Node) bool { return set(d, "shadow_mode", number(1)) }),

	"misspelled key": func(r *rand.Rand, root *yaml.Node) bool {
		m := oneOf(r, mapsIn(root))
		if len(m.Content) == 0 {
			return false
		}
		misspell(r, m.Content[2*r.Intn(len(m.Content)/2)])
		return true
	},
	"unknown key": func(r *rand.Rand, root *yaml.Node) bool {
		add(oneOf(r, mapsIn(root)), oneOf(r, []string{"ratelimit", "limits", "requestsPerUnit", "Domain", "x", "<"}), text("5"))
		return true
	},
	"key that is no text": func(r *rand.Rand, root *yaml.Node) bool {
		m := oneOf(r, mapsIn(root))
		m.Content = append(m.Content, oneOf(r, []*yaml.Node{number(5), boolean(true), null(), plain("!!float", "1.5")}), text("5"))
		return true
	},
	"list of no maps": func(r *rand.Rand, root *yaml.Node) bool {
		list := oneOf(r, lists(root))
		item := oneOf(r, []*yaml.Node{text("a"), number(5), boolean(true), null(), {Kind: yaml.SequenceNode}})
		place := r.Intn(len(list.Content) + 1)
		list.Content = append(list.Content[:place:place], append([]*yaml.Node{item}, list.Content[place:]...)...)
		return true
	},
	"descriptors are a map": func(r *rand.Rand, root *yaml.Node) bool {
		return set(oneOf(r, append([]*yaml.Node{root}, all(root)...)), "descriptors", newMap("key", text("a")))
	},
	"descriptors are a text": onDescriptor(func(r *rand.Rand, d *yaml.Node) bool { return set(d, "descriptors", text("a")) }),
	"share_threshold without a wildcard": onDescriptor(func(r *rand.Rand, d *yaml.Node) bool {
		if v := get(d, "value"); v != nil && strings.Contains(v.Value, "*") {
			return false
		}
		return set(d, "share_threshold", boolean(true))
	}),
	"the file is a list": func(r *rand.Rand, root *yaml.Node) bool {
		*root = yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{newMap("domain", text("d"))}}
		return true
	},
	"the file is a text":  func(r *rand.Rand, root *yaml.Node) bool { *root = *text("domain"); return true },
	"the file is nothing": func(r *rand.Rand, root *yaml.Node) bool { *root = *null(); return true },
}

var badUnits = []string{"", "seconds", "min", "fortnight", "unknown", "UNKNOWN", "1m", "sec ond", " day", "0"}

func TestFilesThatTheServiceRefusesAreRefused(t *testing.T) {
	for name, breakIt := range broken {
		t.Run(name, func(t *testing.T) {
			r, seed := newRandom(t) // one for each subtest, since a map's order is random
			for done, tries := 0, 0; done < breaks; tries++ {
				if tries > 50*breaks {
					t.Fatal("hardly any tree has a place for it")
				}
				root := newTree(r, "d").node(r, true)
				if !breakIt(r, root) {
					continue
				}
				done++
				file := marshal(t, root)
				if _, err := loadEnvoy(file); err == nil {
					t.Fatalf("seed %d: Envoy's service takes it, so that it tests nothing:\n%s", seed, file)
				}
				if _, err := loadWeir(file); err == nil {
					t.Fatalf("seed %d: Weir takes it, Envoy's service does not:\n%s", seed, file)
				}
			}
		})
	}
}

// onDescriptor applies a change to a descriptor.
func onDescriptor(change func(r *rand.Rand, d *yaml.Node) bool) func(*rand.Rand, *yaml.Node) bool {
	return func(r *rand.Rand, root *yaml.Node) bool { return change(r, oneOf(r, all(root))) }
}

// onLimit applies a change to the limit of a random descriptor with, or without, unlimited.
func onLimit(unlimited bool, change func(r *rand.Rand, l *yaml.Node) bool) func(*rand.Rand, *yaml.Node) bool {
	return onAnyLimit(func(r *rand.Rand, l *yaml.Node) bool {
		is := get(l, "unlimited")
		return (is != nil && is.Value == "true") == unlimited && change(r, l)
	})
}

func onAnyLimit(change func(r *rand.Rand, l *yaml.Node) bool) func(*rand.Rand, *yaml.Node) bool {
	return onDescriptor(func(r *rand.Rand, d *yaml.Node) bool {
		l := get(d, "rate_limit")
		return l != nil && change(r, l)
	})
}

// lists returns all lists of descriptors.
func lists(n *yaml.Node) []*yaml.Node {
	list := get(n, "descriptors")
	if list == nil {
		return nil
	}
	found := []*yaml.Node{list}
	for _, d := range list.Content {
		found = append(found, lists(d)...)
	}
	return found
}

// all returns all descriptors.
func all(root *yaml.Node) []*yaml.Node {
	var found []*yaml.Node
	for _, list := range lists(root) {
		found = append(found, list.Content...)
	}
	return found
}

// mapsIn returns all maps of a file.
func mapsIn(n *yaml.Node) []*yaml.Node {
	var found []*yaml.Node
	if n.Kind == yaml.MappingNode {
		found = append(found, n)
	}
	for _, c := range n.Content {
		found = append(found, mapsIn(c)...)
	}
	return found
}

func get(m *yaml.Node, field string) *yaml.Node {
	for i := 0; i < len(m.Content); i += 2 {
		if m.Content[i].Value == field {
			return m.Content[i+1]
		}
	}
	return nil
}

// set sets a field, or adds it.
func set(m *yaml.Node, field string, value *yaml.Node) bool {
	remove(m, field)
	add(m, field, value)
	return true
}

// remove removes a field, and reports whether there was one.
func remove(m *yaml.Node, field string) bool {
	for i := 0; i < len(m.Content); i += 2 {
		if m.Content[i].Value == field {
			m.Content = append(m.Content[:i:i], m.Content[i+2:]...)
			return true
		}
	}
	return false
}

// insert inserts an item into the list of a field.
func insert(r *rand.Rand, m *yaml.Node, field string, item *yaml.Node) bool {
	list := get(m, field)
	if list == nil {
		list = &yaml.Node{Kind: yaml.SequenceNode}
		add(m, field, list)
	}
	place := r.Intn(len(list.Content) + 1)
	list.Content = append(list.Content[:place:place], append([]*yaml.Node{item}, list.Content[place:]...)...)
	return true
}

// misspell changes a key so that no field has that name.
func misspell(r *rand.Rand, key *yaml.Node) {
	s := key.Value
	switch i := r.Intn(len(s)); r.Intn(4) {
	case 0:
		s = s[:i] + s[i:i+1] + s[i:]
	case 1:
		s = strings.ToUpper(s[:1]) + s[1:]
	case 2:
		s = strings.ReplaceAll(s, "_", " ") + "s"
	default:
		s = s[:i] + "x" + s[i:]
	}
	key.Value = s
}

func null() *yaml.Node { return plain("!!null", "null") }

func plain(tag, value string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}
}
