package ratelimit

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"

	"github.com/proxyweir/weir/caddy/adapt"
	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/blobstore"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
)

func init() {
	httpcaddyfile.RegisterGlobalOption("rate_limit", parseGlobalOption)
	httpcaddyfile.RegisterDirective("rate_limit", parseDirective)
	httpcaddyfile.RegisterHandlerDirective("rate_limit_status", parseStatus)
	httpcaddyfile.RegisterHandlerDirective("rate_limit_decide", parseDecide)
	// Behind what keeps strangers out, as rate_limit_page is.
	httpcaddyfile.RegisterDirectiveOrder("rate_limit_decide", httpcaddyfile.Before, "reverse_proxy")
	// In this order the first runs before the second.
	httpcaddyfile.RegisterDirectiveOrder("rate_limit_status", httpcaddyfile.Before, "basic_auth")
	httpcaddyfile.RegisterDirectiveOrder("rate_limit", httpcaddyfile.Before, "basic_auth")
}

// parseDirective reads a rate_limit directive of a site.
func parseDirective(h httpcaddyfile.Helper) ([]httpcaddyfile.ConfigValue, error) {
	if !h.Next() {
		return nil, h.ArgErr()
	}
	line, matcher := h.Token(), ""
	if h.NextArg() {
		matcher = h.Val()
	}
	h.Reset()
	h.Next()
	matcherSet, err := h.ExtractMatcherSet()
	if err != nil {
		return nil, err
	}
	if matcherSet == nil {
		matcher = ""
	} else if strings.HasPrefix(matcher, "@") {
		matcher += string(h.JSON(matcherSet)) // matchers of the same name in two sites are different
	}
	if path, only := matcherSet["path"]; only && strings.HasPrefix(matcher, "/") {
		matcherSet = caddy.ModuleMap{"sent_path": path} // of a limit, the path that the client has sent
	}
	handler := &Handler{At: syntax.PlaceOf(line)}
	if err := handler.unmarshalCaddyfile(h.Dispenser, matcher); err != nil {
		return nil, err
	}
	if len(globalApp(h).RulesFiles) == 0 {
		if len(handler.RulesFiles) == 0 && len(handler.Descriptors) > 0 {
			return nil, syntax.ErrorAt(line, errors.New("descriptor: needs rules_file, since the limits of descriptors are in a file"))
		}
		if len(handler.RulesFiles) == 0 && len(handler.RateLimits) == 0 && handler.Guard == nil {
			return nil, syntax.ErrorAt(line, errors.New("has no zone: write a limit such as rate_limit 100/1m, or a block with at least one zone, or with rules_file and the name of a file with rules; or write rules_file into the global option"))
		}
	}
	if err := handler.checkAlike(h); err != nil {
		return nil, err
	}
	if err := handler.checkFits(globalApp(h)); err != nil {
		return nil, err
	}
	if matcherSet == nil && h.IsNamedRoute() {
		// Caddy joins handlers without a matcher into one route, and takes only the first handler of a named route that has a
		// single route: next to header the limit would be lost silently. An empty matcher set matches all requests, and is never
		// joined.
		matcherSet = caddy.ModuleMap{}
	}
	return h.NewRoute(matcherSet, handler), nil
}

// globalApp returns what the global option has.
func globalApp(h httpcaddyfile.Helper) *App {
	app := new(App)
	if option, ok := h.Option("rate_limit").(httpcaddyfile.App); ok {
		_ = json.Unmarshal(option.Value, app) // which the option's parser has made
	}
	return app
}

