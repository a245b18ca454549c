package ratelimit

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/admin"
	"github.com/proxyweir/weir/caddy/page"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/words"
)

func init() {
	caddy.RegisterModule(new(Status))
	caddy.RegisterModule(new(Decide))
}

// namedRules are the rules that a handler names whose clients see how they stand.
type namedRules struct {
	// The names of the rules: of zones, of rules in files, or of descriptors; in a namespace a name is written `namespace/name`.
	// Required: a client must not learn about another site's rules, or use keys that only that site's own handlers make. A name
	// without a rule is refused; with rule files, which can change, it is only logged as a warning.
	Rules []string `json:"rules,omitempty"`

	directive string // of the handler
	app       *App
	wanted    map[string]bool
	missing   map[string]bool                               // the names that were warned of
	active    atomic.Pointer[map[string]*report.ActiveRule] // those of wanted that are there, by name
	logger    *zap.Logger
}

// Status answers a client with its own quotas, as JSON, at no cost:
//
//	{"quotas":[{"name":"everyone","limit":300,"remaining":297,"reset":41}]}
//
// Limit and remaining are in requests, or in units if requests have a cost; reset is the time in seconds until the whole quota is
// available again. If the client is over the limit, `retry_after` is the time in seconds until it may try again. The rules make the
// keys from the status request as from every other request. The handler ignores which requests a rule covers by path, method and
// the like, and honours its `except`. Shadow rules, and rules without a limit for the client, are left out. The answer is only
// about the caller's own keys.
//
// It runs before `rate_limit` unless the order of directives is changed. If a key depends on the authenticated user, put the
// handler behind the authentication.
type Status struct {
	namedRules
}

// namedFor says what a directive names rules for, and has an example of its path.
var namedFor = map[string]struct{ whose, path string }{
	"rate_limit_status": {"whose quotas clients may read", "/quota"},
	"rate_limit_decide": {"that applications may ask about", "/rate_limit/decide"},
}

// CaddyModule returns the Caddy module information.
func (*Status) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.rate_limit_status",
		New: func() caddy.Module { return new(Status) },
	}
}

// Provision registers the handler with the app, which checks the rules' names when all rules are known.
func (s *Status) Provision(ctx caddy.Context) error {
	return s.provision(ctx, "rate_limit_status")
}

func (s *namedRules) provision(ctx caddy.Context, directive string) error {
	s.directive = directive
	app, err := ctx.App("rate_limit")
	if err != nil {
		return err
	}
	s.app = app.(*App)
	s.logger = ctx.Logger()
	if len(s.Rules) == 0 {
		return fmt.Errorf(`%s: names no rule; write those %s: "rules": ["everyone"]`, directive, namedFor[directive].whose)
	}
	s.wanted = make(map[string]bool)
	for _, name := range s.Rules {
		if err := checkLabel(name); err != nil {
			return err
		}
		s.wanted[name] = true
	}
	s.app.named = append(s.app.named, s)
	return s.checkAhead(ctx)
}

// checkAhead returns an error for the handler's names that no rule will have, so that `caddy validate` reports them although it
// starts nothing; see checkNamed. A rule may belong to a handler that is not provisioned yet, here or on another server.
// checkAhead reads those from the configuration. If rule files are in use, or the handler is not in Caddy's HTTP app, nothing is
// known yet.
func (s *namedRules) checkAhead(ctx caddy.Context) error {
	a := s.app
	if !a.lookedAhead {
		a.lookedAhead = true
		a.ahead = labelsIn(syntax.ServersIn(ctx))
	}
	if a.ahead == nil || len(a.files.groups) > 0 {
		return nil
	}
	known := slices.AppendSeq(report.LabelsOf(a.activeRules()), maps.Keys(a.ahead))
	slices.Sort(known)
	return s.check(slices.Compact(known))
}

// labelsIn returns the labels of the zones of those handlers that have not been provisioned yet: Caddy discards the JSON of the
// others. It returns nil if there are no servers, or a handler uses rule files.
func labelsIn(servers map[string]*caddyhttp.Server) map[string]bool {
	text, err := json.Marshal(servers)
	known := err == nil && servers != nil
	labels := make(map[string]bool)
	eachHandler("", text, func(_ string, h *Handler) {
		if len(h.RateLimits) == 0 || h.RulesFiles != nil || h.Descriptors != nil {
			known = false
			return
		}
		for name := range h.RateLimits {
			labels[metrics.LabelOf(h.Namespace, name)] = true
		}
	})
	if !known {
		return nil
	}
	return labels
}

// check returns an error for the handler's names that no rule has.
func (s *namedRules) check(known []string) error {
	for _, name := range s.Rules {
		if err := words.CheckWord(s.directive+": rule", name, known); err != nil {
			if len(known) == 0 {
				return fmt.Errorf("%s: rule %q: there is none in the configuration", s.directive, name)
			}
			return err
		}
	}
	return nil
}

