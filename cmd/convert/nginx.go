package convert

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	crossplane "github.com/nginxinc/nginx-go-crossplane"

	"github.com/proxyweir/weir/core/ruleset"
)

// nginxConf is what is read of an nginx configuration.
type nginxConf struct {
	*conversion
	zones     map[string]*crossplane.Directive // limit_req_zone and limit_conn_zone, by the zone's name
	variables map[string]*crossplane.Directive // map, geo and the like, by the variable that they make
	sites     []*site
	uses      []nginxUse // all limits, in the order in which they are written
	by        map[nginxUse][]*crossplane.Directive
	realIP    *crossplane.Directive // the last set_real_ip_from
	trusted   string                // all of them, with a space in front of each
	header    string                // real_ip_header
	keysOf    map[string][]nginxKey // by the zone's name
	why       [2]string             // why a zone has no key, and what to do instead
}

// nginxUse is a limit as it is used: everywhere with the same settings, it is one rule.
type nginxUse struct {
	kind, zone, settings, status string
	dry                          bool
}

// nginxLimits are the directives about limits of a block, also those that it inherits, by their names.
type nginxLimits map[string][]*crossplane.Directive

// nginx converts an nginx.conf, or a file that one includes.
func nginx(c *conversion, file string, text []byte) error {
	payload, err := crossplane.Parse(file, &crossplane.ParseOptions{
		CombineConfigs: true, SkipDirectiveContextCheck: true, SkipDirectiveArgsCheck: true,
		Open: func(path string) (io.ReadCloser, error) {
			if path == file {
				return io.NopCloser(bytes.NewReader(text)), nil
			}
			return os.Open(path) //nolint:gosec // the configuration names it
		},
	})
	if err != nil {
		return err
	}
	for _, wrong := range payload.Errors {
		line := 1
		if wrong.Line != nil {
			line = *wrong.Line
		}
		c.lose(wrong.File, line, "this part of the configuration", "what it limits", wrong.Error.Error(), "correct it, and run weir convert where the files are that nginx.conf includes")
	}
	if c.nginx == nil { // of the first of several files
		c.nginx = &nginxConf{conversion: c, header: "X-Real-IP", zones: make(map[string]*crossplane.Directive), variables: make(map[string]*crossplane.Directive), by: make(map[nginxUse][]*crossplane.Directive), keysOf: make(map[string][]nginxKey)}
	}
	for _, config := range payload.Config {
		c.nginx.block(config.Parsed, nil)
	}
	return nil
}

func (n *nginxConf) leaveOut(d *crossplane.Directive, why, instead string) {
	n.leave(d.File, d.Line, written(d), why, instead)
}

func written(d *crossplane.Directive) string {
	return strings.TrimSpace(d.Directive + " " + strings.Join(d.Args, " "))
}

// block reads what is outside of servers. In a file for a server that is there, too.
func (n *nginxConf) block(list crossplane.Directives, from nginxLimits) {
	limits, sites := n.limits(list, from), len(n.sites)
	for _, d := range list {
		switch d.Directive {
		case "http":
			n.block(d.Block, limits)
		case "server":
			n.server(d, limits)
		case "limit_req_zone", "limit_conn_zone":
			n.zones[option(d, "zone")] = d
		case "map", "geo", "split_clients":
			if len(d.Args) > 0 {
				n.variables[strings.TrimPrefix(d.Args[len(d.Args)-1], "$")] = d
			}
		}
	}
	s := &site{}
	if n.locations(s, list, nil, limits); len(s.places) > 0 || sites == len(n.sites) && len(n.inForce(limits)) > 0 {
		s.places = append(s.places, &place{limits: n.inForce(limits)})
		n.sites = append(n.sites, s)
	}
}

