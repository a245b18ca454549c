package convert

import (
	"fmt"
	"maps"
	"net/netip"
	"net/textproto"
	"regexp"
	"slices"
	"strings"

	crossplane "github.com/nginxinc/nginx-go-crossplane"

	"github.com/proxyweir/weir/core/match"
)

// nginxKey is what a zone counts by, and whom.
type nginxKey struct {
	sources []string
	skip    bool   // who has none is not limited
	field   string // of match, with its values; "": none
	name    string // in headers, query or cookies
	values  []string
}

// variable is a reference to a variable in a text.
var variable = regexp.MustCompile(`\$(?:(\w+)|\{(\w+)\})`)

// nginxSources are the sources of keys that variables are, and the field of match that has their values.
var nginxSources = map[string][2]string{
	"binary_remote_addr": {"client_ip", "except_ips"}, "remote_addr": {"client_ip", "except_ips"}, "proxy_protocol_addr": {"client_ip", "except_ips"}, "realip_remote_addr": {"remote_ip", ""},
	"host": {"host", "hosts"}, "http_host": {"host", "hosts"}, "server_name": {"host", "hosts"},
	"uri": {"path", "paths"}, "document_uri": {"path", "paths"}, "request_uri": {"path", "paths"}, "request_method": {"method", "methods"},
	"http_": {"header:"}, "arg_": {"query:"}, "cookie_": {"cookie:"},
}

// sourceOf returns the source that a variable is, "" for none, and whether it may be empty.
func sourceOf(of string) (source string, empty bool) {
	for _, prefix := range []string{"http_", "arg_", "cookie_"} {
		if name, found := strings.CutPrefix(of, prefix); found && of != "http_host" {
			if prefix == "http_" {
				name = textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name, "_", "-"))
			}
			return nginxSources[prefix][0] + name, true
		}
	}
	return nginxSources[of][0], false
}

// failed notes why a zone has no key.
func (n *nginxConf) failed(d *crossplane.Directive, why, instead string) {
	n.why = [2]string{fmt.Sprintf("%s (line %d): %s", written(d), d.Line, why), instead}
}

// keys returns what a zone counts by: several, if no rule can have the condition.
func (n *nginxConf) keys(zone *crossplane.Directive) []nginxKey {
	text := strings.Join(slices.DeleteFunc(slices.Clone(zone.Args), func(arg string) bool {
		return strings.HasPrefix(arg, "zone=") || strings.HasPrefix(arg, "rate=") || arg == "sync"
	}), "")
	if m := variable.FindStringSubmatch(text); m != nil && m[0] == text && n.variables[m[1]+m[2]] != nil {
		return n.conditional(zone, n.variables[m[1]+m[2]])
	}
	if key, ok := n.key(zone, text); ok {
		return []nginxKey{key}
	}
	return nil
}

// key returns the key that a text with variables is.
func (n *nginxConf) key(zone *crossplane.Directive, text string) (key nginxKey, ok bool) {
	empty := 0 // how many parts may be empty
	for _, m := range variable.FindAllStringSubmatch(text, -1) {
		source, mayBe := sourceOf(m[1] + m[2])
		switch {
		case source == "":
			n.failed(zone, "there is no source of keys for "+m[0], "have something in front of the limit set a header field, and write key: header:NAME")
			return key, false
		case m[1] == "request_uri":
			n.leaveOut(zone, "$request_uri has the query", "path is without it: all queries of a path count together")
		case m[1] == "server_name":
			n.leaveOut(zone, "$server_name is the same for all names of a server", "host counts each name by itself; write key: static:NAME for one counter")
		}
		if mayBe {
			empty++
		}
		if !slices.Contains(key.sources, source) {
			key.sources = append(key.sources, source)
		}
	}
	if len(key.sources) == 0 {
		key.sources = []string{"static:" + strings.Trim(unfit.ReplaceAllString(text, "-"), "-")}
		return key, text != ""
	}
	key.skip = empty == len(key.sources) && variable.ReplaceAllString(text, "") == ""
	return key, true
}

