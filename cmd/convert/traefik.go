package convert

import (
	"regexp"
	"strings"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v3"

	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/traefik/config"
	"github.com/proxyweir/weir/traefik/dynamic"
)

// middleware is one of Traefik.
type middleware struct {
	name, was string
	settings  string     // of the plugin, as lines
	metadata  *yaml.Node // of a resource of Kubernetes; nil: it is in a file
}

// dynamic returns Traefik's dynamic configuration; "": there are no limits.
func (c *conversion) dynamic() string {
	const inside = "          "
	if c.from != "traefik" && len(c.rules) > 0 {
		c.middlewares = []*middleware{{name: "weir", was: "name it in the middlewares of routers", settings: c.list(inside, ruleset.CamelCase)}}
	}
	file, resources := "", ""
	for _, m := range c.middlewares {
		if m.metadata == nil {
			file += "    # " + m.was + "\n    " + plain(m.name) + ":\n      plugin:\n        weir:\n" + m.settings
		} else {
			resources += "---\n# " + m.was + "\napiVersion: traefik.io/v1alpha1\nkind: Middleware\nmetadata:\n" + indented(m.metadata, "  ") + "spec:\n  plugin:\n    weir:\n" + m.settings
		}
	}
	if file != "" {
		file = "http:\n  middlewares:\n" + file
	}
	if file+resources == "" {
		return ""
	}
	return "# Limits of " + c.from + "; docs/from-" + c.from + ".md has what differs. experimental.plugins of the static configuration must name the plugin weir.\n" +
		"# Names of middlewares stay, and so do routers, which share the counters of a middleware here. In labels write plugin.weir in place of ratelimit; of inflightreq write plugin.weir.concurrency for its amount, and plugin.weir.key=host.\n" + file + resources
}

// traefikLabel is a label that configures one of Traefik's two limits, in a list or as a member of a map.
var traefikLabel = regexp.MustCompile(`(?im)^[^#\n]*?traefik\.http\.middlewares\.([^.\s]+)\.((?:ratelimit|inflightreq)\.[\w.]+)["']?\s*[=:]\s*["']?([^"'\n]+)`)

// traefik converts Traefik's dynamic configuration in YAML or TOML, resources of Kubernetes, and labels of containers.
func traefik(c *conversion, file string, written []byte) error {
	list, err := documents(written)
	parsed := make(map[string]any)
	if _, failed := toml.Decode(string(written), &parsed); failed == nil {
		err = nil
	}
	for _, m := range traefikLabel.FindAllStringSubmatch(string(written), -1) {
		into, path := parsed, append([]string{"http", "middlewares", m[1]}, strings.Split(m[2], ".")...)
		for _, key := range path[:len(path)-1] {
			if _, found := into[key].(map[string]any); !found {
				into[key] = make(map[string]any)
			}
			into = into[key].(map[string]any)
		}
		into[path[len(path)-1]] = strings.TrimSpace(m[3])
	}
	if len(parsed) > 0 {
		text, _ := yaml.Marshal(parsed) // what was parsed can be written
		more, _ := documents(text)
		list = append(list, more...)
		walk(more[0], func(n *yaml.Node) bool { // a line is the first that has the name
			n.Line = 1 + strings.Count(string(written[:max(0, strings.Index(string(written), n.Value))]), "\n")
			return true
		})
	}
	for _, document := range list {
		each(at(document, "http", "middlewares"), func(name, spec *yaml.Node) { c.middleware(file, name.Line, &middleware{name: name.Value}, spec) })
		if metadata := at(document, "metadata"); value(document, "kind") == "Middleware" && metadata != nil {
			c.middleware(file, metadata.Line, &middleware{name: value(metadata, "name"), metadata: metadata}, at(document, "spec"))
		}
	}
	return err
}

// middleware converts one, if it is a limit: the plugin takes the words of rateLimit, and says what they are in its own.
func (c *conversion) middleware(file string, line int, m *middleware, spec *yaml.Node) {
	for _, kind := range []string{"rateLimit", "inFlightReq"} {
		limits, words := at(spec, kind), make(map[string]any)
		if limits == nil || limits.Decode(&words) != nil {
			continue
		}
		leave := func(what, why, instead string) { c.leave(file, line, m.name+": "+kind+what, why, instead) }
		strategy, redis := at(limits, "sourceCriterion", "ipStrategy"), at(limits, "redis")
		if average := value(limits, "average"); kind == "rateLimit" && (average == "" || average == "0") {
			leave("", "an average of 0 is no limit", "remove the middleware")
			continue
		}
		if kind == "inFlightReq" {
			words["concurrency"] = value(limits, "amount")
			if at(limits, "sourceCriterion") == nil {
				words["key"] = "host"
			}
		}
		delete(words, "amount")
		settings, t := &config.Config{}, &ruleset.RuleText{}
		err := dynamic.Decode(words, settings)
		if settings.Redis = nil; err == nil {
			err = config.CheckFields(settings)
		}
		if err == nil {
			_, err = config.ReadTexts(settings, "x@file", func(text *ruleset.RuleText, _ ruleset.Context) { t = text })
		}
		if err != nil {
			c.lose(file, line, m.name+": "+kind, m.name, err.Error(), "mend it, as Traefik would have it")
			continue
		}
		t.Name = c.name(m.name)
		set(t, "limit", strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(t.Texts["limit"]))
		r := c.add(t, "", file, line, m.name+": "+kind)
		if r == nil {
			continue
		}
		indent := map[bool]string{true: "          ", false: "      "}[m.metadata == nil]
		m.was, m.settings = r.was, fields(indent, "rule", &r.Object, r.RuleText, ruleset.CamelCase)
		if c.to == "rules" {
			leave("", "a rule of a file covers all requests, and not those of the routers that name the middleware", "write match, or have --to traefik")
		}
		if redis != nil && c.to == "rules" {
			leave(".redis", "the store is not a rule's setting", "set it in the handler")
		} else if redis != nil {
			m.settings = indented(limits, indent)
		} else if strategy != nil && c.to == "rules" {
			leave(".sourceCriterion.ipStrategy", "which address is the client's is not a rule's setting", "in Caddy set trusted_proxies")
		} else if strategy != nil {
			m.settings += indent + "ipStrategy:\n" + indented(strategy, indent+"  ")
		}
		c.middlewares = append(c.middlewares, m)
	}
}
