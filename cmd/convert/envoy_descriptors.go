package convert

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lists adds lists of rate_limits to others, unless they are empty.
func lists(others []any, more ...*yaml.Node) []any {
	for _, list := range more {
		if len(items(list)) > 0 && list.Kind == yaml.SequenceNode {
			others = append(others, list)
		}
	}
	return others
}

// rateLimits returns the lists of rate_limits that are in force in a route of a virtual host. config is that of the filter; nil: there is none.
func (e *envoyConf) rateLimits(config, host, route *yaml.Node) []any {
	of, disabled, _ := e.value(config, "vh_rate_limits"), e.value(config, "disabled"), e.value(config, "rate_limits")
	own := at(config, "rate_limits")
	e.taken[own] = true // what is in it is told where it is read
	e.untaken(config)
	delete(e.taken, own)
	limits := lists(nil, own)
	if disabled == "true" || len(limits) > 0 {
		return limits
	}
	limits = lists(nil, at(route, "rate_limits"), at(route, "route", "rate_limits"))
	if len(limits) == 0 && of != "IGNORE" || of == "INCLUDE" || value(route, "route", "include_vh_rate_limits") == "true" {
		limits = lists(limits, at(host, "rate_limits"))
	}
	return limits
}

// blocks writes the handlers of a Caddyfile that make the descriptors of a list of rate_limits.
func (e *envoyConf) blocks(list *yaml.Node) {
	lines := e.descriptors(list)
	if lines == "" {
		return
	}
	if e.domain != "" {
		lines = "\tdomain " + token(e.domain) + "\n" + lines
	}
	if strings.Contains(lines, "{client_ip}") {
		lines = "\t# The client's address is the connection's. Set trusted_proxies where Envoy has xff_num_trusted_hops, or no use_remote_address.\n" + lines
	}
	block := func(comment, before, name string) {
		e.text += fmt.Sprintf("\n# %s:%d: rate_limits%s.\n%srate_limit %s{\n\trules_file /etc/caddy/rules/ratelimit.yaml\n%s}\n", e.file, list.Line, comment, before, name, lines)
	}
	for i, where := range e.cover(e.sites, list, "rate_limits in line "+strconv.Itoa(list.Line)) {
		name := fmt.Sprintf("@envoy_%d_%d ", list.Line, i+1)
		if matches := matcher("host", where.hosts) + matcher("path", where.paths); matches != "" {
			comment := ""
			if slices.ContainsFunc(where.hosts, func(host string) bool { return strings.HasPrefix(host, "!") }) {
				comment = ". Write it into the sites of all other hosts, and take host out: clients can get past a matcher by host"
			} else if len(where.hosts) > 0 {
				comment = ". Write it into the sites of these hosts, and take host out: clients can get past a matcher by host"
			}
			block(comment, name+"{\n"+matches+"}\n", name)
		} else {
			block(" of all requests. Write a matcher if they are for a part of the site", "", "")
		}
	}
	for _, s := range e.sites {
		for _, p := range s.places {
			if p.unknown && slices.Contains(p.limits, any(list)) {
				block(fmt.Sprintf(". Write the matcher: what gets to the route in line %d", p.line), "", fmt.Sprintf("@envoy_route_%d ", p.line))
			}
		}
	}
}

// matcher returns the lines of a matcher for values of match: those that are wanted, and those with a ! in front.
func matcher(name string, values []string) string {
	wanted, not := "", ""
	for _, value := range values {
		if strings.HasPrefix(value, "!") {
			not += "\tnot " + name + " " + token(value[1:]) + "\n"
		} else {
			wanted += " " + token(value)
		}
	}
	if wanted != "" {
		wanted = "\t" + name + wanted + "\n"
	}
	return wanted + not
}

// token returns a text as a Caddyfile has it.
func token(text string) string {
	if strings.ContainsAny(text, " \t\n\"`#") || strings.HasPrefix(text, "}") || strings.HasSuffix(text, "{") || text == "" {
		return `"` + strings.ReplaceAll(text, `"`, `\"`) + `"`
	}
	return text
}