// outcomes returns what a variable is: a list of values of the variable that it is made of and what it is then, and what it is else. of is
// "" if match has nothing for that variable.
func (n *nginxConf) outcomes(d *crossplane.Directive, depth int) (list [][2]string, fallback, of string) {
	of = "remote_addr"
	if m := variable.FindStringSubmatch(d.Args[0]); d.Directive == "map" && len(d.Args) == 2 && m != nil && m[0] == d.Args[0] {
		of = m[1] + m[2]
	} else if d.Directive != "geo" || len(d.Args) > 1 {
		return nil, "", ""
	}
	hostnames := slices.ContainsFunc(d.Block, func(in *crossplane.Directive) bool { return in.Directive == "hostnames" && len(in.Args) == 0 })
	for _, in := range d.Block {
		switch {
		case hostnames && len(in.Args) == 1 && strings.HasPrefix(in.Directive, "."):
			list = append(list, [2]string{in.Directive[1:], in.Args[0]}, [2]string{"*" + in.Directive, in.Args[0]})
		case in.Directive == "include" || len(in.Args) > 1:
			n.leaveOut(in, "is not read in a "+d.Directive, "write its lines there")
		case in.Directive == "default" && len(in.Args) == 1:
			fallback = in.Args[0]
		case len(in.Args) == 1:
			list = append(list, [2]string{in.Directive, in.Args[0]})
		}
	}
	inner := n.variables[of]
	if inner == nil || depth > 8 { // maps may be of each other
		return list, fallback, of
	}
	becomes := func(value string) string {
		if i := slices.IndexFunc(list, func(one [2]string) bool { return one[0] == value }); i >= 0 {
			return list[i][1]
		}
		return fallback
	}
	under, rest, of := n.outcomes(inner, depth+1)
	for i := range under {
		under[i][1] = becomes(under[i][1])
	}
	return under, becomes(rest), of
}

// conditional returns the keys of a variable that a map or a geo makes. Who has an empty value is not limited.
func (n *nginxConf) conditional(zone, d *crossplane.Directive) (keys []nginxKey) {
	list, fallback, of := n.outcomes(d, 0)
	field, name := nginxSources[of][1], ""
	source, mayBe := sourceOf(of)
	if mayBe && fallback == "$"+of && len(list) == 1 && list[0][0] == "" {
		if other, ok := n.key(zone, list[0][1]); ok && len(other.sources) == 1 { // such as the user, else the address
			return []nginxKey{{sources: []string{"first(" + source + ", " + other.sources[0] + ")"}}}
		}
	}
	if d.Directive == "geo" && strings.Contains(fallback, "$") {
		n.leaveOut(d, "geo does not read variables: nginx counts all clients together", "here each counts by itself, as was most likely meant")
	}
	if mayBe {
		field, name, _ = strings.Cut(source, ":")
		field = map[string]string{"header": "headers", "query": "query", "cookie": "cookies"}[field]
	}
	if field == "" {
		n.failed(d, "only maps of one variable are carried over: a path, host, method, address, header field, parameter or cookie", byHand)
		return nil
	}
	var outcomes, others, spared []string // values of a key, what of the variable has one of its own, and hosts that a name with a * would have too
	having := make(map[string][]string)
	spelt := func(text string) string { // a range as a network
		if values, ok := matchValue(field, text); ok && field == "except_ips" {
			return values[0]
		}
		return text
	}
	for _, one := range list {
		values, ok := matchValue(field, one[0])
		wild := slices.IndexFunc(list, func(o [2]string) bool { return o[1] != fallback && inside(spelt(one[0]), spelt(o[0])) })
		switch {
		case (field == "hosts" || field == "except_ips") && one[1] == fallback && wild >= 0:
			if fallback != "" {
				n.failed(d, "match cannot say "+one[0]+" beside "+list[wild][0], byHand)
				return nil
			}
			spared = append(spared, one[0])
			continue
		case one[1] == fallback:
			continue
		case !ok:
			n.failed(d, "match cannot say "+one[0], byHand)
			return nil
		case name != "" && len(others) > 0:
			n.failed(d, "match of a rule has one pattern for a field", byHand)
			return nil
		case field == "except_ips" && (one[1] != "" || fallback == ""):
			n.failed(d, "a rule cannot be for some networks alone", "have something in front set a header field for them, and match it")
			return nil
		}
		if !slices.Contains(outcomes, one[1]) {
			outcomes = append(outcomes, one[1])
		}
		having[one[1]] = append(having[one[1]], values...)
		for _, value := range values {
			if field != "except_ips" {
				value = strings.TrimPrefix("!"+value, "!!")
			}
			others = append(others, value)
		}
	}
	having[fallback] = append(others, spared...)
	if field == "hosts" {
		n.wildcards(d, having)
	}
	for _, outcome := range slices.DeleteFunc(append(outcomes, fallback), func(outcome string) bool { return outcome == "" }) {
		key, ok := n.key(zone, outcome)
		if !ok { // it is lost for some, and so none of it can be trusted
			return nil
		}
		key.field, key.name, key.values = field, name, having[outcome]
		keys = append(keys, key)
	}
	return keys
}

