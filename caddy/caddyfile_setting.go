package ratelimit

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// setting is a line that a block of the Caddyfile may have.
type setting struct {
	word  string
	often bool // the line may be repeated

	// What takes the line: a pointer to a field; a function of the one value; or a function of a Dispenser, for any other line.
	to any

	check       func(text string) error // says what is wrong with a text; nil: nothing is
	size        bool                    // a number of bytes, which may be written with a unit
	least, most float64                 // bounds of a number, or of a duration in nanoseconds
	must        string                  // the text of errors about these bounds
}

// wordTo returns a setting whose value is one of a list of words.
func wordTo(word string, to *string, list ...string) setting {
	return setting{word: word, to: to, check: func(text string) error { return words.CheckWord(word, text, list) }}
}

// numberTo returns a setting of a number from least to most.
func numberTo(word string, to *int, least, most int) setting {
	return setting{word: word, to: to, least: float64(least), most: float64(most), must: fmt.Sprintf("from %d to %d", least, most)}
}

// durationTo returns a setting of a duration from least to most, which are written as in a configuration.
func durationTo(word string, to *caddy.Duration, least, most string) setting {
	from, _ := caddy.ParseDuration(least)
	until, _ := caddy.ParseDuration(most)
	return setting{word: word, to: to, least: float64(from), most: float64(until), must: "from " + least + " to " + most}
}

// settingOf returns the setting of a field of the schema. The value is checked later, with the whole zone.
func settingOf(f *ruleset.Field, in reflect.Value) setting {
	to := in.Field(slices.Index(fieldNames(in.Type()), f.Name)).Addr().Interface()
	if duration, ok := to.(*caddy.Duration); ok {
		return durationTo(f.Name, duration, ruleset.Shortly(time.Duration(f.Least)), ruleset.Shortly(time.Duration(f.Most)))
	}
	return setting{word: f.Name, to: to, least: float64(f.Least), most: float64(f.Most), must: fmt.Sprintf("a whole number from %d to %d", f.Least, f.Most)}
}

// take reads the line. Its errors begin with where.
func (s *setting) take(d *caddyfile.Dispenser, where string) error {
	switch to := s.to.(type) {
	case func(*caddyfile.Dispenser) error:
		return to(d)
	case *bool:
		*to = true
		if args := d.RemainingArgs(); len(args) > 0 {
			return d.Errf("%s%s: takes no value, not %q", where, s.word, args[0])
		}
		return noBlock(d, where, s.word)
	case *[]string:
		*to = ruleset.SplitWords(d.RemainingArgs())
		return noBlock(d, where, s.word)
	}
	return oneArg(d, where, s.set)
}

// set parses the line's one value and sets the field to it.
func (s *setting) set(text string) (err error) {
	number, kind := 0.0, ""
	switch to := s.to.(type) {
	case func(string) error:
		return to(text)
	case *string:
		*to = text
		if s.check != nil {
			return s.check(text)
		}
		return nil
	case *int:
		*to, err = strconv.Atoi(text)
		number = float64(*to)
	case *int64:
		if s.size {
			var size uint64
			size, err = humanize.ParseBytes(text)
			*to = int64(min(size, math.MaxInt64))
		} else {
			*to, err = strconv.ParseInt(text, 10, 64)
		}
		number = float64(*to)
	case *float64:
		*to, err = strconv.ParseFloat(text, 64)
		number = *to
	case *caddy.Duration:
		var duration time.Duration
		duration, err = caddy.ParseDuration(text)
		*to = caddy.Duration(duration)
		number, kind = float64(duration), "a duration "
	}
	if err != nil || !s.inRange(number) {
		return fmt.Errorf("%s %q: must be %s%s", s.word, text, kind, s.must)
	}
	return nil
}

func (s *setting) inRange(number float64) bool { return number >= s.least && number <= s.most }