// advise warns of the names that no rule has at present, once for as long as that is so.
func (s *namedRules) advise(known []string) {
	missing := make(map[string]bool)
	for _, name := range s.Rules {
		if slices.Contains(known, name) {
			continue
		}
		missing[name] = true
		if s.missing[name] {
			continue
		}
		fields := []zap.Field{zap.String("rule", name)}
		if near := words.Nearest(name, known); near != "" {
			fields = append(fields, zap.String("did_you_mean", near))
		}
		s.logger.Warn(s.directive+" names a rule that neither the configuration nor its rule files have; clients cannot read its quota", fields...)
	}
	s.missing = missing
}

// checkNamed tells the handlers that name rules which rules there are, and returns an error for the names that none has. With rule
// files it only warns: an edit may remove a rule, and the configuration must still load afterwards.
func (a *App) checkNamed() error {
	if len(a.named) == 0 {
		return nil
	}
	rules := a.activeRules()
	for _, n := range a.named {
		if err := n.checkKnown(report.LabelsOf(rules)); err != nil {
			return err
		}
		n.learn(rules)
	}
	return nil
}

// learn keeps those of some rules that the handler names, and returns them by name.
func (s *namedRules) learn(rules []*report.ActiveRule) *map[string]*report.ActiveRule {
	active := make(map[string]*report.ActiveRule)
	for _, rule := range rules {
		if s.wanted[rule.Label] {
			active[rule.Label] = rule
		}
	}
	s.active.Store(&active)
	return &active
}

// checkKnown returns an error for the handler's names that no rule has, or with rule files warns of them.
func (s *namedRules) checkKnown(known []string) error {
	if len(s.app.files.groups) > 0 {
		s.advise(known)
		return nil
	}
	return s.check(known)
}

// ServeHTTP answers the request.
func (s *Status) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	header := w.Header()
	if cors := s.cors(); cors != nil {
		entered := cors.Enter(header, r)
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" { // a preflight, which the service answers
			if entered {
				cors.Leave(header)
			}
			return next.ServeHTTP(w, r)
		}
	}
	header.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		return s.answer(w, r, http.StatusMethodNotAllowed, []byte(`{"error":"only GET and HEAD are answered here"}`+"\n"))
	}
	if r.TLS != nil && !r.TLS.HandshakeComplete { // as in Handler
		return s.answer(w, r, http.StatusTooEarly, []byte(`{"error":"the TLS handshake is not complete"}`+"\n"))
	}
	checks, err := s.look(r)
	if err != nil {
		s.logger.Debug("a client's quotas could not be read", zap.Error(err))
		answer.SetRetryAfter(header, 0)
		return s.answer(w, r, http.StatusServiceUnavailable, []byte(`{"error":"the rate limits cannot be checked; try again"}`+"\n"))
	}
	return s.answer(w, r, http.StatusOK, answer.AppendQuotas(nil, checks, &core.Verdict{Reported: -1}))
}

func (s *Status) answer(w http.ResponseWriter, r *http.Request, status int, body []byte) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // fails if the client has gone
	}
	return nil
}

// cors returns the cors of the handlers whose rules are shown; nil: one of them has none, or they differ.
func (s *Status) cors() *front.CORS {
	var first *Handler
	for _, h := range s.app.handlers {
		asked, rules := h.wanted(s.wanted)
		if len(rules) == 0 && !asked.HasDescriptors() {
			continue
		}
		if h.cors == nil || first != nil && !reflect.DeepEqual(first.CORS, h.CORS) {
			return nil
		}
		if first == nil {
			first = h
		}
	}
	if first == nil {
		return nil
	}
	return first.cors
}

// look returns the state of the caller in the wanted rules.
func (s *Status) look(r *http.Request) ([]core.Check, error) {
	type counted struct {
		label   string
		limiter *stores.Limiter
	}
	var all []core.Check
	seen := make(map[counted]bool) // a rule that was seen in another handler
	for _, h := range s.app.handlers {
		checks := slices.DeleteFunc(h.quotas(r, s.wanted), func(c core.Check) bool {
			label := report.Of(&c).Stats.Label
			return !s.wanted[label] || seen[counted{label, h.limiter}] // the first label: that of descriptors
		})
		var v core.Verdict
		if err := h.limiter.Look(checks, &v); err != nil {
			return nil, err
		}
		front.SetQuotasLater(checks, r, h.jitter())
		for i := range checks {
			seen[counted{report.Of(&checks[i]).Stats.Label, h.limiter}] = true
		}
		all = append(all, checks...)
	}
	return tightest(all), nil
}

// tightest returns one check for each rule: that with the least remaining. Descriptors and several stores can give a rule several
// checks.
func tightest(checks []core.Check) []core.Check {
	var kept []core.Check
	for _, c := range inRows(checks) {
		same := slices.IndexFunc(kept, func(k core.Check) bool {
			return k.Rule.Namespace == c.Rule.Namespace && k.Rule.Policy() == c.Rule.Policy() && k.Rule.Shadow == c.Rule.Shadow
		})
		if same < 0 {
			kept = append(kept, c)
		} else if c.Decision.Remaining < kept[same].Decision.Remaining {
			kept[same] = c
		}
	}
	return kept
}