// limits returns the limits of a block, of which those of either kind replace those that it would inherit.
func (n *nginxConf) limits(list crossplane.Directives, from nginxLimits) nginxLimits {
	l := make(nginxLimits)
	for _, d := range list {
		switch {
		case d.Directive == "limit_rate":
			n.leaveOut(d, "Weir limits requests, and not how fast a response is sent", "")
		case d.Directive == "error_page" && (slices.Contains(d.Args, "429") || slices.Contains(d.Args, "503")):
			n.leaveOut(d, "pages of rejections are not carried over", "write answer: of the rule, with body or file")
		case d.Directive == "set_real_ip_from" && len(d.Args) > 0:
			n.realIP, n.trusted = d, n.trusted+" "+d.Args[0]
		case d.Directive == "real_ip_header":
			n.header = strings.Join(d.Args, " ")
		case d.Directive == "limit_req_log_level" || d.Directive == "limit_conn_log_level":
			n.leaveOut(d, "rejections of all rules are logged at one level", "in Caddy write log_level into rate_limit, in Traefik logLevel into weir")
		case strings.HasPrefix(d.Directive, "limit_") || d.Directive == "return":
			if strings.HasSuffix(d.Directive, "_status") && slices.Contains(d.Args, "444") {
				n.leaveOut(d, "nginx closes the connection without an answer; the rule answers 444, and closes it", "")
			}
			l[d.Directive] = append(l[d.Directive], d)
		}
	}
	if l["return"] != nil {
		for _, d := range append(l["limit_req"], l["limit_conn"]...) {
			n.leaveOut(d, "nginx itself answers by return before it looks at limits", "")
		}
	}
	for name, directives := range from {
		if l[name] == nil && name != "return" {
			l[name] = directives
		}
	}
	return l
}

// inForce returns the limits as they are used, and notes them. A block that returns has answered before limits are looked at.
func (n *nginxConf) inForce(l nginxLimits) (uses []any) {
	for _, name := range []string{"limit_req", "limit_conn"} {
		for _, d := range l[name] {
			use := nginxUse{kind: name, zone: option(d, "zone"), settings: written(d)}
			if name == "limit_conn" && len(d.Args) > 0 {
				use.zone = d.Args[0]
			}
			use.status = "503" // the default
			if status := l[name+"_status"]; status != nil {
				use.status = strings.Join(status[0].Args, " ")
			}
			if dry := l[name+"_dry_run"]; dry != nil {
				use.dry = slices.Contains(dry[0].Args, "on")
			}
			if n.by[use] == nil {
				n.uses = append(n.uses, use)
			}
			if !slices.Contains(n.by[use], d) {
				n.by[use] = append(n.by[use], d)
			}
			if l["return"] == nil {
				uses = append(uses, use)
			}
		}
	}
	return uses
}

// option returns the value of an argument NAME=VALUE, up to a colon.
func option(d *crossplane.Directive, name string) string {
	for _, arg := range d.Args {
		if value, found := strings.CutPrefix(arg, name+"="); found {
			value, _, _ = strings.Cut(value, ":")
			return value
		}
	}
	return ""
}

func (n *nginxConf) server(d *crossplane.Directive, from nginxLimits) {
	s := &site{}
	limits := n.limits(d.Block, from)
	for _, in := range d.Block {
		switch in.Directive {
		case "server_name":
			for _, name := range in.Args {
				n.host(s, in, strings.ToLower(name))
			}
		case "listen":
			s.standard = s.standard || slices.Contains(in.Args, "default_server")
		}
	}
	s.standard = s.standard || len(s.names) == 0
	if limits["return"] != nil {
		return
	}
	n.ports(d.Block, s)
	n.sites = append(n.sites, s)
	n.locations(s, d.Block, nil, limits)
	s.places = append(s.places, &place{limits: n.inForce(limits)})
	s.block = d.Block
}

// ports says that rules do not tell the ports of a server from those of another one with one of its names.
func (n *nginxConf) ports(list crossplane.Directives, s *site) {
	for _, d := range list {
		if d.Directive != "listen" {
			continue
		}
		for _, other := range n.sites {
			if s.standard && other.standard || slices.ContainsFunc(s.names, func(name string) bool { return slices.Contains(other.names, name) }) {
				n.leaveOut(d, "another server is for hosts of this one, and a rule does not tell their ports apart", "write the limits into a site of a Caddyfile with its port, or into a router of its entry point")
				return
			}
		}
	}
}