// checkFields says what is wrong with fields that were read from JSON. A zero field has its default, and is not checked.
func checkFields(settings []setting) error {
	for _, s := range settings {
		switch to := s.to.(type) {
		case *string:
			if *to != "" && s.check != nil {
				if err := s.check(*to); err != nil {
					return err
				}
			}
		case *float64:
			if !s.inRange(*to) {
				return fmt.Errorf("%s %v: must be %s", s.word, *to, s.must)
			}
		case *int64:
			if *to != 0 && !s.inRange(float64(*to)) {
				return fmt.Errorf("%s %d: must be %s", s.word, *to, s.must)
			}
		case *caddy.Duration:
			if *to != 0 && !s.inRange(float64(*to)) {
				return fmt.Errorf("%s %s: must be %s", s.word, time.Duration(*to), s.must)
			}
		}
	}
	return nil
}

// wordsOf returns the words of settings.
func wordsOf(settings []setting) []string {
	list := make([]string, 0, len(settings))
	for _, s := range settings {
		list = append(list, s.word)
	}
	return list
}

// readBlock reads the lines of a block, and returns the place of each word. of names the block. unknown returns a special error for
// an unknown word, or nil for the general one; it may be nil itself.
func readBlock(d *caddyfile.Dispenser, of string, settings []setting, unknown func(word string) error) (at map[string]caddyfile.Token, err error) {
	where := of + ": "
	if of == "rate_limit" { // its errors need no name in front
		where = ""
	}
	at = make(map[string]caddyfile.Token)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		i := slices.IndexFunc(settings, func(s setting) bool { return s.word == word })
		if i < 0 {
			if unknown != nil {
				err = unknown(word)
			}
			if err == nil {
				err = unknownWord(d, of, word, wordsOf(settings))
			}
			return at, err
		}
		if _, duplicate := at[word]; duplicate && !settings[i].often {
			return at, d.Errf("%s: duplicate subdirective %s; keep one", of, word)
		}
		at[word] = d.Token()
		if err := settings[i].take(d, where); err != nil {
			return at, err
		}
	}
	return at, nil
}

// oneArg reads the one argument of a subdirective. Its errors begin with where.
func oneArg(d *caddyfile.Dispenser, where string, set func(string) error) error {
	word := d.Val()
	args := d.RemainingArgs()
	if len(args) != 1 {
		return d.Errf("%s%s: takes one value, not %d", where, word, len(args))
	}
	if err := set(args[0]); err != nil {
		return d.Errf("%s%w", where, err)
	}
	if args[0] == "" { // an empty text would mean the default
		return d.Errf("%s%s: is empty; write a value, or leave it out", where, word)
	}
	return noBlock(d, where, word)
}

// noBlock makes sure that no block follows a subdirective, not even an empty one.
func noBlock(d *caddyfile.Dispenser, where, word string) error {
	if opensBlock(d) {
		return d.Errf("%s%s: takes no block", where, word)
	}
	return nil
}

// opensBlock reports whether the next token opens a block, and moves on to it.
func opensBlock(d *caddyfile.Dispenser) bool {
	if !d.Next() {
		return false
	}
	if d.Val() == "{" && !d.Token().Quoted() {
		return true
	}
	d.Prev()
	return false
}

// errorAt adds the place of a token to an error that is found after the dispenser has moved on.
func errorAt(token caddyfile.Token, err error) error {
	d := caddyfile.NewDispenser([]caddyfile.Token{token})
	d.Next()
	return d.WrapErr(err)
}

// placeOf returns the place of a token: file and line, and what imports it.
func placeOf(token caddyfile.Token) string {
	_, place, _ := strings.Cut(errorAt(token, errors.New("it")).Error(), ", at ")
	return place
}

func unknownWord(d *caddyfile.Dispenser, where, word string, known []string) error {
	if near := words.Nearest(word, known); near != "" {
		return d.Errf("%s: unknown subdirective %s (did you mean %s?)", where, word, near)
	}
	return d.Errf("%s: unknown subdirective %s; it takes %s", where, word, strings.Join(known, ", "))
}
