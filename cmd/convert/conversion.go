package convert

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/proxyweir/weir/core/ruleset"
)

// conversion is what files become.
type conversion struct {
	from, to    string
	rules       []*rule
	middlewares []*middleware // of Traefik
	nginx       *nginxConf    // nil: it is another's
	text        string        // a result that is not made of rules
	left        []string      // what is not carried over, a line each
	lost        bool          // the whole of a limit is among that
	names       []string
	other       string // what --to must be for limits that are not in this result; "": there are none
}

// rule is a rule, and what it was.
type rule struct {
	*ruleset.RuleText
	was string
}

// leave notes what is not carried over, why, and what to do instead ("": nothing).
func (c *conversion) leave(file string, line int, what, why, instead string) {
	text := fmt.Sprintf("%s:%d: %s: %s", file, line, what, why)
	if instead != "" {
		text += "; " + instead
	}
	if !slices.Contains(c.left, text) {
		c.left = append(c.left, text)
	}
}

// lose notes a limit of which nothing is left in a place. name is the limit's.
func (c *conversion) lose(file string, line int, what, name, why, instead string) {
	c.leave(file, line, what, name+" is NOT limited here, because "+why, instead)
	c.lost = true
}

// unfit are the characters that names of rules do not have.
var unfit = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)

// name returns a name for a rule that is like a text, and that no other rule has.
func (c *conversion) name(like string) string {
	like = strings.Trim(unfit.ReplaceAllString(like, "-"), "-")
	if like == "" {
		like = "limit"
	}
	like = like[:min(len(like), 56)]
	name := like
	for i := 2; slices.Contains(c.names, name); i++ {
		name = like + "-" + strconv.Itoa(i)
	}
	c.names = append(c.names, name)
	return name
}

// newRule returns a rule with that name, or one that is like it, and with an empty match.
func (c *conversion) newRule(like string, key ...string) *ruleset.RuleText {
	t := &ruleset.RuleText{Name: c.name(like), Objects: map[string][]*ruleset.Object{"match": {{}}}}
	ruleset.SetList(&t.Object, "key", key)
	return t
}

// set sets fields of a rule: names and values in turn.
func set(t *ruleset.RuleText, settings ...string) {
	for i := 0; i+1 < len(settings); i += 2 {
		ruleset.SetText(&t.Object, settings[i], settings[i+1])
	}
}

// bucket makes a rule a token bucket.
func bucket(t *ruleset.RuleText, requests int64, period time.Duration, burst int64) {
	set(t, "limit", strconv.FormatInt(requests, 10)+"/"+ruleset.Shortly(period), "algorithm", "token_bucket", "burst", strconv.FormatInt(burst, 10))
}

// also adds values to a list of a rule's match.
func also(t *ruleset.RuleText, field string, values ...string) {
	if o := ruleset.One(t, "match"); len(values) > 0 {
		ruleset.SetList(o, field, append(o.Lists[field], values...))
	}
}

// add adds a rule that was in a place of the configuration, and returns it; nil: Weir does not accept it. status is that of rejections. As in other
// limiters, each address is a key.
func (c *conversion) add(t *ruleset.RuleText, status, file string, line int, was string) *rule {
	if status != "" && status != "429" {
		ruleset.AddObject(t, "answer", &ruleset.Object{Texts: map[string]string{"status": status, "close": map[string]string{"444": "true"}[status]}}) // by 444 nginx closes the connection
	}
	if m := ruleset.One(t, "match"); m != nil && len(m.Lists)+len(m.Pairs) == 0 {
		delete(t.Objects, "match")
	}
	if key := strings.Join(t.Lists["key"], " "); key == "" || strings.Contains(key, "client_ip") {
		set(t, "ipv6_prefix", "128")
	}
	if _, errors := ruleset.Compile(t, ruleset.Context{Prefixes: ruleset.Standard}); len(errors) > 0 {
		c.leave(file, line, was, "Weir would refuse the rule: "+errors[0].Error(), "write it by hand")
		c.lost = true
		return nil
	}
	r := &rule{t, strings.Map(func(r rune) rune { // as a comment can have it
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, fmt.Sprintf("%s:%d: %s", file, line, was))}
	c.rules = append(c.rules, r)
	return r
}

// write returns the result; "": there is none.
func (c *conversion) write() string {
	if c.nginx != nil {
		c.nginx.emit()
	}
	switch {
	case c.to == "traefik":
		return c.dynamic()
	case len(c.rules) == 0 || c.to == "caddyfile":
		return c.text
	}
	more := ""
	if c.from == "envoy" {
		more = "# Envoy counts local limits in each process. Where the store is Redis, put these into a rate_limit (a middleware) of their own with store memory.\n"
	}
	return "# Limits of " + c.from + "; docs/from-" + c.from + ".md has what differs. In Caddy, write rules_file /etc/caddy/rules/limits.yaml in rate_limit;\n" +
		"# in Traefik, in JSON, rulesFile of the plugin. weir check says whether it is right.\n" + more + c.list("", strings.ToLower) + c.text
}

// list returns the rules as a list in YAML. spelled is how fields are written.
func (c *conversion) list(indent string, spelled func(string) string) string {
	lines := indent + "rules:\n"
	for _, r := range c.rules {
		lines += indent + "  # " + r.was + "\n" + indent + "  - name: " + plain(r.Name) + "\n" + fields(indent+"    ", "rule", &r.Object, r.RuleText, spelled)
	}
	return lines
}

// fields returns an object's fields in YAML, in the order of the schema. of is the rule, if the object is one.
func fields(indent, name string, o *ruleset.Object, of *ruleset.RuleText, spelled func(string) string) (lines string) {
	for _, f := range ruleset.Schema[name] {
		key := indent + spelled(f.Name) + ":"
		if value := o.Texts[f.Name]; value != "" {
			if f.Kind != ruleset.OneTruth {
				value = plain(value)
			}
			lines += key + " " + value + "\n"
		}
		if list := o.Lists[f.Name]; len(list) > 0 {
			lines += key + " [" + plain(list...) + "]\n"
		}
		if pairs := o.Pairs[f.Name]; len(pairs) > 0 {
			lines += key + "\n"
			for _, pair := range pairs {
				lines += indent + "  " + plain(pair.Name) + ": " + plain(pair.Value) + "\n"
			}
		}
		if of != nil && ruleset.One(of, f.Name) != nil {
			lines += key + "\n" + fields(indent+"  ", f.Of, ruleset.One(of, f.Name), nil, spelled)
		}
	}
	return lines
}

var (
	simple   = regexp.MustCompile(`^(?:[0-9./hms]+|/[\w./-]*|[a-z][\w.-]*(?::[\w.-]+)?|GET|HEAD|POST|PUT|PATCH|DELETE)$`)
	reserved = regexp.MustCompile(`^(?i:true|false|yes|no|on|off|null|y|n|\.+)$`)
)

// plain returns texts in YAML, in quotes if they could be read as something else.
func plain(list ...string) string {
	var all []string
	for _, value := range list {
		if !simple.MatchString(value) || reserved.MatchString(value) {
			value = strconv.Quote(value) // whose escapes are those of YAML, too
		}
		all = append(all, value)
	}
	return strings.Join(all, ", ")
}