// handsOver says where requests are limited in nginx by a path that is not the client's.
func (n *nginxConf) handsOver(s *site, list crossplane.Directives) {
	for _, d := range list {
		at := len(d.Args) - 1 // of the path that nginx goes on with
		if d.Directive == "rewrite" {
			at = min(1, at)
			if slices.Contains([]string{"redirect", "permanent", "break"}, d.Args[max(0, len(d.Args)-1)]) {
				at = -1
			}
		}
		if (d.Directive == "try_files" || d.Directive == "rewrite") && at >= 0 {
			uri, _, _ := strings.Cut(d.Args[at], "?")
			for _, p := range s.places {
				if len(p.limits) > 0 && slices.ContainsFunc(p.paths, func(path string) bool { return fits(uri, path) }) {
					n.leaveOut(d, "what it hands to "+p.what+" is limited there in nginx, and here only by the path that the client sends", "limit these paths, too, if they shall be")
				}
			}
		}
		n.handsOver(s, d.Block)
	}
}

func (n *nginxConf) host(s *site, d *crossplane.Directive, name string) {
	switch {
	case name == "" || name == "_":
		s.standard = true
	case strings.HasPrefix(name, "~") || strings.HasSuffix(name, "*"):
		n.leaveOut(d, "hosts of a rule have a * only in place of their first label", "name them all")
	case name[0] == '.':
		n.hasName(s, d.File, d.Line, name[1:])
		n.hasName(s, d.File, d.Line, "*"+name)
	default:
		n.hasName(s, d.File, d.Line, name)
	}
}

// locations reads the location blocks of a list, and those in them.
func (n *nginxConf) locations(s *site, list crossplane.Directives, parent *place, from nginxLimits) {
	for _, d := range list {
		last := len(d.Args) - 1
		if d.Directive != "location" || last < 0 {
			continue
		}
		limits := n.limits(d.Block, from)
		p := &place{file: d.File, line: d.Line, what: written(d), text: d.Args[last], modifier: strings.Join(d.Args[:last], ""), parent: parent, number: len(s.places), limits: n.inForce(limits)}
		s.places = append(s.places, p)
		switch {
		case strings.HasPrefix(p.text, "@"):
			p.unknown = true
		case strings.HasPrefix(p.modifier, "~"):
			values, ok := patterns(p.text)
			p.paths, p.unknown = values, !ok
		case p.modifier == "=":
			p.paths = []string{p.text}
		case p.text != "/":
			p.paths = []string{p.text + "*"}
		}
		n.locations(s, d.Block, p, limits)
	}
}

func (n *nginxConf) emit() {
	n.loseZones()
	for _, s := range n.sites {
		n.handsOver(s, s.block)
	}
	if n.realIP != nil {
		n.leaveOut(n.realIP, "which address is the client's is no setting of a rule", fmt.Sprintf("in Caddy write into the global option servers, on a line each, trusted_proxies static%s and client_ip_headers %s; in Traefik trustedIPs:%[1]s into forwardedHeaders of the entry point, and ipStrategy into weir", n.trusted, n.header))
	}
	count := make(map[string]int)
	for _, use := range n.uses {
		made := 0
		for _, where := range n.cover(n.sites, use, "zone "+use.zone) {
			if n.rule(use, where) {
				made++
			}
		}
		if count[use.zone] += made; count[use.zone] > 1 && made > 0 {
			n.leaveOut(n.by[use][0], fmt.Sprintf("zone %s is %d rules, which count apart; in nginx all places of a zone share a counter", use.zone, count[use.zone]), "give it the same settings everywhere, or set match by hand")
		}
	}
}

