package convert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/proxyweir/weir/core/ruleset"
	rulesyaml "github.com/proxyweir/weir/core/ruleset/yaml"
)

// envoyConf is what is read of a file of Envoy.
type envoyConf struct {
	*conversion
	file     string
	sites    []*site
	listener *yaml.Node // the local limit that all routes without one of their own have
}

// envoy converts a file of Envoy's ratelimit service, which loads as it is, or one of Envoy itself.
func envoy(c *conversion, file string, written []byte) error {
	list, err := documents(written)
	e := &envoyConf{conversion: c, file: file}
	for _, document := range list {
		if at(document, "domain") != nil && at(document, "descriptors") != nil {
			e.service(written)
			return nil
		}
		walk(document, e.look)
	}
	if len(e.sites) == 0 { // the routes are in another file
		e.sites = []*site{{standard: true, places: []*place{{}}}}
	}
	var limits []*yaml.Node
	for _, s := range e.sites {
		for _, p := range s.places {
			if len(p.limits) == 0 && e.listener != nil {
				p.limits = []any{e.listener}
			}
			if len(p.limits) > 0 && !slices.Contains(limits, p.limits[0].(*yaml.Node)) {
				limits = append(limits, p.limits[0].(*yaml.Node))
			}
		}
	}
	for _, limit := range limits {
		for i, where := range c.cover(e.sites, limit, "local_ratelimit in line "+strconv.Itoa(limit.Line)) {
			if i == 1 && at(limit, "token_bucket") != nil {
				c.leave(file, limit.Line, value(limit, "stat_prefix"), "is several rules, which count apart; in Envoy they share a counter", "")
			}
			e.local(limit, where)
		}
	}
	return err
}

func (e *envoyConf) service(written []byte) {
	root, wrong := rulesyaml.Parse("ratelimit.yaml", written)
	if len(wrong) == 0 {
		_, wrong = ruleset.Decode(e.file, root)
	}
	switch {
	case len(wrong) > 0:
		e.leave(e.file, wrong[0].Line, "a file of Envoy's ratelimit service", wrong[0].Text, "weir check has all that is to be mended")
	case e.text != "" || strings.HasPrefix(strings.TrimSpace(string(written)), "{"):
		e.leave(e.file, 1, "a file of Envoy's ratelimit service", "loads as it is, and is not in the result", "name it in rules_file, too")
	case e.to == "rules":
		e.text = "# Of Envoy's ratelimit service, as it was. weir convert --to caddyfile envoy.yaml prints what makes its descriptors.\n" + strings.TrimPrefix(string(written), "---\n")
	}
}

// look notes the limits in a file, and reports whether there may be more within.
func (e *envoyConf) look(n *yaml.Node) bool {
	for _, host := range items(at(n, "virtual_hosts")) {
		e.host(host)
	}
	if list := items(at(n, "rate_limits")); len(list) > 0 {
		e.rateLimits(list)
	}
	if at(n, "token_bucket") == nil || at(n, "stat_prefix") == nil {
		return at(n, "virtual_hosts") == nil
	}
	if e.listener == nil && !strings.Contains(value(n, "@type"), ".network.") {
		e.listener = n
	} else {
		e.leave(e.file, n.Line, value(n, "stat_prefix"), "is a limit of connections, or of requests that are not known", "write a rule by hand for requests; docs/layers.md says what limits connections")
	}
	return false
}

// localOf returns the local limit of a route or a virtual host; nil: it has none of its own. It also makes descriptors of its rate_limits.
func (e *envoyConf) localOf(n *yaml.Node) *yaml.Node {
	for _, list := range []*yaml.Node{at(n, "rate_limits"), at(n, "route", "rate_limits"), at(n, "typed_per_filter_config", "envoy.filters.http.ratelimit", "rate_limits")} {
		if len(items(list)) > 0 {
			e.rateLimits(items(list))
		}
	}
	config := at(n, "typed_per_filter_config", "envoy.filters.http.local_ratelimit")
	if inner := at(config, "value"); inner != nil {
		return inner
	}
	return config
}

func (e *envoyConf) host(n *yaml.Node) {
	s := &site{}
	e.sites = append(e.sites, s)
	for _, domain := range items(at(n, "domains")) {
		name, _, _ := strings.Cut(strings.ToLower(value(domain)), ":")
		if s.standard = s.standard || name == "*"; name != "*" {
			e.hasName(s, e.file, domain.Line, name)
		}
	}
	common := e.localOf(n)
	for _, route := range items(at(n, "routes")) {
		p := &place{file: e.file, line: route.Line, what: "route " + value(route, "name"), modifier: "~", number: len(s.places)}
		s.places = append(s.places, p)
		e.where(p, at(route, "match"))
		if local := e.localOf(route); local != nil {
			p.limits = []any{local}
		} else if common != nil {
			p.limits = []any{common}
		}
	}
}

