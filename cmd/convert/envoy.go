package convert

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/proxyweir/weir/core/ruleset"
	rulesyaml "github.com/proxyweir/weir/core/ruleset/yaml"
)

// envoyConf is what is read of a file of Envoy. Limits of places are local ones, and lists of rate_limits.
type envoyConf struct {
	*conversion
	taken
	file     string
	sites    []*site
	listener *yaml.Node // the local limit that all routes without one of their own have; empty: there is none
	alone    []any      // lists of rate_limits whose route is not in the file
	domain   string     // of the ratelimit service
}

// envoy converts a file of Envoy's ratelimit service, which loads as it is, or one of Envoy itself.
func envoy(c *conversion, file string, written []byte) error {
	list, err := documents(written)
	e := &envoyConf{conversion: c, taken: make(taken), file: file, listener: &yaml.Node{}}
	for _, document := range list {
		if at(document, "domain") != nil && at(document, "descriptors") != nil {
			e.service(written)
			return nil
		}
		walk(document, e.look)
	}
	if len(e.sites) == 0 { // the routes are in another file
		e.alone = append(e.alone, e.listener)
	}
	e.sites = append(e.sites, &site{places: []*place{{limits: e.alone}}}) // of hosts without a virtual host, which Envoy answers with 404
	var done []any
	for _, s := range e.sites {
		for _, p := range s.places {
			for _, limit := range p.limits {
				if n := limit.(*yaml.Node); !slices.Contains(done, limit) {
					done = append(done, limit)
					e.limit(n)
				}
			}
		}
	}
	return err
}

// limit converts a limit where it is in force, or says which result has it.
func (e *envoyConf) limit(n *yaml.Node) {
	leave := func(what, why, to string) {
		e.other = to
		e.leave(e.file, n.Line, what, why, "weir convert --to "+to+" prints what does")
	}
	switch local := at(n, "token_bucket") != nil; {
	case n.Kind == yaml.SequenceNode && e.to == "caddyfile":
		e.blocks(n)
	case n.Kind == yaml.SequenceNode:
		leave("rate_limits", "a rule file cannot make descriptors of requests", "caddyfile")
	case local && e.to == "caddyfile":
		leave("local_ratelimit "+value(n, "stat_prefix"), "what makes descriptors does not limit by itself", "rules")
	case local:
		for i, where := range e.cover(e.sites, n, "local_ratelimit in line "+strconv.Itoa(n.Line)) {
			if i == 1 {
				e.leave(e.file, n.Line, value(n, "stat_prefix"), "is several rules, which count apart; in Envoy they share a counter", "")
			}
			e.local(n, where)
		}
		fallthrough
	default: // it is no limit of its own, or one that has been read
		e.untaken(n)
	}
}

func (e *envoyConf) service(written []byte) {
	root, wrong := rulesyaml.Parse("ratelimit.yaml", written)
	if len(wrong) == 0 {
		_, wrong = ruleset.Decode(e.file, root)
	}
	switch {
	case len(wrong) > 0:
		e.leave(e.file, wrong[0].Line, "a file of Envoy's ratelimit service", wrong[0].Text, "weir check has all that is to be mended")
	case e.to == "caddyfile" || e.text != "" || strings.HasPrefix(strings.TrimSpace(string(written)), "{"):
		e.other = "rules"
		e.leave(e.file, 1, "a file of Envoy's ratelimit service", "loads as it is, and is not in the result", "name it in rules_file, too")
	case e.to == "rules":
		e.text = "# Of Envoy's ratelimit service, as it was. weir convert --to caddyfile envoy.yaml prints what makes its descriptors.\n" + strings.TrimPrefix(string(written), "---\n")
	}
}

// look notes the limits in a file, and reports whether there may be more within.
func (e *envoyConf) look(n *yaml.Node) bool {
	for _, host := range items(at(n, "virtual_hosts")) {
		e.host(n, host)
	}
	service, bucket := at(n, "rate_limit_service") != nil, at(n, "token_bucket") != nil && at(n, "stat_prefix") != nil
	switch list := at(n, "rate_limits"); {
	case (service || bucket) && strings.Contains(value(n, "@type"), ".network.") || bucket && e.listener.Kind != 0:
		e.leave(e.file, n.Line, value(n, "stat_prefix"), "is a limit of connections, or of requests that are not known", "write a rule by hand for requests; docs/layers.md says what limits connections")
	case service:
		if e.domain == "" {
			e.domain = e.value(n, "domain")
		}
		if status(value(n, "rate_limited_status", "code")) == "429" {
			e.value(n, "rate_limited_status", "code")
		}
		e.untaken(n)
	case bucket:
		*e.listener = *n
	case at(n, "virtual_hosts") == nil:
		e.alone = lists(e.alone, list)
		return true
	}
	return false
}