// checkFits refuses a zone that does not fit the store in which the handler counts. openZone.provision does the same, but does not know the place any more.
func (h *Handler) checkFits(global *App) error {
	fits := core.FitsMemory
	switch store := cmp.Or(stores.StoreName(h.StoreRaw), stores.StoreName(global.StoreRaw), stores.MemoryName); {
	case store == "storage" || h.Distributed != nil:
		fits = blobstore.Fits
	case store != stores.MemoryName:
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(h.written)) {
		zone := h.written[name]
		for _, r := range zone.Rule.Limits.Rules() {
			if err := fits(r); err != nil {
				setting := "consistency"
				if r.LeasesFromHome() {
					setting = "regions"
				}
				return syntax.ErrorAt(zone.PlaceOf(setting), fmt.Errorf("zone %q: %w", name, err))
			}
		}
	}
	return nil
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens: a short form, or a block. The manual's page on Caddy has the syntax of both.
//
//	rate_limit [<matcher>] <requests>/<period> [<key>]
//
// In the short form the zone's name is made from its matcher and key. The default key is {client_ip}. Without any zone or
// rules_file, the handler uses the rules_file of the global option.
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return h.unmarshalCaddyfile(d, "")
}

func (h *Handler) unmarshalCaddyfile(d *caddyfile.Dispenser, matcher string) error {
	d.Next() // the directive's name
	h.RateLimits = make(map[string]*syntax.Zone)
	h.written = make(map[string]*syntax.WrittenZone)
	args := d.RemainingArgs()
	if len(args) > 0 {
		if err := h.shortForm(d, matcher, args); err != nil {
			return err
		}
		if syntax.OpensBlock(d) {
			return d.Errf("rate_limit: the short form %q takes no block; write the limit in a zone of the block, as limit %s", args[0], args[0])
		}
		return nil
	}
	at, err := syntax.ReadBlock(d, "rate_limit", h.settings(), func(word string) error {
		if why := syntax.Refusal(word, "take the line out"); why != "" {
			return d.Errf("rate_limit: %s", why)
		}
		if slices.Contains(syntax.ZoneWords(), word) {
			return d.Errf("rate_limit: %s belongs in a zone's block, not beside the zones", word)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if word, err := h.checkEffect(); err != nil {
		return syntax.ErrorAt(at[word], syntax.InCaddyfile.Write(err))
	}
	return nil
}

// shortForm reads <requests>/<period> [<key>].
func (h *Handler) shortForm(d *caddyfile.Dispenser, matcher string, args []string) error {
	if len(args) > 2 {
		args = append(syntax.JoinDay(args[:3]), args[3:]...)
	}
	if err := syntax.InWords(args); err != nil {
		return d.Errf("rate_limit: %v", err)
	}
	if len(args) > 2 {
		return d.Errf("rate_limit: too many arguments: %q; write rate_limit [<matcher>] <requests>/<period> [<key>]", args[2])
	}
	if args[0] == "zone" {
		return d.Errf("rate_limit: a zone belongs in a block, on a line of its own: write rate_limit {, then zone %s { with its limit, and two }", strings.Join(append(args[1:], "<name>")[:1], ""))
	}
	zone := &syntax.Zone{Key: syntax.ClientIPPlaceholder}
	var c rate.LimitConfig
	if err := rate.ParseLimit(args[0], &c); err != nil {
		return d.Errf("rate_limit: %v", err)
	}
	zone.Requests, zone.Period = c.Requests, syntax.PeriodOf(args[0])
	if len(args) == 2 {
		if !syntax.HasPlaceholder(args[1]) {
			hint := "write one such as {client_ip}"
			if strings.HasPrefix(args[1], "/") || strings.HasPrefix(args[1], "@") {
				hint = fmt.Sprintf("write a matcher in front of the limit: rate_limit %s %s", args[1], args[0])
			}
			return d.Errf("rate_limit: the key %q has no placeholder, so all clients would share one counter; %s", args[1], hint)
		}
		zone.Key = args[1]
	}
	name := shortName(matcher, zone.Key)
	compiled, err := zone.Compile(name, "")
	if err != nil {
		return d.WrapErr(syntax.InCaddyfile.Write(err))
	}
	h.RateLimits[name], h.written[name] = zone, &syntax.WrittenZone{CompiledZone: compiled, At: d.Token()}
	return nil
}

// shortName makes the name of a short form's zone from its matcher and key. It does not depend on the limit or the place, so
// counters survive changes of those. For example, /login* is login-all. If different matchers or keys could have the same readable
// name, a digest keeps them apart. The same goes for named matchers of different sites, whose definitions are part of the matcher.
func shortName(matcher, key string) string {
	readable := strings.TrimSuffix(strings.TrimPrefix(key, "{"), "}")
	for _, prefix := range []string{"http.vars.", "http.request."} {
		readable = strings.TrimPrefix(readable, prefix)
	}
	literal := true // no other matcher has the same readable name
	if matcher != "" && matcher != "*" {
		word := strings.TrimPrefix(matcher, "/")
		if named := strings.TrimPrefix(matcher, "@"); named != matcher {
			word, _, _ = strings.Cut(named, "{")
		} else if prefix := strings.TrimSuffix(word, "*"); prefix != word && words.CheckName(prefix) == nil {
			word = prefix + "-all"
		} else {
			literal = !strings.HasSuffix(word, "-all")
		}
		readable = word + "." + readable
	}
	clean := strings.Map(func(r rune) rune {
		if r < 128 && words.CheckName(string(r)) == nil {
			return r
		}
		return '_'
	}, readable)
	if clean == readable && literal && len(clean) <= 64 && !strings.HasPrefix(matcher, "@") {
		return clean
	}
	digest := fnv.New32a()
	_, _ = digest.Write([]byte(matcher + " " + key))
	if len(clean) > 55 {
		clean = clean[:55]
	}
	return fmt.Sprintf("%s-%08x", clean, digest.Sum32())
}

// settings returns the lines that the handler's block may have.
func (h *Handler) settings() []syntax.Setting {
	return []syntax.Setting{
		{Word: "zone", To: h.zone, Often: true},
		{Word: "rules_file", To: rulesFiles(&h.RulesFiles), Often: true},
		syntax.DurationTo("rules_interval", &h.RulesInterval, "1s", "1h"),
		{Word: "domain", To: &h.Domain},
		{Word: "descriptor", To: h.descriptor, Often: true},
		{Word: "namespace", To: &h.Namespace, Check: checkNamespace},
		{Word: "store", To: h.ownStore},
		{Word: "distributed", To: h.distributed},
		{Word: "storage", To: func(d *caddyfile.Dispenser) error { return stores.ReadStorage(d, "", &h.StorageRaw) }},
		{Word: "headers", To: h.headers},
		{Word: "header_prefix", To: &h.HeaderPrefix},
		{Word: "header_reset", To: &h.HeaderReset},
		{Word: "cors", To: func(d *caddyfile.Dispenser) error {
			h.CORS = new(syntax.CORS)
			return h.CORS.Read(d)
		}},
		syntax.WordTo("response", &h.Response, "auto", "direct", "error_routes"),
		{Word: "message", To: &h.Message},
		{Word: "jitter", To: &h.Jitter, Most: 10, Must: "a fraction from 0 to 10, such as 0.2 for up to 20 %"},
		syntax.DurationTo("sweep_interval", &h.SweepInterval, "1s", "1d"),
		{Word: "log_key", To: &h.LogKey},
		syntax.WordTo("log_level", &h.LogLevel, "debug", "info", "warn", "error", "off"),
		syntax.DurationTo("log_interval", &h.LogInterval, "1s", "1h"),
		{Word: "trace", To: &h.Trace},
		{Word: "guard", To: func(d *caddyfile.Dispenser) error {
			h.Guard = new(protect.Guard)
			return h.Guard.Read(d)
		}},
	}
}

func checkNamespace(namespace string) error {
	if err := words.CheckName(namespace); err != nil {
		return fmt.Errorf("namespace: %w", err)
	}
	return nil
}

// rulesFiles returns a function that reads the names of rule files.
func rulesFiles(to *[]string) func(d *caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		args := d.RemainingArgs()
		if len(args) == 0 || slices.Contains(args, "") {
			return d.Err("rules_file: is empty; write the path of a file, or a glob such as /etc/caddy/rules/*.yaml")
		}
		for _, arg := range args {
			if slices.Contains(*to, arg) {
				return d.Errf("rules_file %s: duplicate; keep one", arg)
			}
			*to = append(*to, arg)
		}
		return syntax.NoBlock(d, "", "rules_file")
	}
}

// zone reads zone <name> { ... }.
func (h *Handler) zone(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 1 {
		return d.Errf("zone: takes one name, not %d", len(args))
	}
	name := args[0]
	if err := words.CheckName(name); err != nil {
		return d.Errf("zone: %v", err)
	}
	if first := h.written[name]; first != nil {
		return d.Errf("zone %q: duplicate name, first at %s; remove or rename one", name, syntax.PlaceOf(first.At))
	}
	zone, err := syntax.ReadZone(d, name, syntax.WordsOf(h.settings()))
	if err != nil {
		return err
	}
	h.RateLimits[name], h.written[name] = zone.Zone, zone
	if zone.Defer != nil {
		if _, _, err := syntax.DeferringZone(h.RateLimits); err != nil {
			return syntax.ErrorAt(zone.PlaceOf("defer"), err)
		}
	}
	return nil
}

// headers reads which header fields the handler sets.
func (h *Handler) headers(d *caddyfile.Dispenser) error {
	h.Headers = d.RemainingArgs()
	if len(h.Headers) == 0 {
		return d.Err("headers: is empty; write x_ratelimit, ietf, both of them, or none")
	}
	if _, err := answer.ParseFields(h.Headers); err != nil {
		return d.WrapErr(err)
	}
	return syntax.NoBlock(d, "", "headers")
}

// descriptor reads <key> <placeholder> [<key> <placeholder>...].
func (h *Handler) descriptor(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) == 0 || len(args)%2 != 0 {
		return d.Errf("descriptor: takes keys, each with a placeholder behind it, such as message_type {header.X-Message-Type}, not %d values", len(args))
	}
	var entries []DescriptorEntry
	for i := 0; i < len(args); i += 2 {
		if args[i] == "" || args[i+1] == "" {
			return d.Err("descriptor: has an empty key or value; write a text or a placeholder")
		}
		if syntax.HasPlaceholder(args[i]) {
			return d.Errf("descriptor %s: the key is a text, as the rule files have it; its placeholder follows it", args[i])
		}
		if _, err := syntax.NewValue(args[i+1]); err != nil {
			return d.Errf("descriptor %s: key %q: %w", args[i], args[i+1], err)
		}
		entries = append(entries, DescriptorEntry{args[i], args[i+1]})
	}
	h.Descriptors = append(h.Descriptors, entries)
	return syntax.NoBlock(d, "", "descriptor")
}

// ownStore reads the store of one handler. It cannot have settings that all handlers share.
func (h *Handler) ownStore(d *caddyfile.Dispenser) error {
	line := d.Token()
	raw, err := stores.ParseStore(d)
	if err != nil {
		return err
	}
	var memory struct {
		Store   string `json:"store"`
		MaxKeys int    `json:"max_keys"`
	}
	if json.Unmarshal(raw, &memory) == nil && memory.Store == "memory" && memory.MaxKeys != 0 {
		return syntax.ErrorAt(line, errors.New("store memory: max_keys is set in the global rate_limit option, since there is one memory for all handlers"))
	}
	h.StoreRaw = raw
	return nil
}

// Interface guard
var _ caddyfile.Unmarshaler = (*Handler)(nil)

// parseGlobalOption reads the global option rate_limit.
func parseGlobalOption(d *caddyfile.Dispenser, existing any) (any, error) {
	d.Next() // the option's name
	if existing != nil {
		return nil, d.Err("rate_limit: duplicate global option; keep one")
	}
	app := &App{}
	if args := d.RemainingArgs(); len(args) > 0 {
		return nil, d.Errf("rate_limit: the global option takes a block, not %q; limits are written in sites", args[0])
	}
	line := d.Token()
	settings := app.settings()
	_, err := syntax.ReadBlock(d, "rate_limit", settings, func(word string) error {
		if word == "zone" {
			return d.Err("rate_limit: zones are written in sites; the global option says what they share")
		}
		return syntax.UnknownWord(d, "the global option rate_limit", word, syntax.WordsOf(settings))
	})
	if err != nil {
		return nil, err
	}
	if app.StoreRaw == nil && len(app.RulesFiles) == 0 && app.RulesInterval == 0 && app.ExceptionsFile == "" && app.Advisor == nil {
		return nil, syntax.ErrorAt(line, errors.New("rate_limit: the global option is empty; write a store, a rules_file, an exceptions_file or an advisor in it, or take it out"))
	}
	return httpcaddyfile.App{Name: "rate_limit", Value: caddyconfig.JSON(app, nil)}, nil
}

// settings returns the lines that the global option may have.
func (a *App) settings() []syntax.Setting {
	return []syntax.Setting{
		{Word: "store", To: func(d *caddyfile.Dispenser) (err error) {
			a.StoreRaw, err = stores.ParseStore(d)
			return err
		}},
		{Word: "rules_file", To: rulesFiles(&a.RulesFiles), Often: true},
		syntax.DurationTo("rules_interval", &a.RulesInterval, "1s", "1h"),
		{Word: "exceptions_file", To: &a.ExceptionsFile},
		{Word: "advisor", To: func(d *caddyfile.Dispenser) error {
			a.Advisor = new(adapt.Advisor)
			return a.Advisor.Read(d)
		}},
	}
}

// distributed reads caddy-ratelimit's distributed { … }.
func (h *Handler) distributed(d *caddyfile.Dispenser) error {
	if args := d.RemainingArgs(); len(args) > 0 {
		return d.Errf("distributed: takes a block or nothing, not %q", args[0])
	}
	var s stores.StorageStore
	_, err := syntax.ReadBlock(d, "distributed", s.Settings(), nil)
	h.Distributed = &stores.Distributed{ReadInterval: s.ReadInterval, WriteInterval: s.WriteInterval, PurgeAge: s.PurgeAge}
	return err
}

// check says what is wrong with the handler's own fields.
func (h *Handler) check() error {
	if _, err := h.checkEffect(); err != nil {
		return syntax.InJSON.Write(err)
	}
	return syntax.CheckFields(h.settings())
}

// readFields reads which quota fields responses have, and in which form. The error is a words.Mistake.
func (h *Handler) readFields() (err error) {
	if h.fields, err = answer.ParseFields(h.Headers); err != nil {
		return err
	}
	return answer.SetForm(&h.fields, h.HeaderPrefix, h.HeaderReset)
}

// readCORS reads which pages may read answers. The error is a words.Mistake.
func (h *Handler) readCORS() (err error) {
	if h.CORS == nil {
		return nil
	}
	exposed := answer.Names(h.fields)
	for _, z := range h.RateLimits {
		if z != nil && z.Defer != nil {
			exposed = append(exposed, "Location", "Preference-Applied")
		}
	}
	h.cors, err = front.NewCORS(h.CORS.Origins, h.CORS.Credentials, exposed)
	return err
}

// checkEffect says which of the handler's settings, a word of the Caddyfile, has no effect beside the others. The error is a words.Mistake.
func (h *Handler) checkEffect() (word string, err error) {
	for _, c := range []struct {
		said             bool
		word, value, why string
	}{
		{h.Domain != "" && len(h.Descriptors) == 0, "domain", strconv.Quote(h.Domain), "has no effect without a descriptor; write how a request becomes one: `descriptor <key> {header.X-Key}`"},
		{h.Message != "" && h.Response == "error_routes", "message", "", "has no effect with response error_routes, since the error routes answer; write the text there, or take one out"},
		{h.LogKey && h.LogLevel == "off", "log_key", "", "has no effect with log_level off; take one out"},
		{h.LogInterval != 0 && h.LogLevel == "off", "log_interval", "", "has no effect with log_level off; take one out"},
	} {
		if c.said {
			return c.word, words.Wrong(c.word, c.value, c.why)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.RateLimits)) {
		if z := h.RateLimits[name]; z != nil && z.Answer != nil && z.Answer.Complete() && h.Response == "error_routes" {
			return "response", words.Wrong("response", `"error_routes"`, "the error routes answer all rejections, and the zone %q has an answer; leave one of them out", name)
		}
	}
	if err := h.readFields(); err != nil {
		return words.Of(err).At[0].Name, err
	}
	return "cors", h.readCORS()
}