func (e *envoyConf) where(p *place, match *yaml.Node) {
	prefix, path, whole := value(match, "prefix"), value(match, "path"), value(match, "path_separated_prefix")
	switch {
	case at(match, "headers") != nil || at(match, "query_parameters") != nil || at(match, "runtime_fraction") != nil:
		p.unknown = true
	case path != "":
		p.paths = []string{path}
	case whole != "":
		p.paths = []string{whole, whole + "/*"}
	case prefix == "":
		values, ok := patterns("^" + value(match, "safe_regex", "regex") + "$")
		p.paths, p.unknown = values, !ok
	case prefix != "/":
		p.paths = []string{prefix + "*"}
	}
}

func (e *envoyConf) local(n *yaml.Node, where covering) {
	tokens := at(n, "token_bucket")
	if tokens == nil {
		return // a filter that only routes give a limit
	}
	leave := func(what, why, instead string) { e.leave(e.file, n.Line, what, why, instead) }
	most, right := number(value(tokens, "max_tokens"), 0)
	per, also := number(value(tokens, "tokens_per_fill"), 1)
	interval, err := time.ParseDuration(value(tokens, "fill_interval"))
	if !right || !also || err != nil || most == 0 || per == 0 {
		leave("token_bucket", "max_tokens, tokens_per_fill or fill_interval is none that Weir can have", "they are from 1 to 1000000000, and from 1ms to 366d")
		return
	}
	t := e.newRule(value(n, "stat_prefix"))
	ruleset.SetList(&t.Object, "key", []string{"static:" + t.Name})
	bucket(t, per, interval, most)
	where.into(t)
	enabled, enforced := value(n, "filter_enabled", "default_value", "numerator"), value(n, "filter_enforced", "default_value", "numerator")
	if enabled == "" || enabled == "0" || enforced == "" || enforced == "0" {
		set(t, "enforcement", "shadow")
		leave("filter_enabled and filter_enforced", "without both Envoy rejects nothing", "the rule is a shadow; remove enforcement to let it reject")
	} else if enabled != "100" || enforced != "100" {
		leave("filter_enabled and filter_enforced", "a share of all requests cannot be limited", "the rule limits all")
	}
	if value(n, "local_rate_limit_per_downstream_connection") == "true" {
		leave("local_rate_limit_per_downstream_connection", "a connection is no key", "write key: client_ip")
	}
	for _, d := range items(at(n, "descriptors")) {
		e.leave(e.file, d.Line, "descriptors of a local limit", "they are limits for some requests", "write a rule for each: a match for its entries, and its token_bucket as here")
	}
	e.add(t, value(n, "status", "code"), e.file, n.Line, "local_ratelimit")
}

// rateLimits writes a handler of a Caddyfile that makes the descriptors of rate_limits.
func (e *envoyConf) rateLimits(list []*yaml.Node) {
	if e.to != "caddyfile" {
		e.leave(e.file, list[0].Line, "rate_limits", "a rule file cannot make descriptors of requests", "weir convert --to caddyfile prints what does")
		return
	}
	e.text += fmt.Sprintf("\n# %s:%d: rate_limits. Write a matcher if they are for a part of the site.\nrate_limit {\n\trules_file /etc/caddy/rules/ratelimit.yaml\n", e.file, list[0].Line)
	for _, limit := range list {
		line := "\tdescriptor"
		for _, action := range items(at(limit, "actions")) {
			each(action, func(kind, n *yaml.Node) {
				a, known := actions[kind.Value]
				if key := value(n, "descriptor_key"); key != "" {
					a[0] = key
				}
				if !known || a[0] == "" {
					e.leave(e.file, kind.Line, "the action "+kind.Value, "no line descriptor has the same", "docs/from-envoy.md has what takes its place")
					line = ""
				} else if line != "" {
					line += fmt.Sprintf(" %q %q", a[0], pseudo.Replace(strings.Replace(a[1], "?", value(n, a[2]), 1)))
				}
			})
		}
		if line != "" && line != "\tdescriptor" {
			e.text += line + "\n"
		}
	}
	e.text += "}\n"
}

// actions have the key of a descriptor where it is not written, the value with a ? for a field of the action, and that field.
var actions = map[string][3]string{
	"remote_address": {"remote_address", "{client_ip}"}, "generic_key": {"generic_key", "?", "descriptor_value"},
	"request_headers": {"", "{header.?}", "header_name"}, "query_parameters": {"", "{query.?}", "query_parameter_name"},
}

var pseudo = strings.NewReplacer("{header.:path}", "{path}", "{header.:method}", "{method}", "{header.:authority}", "{host}")
