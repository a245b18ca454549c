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
	Watched bool   // its paths are those of who has a core.Watch

	Paths []fastPath // set by generate
}

var files = []file{
	{Name: "core/told_fields.go", Page: "told"},
	{Name: "answer/headers_write.go", Page: "write"},
	{Name: "core/memory_express_flat.go", Page: "memory"},
	{Name: "core/memory_express_watched.go", Page: "memory", Watched: true},
	{Name: "redis/store_express_flat.go", Page: "redis"},
	{Name: "redis/store_express_watched.go", Page: "redis", Watched: true},
	{Name: "traefik/express_flat.go", Page: "traefik"},
	{Name: "traefik/express_watched.go", Page: "traefik", Watched: true},
}

// fastPath is one function.
type fastPath struct {
	Page    string
	Name    string // of its type, but for the algorithm and for who is watched
	Watched bool
	Self    string // its receiver; e has what the key, the store and the outcome need
	Key     string // "address", "keyer", "rule"; "": it has none
	Others  string // the receiver's field that has who sees to requests without such a key
	Timed   string // what does the same and times it

	// Parts are the names of its fragments. Those in ofWatch are left out where nobody watches.
	Parts []string

	// Function has the path written as a function of this name, too.
	Function string

	// OnlyWatched says that who is not watched has no need of it.
	OnlyWatched bool

	Algorithm way // of a Memory's: pathsOf makes one for each
}

// ofWatch are the fragments that only a path that is watched has.
var ofWatch = []string{"aside", "turn", "counted"}

// paths are all that there are: each is written twice, watched and not, and those of a Memory for each algorithm.
var paths = []fastPath{
	{Page: "memory", Self: "e", Key: "address", Others: "rest", Parts: []string{"aside", "key_address", "store_memory", "counted", "tell", "next", "rare"}},

	{
		Page: "redis", Name: "byAddress", Self: "p", Key: "address", Others: "byKey", Timed: "serveTimed(p.express, p.watch, true, w, r)",
		Parts: []string{"aside", "turn", "express", "key_address", "store_redis", "counted", "tell", "next"},
	},
	{
		Page: "redis", Name: "byKey", Self: "p", Key: "keyer", Timed: "serveTimed(p.express, p.watch, false, w, r)",
		Parts: []string{"aside", "turn", "express", "key_keyer", "store_redis", "counted", "tell", "next"},
	},

	{
		Page: "traefik", Name: "keyed", Self: "e", Key: "rule", Function: "serveKeyed", Timed: "serveKeyedTimed(e, w, r)",
		Parts: []string{"aside", "turn", "key_rule", "take", "counted", "tell_called", "next"},
	},
	{Page: "traefik", Name: "undirected", Self: "u", Parts: []string{"undirected"}},
	{Page: "traefik", Name: "gate", Self: "g", Parts: []string{"aside", "gate"}},
	{Page: "traefik", Name: "all", Self: "a", Parts: []string{"aside", "all"}, OnlyWatched: true},
}

// pathsOf returns the paths of a file.
func pathsOf(f file, ways []way) []fastPath {
	var list []fastPath
	for _, p := range paths {
		if p.Page != f.Page || p.OnlyWatched && !f.Watched {
			continue
		}
		p.Watched = f.Watched
		p.Parts = slices.DeleteFunc(slices.Clone(p.Parts), func(part string) bool { return !f.Watched && slices.Contains(ofWatch, part) })
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
		if p.Watched {
			return "watched" + p.Algorithm.Type
		}
		return "flat" + p.Algorithm.Type
	}
	return typeOf(p.Name, p.Watched)
}

func typeOf(name string, watched bool) string {
	if watched {
		return name + "Watched"
	}
	return name
}

// FunctionName returns the name of the function.
func (p fastPath) FunctionName() string { return typeOf(p.Function, p.Watched) }

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
