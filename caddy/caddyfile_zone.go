package ratelimit

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/ruleset"
	"github.com/proxyweir/weir/words"
)

// zoneWords are the words of a zone: the schema's, but for a few that are written in another way.
var zoneWords = func() []string {
	var list []string
	for _, field := range ruleset.Names("rule") {
		switch field {
		case "name":
		case "match":
			list = append(list, "match", "except")
		case "overrides":
			list = append(list, "override")
		default:
			list = append(list, field)
		}
	}
	return append(list, "events", "window")
}()

// zoneBlock is a zone's block while it is read.
type zoneBlock struct {
	*caddyfile.Dispenser
	zone  *Zone
	where string                     // in front of errors: the zone's name
	at    map[string]caddyfile.Token // where each word stands, and in it each member or item: as the path of a ruleset.FieldError
}

// zone reads a zone's block.
func (h *Handler) zone(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 1 {
		return d.Errf("zone: takes one name, not %d", len(args))
	}
	name := args[0]
	if err := words.CheckName(name); err != nil {
		return d.Errf("zone: %v", err)
	}
	if h.RateLimits[name] != nil {
		return d.Errf("zone %q: is defined twice, first at %s; keep one, or rename one", name, placeOf(h.places[name]))
	}
	b := &zoneBlock{Dispenser: d, zone: &Zone{}, where: fmt.Sprintf("zone %q: ", name), at: make(map[string]caddyfile.Token)}
	line := d.Token()
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		if _, twice := b.at[word]; twice && word != "match" && word != "override" && word != "except" {
			return d.Errf("%s%s is set twice", b.where, word)
		}
		b.at[word] = d.Token()
		if err := b.subdirective(word); err != nil {
			return err
		}
	}
	if err := b.zone.compile(name, ""); err != nil {
		return errorAt(b.lineOf(err, line), errors.New(inCaddyfile.Replace(err.Error())))
	}
	h.RateLimits[name], h.places[name] = b.zone, line
	return nil
}

// lineOf finds the word that an error is about. Which fields go together is known at the zone's end only, but the error is told at the
// line of the word.
func (b *zoneBlock) lineOf(err error, otherwise caddyfile.Token) caddyfile.Token {
	var wrong *ruleset.FieldError
	if !errors.As(err, &wrong) {
		return otherwise
	}
	for n := len(wrong.Path); n > 0; n-- {
		if token, ok := b.at[strings.Join(wrong.Path[:n], ".")]; ok {
			return token
		}
	}
	for _, word := range fieldWords[wrong.Path[0]] {
		if token, ok := b.at[word]; ok {
			return token
		}
	}
	return otherwise
}

// fieldWords has the words of the Caddyfile for the fields that are called otherwise there.
var fieldWords = map[string][]string{
	"requests": {"limit"}, "period": {"limit"}, "unlimited": {"limit"}, "overrides": {"override"}, "max_events": {"events", "window"}, "window": {"window", "events"},
	"limit": {"events", "window"}, "match": {"except"}, "algorithm": {"events"},
}

// subdirective reads one subdirective of a zone.
func (b *zoneBlock) subdirective(word string) error {
	z := b.zone
	switch word {
	case "match":
		return b.match()
	case "except":
		networks := b.RemainingArgs()
		if len(networks) == 0 {
			return b.Errf("%sexcept: is empty; write addresses, networks such as 10.0.0.0/8, or private_ranges", b.where)
		}
		z.Except = append(z.Except, networks...)
		return noBlock(b.Dispenser, b.where, word)
	case "tiers":
		return b.tiers()
	case "override":
		args := b.RemainingArgs()
		if len(args) < 2 {
			return b.Errf("%soverride: takes a key and its limit, such as override 192.0.2.1 1000/1m", b.where)
		}
		b.at["overrides."+strconv.Itoa(len(z.Overrides))] = b.Token()
		z.Overrides = append(z.Overrides, Override{Key: args[:len(args)-1], Limit: args[len(args)-1]})
		return noBlock(b.Dispenser, b.where, word)
	case "limit":
		return oneArg(b.Dispenser, b.where, func(s string) error {
			if s == ruleset.Unlimited {
				z.Unlimited = true
				return nil
			}
			var c core.LimitConfig
			err := core.ParseLimit(s, &c)
			z.Requests, z.Period = c.Requests, periodOf(s)
			return err
		})
	case "candidate":
		return b.candidate()
	}
	f := ruleset.FieldOf("rule", word)
	switch {
	case word == "events":
		f = &ruleset.Field{Name: "max_events", Least: 1, Most: core.MaxRequests}
	case word == "window":
		return oneArg(b.Dispenser, b.where, func(s string) error {
			window, err := caddy.ParseDuration(s)
			if z.Window = caddy.Duration(window); err != nil || window <= 0 {
				return fmt.Errorf("window %q: must be a duration such as 10s, and at most 366d", s)
			}
			return nil
		})
	case f == nil || !slices.Contains(zoneWords, word):
		if slices.Contains(handlerWords, word) {
			return b.Errf("%s%s stands beside the zones, in the block of rate_limit", b.where, word)
		}
		return unknownWord(b.Dispenser, strings.TrimSuffix(b.where, ": "), word, zoneWords)
	}
	return setField(b.Dispenser, b.where, f, reflect.ValueOf(z).Elem())
}

