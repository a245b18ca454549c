package client

import (
	"cmp"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// policy is what answers tell of a limit: quota units come in a window, left remain, and no more come before reset. Times are in seconds; 0: unknown.
type policy struct {
	quota, window, left, reset float64
	at                         time.Time // of the latest answer
	sharers                    float64   // how many clients with this one's pace would use what is used; 0: unknown

	// Where the window is not told, reset is when all of the quota is there. In a fixed window that is one time. Where units come back one by one, it moves.
	untold, slides, moves bool
	until                 time.Time // such a time, until it has passed
}

// Shares of the quota: nobody asks for the reserve, so that clients who ask at the same time find enough. Where units come back one by one, aim should be left, or half
// the root of a small quota, by which numbers of requests differ at random.
const reserve, aim = 0.01, 0.02

// follow takes over what was known before an answer, and compares what was left.
func (p *policy) follow(before *policy) {
	p.quota = max(cmp.Or(p.quota, before.quota), p.left, 1)
	p.window = max(cmp.Or(p.window, before.window), p.reset, 1)
	p.sharers = max(1, before.sharers)
	if p.untold {
		p.look(before)
	}
	passed := p.at.Sub(before.at).Seconds()
	used := before.left - p.left
	if passed > before.reset || p.slides {
		used += p.steady() * passed // have come back
	}
	switch {
	case passed > p.window/2 || used < 1 || p.quota != before.quota: // also if there was no answer before
	case before.sharers == 1:
		p.sharers = used
	default:
		p.sharers += (used - p.sharers) / 4
	}
}

// look finds out whether the time of the reset moves, by more than answers that say it in seconds are wrong.
func (p *policy) look(before *policy) {
	const exact = 2 * time.Second
	p.until, p.slides, p.moves = before.until, before.slides, before.moves
	ends := p.at.Add(seconds(p.reset))
	if left := p.until.Sub(p.at); left <= 0 {
		p.until, p.slides, p.moves = ends, p.moves, false
	} else if left > exact && ends.Sub(p.until) > exact {
		p.slides, p.moves = true, true
	}
}

// steady returns how many units come back in a second.
func (p *policy) steady() float64 {
	if p.slides && p.reset > 0 {
		return max(1, p.quota-p.left) / p.reset
	}
	return p.quota / p.window
}

// aim returns how many units should be left where they come back one by one.
func (p *policy) aim() float64 { return max(aim*p.quota, math.Sqrt(p.quota)/2) }

// pace returns how many requests a second all who share a quota may send.
func (p *policy) pace() float64 {
	steady := p.steady()
	if p.slides {
		return max(steady/2, steady+10*(p.left-p.aim())/p.window)
	}
	if p.left <= reserve*p.quota {
		return steady // after the reset
	}
	return min((p.left-reserve*p.quota)/p.reset, steady+10*(p.left-p.aim())/p.window)
}

// longestFields is how much is read of the fields, in bytes.
const longestFields = 4 << 10

var (
	member    = regexp.MustCompile(`("(?:[^"\\]|\\.)*"|[\w*:/.-]+)((?:\s*;\s*[\w*.-]+(?:=(?:"(?:[^"\\]|\\.)*"|[^",;]*))?)*)`) // of a list of RFC 9651
	parameter = regexp.MustCompile(`;\s*([qwrt])=(\d+)`)
)

// policiesOf returns what an answer tells of limits, by their names.
func policiesOf(h http.Header, now time.Time) map[string]policy {
	list := map[string]policy{}
	text := strings.Join(append(h.Values("RateLimit-Policy"), h.Values("RateLimit")...), ",")
	for _, m := range member.FindAllStringSubmatch(text[:min(len(text), longestFields)], mostSeen) {
		p := list[m[1]]
		p.at = now
		for _, value := range parameter.FindAllStringSubmatch(m[2], -1) {
			*map[string]*float64{"q": &p.quota, "w": &p.window, "r": &p.left, "t": &p.reset}[value[1]] = number(value[2])
		}
		list[m[1]] = p
	}
	for _, prefix := range []string{"RateLimit-", "X-RateLimit-"} {
		if p := (policy{quota: number(h.Get(prefix + "Limit")), left: number(h.Get(prefix + "Remaining")), reset: number(h.Get(prefix + "Reset")), at: now, untold: true}); len(list) == 0 && p.quota > 0 {
			if p.reset > 1e8 { // a time: it would be in three years
				p.reset -= float64(clockOf(h, now).Unix())
			}
			list[prefix] = p
		}
	}
	return list
}

// turns returns the seconds from one request of this client to its next, and those in which none has its turn.
func (p *policy) turns() (gap, hold float64) {
	if p.reset <= 0 {
		return 0, 0
	}
	if p.left <= reserve*p.quota && !p.slides {
		hold = p.reset
	}
	return p.sharers / p.pace(), hold
}

// retryAfter returns the seconds of a rejection's Retry-After, which may be a date; 0: there is none.
func retryAfter(answer *http.Response, now time.Time) float64 {
	h := answer.Header
	if answer.StatusCode != http.StatusTooManyRequests && answer.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		return max(1, date.Sub(clockOf(h, now)).Seconds())
	}
	return number(h.Get("Retry-After"))
}

// clockOf returns what time it is by the clock of the API, which the client's may differ from; without a Date: now.
func clockOf(h http.Header, now time.Time) time.Time {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		return date
	}
	return now
}

// keep adds a value to a map that has at most so many, in place of any other.
func keep[V any](m map[string]V, key string, value V, most int) map[string]V {
	if m == nil {
		m = map[string]V{}
	}
	if _, known := m[key]; !known && len(m) >= most {
		for other := range m {
			delete(m, other)
			break
		}
	}
	m[strings.Clone(key)] = value
	return m
}

// number reads a number that is not negative; others are 0.
func number(text string) float64 {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	if err != nil {
		return 0
	}
	return float64(n)
}

// seconds returns a duration of so many seconds, a year at most.
func seconds(s float64) time.Duration { return time.Duration(min(s, 366*86400) * float64(time.Second)) }
