package byhand

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/excepted"
	"github.com/proxyweir/weir/core/exception"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
)

// Errors of this package wrap one of these, or the store's. They add nothing to the text.
var (
	ErrWrong    = errors.New("") // what was written is wrong
	ErrConflict = errors.New("") // it is right, and would have no effect on such a rule
)

// errorf returns an error about the rule that wraps a kind of error; nil: none.
func (s *Subject) errorf(kind error, format string, v ...any) error {
	err := fmt.Errorf("rule %q: "+format, append([]any{s.Label}, v...)...)
	if kind != nil {
		err = fmt.Errorf("%w%w", kind, err)
	}
	return err
}

func wrong(format string, v ...any) error {
	return fmt.Errorf("%w%w", ErrWrong, fmt.Errorf(format, v...))
}

// Decision is why somebody has decided something, and who that is.
type Decision struct {
	Note string `json:"note"`
	By   string `json:"by"`
}

// Check returns what is wrong with the texts.
func (d *Decision) Check() error {
	for _, text := range []struct {
		name, value string
		most        int
	}{{"note", d.Note, exception.LongestNote}, {"by", d.By, exception.LongestBy}} {
		if len(text.value) > text.most {
			return wrong("%s: has %d bytes; must be at most %d", text.name, len(text.value), text.most)
		}
		if strings.ContainsFunc(text.value, unicode.IsControl) {
			return wrong("%s: must be one line of printable text", text.name)
		}
	}
	return nil
}

// Until returns when what holds until a time, or for a duration, ends, by the store's clock, in microseconds since the Unix epoch. One of the texts is "".
func (s *Subject) Until(until, lasting string) (int64, error) {
	if until != "" && lasting != "" {
		return 0, wrong("until and for are mutually exclusive: remove one")
	}
	now := time.UnixMicro(s.In.Exceptions.Now())
	if until == "" {
		d, err := rate.ParseDuration(lasting)
		if err != nil || d < time.Millisecond || d > rate.MaxPeriod {
			return 0, wrong("for %q: must be a duration from 1ms to 366d, such as 1h; or write until in its place, such as today", lasting)
		}
		return now.Add(d).UnixMicro(), nil
	}
	zone := time.UTC
	if s.Rule != nil {
		zone = ruleset.ZoneOfTime(s.Rule)
	}
	at, err := exception.ParseUntil(until, now, zone)
	if err != nil {
		return 0, wrong("%w", err)
	}
	return at.UnixMicro(), nil
}

