package match

import (
	"net/http"
	"sort"
	"strings"
)

// Index finds among many matchers the few that can cover a request, without evaluating each. It enters a matcher under the values
// of one of its fields: the one whose values the fewest others share. It is immutable and safe for concurrent use.
type Index struct {
	always        []int // matchers without a field that an index can use
	hosts         map[string][]int
	suffixes      map[string][]int
	paths         map[string][]int
	prefixes      map[string][]int
	headers       map[string]map[string][]int // by the field's name, and its value
	longestPrefix int
}

// NewIndex returns the index of matchers, which it names by their places in the list. nil is a matcher that covers all requests.
func NewIndex(matchers []*Matcher) *Index {
	counts := make(map[string]int) // of the matchers that have a value in a field
	for _, m := range matchers {
		if m == nil {
			continue
		}
		for _, values := range m.handles() {
			for _, v := range values {
				counts[v]++
			}
		}
	}
	x := &Index{
		hosts:    make(map[string][]int),
		suffixes: make(map[string][]int),
		paths:    make(map[string][]int),
		prefixes: make(map[string][]int),
		headers:  make(map[string]map[string][]int),
	}
	for i, m := range matchers {
		x.enter(i, m, counts)
	}
	return x
}

// handles returns by field the values of which a request must have one, each with its field's sign in front.
func (m *Matcher) handles() [][]string {
	var all [][]string
	if m.ofHost {
		all = append(all, append(signed("h", m.hosts), signed("s", m.suffixes)...))
	}
	if segments, found := m.segments(); m.ofPath && found {
		all = append(all, append(signed("=", m.paths), signed("/", segments)...))
	}
	for i := range m.headers {
		all = append(all, []string{"f" + m.headers[i].name + ":" + m.headers[i].value})
	}
	for i := range m.texts {
		if !m.texts[i].value.not { // which fits no request without the field
			all = append(all, []string{"f" + m.texts[i].name + ":*"})
		}
	}
	return all
}

// segments returns the prefixes, and for each pattern the whole segments with which what fits it begins. found: all have such.
func (m *Matcher) segments() (list []string, found bool) {
	list = append(list, m.prefixes...)
	for i := range m.patterns {
		p := &m.patterns[i]
		if p.operator != begins {
			return list, false
		}
		list = append(list, p.text[:strings.LastIndexByte(p.text, '/')])
	}
	return list, true
}

func signed(sign string, values []string) []string {
	list := make([]string, 0, len(values))
	for _, v := range values {
		list = append(list, sign+v)
	}
	return list
}

// enter enters a matcher under the field that is shared the least.
func (x *Index) enter(i int, m *Matcher, counts map[string]int) {
	var best []string
	least := 0
	if m != nil {
		for _, values := range m.handles() {
			most := 0
			for _, v := range values {
				if counts[v] > most {
					most = counts[v]
				}
			}
			if best == nil || most < least {
				best = values
				least = most
			}
		}
	}
	if best == nil {
		x.always = append(x.always, i)
		return
	}
	for _, v := range best {
		value := v[1:]
		switch v[0] {
		case 's':
			x.suffixes[value] = append(x.suffixes[value], i)
		case 'h':
			x.hosts[value] = append(x.hosts[value], i)
		case '=':
			x.paths[value] = append(x.paths[value], i)
		case '/':
			x.prefixes[value] = append(x.prefixes[value], i)
			if len(value) > x.longestPrefix {
				x.longestPrefix = len(value)
			}
		default:
			name, text, _ := strings.Cut(value, ":")
			if x.headers[name] == nil {
				x.headers[name] = make(map[string][]int)
			}
			x.headers[name][text] = append(x.headers[name][text], i)
		}
	}
}

// Candidates appends to into the places of the matchers that may cover a request, in ascending order, each once. The others do
// not cover it.
func (x *Index) Candidates(r *http.Request, into []int) []int { return candidates(x, r, into) }

func candidates(x *Index, r *http.Request, into []int) []int {
	start := len(into)
	into = append(into, x.always...)
	sources := 1
	if len(x.hosts)+len(x.suffixes) > 0 {
		host := plainHost(HostOf(r.Host))
		into = append(into, x.hosts[host]...)
		if dot := strings.IndexByte(host, '.'); dot > 0 {
			into = append(into, x.suffixes[host[dot:]]...)
		}
		sources++
	}
	if len(x.paths)+len(x.prefixes) > 0 {
		path := CleanPath(r.URL.Path)
		into = append(into, x.paths[path]...)
		if len(x.prefixes) > 0 {
			into = byPrefix(x, path, into)
		}
		sources++
	}
	if len(x.headers) > 0 {
		into = byHeader(x, r.Header, into)
		sources++
	}
	found := into[start:]
	if sources == 1 || len(found) < 2 {
		return into
	}
	sort.Ints(found)
	n := 1
	for i := 1; i < len(found); i++ {
		if found[i] != found[i-1] {
			found[n] = found[i]
			n++
		}
	}
	return into[:start+n]
}

// CandidatesFunc returns a function that returns Candidates, in a list that must not be changed. A function that is made for one index costs an interpreter
// less, if the index has nothing but whole paths, or names of hosts.
func (x *Index) CandidatesFunc() func(r *http.Request) []int {
	if len(x.always)+len(x.suffixes)+len(x.prefixes)+len(x.headers) == 0 && len(x.hosts) == 0 {
		paths := x.paths
		return func(r *http.Request) []int {
			list := paths[r.URL.Path]
			if len(list) != 1 {
				list = candidates(x, r, nil)
			}
			return list
		}
	}
	if len(x.always)+len(x.suffixes)+len(x.prefixes)+len(x.headers) == 0 && len(x.paths) == 0 {
		hosts := x.hosts
		return func(r *http.Request) []int {
			list := hosts[r.Host]
			if len(list) != 1 {
				list = candidates(x, r, nil)
			}
			return list
		}
	}
	return func(r *http.Request) []int { return candidates(x, r, nil) }
}

// byPrefix appends the matchers that are entered under the beginnings of a path, in whole segments.
func byPrefix(x *Index, path string, into []int) []int {
	i, more := 0, 0
	for more >= 0 && i <= x.longestPrefix {
		more = strings.IndexByte(path[i:], '/')
		if more < 0 {
			i = len(path)
		} else {
			i += more
		}
		if i <= x.longestPrefix {
			into = append(into, x.prefixes[path[:i]]...)
		}
		i++
	}
	return into
}

// byHeader appends the matchers that are entered under the fields that a request has.
func byHeader(x *Index, h http.Header, into []int) []int {
	if len(x.headers) > len(h) {
		for name, values := range h {
			into = appendValues(x.headers[name], values, into)
		}
		return into
	}
	for name, entered := range x.headers {
		into = appendValues(entered, h[name], into)
	}
	return into
}

func appendValues(entered map[string][]int, values []string, into []int) []int {
	if len(entered) == 0 || len(values) == 0 {
		return into
	}
	if len(values) > manyValues { // which are any
		for _, list := range entered {
			into = append(into, list...)
		}
		return into
	}
	into = append(into, entered["*"]...)
	for i, v := range values {
		if v != "*" && !contains(values[:i], v) {
			into = append(into, entered[v]...)
		}
	}
	return into
}