// inRows returns the checks, each followed by that of its rule's concurrency.
func inRows(checks []core.Check) []core.Check {
	var rows []core.Check
	for i := range checks {
		for c := &checks[i]; c != nil; c = c.InFlight {
			rows = append(rows, *c)
			rows[len(rows)-1].InFlight = nil
		}
	}
	return rows
}

// quotas returns a check for each wanted rule that applies to the client, whatever it requests, and for the limits of descriptors.
// It first finds out which rules are wanted, since there may be thousands of others.
func (h *Handler) quotas(r *http.Request, wanted map[string]bool) []core.Check {
	asked, rules := h.wanted(wanted)
	q := new(front.Evaluation)
	front.Quotas(asked, rules, math.MaxInt, q, r, syntax.ClientIPOf(r))
	return q.Checks
}

// wanted returns the handler's rules in force, and which of them are wanted.
func (h *Handler) wanted(wanted map[string]bool) (asked *front.Set, rules []*front.Rule) {
	asked = h.asked
	if files := h.files.Load(); files != nil {
		asked = files.asked
	}
	names := make(map[string]bool)
	for label := range wanted {
		names[strings.TrimPrefix(label, metrics.LabelOf(h.Namespace, ""))] = true
	}
	for _, list := range [][]*front.Rule{asked.Own, asked.Files} {
		for _, rule := range list {
			if names[rule.Ruled.Name] {
				rules = append(rules, rule)
			}
		}
	}
	return asked, rules
}

// Decide answers an application that asks whether a request of a key is within a rule's limit, and charges it:
//
//	POST {"rule":"mails","key":"anna","cost":3}
//	{"allowed":true,"limit":100,"remaining":97,"reset":12.4}
//
// Times are in seconds. `retry_after` is when to ask again, if it is not allowed and can be; `delay` is how long to wait if it is. A list
// of up to 100 is answered by a list, each by itself. Whoever reaches the handler can use up any key's quota under the rules: put
// authentication, or a matcher of addresses, in front of it.
type Decide struct {
	namedRules
}

// CaddyModule returns the Caddy module information.
func (*Decide) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.handlers.rate_limit_decide",
		New: func() caddy.Module { return new(Decide) },
	}
}

// Provision registers the handler with the app, as that of Status does.
func (d *Decide) Provision(ctx caddy.Context) error {
	return d.provision(ctx, "rate_limit_decide")
}

// ServeHTTP answers the request.
func (d *Decide) ServeHTTP(w http.ResponseWriter, r *http.Request, _ caddyhttp.Handler) error {
	rules := d.active.Load()
	if rules == nil { // the HTTP app has started before the rate_limit app
		rules = d.learn(d.app.activeRules())
	}
	if err := admin.ServeDecide(w, r, *rules); err != nil {
		page.Refuse(w, err)
	}
	return nil
}

// parseStatus reads a rate_limit_status directive of a site:
//
//	rate_limit_status [<matcher>] <rule names...>
func parseStatus(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	s := new(Status)
	return s, s.UnmarshalCaddyfile(h.Dispenser)
}

// parseDecide reads a rate_limit_decide directive of a site:
//
//	rate_limit_decide [<matcher>] <rule names...>
func parseDecide(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	d := new(Decide)
	return d, d.UnmarshalCaddyfile(h.Dispenser)
}

// UnmarshalCaddyfile sets up the handler from Caddyfile tokens.
func (s *namedRules) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	directive := d.Val()
	named := namedFor[directive]
	example := directive + " " + named.path + " everyone"
	for d.NextArg() {
		if err := checkLabel(d.Val()); err != nil {
			return d.WrapErr(err)
		}
		s.Rules = append(s.Rules, d.Val())
	}
	if d.NextBlock(0) {
		return d.Errf("%s: takes no block; write the rules' names behind it: %s", directive, example)
	}
	if len(s.Rules) == 0 {
		return d.Errf("%s: names no rule; write those %s behind it: %s", directive, named.whose, example)
	}
	return nil
}

// checkLabel says what is wrong with a rule's name, which may have its namespace in front.
func checkLabel(label string) error {
	namespace, name, found := strings.Cut(label, "/")
	if !found {
		return words.CheckName(label)
	}
	if err := words.CheckName(namespace); err != nil {
		return fmt.Errorf("namespace %w", err)
	}
	return words.CheckName(name)
}

// Interface guards
var (
	_ caddy.Provisioner           = (*Status)(nil)
	_ caddyhttp.MiddlewareHandler = (*Status)(nil)
	_ caddyfile.Unmarshaler       = (*Status)(nil)
	_ caddy.Provisioner           = (*Decide)(nil)
	_ caddyhttp.MiddlewareHandler = (*Decide)(nil)
)