// Tables returns the tables of the exceptions of the rule: that of each store that counts it.
func (s *Subject) Tables() []*excepted.Table {
	var list []*excepted.Table
	for _, one := range s.all() {
		if t := one.In.Exceptions; !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return list
}

// change changes the exceptions of the rule.
func (s *Subject) change(how func(list []exception.Exception, now int64) []exception.Exception) error {
	for _, t := range s.Tables() {
		err := t.Change(func(list []exception.Exception, now int64) ([]exception.Exception, error) { return how(list, now), nil })
		if errors.Is(err, excepted.ErrFull) {
			return s.errorf(ErrConflict, "%w", err)
		}
		if err != nil {
			return s.errorf(nil, "%w", err)
		}
	}
	return nil
}

// Limit gives a key another limit until a time: see Until.
func (s *Subject) Limit(key, limit string, until int64, d Decision) error {
	for _, one := range s.all() {
		if one.In.InStorage {
			return s.errorf(ErrConflict, "counts in a storage, by which nodes tell each other what they count, and no limits; count in Redis, or change the configuration")
		}
	}
	if s.Rule == nil {
		return s.errorf(ErrConflict, "is of a descriptor, whose limits are those of its file; change that, which holds at once")
	}
	if s.Shadow {
		return s.errorf(ErrConflict, "is a shadow, and limits nobody")
	}
	if why := s.Passes(key); why != "" {
		return s.errorf(ErrConflict, "%s", why)
	}
	if _, err := ruleset.NewException(s.Rule, s.In.Limiter, key, limit); err != nil {
		return wrong("%w", err)
	}
	return s.change(func(list []exception.Exception, now int64) []exception.Exception {
		return exception.With(list, exception.Exception{Rule: s.Label, Key: []byte(key), Kind: exception.Limit, Limit: limit, Made: now, Until: until, Note: d.Note, By: d.By})
	})
}

// End ends what Limit has begun, and reports whether the key had a limit of its own.
func (s *Subject) End(key string) (had bool, err error) {
	err = s.change(func(list []exception.Exception, _ int64) []exception.Exception {
		had = had || exception.Find(list, exception.Limit, s.Label, key) != nil
		return exception.Without(list, exception.Limit, s.Label, key)
	})
	return had, err
}

// Block blocks a key until a time: see Until. unlisted says that there are too many blocks for the list of exceptions: the key is blocked all the same, as far
// as the rule's limits stay as they are.
func (s *Subject) Block(key string, until int64, d Decision) (unlisted bool, err error) {
	if !s.Shadow && len(s.Rules) > 0 && s.Rules[0].For(key).Shadow {
		return false, s.errorf(ErrConflict, "is a shadow for this key, which is not among the %s that it enforces", s.Enforcement)
	}
	if s.Shadow {
		return false, s.errorf(ErrConflict, "is a shadow, and blocks nobody")
	}
	if slices.ContainsFunc(s.LimitsOf(key), func(l NamedLimit) bool { return l.Limit == nil }) {
		return false, s.errorf(ErrConflict, "has no limit for some or all requests of this key, which are not counted and would pass all the same. Write a limit in place of unlimited, if it is a high one")
	}
	if why := s.Passes(key); why != "" {
		return false, s.errorf(ErrConflict, "%s", why)
	}
	duration := int64(0)
	err = s.change(func(list []exception.Exception, now int64) []exception.Exception {
		duration = until - now
		next := exception.With(list, exception.Exception{Rule: s.Label, Key: []byte(key), Kind: exception.Block, Made: now, Until: until, Note: d.Note, By: d.By})
		if unlisted = len(next) > exception.Most; unlisted {
			return list
		}
		return next
	})
	if err == nil && unlisted {
		err = s.EachPlace(func(c *Counters, r *core.Rule) error { return c.Block(r, key, duration) })
	}
	return unlisted, err
}

// Unblock ends a block or a penalty, and reports whether that has changed anything.
func (s *Subject) Unblock(key string) (changed bool, err error) {
	return s.restore(key, func(c *Counters, r *core.Rule) error { return c.Unblock(r, key) })
}

// Reset forgets what was counted of a key, and ends a block. It reports whether that has changed anything.
func (s *Subject) Reset(key string) (changed bool, err error) {
	return s.restore(key, func(c *Counters, r *core.Rule) error { return c.Reset(r, key) })
}

// restore ends the block of a key, and calls act in every place where the key is counted.
func (s *Subject) restore(key string, act func(c *Counters, r *core.Rule) error) (changed bool, err error) {
	before, looked := make(map[*core.Rule]rate.Decision), make(map[*core.Rule]int64)
	err = s.EachPlace(func(c *Counters, r *core.Rule) (err error) {
		looked[r] = c.Now()
		before[r], err = s.standing(c, r, key)
		return err
	})
	if err != nil {
		return false, err
	}
	if err := s.change(func(list []exception.Exception, now int64) []exception.Exception {
		return s.forgetting(exception.Without(list, exception.Block, s.Label, key), key, now)
	}); err != nil {
		return false, err
	}
	err = s.EachPlace(func(c *Counters, r *core.Rule) error {
		if err := act(c, r); err != nil {
			return err
		}
		after, err := s.standing(c, r, key)
		was := before[r]
		passed := c.Now() - looked[r] + 1000                       // a store's server has a clock of its own
		sooner := was.RetryAfter-after.RetryAfter > max(0, passed) // than without us: a penalty has ended, but the limit goes on rejecting
		changed = changed || after.Remaining > was.Remaining || after.Allowed && !was.Allowed || sooner
		return err
	})
	return changed, err
}

// standing returns what a rule would decide on a request of a key: by the key's own limit, if that counts in the same place.
func (s *Subject) standing(c *Counters, r *core.Rule, key string) (rate.Decision, error) {
	if s.Rule != nil {
		if limits := s.Rule.Active.Limits(); limits.Overrides(key) {
			if own := limits.Of("", key); own != nil && own.Identity == r.Identity {
				r = own
			}
		}
	}
	return c.Standing(r, key)
}

// forgetFor is how long the nodes of a fleet are told to forget what they remember of a key: longer than they do.
const forgetFor = 15 * time.Second

// forgetting returns a list of exceptions by which the nodes that share a Redis forget what they remember of a key.
func (s *Subject) forgetting(list []exception.Exception, key string, now int64) []exception.Exception {
	if !s.In.InRedis || len(list) >= exception.Most {
		return list
	}
	return exception.With(list, exception.Exception{Rule: s.Label, Key: []byte(key), Kind: exception.Forget, Made: now, Until: now + forgetFor.Microseconds()})
}

// Credit gives units back to a key, and returns how many more it has.
func (s *Subject) Credit(key string, units int64) (given int64, err error) {
	if units < 1 || units > rate.MaxRequests {
		return 0, wrong("units %d: must be a whole number from 1 to %d", units, rate.MaxRequests)
	}
	var refused error
	err = s.EachPlace(func(c *Counters, r *core.Rule) error {
		before, err := s.standing(c, r, key)
		if err != nil {
			return err
		}
		if err := c.Credit(r, key, units); errors.Is(err, core.ErrNoCredit) {
			refused = err
			return nil
		} else if err != nil {
			return err
		}
		after, err := s.standing(c, r, key)
		given = max(given, after.Remaining-before.Remaining)
		return err
	})
	if err == nil && refused != nil {
		err = s.errorf(ErrConflict, "%w", refused)
	}
	if err == nil && s.In.InRedis {
		err = s.change(func(list []exception.Exception, now int64) []exception.Exception { return s.forgetting(list, key, now) })
	}
	return given, err
}
