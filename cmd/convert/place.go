package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	crossplane "github.com/nginxinc/nginx-go-crossplane"

	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/ruleset"
)

// site is what the same hosts have: a server of nginx, a virtual host of Envoy.
type site struct {
	names    []string
	standard bool // it is for all other hosts
	places   []*place
	block    crossplane.Directives // of a server
}

// place is a part of a site with its limits: a location, a route.
type place struct {
	file     string
	line     int
	what     string
	paths    []string // in the words of match; none: all
	unknown  bool     // match cannot say which paths
	limits   []any    // those that apply; one that is equal elsewhere is the same
	modifier string   // of a location in nginx; routes are as its regular expressions
	text     string   // of a location
	parent   *place   // the location around it
	number   int      // in the order in which they are written
}

// goesBefore reports whether a takes a request that fits b, too: as nginx chooses a location.
func (a *place) goesBefore(b *place) bool {
	inside := func(in, of *place) bool {
		for ; in != nil && in != of; in = in.parent {
		}
		return in == of
	}
	regularA, regularB := strings.HasPrefix(a.modifier, "~"), strings.HasPrefix(b.modifier, "~")
	switch {
	case inside(b, a) || strings.HasPrefix(a.text, "@"): // clients do not ask for a location with a name
		return false
	case inside(a, b) || a.modifier == "=" && b.modifier != "=":
		return true
	case b.modifier == "=":
		return false
	case regularA && regularB:
		return a.number < b.number
	case regularA:
		return b.modifier != "^~"
	case regularB:
		return a.modifier == "^~"
	}
	return len(a.text) > len(b.text)
}

// overlaps reports whether a request may fit both places, as far as match can tell.
func (p *place) overlaps(other *place) bool {
	return len(p.paths) == 0 || len(other.paths) == 0 || slices.ContainsFunc(p.paths, func(a string) bool {
		return slices.ContainsFunc(other.paths, func(b string) bool { return meet(strings.ToLower(a), strings.ToLower(b)) })
	})
}

// meet reports whether a path can be what two values of match say.
func meet(a, b string) bool {
	textA, textB := strings.Trim(a, "*"), strings.Trim(b, "*")
	switch {
	case a == textA:
		return fits(a, b)
	case b == textB:
		return fits(b, a)
	case a[0] != '*' && b[0] != '*', a[len(a)-1] != '*' && b[len(b)-1] != '*':
		return fits(textA, b) || fits(textB, a)
	}
	return true
}

// fits reports whether a text is what a value of match says.
func fits(text, value string) bool {
	value, before := strings.CutPrefix(value, "*")
	value, after := strings.CutSuffix(value, "*")
	return strings.Contains(text, value) && (before || strings.HasPrefix(text, value)) && (after || strings.HasSuffix(text, value)) && (before || after || text == value)
}

// covering is where a rule applies: hosts and paths, none for all.
type covering struct {
	hosts, paths []string
}

func (w covering) into(t *ruleset.RuleText) {
	also(t, "hosts", w.hosts...)
	also(t, "paths", w.paths...)
}

// cover returns where a limit applies, in as few rules as can say it, and notes what match cannot say. name is the limit's.
func (c *conversion) cover(sites []*site, limit any, name string) (list []covering) {
	var order []string
	with := make(map[string][]*site) // the sites that have the same paths
	for _, s := range sites {
		if paths, limited := c.paths(s, limit, name); limited {
			key := strings.Join(paths, "\n")
			if with[key] == nil {
				order = append(order, key)
			}
			with[key] = append(with[key], s)
		}
	}
	for _, key := range order {
		list = append(list, covering{hostsOf(with[key], sites), strings.FieldsFunc(key, func(r rune) bool { return r == '\n' })})
	}
	return list
}

// paths returns the paths of a site that a limit is for, and those that it is not for with a ! in front; none: all.
func (c *conversion) paths(s *site, limit any, name string) (paths []string, limited bool) {
	all := false
	var not []string
	for _, p := range s.places {
		if !slices.Contains(p.limits, limit) {
			continue
		}
		if p.unknown {
			if !s.everywhere(limit) {
				c.lose(p.file, p.line, p.what, name, "match cannot say which requests these are", "write a rule for the paths that get there")
			}
			continue
		}
		if slices.ContainsFunc(s.places, func(o *place) bool { return len(o.paths) == 0 && !o.unknown && o.goesBefore(p) }) {
			continue // nothing is left for it
		}
		limited = true
		all = all || len(p.paths) == 0
		paths = append(paths, p.paths...)
		for _, o := range s.places {
			if slices.Contains(o.limits, limit) || !o.goesBefore(p) || !o.overlaps(p) {
				continue
			}
			if o.unknown {
				c.leave(o.file, o.line, o.what, "its requests are limited by "+name+", which is in force around it; match cannot say which they are", "exclude them by hand, in paths with a ! in front")
				continue
			}
			for _, path := range o.paths {
				not = append(not, "!"+path)
			}
			c.hole(o, limit, name)
			for _, inner := range s.places {
				if slices.Contains(inner.limits, limit) && inner.goesBefore(o) && inner.overlaps(o) && !inner.unknown {
					c.leave(inner.file, inner.line, inner.what, fmt.Sprintf("what fits %s and also %s is not limited by %s, as it is in nginx: the rule excludes %[2]s, and can make no exception of that", strings.Join(inner.paths, " or "), strings.Join(o.paths, " or "), name), "write a rule of its own for these paths, with the same limit")
				}
			}
		}
	}
	if all {
		paths = nil
	}
	slices.Sort(paths)
	slices.Sort(not)
	return append(slices.Compact(paths), slices.Compact(not)...), limited
}