// loseZones says which limits nothing can become, and takes them out of all places.
func (n *nginxConf) loseZones() {
	lost := make(map[any]bool)
	for _, use := range n.uses {
		n.why = [2]string{use.kind + "_zone with zone=" + use.zone + " is not in what was read", "name its file, too, or nginx.conf where the files are that it includes"}
		if zone := n.zones[use.zone]; zone != nil && zone.Directive == use.kind+"_zone" {
			n.why = [2]string{"its key is always empty", "nginx does not limit by it, either"}
			if n.keysOf[use.zone] = n.keys(zone); len(n.keysOf[use.zone]) > 0 {
				continue
			}
		}
		lost[use] = true
		for _, d := range n.by[use] {
			n.lose(d.File, d.Line, written(d), "zone "+use.zone, n.why[0], n.why[1])
		}
	}
	for _, s := range n.sites {
		for _, p := range s.places {
			p.limits = slices.DeleteFunc(p.limits, func(limit any) bool { return lost[limit] })
		}
	}
}

// rule makes the rules of a limit where it applies, and reports whether there are any.
func (n *nginxConf) rule(use nginxUse, where covering) (made bool) {
	d, zone := n.by[use][0], n.zones[use.zone]
	plain := func(value string) bool { return !strings.HasPrefix(value, "!") }
	for _, key := range n.keysOf[use.zone] {
		if has := map[string][]string{"paths": where.paths, "hosts": where.hosts}[key.field]; slices.ContainsFunc(has, plain) && slices.ContainsFunc(key.values, plain) {
			n.lose(d.File, d.Line, written(d), "zone "+use.zone, "its map and the place both say which "+key.field+" it is for", "write a rule for what both cover")
			continue
		}
		t := n.newRule(use.zone, key.sources...)
		where.into(t)
		set(t, "on_missing_key", map[bool]string{true: "skip"}[key.skip], "enforcement", map[bool]string{true: "shadow"}[use.dry])
		if key.name != "" {
			ruleset.SetPairs(ruleset.One(t, "match"), key.field, []ruleset.Pair{{Name: key.name, Value: key.values[0]}})
		} else {
			also(t, key.field, key.values...)
		}
		if use.kind == "limit_conn" {
			set(t, "concurrency", strings.Join(d.Args[min(1, len(d.Args)):], " "))
		} else if !n.rate(t, use, zone, d) {
			return false
		}
		made = n.add(t, use.status, d.File, d.Line, written(d)) != nil || made
	}
	return made
}

// rate sets the limit, the algorithm, and what happens to a burst, of a limit_req.
func (n *nginxConf) rate(t *ruleset.RuleText, use nginxUse, zone, d *crossplane.Directive) bool {
	text, unit, _ := strings.Cut(option(zone, "rate"), "r/")
	rate, right := number(text, 0)
	per := map[string]time.Duration{"s": time.Second, "m": time.Minute}[unit]
	burst, also := number(option(d, "burst"), 0)
	delay, known := number(option(d, "delay"), 0)
	if !right || !also || !known || rate == 0 || per == 0 {
		n.lose(d.File, d.Line, written(d), "zone "+use.zone, "the rate, the burst or the delay is none that nginx takes", "write rate=10r/s or 30r/m, and numbers")
		return false
	}
	if slices.Contains(d.Args, "nodelay") {
		delay = burst
	}
	waiting := max(0, burst-delay)
	wait := time.Duration((waiting*per.Milliseconds()+rate-1)/rate) * time.Millisecond // rounded up: who waits exactly as long is served
	longest := ruleset.Shortly(min(wait, time.Hour))
	if wait > time.Hour {
		n.leaveOut(d, "the last of a burst waits for more than an hour", "the rule rejects those who would")
	}
	bucket(t, rate, per, min(burst, delay)+1)
	switch {
	case waiting == 0:
	case delay == 0:
		set(t, "algorithm", "leaky_bucket", "burst", strconv.FormatInt(burst, 10))
		if wait > 10*time.Second { // the default
			set(t, "max_delay", longest)
		}
	default: // the first of a burst pass at once, and the others wait for tokens
		set(t, "on_limit", "delay", "max_delay", longest)
		if !use.dry { // a shadow delays nobody
			set(t, "max_waiting", strconv.FormatInt(min(1_000_000, max(1000, 10*waiting)), 10), "max_waiting_per_key", strconv.FormatInt(min(1_000_000, waiting), 10))
		}
	}
	return true
}
