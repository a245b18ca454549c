package main

import (
	"bytes"
	"embed"
	"fmt"
	"slices"
	"strings"
	"text/template"

	"github.com/proxyweir/weir/core/guard"
)

// file is a generated file.
type file struct {
	Name string // its path from the root
	Page string // the template of the whole file

	Paths []fastPath // set by generate
}

var files = []file{
	{Name: "core/set_quota_fields.go", Page: "quota_fields"},
	{Name: "core/answer/headers_write.go", Page: "write"},
	{Name: "core/memory_fast_path_settle.go", Page: "settle"},
	{Name: "core/memory_fast_path_flat.go", Page: "memory"},
	{Name: "core/memory_several_flat.go", Page: "several"},
	{Name: "redis/store_fast_path_flat.go", Page: "redis"},
	{Name: "redis/store_several_flat.go", Page: "redis_several"},
}

// fastPath is one function.
type fastPath struct {
	Page  string
	Name  string   // of its constructor, without new and the algorithm
	Parts []string // the names of its fragments

	Algorithm shortcut // for a Memory: pathsOf makes one path for each

	Algorithms []shortcut // all of them
}

// paths are all paths. Those of a Memory are generated once for each algorithm.
var paths = []fastPath{
	{Page: "memory", Name: "Flat", Parts: []string{"aside", "key_address", "store_memory", "counted", "fields_captured", "ticket", "next", "rare", "unticketed"}},

	{Page: "several", Name: "Several", Parts: []string{"aside", "covering", "store_several", "counted_several", "fields_several", "next", "rare_several"}},

	{Page: "redis", Name: "one", Parts: []string{"aside", "key_address", "known", "call", "learned", "timed_call", "fields_words", "next", "unusual"}},
	{Page: "redis_several", Name: "several", Parts: []string{"aside", "known_several", "call", "learned_several", "timed_call", "next", "unusual_several"}},
	{Page: "redis", Name: "leased", Parts: []string{"aside", "key_address", "store_lease", "timed_held", "fields_held", "next"}},
	{Page: "redis", Name: "replicated", Parts: []string{"aside", "key_address", "store_replica", "timed_held", "fields_decided", "next"}},
}

// pathsOf returns the paths of a file.
func pathsOf(f file, shortcuts []shortcut) []fastPath {
	var list []fastPath
	if f.Page == "settle" {
		for _, s := range shortcuts {
			list = append(list, fastPath{Page: f.Page, Algorithm: s})
		}
		return list
	}
	for _, p := range paths {
		if p.Page != f.Page {
			continue
		}
		p.Algorithms = shortcuts
		if p.Page != "memory" {
			list = append(list, p)
			continue
		}
		for _, p.Algorithm = range shortcuts {
			list = append(list, p)
		}
	}
	return list
}

// Replicated reports whether the path decides by replicas.
func (p fastPath) Replicated() bool { return slices.Contains(p.Parts, "store_replica") }

// Leased reports whether the path spends units that are held.
func (p fastPath) Leased() bool { return slices.Contains(p.Parts, "store_lease") }

// Type returns the name of the path's constructor, without new.
func (p fastPath) Type() string { return strings.ToUpper(p.Name[:1]) + p.Name[1:] + p.Algorithm.Type }

// Core returns the qualifier of core's names.
func (p fastPath) Core() string {
	if strings.HasPrefix(p.Page, "redis") {
		return "core."
	}
	return ""
}

// ReadyOf returns Ready of a field in core, where variables have what is prepared.
func (p fastPath) ReadyOf(f field) string {
	return strings.NewReplacer("t.Numbers", "numberTexts", "t.Values", "numberValues", "t.Ends", "numberEnds",
		"t.Limit", "limitField", "t.Policy", "policyField", "t.State", "stateText").Replace(f.Ready)
}

// largeOf returns Ready of a field where left, a slice, has the text of remaining, which is not in the lists of numbers.
func largeOf(f field) string {
	return strings.NewReplacer("t.Values[remaining]", "left", "t.Numbers[remaining]", "left[0]", "t.Values", "numberValues", "t.Ends", "numberEnds").Replace(f.Ready)
}

//go:embed fragments/*.tmpl
var folder embed.FS

var fragments *template.Template

func init() {
	fragments = template.Must(template.New("").Funcs(template.FuncMap{
		"part":      part,
		"captured":  captured,
		"variables": func(name string, p fastPath) (string, error) { return part(name+".variables", p) },
		"more":      func() string { return more },
		"fields":    func() []field { return fields },
		"family":    func(name string) []field { return fieldsThat(func(f field) bool { return f.Family == name }) },
		"large":     largeOf,
		"endless":   func(value string) string { return strings.Replace(value, " + numberEnds[more]", "", 1) },
		"minded":    func() []field { return fieldsThat(func(f field) bool { return f.Minded }) },
		"take":      func() int64 { return guard.Take },
		"leave":     func() int64 { return -guard.Place },
		"noTicket":  func() int64 { return guard.NoTicket },
		"room":      func() int { return len(fields) + rejected },
		"place":     func(f field) int { return slices.Index(fields, f) + rejected },
		"behind":    func(f field) int { return slices.Index(fields, f) + rejected + 1 },
	}).ParseFS(folder, "fragments/*.tmpl"))
}

// rejected is how many more fields a rejection has. WriteHeaders keeps their values in the same array, before the others.
const rejected = 3

// part executes a template on a path, and removes empty lines at both ends.
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

// captured executes the template of what a fragment captures, if it has one.
func captured(name string, p fastPath) (string, error) {
	if fragments.Lookup(name+".captured") == nil {
		return "", nil
	}
	return part(name+".captured", p)
}

func fieldsThat(are func(field) bool) []field {
	return slices.DeleteFunc(slices.Clone(fields), func(f field) bool { return !are(f) })
}