// setField reads the value of a subdirective into the field of a struct that has the name of f in JSON. What a text says is checked when
// all is read; a number that is none could not be kept.
func setField(d *caddyfile.Dispenser, where string, f *ruleset.Field, into reflect.Value) error {
	word := d.Val()
	field := into.Field(slices.Index(fieldNames(into.Type()), f.Name))
	switch {
	case field.Kind() == reflect.Bool:
		field.SetBool(true)
		return noArg(d, where)
	case field.Kind() == reflect.Slice:
		field.Set(reflect.ValueOf(ruleset.SplitWords(d.RemainingArgs())))
		return noBlock(d, where, word)
	case f.Name == "enforcement": // which may be several words
		field.SetString(strings.Join(d.RemainingArgs(), " "))
		if field.String() == "" {
			return d.Errf("%senforcement: is empty; write hard, shadow, or soft with a percentage and a duration, such as soft 20%% 30s", where)
		}
		return noBlock(d, where, word)
	}
	return oneArg(d, where, func(s string) error {
		if field.Kind() == reflect.String {
			field.SetString(s)
			return nil
		}
		n, err := strconv.ParseInt(s, 10, 64)
		least, most := fmt.Sprint("a whole number from ", f.Least), fmt.Sprint(f.Most)
		if field.Type() == reflect.TypeFor[caddy.Duration]() {
			var v time.Duration
			v, err = caddy.ParseDuration(s)
			n, least, most = int64(v), "a duration from "+ruleset.Shortly(time.Duration(f.Least)), ruleset.Shortly(time.Duration(f.Most))
		}
		if err != nil || n < f.Least || n > f.Most {
			return fmt.Errorf("%s %q: must be %s to %s", word, s, least, most)
		}
		field.SetInt(n)
		return nil
	})
}

// tiers reads the block of a zone's limits by a value.
func (b *zoneBlock) tiers() error {
	args := b.RemainingArgs()
	if len(args) != 1 {
		return b.Errf("%stiers: takes one placeholder, such as {http.auth.user.plan}, and a block of limits, not %d values", b.where, len(args))
	}
	t := &Tiers{Source: args[0], Limits: make(map[string]string)}
	b.zone.Tiers = t
	for nesting := b.Nesting(); b.NextBlock(nesting); {
		value := b.Val()
		limits := b.RemainingArgs()
		if len(limits) != 1 {
			return b.Errf("%stiers: a line has a value and its limit, such as pro 1000/1m", b.where)
		}
		if _, twice := t.Limits[value]; twice {
			return b.Errf("%stiers: %q is there twice; keep one", b.where, value)
		}
		b.at["tiers.limits."+value] = b.Token()
		t.Limits[value] = limits[0]
	}
	return nil
}

// candidate reads the block of a zone's candidate.
func (b *zoneBlock) candidate() error {
	if args := b.RemainingArgs(); len(args) > 0 {
		return b.Errf("%scandidate: takes a block with limit %s in it, not a value", b.where, args[0])
	}
	b.zone.Candidate = &Candidate{}
	where := b.where + "candidate: "
	for nesting := b.Nesting(); b.NextBlock(nesting); {
		word := b.Val()
		if _, twice := b.at["candidate."+word]; twice {
			return b.Errf("%s%s is set twice", where, word)
		}
		b.at["candidate."+word] = b.Token()
		f := ruleset.FieldOf("candidate", word)
		if f == nil {
			return unknownWord(b.Dispenser, strings.TrimSuffix(where, ": "), word, ruleset.Names("candidate"))
		}
		if err := setField(b.Dispenser, where, f, reflect.ValueOf(b.zone.Candidate).Elem()); err != nil {
			return err
		}
	}
	return nil
}

// match reads a zone's matchers; several blocks are alternatives.
func (b *zoneBlock) match() error {
	segment := b.NextSegment()
	// Caddy tells of an unknown matcher at the end of the block, so the names are looked at first.
	names := caddyfile.NewDispenser(segment)
	names.Next()
	for nesting := names.Nesting(); names.NextArg() || names.NextBlock(nesting); {
		if names.Token().Quoted() {
			continue // an expression
		}
		if _, err := caddy.GetModule("http.matchers." + names.Val()); err != nil {
			return names.Errf("%smatch: there is no matcher %q; write one such as path /login or method POST", b.where, names.Val())
		}
		names.NextSegment()
	}
	matchers := caddyfile.NewDispenser(segment)
	matchers.Next()
	set, err := caddyhttp.ParseCaddyfileNestedMatcherSet(matchers)
	if err != nil {
		return fmt.Errorf("%smatch: %w", b.where, err)
	}
	if len(set) == 0 {
		return errorAt(segment[0], fmt.Errorf("%smatch: is empty; write matchers in it, or leave it out to cover all requests", b.where))
	}
	b.zone.MatcherSetsRaw = append(b.zone.MatcherSetsRaw, set)
	return nil
}

// periodOf returns the period in "<requests>/<period>".
func periodOf(limit string) string {
	_, period, _ := strings.Cut(limit, "/")
	return period
}
