package syntax

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

// Setting is a line that a block of the Caddyfile may have.
type Setting struct {
	Word  string
	Often bool // the line may be repeated

	// What takes the line: a pointer to a field; a function of the one value; or a function of a Dispenser, for any other line.
	To any

	Check       func(text string) error // says what is wrong with a text; nil: nothing is
	size        bool                    // a number of bytes, which may be written with a unit
	least, Most float64                 // bounds of a number, or of a duration in nanoseconds
	Must        string                  // the text of errors about these bounds
}

// WordTo returns a setting whose value is one of a list of words.
func WordTo(word string, to *string, list ...string) Setting {
	return Setting{Word: word, To: to, Check: func(text string) error { return words.CheckWord(word, text, list) }}
}

// NumberTo returns a setting of a number from least to most.
func NumberTo(word string, to *int, least, most int) Setting {
	return Setting{Word: word, To: to, least: float64(least), Most: float64(most), Must: fmt.Sprintf("from %d to %d", least, most)}
}

// DurationTo returns a setting of a duration from least to most, which are written as in a configuration.
func DurationTo(word string, to *caddy.Duration, least, most string) Setting {
	from, _ := caddy.ParseDuration(least)
	until, _ := caddy.ParseDuration(most)
	return Setting{Word: word, To: to, least: float64(from), Most: float64(until), Must: "from " + least + " to " + most}
}

// settingOf returns the setting of a field of the schema. The value is checked later, with the whole zone.
func settingOf(f *ruleset.Field, in reflect.Value) Setting {
	to := in.Field(slices.Index(FieldNames(in.Type()), f.Name)).Addr().Interface()
	if duration, ok := to.(*caddy.Duration); ok {
		return DurationTo(f.Name, duration, ruleset.Shortly(time.Duration(f.Least)), ruleset.Shortly(time.Duration(f.Most)))
	}
	return Setting{Word: f.Name, To: to, least: float64(f.Least), Most: float64(f.Most), Must: fmt.Sprintf("a whole number from %d to %d", f.Least, f.Most)}
}

// take reads the line. Its errors begin with where.
func (s *Setting) take(d *caddyfile.Dispenser, where string) error {
	switch to := s.To.(type) {
	case func(*caddyfile.Dispenser) error:
		return to(d)
	case *bool:
		*to = true
		if args := d.RemainingArgs(); len(args) > 0 {
			return d.Errf("%s%s: takes no value, not %q", where, s.Word, args[0])
		}
		return NoBlock(d, where, s.Word)
	case *[]string:
		*to = ruleset.SplitWords(d.RemainingArgs())
		return NoBlock(d, where, s.Word)
	}
	return oneArg(d, where, s.set)
}

// set parses the line's one value and sets the field to it.
func (s *Setting) set(text string) (err error) {
	number, kind := 0.0, ""
	switch to := s.To.(type) {
	case func(string) error:
		return to(text)
	case *string:
		*to = text
		if s.Check != nil {
			return s.Check(text)
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
	case **float64:
		number, err = strconv.ParseFloat(text, 64)
		*to = &number
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
		return fmt.Errorf("%s %q: must be %s%s", s.Word, text, kind, s.Must)
	}
	return nil
}

func (s *Setting) inRange(number float64) bool { return number >= s.least && number <= s.Most }

// CheckFields says what is wrong with fields that were read from JSON. A zero field has its default, and is not checked.
func CheckFields(settings []Setting) error {
	for _, s := range settings {
		switch to := s.To.(type) {
		case *string:
			if *to != "" && s.Check != nil {
				if err := s.Check(*to); err != nil {
					return err
				}
			}
		case **float64:
			if *to != nil && !s.inRange(**to) {
				return fmt.Errorf("%s %v: must be %s", s.Word, **to, s.Must)
			}
		case *float64:
			if !s.inRange(*to) {
				return fmt.Errorf("%s %v: must be %s", s.Word, *to, s.Must)
			}
		case *int64:
			if *to != 0 && !s.inRange(float64(*to)) {
				return fmt.Errorf("%s %d: must be %s", s.Word, *to, s.Must)
			}
		case *caddy.Duration:
			if *to != 0 && !s.inRange(float64(*to)) {
				return fmt.Errorf("%s %s: must be %s", s.Word, time.Duration(*to), s.Must)
			}
		}
	}
	return nil
}

// WordsOf returns the words of settings.
func WordsOf(settings []Setting) []string {
	list := make([]string, 0, len(settings))
	for _, s := range settings {
		list = append(list, s.Word)
	}
	return list
}

// ReadBlock reads the lines of a block, and returns the place of each word. of names the block. unknown returns a special error for
// an unknown word, or nil for the general one; it may be nil itself.
func ReadBlock(d *caddyfile.Dispenser, of string, settings []Setting, unknown func(word string) error) (at map[string]caddyfile.Token, err error) {
	where := of + ": "
	if of == "rate_limit" { // its errors need no name in front
		where = ""
	}
	at = make(map[string]caddyfile.Token)
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		word := d.Val()
		i := slices.IndexFunc(settings, func(s Setting) bool { return s.Word == word })
		if i < 0 {
			if unknown != nil {
				err = unknown(word)
			}
			if err == nil {
				err = UnknownWord(d, of, word, WordsOf(settings))
			}
			return at, err
		}
		if _, duplicate := at[word]; duplicate && !settings[i].Often {
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
	args := JoinDay(d.RemainingArgs())
	if len(args) != 1 {
		hint := ""
		if len(args) > 1 && strings.Contains(strings.Join(args, ""), "{") {
			hint = "; with spaces it is one in quotes: \"" + strings.Join(args, " ") + "\""
		}
		return d.Errf("%s%s: takes one value, not %d%s", where, word, len(args), hint)
	}
	if err := set(args[0]); err != nil {
		return d.Errf("%s%w", where, err)
	}
	if args[0] == "" { // an empty text would mean the default
		return d.Errf("%s%s: is empty; write a value, or leave it out", where, word)
	}
	return NoBlock(d, where, word)
}

// NoBlock makes sure that no block follows a subdirective, not even an empty one.
func NoBlock(d *caddyfile.Dispenser, where, word string) error {
	if OpensBlock(d) {
		return d.Errf("%s%s: takes no block", where, word)
	}
	return nil
}

// OpensBlock reports whether the next token opens a block, and moves on to it.
func OpensBlock(d *caddyfile.Dispenser) bool {
	if !d.Next() {
		return false
	}
	if d.Val() == "{" && !d.Token().Quoted() {
		return true
	}
	d.Prev()
	return false
}

// ErrorAt adds the place of a token to an error that is found after the dispenser has moved on.
func ErrorAt(token caddyfile.Token, err error) error {
	d := caddyfile.NewDispenser([]caddyfile.Token{token})
	d.Next()
	return d.WrapErr(err)
}

// PlaceOf returns the place of a token: file and line, and what imports it.
func PlaceOf(token caddyfile.Token) string {
	_, place, _ := strings.Cut(ErrorAt(token, errors.New("it")).Error(), ", at ")
	return place
}

func UnknownWord(d *caddyfile.Dispenser, where, word string, known []string) error {
	if near := words.Nearest(word, known); near != "" {
		return d.Errf("%s: unknown subdirective %s (did you mean %s?)", where, word, near)
	}
	return d.Errf("%s: unknown subdirective %s; it takes %s", where, word, strings.Join(known, ", "))
}
