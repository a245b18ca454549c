package syntax

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// zoneBlock is the state while a zone's block is read.
type zoneBlock struct {
	zone  Zone
	where string                     // how errors begin: with the zone's name
	at    map[string]caddyfile.Token // the place of each word, and of each member or item in it, by the path of a words.Mistake
}

// WrittenZone is a zone of a Caddyfile, with its place and those of its words.
type WrittenZone struct {
	*CompiledZone
	At     caddyfile.Token
	places map[string]caddyfile.Token
}

// PlaceOf returns the place of a word of the zone, or that of the zone if the word is not written.
func (z *WrittenZone) PlaceOf(word string) caddyfile.Token {
	if token, ok := z.places[word]; ok {
		return token
	}
	return z.At
}

// ZoneWords returns the words that a zone's block may have.
func ZoneWords() []string { return WordsOf(new(zoneBlock).settings()) }

// ReadZone reads a zone's block. beside are the words of the block around it.
func ReadZone(d *caddyfile.Dispenser, name string, beside []string) (*WrittenZone, error) {
	b := &zoneBlock{where: fmt.Sprintf("zone %q: ", name), at: make(map[string]caddyfile.Token)}
	line := d.Token()
	at, err := ReadBlock(d, fmt.Sprintf("zone %q", name), b.settings(), func(word string) error {
		if slices.Contains(beside, word) {
			return d.Errf("%s%s belongs in the block of rate_limit, beside the zones", b.where, word)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	maps.Copy(b.at, at)
	c, err := b.zone.Compile(name, "")
	if err != nil {
		return nil, ErrorAt(b.lineOf(words.Of(err), line), InCaddyfile.Write(err))
	}
	return &WrittenZone{c, line, b.at}, nil
}

// lineOf returns the token that a mistake is about. Which fields go together is known only at the zone's end, but the error must
// name the line of the word.
func (b *zoneBlock) lineOf(wrong *words.Mistake, otherwise caddyfile.Token) caddyfile.Token {
	if len(wrong.Path) == 0 {
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

// fieldWords has the words of the Caddyfile for fields that have another name there.
var fieldWords = map[string][]string{
	"requests": {"limit"}, "period": {"limit"}, "unlimited": {"limit"}, "overrides": {"override"}, "max_events": {"events", "window"}, "window": {"window", "events"},
	"limit": {"events", "window"}, "match": {"except"}, "algorithm": {"events"},
}

// settings returns the lines that the block may have: the schema's fields, and a few lines that are written in another way.
func (b *zoneBlock) settings() []Setting {
	zone := reflect.ValueOf(&b.zone).Elem()
	var list []Setting
	for _, f := range ruleset.Schema["rule"] {
		switch f.Name {
		case "name":
		case "match":
			list = append(list, Setting{Word: "match", To: b.match("match", "cover", &b.zone.MatcherSetsRaw), Often: true}, Setting{Word: "except", To: b.except, Often: true})
		case "count_match":
			list = append(list, Setting{Word: "count_match", To: b.match("count_match", "count", &b.zone.CountMatcherSetsRaw), Often: true})
		case "limit":
			list = append(list, Setting{Word: "limit", To: func(d *caddyfile.Dispenser) error {
				line := *d
				if err := InWords(line.RemainingArgs()); err != nil {
					return d.Errf("%s%v", b.where, err)
				}
				return oneArg(d, b.where, b.limit)
			}})
		case "tiers":
			list = append(list, Setting{Word: "tiers", To: b.tiers})
		case "limit_from":
			list = append(list, Setting{Word: "limit_from", To: b.limitFrom})
		case "overrides":
			list = append(list, Setting{Word: "override", To: b.override, Often: true})
		case "on_limit":
			list = append(list, Setting{Word: "on_limit", To: b.onLimit})
		case "enforcement":
			list = append(list, Setting{Word: "enforcement", To: b.words("enforcement", &b.zone.Enforcement, "hard, shadow, a share of keys such as 10%, or soft with a percentage and a duration, such as soft 20% 30s")})
		case "consistency":
			list = append(list, Setting{Word: "consistency", To: b.words("consistency", &b.zone.Consistency, "strict, lease, or eventual with an interval, such as eventual 1s")})
		case "regions":
			list = append(list, Setting{Word: "regions", To: b.words("regions", &b.zone.Regions, "lease, or eventual with an interval, such as eventual 1s")})
		case "candidate":
			list = append(list, Setting{Word: "candidate", To: b.candidate})
		case "adapt":
			list = append(list, Setting{Word: "adapt", To: b.adapt})
		case "answer":
			list = append(list, Setting{Word: "answer", To: b.answer})
		default:
			list = append(list, settingOf(&f, zone))
		}
	}
	events := settingOf(&ruleset.Field{Name: "max_events", Least: 1, Most: rate.MaxRequests}, zone)
	events.Word = "events"
	return append(list, events, Setting{Word: "window", To: b.window})
}

// except reads the addresses that the zone exempts.
func (b *zoneBlock) except(d *caddyfile.Dispenser) error {
	networks := d.RemainingArgs()
	if len(networks) == 0 {
		return d.Errf("%sexcept: is empty; write addresses, networks such as 10.0.0.0/8, or private_ranges", b.where)
	}
	b.zone.Except = append(b.zone.Except, networks...)
	return NoBlock(d, b.where, "except")
}

// override reads the limit of a single key.
func (b *zoneBlock) override(d *caddyfile.Dispenser) error {
	args := JoinDay(d.RemainingArgs())
	if len(args) < 2 {
		return d.Errf("%soverride: takes a key and its limit, such as override 192.0.2.1 1000/1m", b.where)
	}
	b.at["overrides."+strconv.Itoa(len(b.zone.Overrides))] = d.Token()
	b.zone.Overrides = append(b.zone.Overrides, Override{Key: args[:len(args)-1], Limit: args[len(args)-1]})
	return NoBlock(d, b.where, "override")
}

// limit reads <requests>/<period>, or unlimited.
func (b *zoneBlock) limit(text string) error {
	if text == ruleset.Unlimited {
		b.zone.Unlimited = true
		return nil
	}
	var c rate.LimitConfig
	err := rate.ParseLimit(text, &c)
	b.zone.Requests, b.zone.Period = c.Requests, PeriodOf(text)
	return err
}

// InWords returns an error with the right form if a limit is written in several words, such as 10 per minute.
func InWords(args []string) error {
	var c rate.LimitConfig
	if err := rate.ParseLimit(strings.Join(args, " "), &c); err != nil && len(args) > 1 && words.Of(err).Meant != "" {
		return err
	}
	return nil
}

// window reads the period of events, which needs more checks than other durations.
func (b *zoneBlock) window(text string) error {
	window, err := caddy.ParseDuration(text)
	if b.zone.Window = caddy.Duration(window); err != nil || window <= 0 {
		return fmt.Errorf("window %q: must be a duration such as 10s, and at most 366d", text)
	}
	return nil
}

// words returns what reads a setting whose value may have several words. wanted says what may be written.
func (b *zoneBlock) words(name string, to *string, wanted string) func(d *caddyfile.Dispenser) error {
	return func(d *caddyfile.Dispenser) error {
		*to = strings.Join(d.RemainingArgs(), " ")
		if *to == "" {
			return d.Errf("%s%s: is empty; write %s", b.where, name, wanted)
		}
		return NoBlock(d, b.where, name)
	}
}

// tiers reads the tiers block.
func (b *zoneBlock) tiers(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 1 {
		return d.Errf("%stiers: takes one placeholder, such as {http.auth.user.plan}, and a block of limits, not %d values", b.where, len(args))
	}
	t := &Tiers{Source: args[0], Limits: make(map[string]string)}
	b.zone.Tiers = t
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		value := d.Val()
		limits := JoinDay(d.RemainingArgs())
		if len(limits) != 1 {
			return d.Errf("%stiers: a line has a value and its limit, such as pro 1000/1m", b.where)
		}
		if _, duplicate := t.Limits[value]; duplicate {
			return d.Errf("%stiers: %q: duplicate value; keep one", b.where, value)
		}
		b.at["tiers.limits."+value] = d.Token()
		t.Limits[value] = limits[0]
	}
	return nil
}

// limitFrom reads which limit requests bring.
func (b *zoneBlock) limitFrom(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 1 && (len(args) != 3 || args[1] != "max") {
		return d.Errf("%slimit_from: takes one placeholder, and max with a limit, such as limit_from {http.auth.user.limit} max 1000/1m", b.where)
	}
	b.zone.LimitFrom = &LimitFrom{Source: args[0]}
	if len(args) == 3 {
		b.zone.LimitFrom.Max = args[2]
	}
	return NoBlock(d, b.where, "limit_from")
}

// candidate reads the candidate block.
func (b *zoneBlock) candidate(d *caddyfile.Dispenser) error {
	b.zone.Candidate = new(Candidate)
	return b.object(d, "candidate", "limit", b.zone.Candidate, nil)
}

// answer reads the answer block.
func (b *zoneBlock) answer(d *caddyfile.Dispenser) error {
	b.zone.Answer = new(Answer)
	return b.object(d, "answer", "status", b.zone.Answer, nil)
}

// adapt reads the adapt block.
func (b *zoneBlock) adapt(d *caddyfile.Dispenser) error {
	b.zone.Adapt = new(Adapt)
	return b.object(d, "adapt", "ceiling", b.zone.Adapt, &Setting{Word: "step", To: func(d *caddyfile.Dispenser) error {
		if b.zone.Adapt.Step = strings.Join(d.RemainingArgs(), " "); b.zone.Adapt.Step == "" {
			return d.Errf("%sadapt: step: is empty; write a percentage and a duration, such as 25%% 30s", b.where)
		}
		return NoBlock(d, b.where+"adapt: ", "step")
	}})
}

// object reads the block of an object of the schema into a struct. usual is a line of it, for errors; special reads one in its own way, nil: none.
func (b *zoneBlock) object(d *caddyfile.Dispenser, object, usual string, to any, special *Setting) error {
	if args := d.RemainingArgs(); len(args) > 0 {
		return d.Errf("%s%s: takes a block with %s %s in it, not a value", b.where, object, usual, args[0])
	}
	var settings []Setting
	for _, f := range ruleset.Schema[object] {
		if special != nil && f.Name == special.Word {
			settings = append(settings, *special)
			continue
		}
		settings = append(settings, settingOf(&f, reflect.ValueOf(to).Elem()))
	}
	at, err := ReadBlock(d, b.where+object, settings, nil)
	for word, token := range at {
		b.at[object+"."+word] = token
	}
	return err
}

// match returns what reads matchers of a zone, of the requests that it is to cover, or to count. Several blocks are alternatives.
func (b *zoneBlock) match(word, does string, to *caddyhttp.RawMatcherSets) func(d *caddyfile.Dispenser) error {
	where := b.where + word
	return func(d *caddyfile.Dispenser) error {
		segment := d.NextSegment()
		// Caddy reports an unknown matcher at the end of the block, so the names are checked first.
		names := caddyfile.NewDispenser(segment)
		names.Next()
		for nesting := names.Nesting(); names.NextArg() || names.NextBlock(nesting); {
			if names.Token().Quoted() {
				continue // an expression
			}
			if _, err := caddy.GetModule("http.matchers." + names.Val()); err != nil {
				return names.Errf("%s: there is no matcher %q; write one such as path /login or method POST", where, names.Val())
			}
			names.NextSegment()
		}
		matchers := caddyfile.NewDispenser(segment)
		matchers.Next()
		set, err := caddyhttp.ParseCaddyfileNestedMatcherSet(matchers)
		if err != nil {
			return fmt.Errorf("%s: %w", where, err)
		}
		if len(set) == 0 {
			return ErrorAt(segment[0], fmt.Errorf("%s: is empty; write matchers in it, or leave it out to %s all requests", where, does))
		}
		*to = append(*to, set)
		return nil
	}
}

// PeriodOf returns the period in "<requests>/<period>".
func PeriodOf(limit string) string {
	_, period, _ := strings.Cut(limit, "/")
	return period
}

// JoinDay returns arguments of which the last may be a limit, which is one argument then even if it says on which day it begins: 1000/month on 17.
func JoinDay(args []string) []string {
	limit := len(args) - 3
	if limit < 0 || args[limit+1] != "on" || !strings.Contains(args[limit], "/") {
		return args
	}
	return append(args[:limit:limit], strings.Join(args[limit:], " "))
}

// onLimit reads what happens to requests over the limit, which is a word, or defer with a block.
func (b *zoneBlock) onLimit(d *caddyfile.Dispenser) error {
	line := d.Token()
	given := d.NextArg()
	if !given || d.Val() != "defer" {
		if given {
			d.Prev()
		}
		return oneArg(d, b.where, func(text string) error {
			b.zone.OnLimit = text
			return nil
		})
	}
	if args := d.RemainingArgs(); len(args) > 0 {
		return d.Errf("%son_limit defer: takes a block, not %q", b.where, args[0])
	}
	b.zone.Defer = new(Defer)
	b.at["defer"] = line
	of := b.where + "on_limit defer"
	at, err := ReadBlock(d, of, b.zone.Defer.Settings(of+": "), nil)
	for word, token := range at {
		b.at["defer."+word] = token
	}
	return err
}
