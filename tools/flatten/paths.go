package main

import (
	"bytes"
	"embed"
	"fmt"
	"slices"
	"strings"
	"text/template"
)

// file is one that is written.
type file struct {
	Name    string // from the root
	Page    string // the template of all of it
	Metered bool   // its paths are those of who has a core.Metering

	Paths []fastPath // set by generate
}

var files = []file{
	{Name: "core/set_quota_fields.go", Page: "quota_fields"},
	{Name: "answer/headers_write.go", Page: "write"},
	{Name: "core/memory_fast_path_flat.go", Page: "memory"},
	{Name: "core/memory_fast_path_metered.go", Page: "memory", Metered: true},
	{Name: "redis/store_fast_path_flat.go", Page: "redis"},
	{Name: "redis/store_fast_path_metered.go", Page: "redis", Metered: true},
	{Name: "traefik/fast_path_flat.go", Page: "traefik"},
	{Name: "traefik/fast_path_metered.go", Page: "traefik", Metered: true},
}

// fastPath is one function.
type fastPath struct {
	Page    string
	Name    string // of its type, but for the algorithm and for who is metered
	Metered bool
	Self    string // its receiver; e has what the key, the store and the outcome need
	Key     string // "address", "keyer", "rule"; "": it has none
	Others  string // the receiver's field that has who sees to requests without such a key
	Timed   string // what does the same and times it

	// Parts are the names of its fragments. Those in ofMetering are left out where nothing is metered.
	Parts []string

	// Function has the path written as a function of this name, too.
	Function string

	// OnlyMetered says that what is not metered has no need of it.
	OnlyMetered bool

	Algorithm way // of a Memory's: pathsOf makes one for each
}

// ofMetering are the fragments that only a path that is metered has.
var ofMetering = []string{"aside", "timed", "counted"}

// paths are all that there are: each is written twice, metered and not, and those of a Memory for each algorithm.
var paths = []fastPath{
	{Page: "memory", Self: "e", Key: "address", Others: "rest", Parts: []string{"aside", "key_address", "store_memory", "counted", "fields", "next", "rare"}},

	{
		Page: "redis", Name: "byAddress", Self: "p", Key: "address", Others: "byKey", Timed: "serveTimed(p.fastPath, p.metering, true, w, r)",
		Parts: []string{"aside", "timed", "fast_path", "key_address", "store_redis", "counted", "fields", "next"},
	},
	{
		Page: "redis", Name: "byKey", Self: "p", Key: "keyer", Timed: "serveTimed(p.fastPath, p.metering, false, w, r)",
		Parts: []string{"aside", "timed", "fast_path", "key_keyer", "store_redis", "counted", "fields", "next"},
	},

	{
		Page: "traefik", Name: "keyed", Self: "e", Key: "rule", Function: "serveKeyed", Timed: "serveKeyedTimed(e, w, r)",
		Parts: []string{"aside", "timed", "key_rule", "take", "counted", "fields_called", "next"},
	},
	{Page: "traefik", Name: "undirected", Self: "u", Parts: []string{"undirected"}},
	{Page: "traefik", Name: "gate", Self: "g", Parts: []string{"aside", "gate"}},
	{Page: "traefik", Name: "all", Self: "a", Parts: []string{"aside", "all"}, OnlyMetered: true},
}

// pathsOf returns the paths of a file.
func pathsOf(f file, ways []way) []fastPath {
	var list []fastPath
	for _, p := range paths {
		if p.Page != f.Page || p.OnlyMetered && !f.Metered {
			continue
		}
		p.Metered = f.Metered
		p.Parts = slices.DeleteFunc(slices.Clone(p.Parts), func(part string) bool { return !f.Metered && slices.Contains(ofMetering, part) })
		if p.Page != "memory" {
			list = append(list, p)
			continue
		}
		for _, w := range ways {
			p.Algorithm = w
			list = append(list, p)
		}
	}
	return list
}

// Type returns the name of the path's type.
func (p fastPath) Type() string {
	if p.Page == "memory" {
		if p.Metered {
			return "metered" + p.Algorithm.Type
		}
		return "flat" + p.Algorithm.Type
	}
	return typeOf(p.Name, p.Metered)
}

func typeOf(name string, metered bool) string {
	if metered {
		return name + "Metered"
	}
	return name
}

// FunctionName returns the name of the function.
func (p fastPath) FunctionName() string { return typeOf(p.Function, p.Metered) }

// Inner returns what is in the function.
func (p fastPath) Inner() fastPath {
	p.Parts = slices.DeleteFunc(slices.Clone(p.Parts), func(part string) bool { return part == "aside" })
	return p
}

// Core returns what stands before the names of core.
func (p fastPath) Core() string {
	if p.Page == "memory" {
		return ""
	}
	return "core."
}

// ReadyOf returns the values of a field of which all is ready. In core the lists of numbers are variables, too, which an interpreter
// reads in a step less than a field.
func (p fastPath) ReadyOf(f field) string {
	if p.Core() == "" {
		return strings.NewReplacer("t.Numbers", "numberTexts", "t.Values", "numberValues", "t.Ends", "numberEnds").Replace(f.Ready)
	}
	return f.Ready
}

//go:embed fragments/*.tmpl
var folder embed.FS

var fragments *template.Template

func init() {
	fragments = template.Must(template.New("").Funcs(template.FuncMap{
		"part":      part,
		"variables": func(name string, p fastPath) (string, error) { return part(name+".variables", p) },
		"title":     func(name string) string { return strings.ToUpper(name[:1]) + name[1:] },
		"type":      typeOf,
		"more":      func() string { return more },
		"fields":    func() []field { return fields },
		"family":    func(name string) []field { return fieldsThat(func(f field) bool { return f.Family == name }) },
		"minded":    func() []field { return fieldsThat(func(f field) bool { return f.Minded }) },
		"room":      func() int { return len(fields) + rejected },
		"place":     func(f field) int { return slices.Index(fields, f) + rejected },
		"behind":    func(f field) int { return slices.Index(fields, f) + rejected + 1 },
	}).ParseFS(folder, "fragments/*.tmpl"))
}

// rejected is how many fields more a rejection has, the values of which WriteHeaders keeps in the same array, in front.
const rejected = 3

// part returns a template of a path, without empty lines at both ends.
func part(name string, p fastPath) (string, error) {
	var out bytes.Buffer
	if err := fragments.ExecuteTemplate(&out, name, p); err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	text := strings.Trim(out.String(), "\n")
	if text != "" {
		text += "\n"
	}
	return text, nil
}

func fieldsThat(are func(field) bool) []field {
	return slices.DeleteFunc(slices.Clone(fields), func(f field) bool { return !are(f) })
}