// configOf returns the nearest configuration of a filter: of a route, its virtual host or all of them; nil: there is none.
func configOf(filter string, from ...*yaml.Node) *yaml.Node {
	for _, n := range from {
		config := at(n, "typed_per_filter_config", "envoy.filters.http."+filter)
		if inner := at(config, "value"); inner != nil {
			return inner
		} else if config != nil {
			return config
		}
	}
	return nil
}

func (e *envoyConf) host(all, n *yaml.Node) {
	s := &site{}
	e.sites = append(e.sites, s)
	for _, domain := range items(at(n, "domains")) {
		name, _, _ := strings.Cut(strings.ToLower(value(domain)), ":")
		if s.standard = s.standard || name == "*"; name != "*" {
			e.hasName(s, e.file, domain.Line, name)
		}
	}
	routes := items(at(n, "routes"))
	if len(routes) == 0 {
		routes = []*yaml.Node{{Line: n.Line}} // they are in another file
	}
	for _, route := range routes {
		p := &place{file: e.file, line: route.Line, what: "route " + value(route, "name"), modifier: "~", number: len(s.places)}
		s.places = append(s.places, p)
		e.where(p, at(route, "match"))
		p.limits = e.rateLimits(configOf("ratelimit", route, n, all), n, route)
		if local := configOf("local_ratelimit", route, n, all); local != nil {
			p.limits = append(p.limits, local)
		} else {
			p.limits = append(p.limits, e.listener)
		}
	}
}

func (e *envoyConf) where(p *place, match *yaml.Node) {
	prefix, path, whole := value(match, "prefix"), value(match, "path"), value(match, "path_separated_prefix")
	switch {
	case at(match, "headers") != nil || at(match, "query_parameters") != nil || at(match, "runtime_fraction") != nil:
		p.unknown = true
	case match == nil:
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

// share returns a fraction of all requests in per cent; 0 if there is none.
func (e *envoyConf) share(n *yaml.Node, name string) float64 {
	of := map[string]float64{"": 1, "HUNDRED": 1, "TEN_THOUSAND": 100, "MILLION": 10_000}[e.value(n, name, "default_value", "denominator")]
	share, _ := strconv.ParseFloat(e.value(n, name, "default_value", "numerator"), 64)
	return share / max(of, 1)
}

// status returns a status as a number, which Envoy has as a word, too: it sends 429 in place of one below 400.
func status(text string) string {
	for code := 400; code < 600; code++ {
		if words := strings.NewReplacer(" ", "", "-", "").Replace(http.StatusText(code)); words != "" && strings.EqualFold(words, text) {
			return strconv.Itoa(code)
		}
	}
	if code, err := strconv.Atoi(text); err == nil && code < 400 {
		return "429"
	}
	return text
}

func (e *envoyConf) local(n *yaml.Node, where covering) {
	leave := func(what, why, instead string) { e.leave(e.file, n.Line, what, why, instead) }
	most, right := number(e.value(n, "token_bucket", "max_tokens"), 0)
	per, also := number(e.value(n, "token_bucket", "tokens_per_fill"), 1)
	interval, err := time.ParseDuration(e.value(n, "token_bucket", "fill_interval"))
	if !right || !also || err != nil || most == 0 || per == 0 {
		leave("token_bucket", "max_tokens, tokens_per_fill or fill_interval is none that Weir can have", "they are from 1 to 1000000000, and from 1ms to 366d")
		return
	}
	t := e.newRule(value(n, "stat_prefix"))
	ruleset.SetList(&t.Object, "key", []string{"static:" + t.Name})
	bucket(t, per, interval, most)
	where.into(t)
	enabled, enforced := e.share(n, "filter_enabled"), e.share(n, "filter_enforced")
	if enabled == 0 || enforced == 0 {
		set(t, "enforcement", "shadow")
		leave("filter_enabled and filter_enforced", "without both Envoy rejects nothing", "the rule is a shadow; remove enforcement to let it reject")
	} else if enabled < 100 || enforced < 100 {
		leave("filter_enabled and filter_enforced", "a share of all requests cannot be limited", "the rule limits all")
	}
	e.add(t, status(e.value(n, "status", "code")), e.file, n.Line, "local_ratelimit")
}