// everywhere reports whether a limit is for all paths without exception.
func (s *site) everywhere(limit any) bool {
	return slices.ContainsFunc(s.places, func(p *place) bool {
		return len(p.paths) == 0 && !p.unknown && slices.Contains(p.limits, limit) && !slices.ContainsFunc(s.places, func(o *place) bool { return !slices.Contains(o.limits, limit) && o.goesBefore(p) })
	})
}

// hole says that a place is excluded from a limit in lower and upper case, though nginx tells them apart, and nothing else limits it.
func (c *conversion) hole(o *place, limit any, name string) {
	use, ok := limit.(nginxUse)
	if !ok || o.modifier == "~*" || slices.ContainsFunc(o.limits, func(other any) bool { return other.(nginxUse).kind == use.kind }) {
		return
	}
	for _, path := range o.paths {
		if upper := strings.ToUpper(path); upper != path {
			c.leave(o.file, o.line, o.what, "nginx tells upper from lower case in it, and paths of a rule do not: "+upper+" is limited by "+name+" in nginx, and here by nothing", "if your service answers to "+upper+", take !"+path+" out of the rule, or refuse such paths before")
			return
		}
	}
}

// hostsOf returns the hosts of some of all sites, as match has them; none: all.
func hostsOf(some, all []*site) []string {
	var hosts, others []string
	standard := len(some) == len(all)
	for _, s := range all {
		if slices.Contains(some, s) {
			standard = standard || s.standard
			hosts = append(hosts, s.names...)
			continue
		}
		for _, name := range s.names {
			others = append(others, "!"+name)
		}
	}
	if standard {
		hosts = slices.DeleteFunc(others, func(other string) bool { return slices.Contains(hosts, other[1:]) })
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

func (c *conversion) hasName(s *site, file string, line int, name string) {
	if rest, wild := strings.CutPrefix(name, "*."); wild {
		c.leave(file, line, name, "in a rule it is one label, and here several", "add such names as *.eu."+rest+" to hosts, if there are any")
	}
	s.names = append(s.names, name)
}

// mostPatterns is the most values that a regular expression becomes.
const mostPatterns = 32

var (
	// choice is a group without another in it, or a character that may be missing.
	choice = regexp.MustCompile(`^((?:[^\\()]|\\.)*?)(?:\((?:\?:|\?P?<\w+>)?((?:[^\\()]|\\.)*)\)(\??)|([^\\()|?*+\]}]|\\[^a-zA-Z0-9])\?)(.*)$`)
	// escaped is a character that stands for itself.
	escaped = regexp.MustCompile(`\\([^a-zA-Z0-9])`)
)

// patterns returns a regular expression of paths as values of match. ok is false if it is more than that.
func patterns(expression string) (list []string, ok bool) {
	list, ok = textsOf(expression)
	_, err := match.Match{Paths: list}.Compile()
	return list, ok && err == nil
}

// textsOf returns a regular expression as texts, each with a * where more may be. ok is false if it is more than that.
func textsOf(expression string) (list []string, ok bool) {
	if len(expression) > 500 {
		return nil, false
	}
	for _, one := range alternatives(expression) {
		one, begin := strings.CutPrefix(one, "^")
		one, end := strings.CutSuffix(one, "$")
		one, before := strings.CutPrefix(one, ".*")
		one, after := strings.CutSuffix(one, ".*")
		if one == "" || strings.ContainsAny(escaped.ReplaceAllString(one, ""), `\[]{}()*+?^$|`) || strings.Contains(one, "*") {
			return nil, false
		}
		plain := escaped.ReplaceAllString(one, "$1") // a dot that is not escaped is taken for a dot
		if before || !begin {
			plain = "*" + plain
		}
		if after || !end {
			plain += "*"
		}
		list = append(list, plain)
	}
	slices.Sort(list)
	return slices.Compact(list), len(list) > 0 && len(list) <= mostPatterns
}

// alternatives returns an expression without its groups, and without characters that may be missing.
func alternatives(expression string) (list []string) {
	m := choice.FindStringSubmatch(expression)
	if m == nil {
		return strings.Split(expression, "|")
	}
	options := strings.Split(m[2], "|")
	if m[4] != "" {
		options = []string{m[4], ""}
	} else if m[3] != "" {
		options = append(options, "")
	}
	for _, option := range options {
		if strings.HasSuffix(option, "$") && m[5] == "$" {
			option = strings.TrimSuffix(option, "$")
		}
		if list = append(list, alternatives(m[1]+option+m[5])...); len(list) > mostPatterns {
			return list
		}
	}
	return list
}