// descriptors returns the lines descriptor of a list of rate_limits.
func (e *envoyConf) descriptors(list *yaml.Node) (lines string) {
	for _, limit := range items(list) {
		line := "\tdescriptor"
		e.value(limit, "actions")
		for _, action := range items(at(limit, "actions")) {
			each(action, func(kind, n *yaml.Node) {
				a, known := actions[kind.Value]
				if key := e.value(n, "descriptor_key"); key != "" {
					a[0] = key
				}
				of := e.value(n, a[2])
				if e.taken[kind] = known && a[0] != ""; !e.taken[kind] {
					line = ""
				} else if line != "" {
					line += " " + token(a[0]) + " " + token(pseudo.Replace(strings.Replace(a[1], "?", of, 1)))
				}
			})
		}
		switch line {
		case "":
			e.lose(e.file, limit.Line, "actions", "what this descriptor counts", "an action has no words in a Caddyfile", "write a rate_limit with a matcher, and a descriptor with the key and the value that Envoy sends")
		case "\tdescriptor":
		default:
			lines += line + "\n"
		}
	}
	e.untaken(list)
	return lines
}

// actions have the key of a descriptor where it is not written, the value with a ? for a field of the action, and that field.
var actions = map[string][3]string{
	"remote_address": {"remote_address", "{client_ip}"}, "generic_key": {"generic_key", "?", "descriptor_value"},
	"request_headers": {"", "{header.?}", "header_name"}, "query_parameters": {"", "{query.?}", "query_parameter_name"},
}

var pseudo = strings.NewReplacer("{header.:path}", "{path}", "{header.:method}", "{method}", "{header.:authority}", "{host}")

// untaken tells what is in a part of the file, and that nothing has read.
func (e *envoyConf) untaken(n *yaml.Node) {
	e.rest(n, func(key *yaml.Node) {
		why, known := untakenWhy[key.Value]
		if !known {
			why = [2]string{"nothing that is printed is the same", "docs/from-envoy.md has what takes the place of most"}
		}
		if why[0] != "" {
			e.leave(e.file, key.Line, key.Value, why[0], why[1])
		}
	})
}

// untakenWhy are reasons why something is not carried over, and what to do instead. What has no reason needs none.
var untakenWhy = map[string][2]string{
	"@type": {}, "type_url": {}, "name": {}, "runtime_key": {}, "stat_prefix": {}, "timeout": {}, "rate_limit_service": {}, "enable_x_ratelimit_headers": {},
	"disable_x_envoy_ratelimited_header": {}, "hits_addend": {"each request costs one", ""},
	"descriptors":         {"of a local limit are limits for some requests", "write a rule for each: a match for its entries, and its token_bucket as here"},
	"disable_key":         {"nothing switches descriptors off while the proxy runs", ""},
	"domain":              {"all blocks have the domain of the first filter", "write this one into the blocks that it is for"},
	"failure_mode_deny":   {"while Redis fails, each proxy allows its share", "only rules can have on_error closed"},
	"limit":               {"requests bring no limits to descriptors", "a rule can have limit_from"},
	"rate_limited_status": {"descriptors are rejected with 429", "in Caddy handle_errors can send another"},
	"skip_if_absent":      {"without the value Weir makes no descriptor, and Envoy one without this entry", "write a second rate_limit for requests without it, by a matcher"},
	"stage":               {"there are no stages", "put what belongs to another filter into a rate_limit of its own"},
	"local_rate_limit_per_downstream_connection": {"a connection is no key", "write key: client_ip"},
	"request_headers_to_add_when_not_enforced":   {"Weir marks no requests", "metrics count what a shadow rule would reject"},
	"response_headers_to_add":                    {"Weir adds no fields of yours", "set them with the proxy's own"},
}