// wildcards takes out of the hosts with a * those that a longer name gives another outcome, as nginx chooses the longest, and says where they are fewer here.
func (n *nginxConf) wildcards(d *crossplane.Directive, having map[string][]string) {
	told := false
	for _, outcome := range slices.Sorted(maps.Keys(having)) {
		for _, wild := range having[outcome] {
			if name, is := strings.CutPrefix(strings.TrimPrefix(wild, "!"), "*."); is && !told {
				n.leaveOut(d, "*."+name+" is one label in a rule, and here several", "add such names as *.eu."+name+" to hosts, if there are any")
				told = true
			}
			for other, names := range having {
				for _, name := range names {
					if other != outcome && inside(name, wild) {
						having[outcome] = append(having[outcome], "!"+name)
					}
				}
			}
		}
		slices.Sort(having[outcome])
		having[outcome] = slices.Compact(having[outcome])
	}
}

// inside reports whether a host, or all that has a * in its place, is one of those that another name with a * is for, or a network a part of another one.
func inside(name, wild string) bool {
	network, wrong := match.ParseNetwork(wild)
	if part, err := match.ParseNetwork(name); err == nil && wrong == nil {
		return part.Bits() > network.Bits() && network.Contains(part.Addr())
	}
	suffix, is := strings.CutPrefix(wild, "*")
	return is && name != wild && strings.HasSuffix(name, suffix) && !strings.HasPrefix(name, "!")
}

// byHand is what to do instead of a map.
const byHand = "write a zone in a Caddyfile, whose match has header_regexp and expression: docs/from-nginx.md has one for bots. In Traefik a router of its own, with HeaderRegexp"

// matchValue returns a text of a map or a geo as values of a field of match.
func matchValue(field, text string) (values []string, ok bool) {
	expression, regular := strings.CutPrefix(text, "~")
	first, last, _ := strings.Cut(text, "-") // a range, if it is a network
	from, _ := netip.ParseAddr(first)
	to, _ := netip.ParseAddr(last)
	for bits := 0; bits <= from.BitLen(); bits++ {
		if p := netip.PrefixFrom(from, bits); p.Masked().Addr() == from && p.Contains(to) && !p.Contains(to.Next()) {
			text = p.String()
		}
	}
	switch _, err := match.ParseNetwork(text); {
	case field == "except_ips":
		return []string{text}, err == nil
	case field == "headers" || field == "query" || field == "cookies": // match tells upper from lower case, as nginx does in some
		values, ok = []string{"=" + strings.TrimPrefix(text, `\`)}, true
		if regular {
			values, ok = textsOf(strings.TrimPrefix(expression, "*"))
		} else if text == "" {
			values = []string{"!*"}
		}
		_, err := match.Match{Query: map[string]string{"x": strings.Join(values, "*")}}.Compile() // which has one value
		return values, ok && err == nil && (regular && !strings.HasPrefix(expression, "*") || strings.ToLower(text) == strings.ToUpper(text))
	case field == "hosts" && strings.TrimPrefix(text, "*.") != strings.Trim(text, ".*"):
		return nil, false // such as .a.example without hostnames, and www.example.*
	case regular:
		values, ok = patterns(strings.TrimPrefix(expression, "*")) // match does not tell upper from lower case
		return values, ok && field == "paths"
	}
	return []string{strings.TrimPrefix(text, `\`)}, text != ""
}
