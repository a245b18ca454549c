package advice

import (
	"crypto/sha256"
	"encoding/hex"
	"sort"
	"strconv"
	"strings"
)

// Adaptable is what advisor and proxy must agree on of a rule with adapt.
type Adaptable struct {
	Label     string
	Requests  int64  // of the configured limit
	Period    int64  // microseconds; with a Calendar, the longest that its unit can be
	Calendar  string // day, week or month, @ and the time zone: "day@Europe/Berlin"; "": the limit does not follow the calendar
	Burst     int64  // of a bucket; else 0
	Algorithm string // one of rate.AlgorithmNames
	Floor     int64  // requests in the period
	Ceiling   int64

	// Algorithms are those that advice may choose besides Algorithm, which may be among them.
	Algorithms []string
}

// DigestText returns the text that is hashed: a line for each rule, sorted by the bytes of the labels.
func DigestText(rules []Adaptable) string {
	lines := make(map[string]string)
	labels := make([]string, 0, len(rules))
	for i := range rules {
		labels = append(labels, rules[i].Label)
		lines[rules[i].Label] = rules[i].line()
	}
	sort.Strings(labels)
	var text strings.Builder
	for _, label := range labels {
		text.WriteString(lines[label])
	}
	return text.String()
}

// Digest returns the digest of a proxy's adaptable rules, which the header field Weir-Config and a document's config have: advice for other rules is
// refused.
func Digest(rules []Adaptable) string {
	sum := sha256.Sum256([]byte(DigestText(rules)))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// line returns the rule's line of the text that is hashed.
func (a *Adaptable) line() string {
	period := a.Calendar
	if period == "" {
		period = strconv.FormatInt(a.Period, 10)
	}
	fields := []string{
		a.Label, strconv.FormatInt(a.Requests, 10), period, strconv.FormatInt(a.Burst, 10), a.Algorithm,
		strconv.FormatInt(a.Floor, 10), strconv.FormatInt(a.Ceiling, 10), strings.Join(a.allowed(), ","),
	}
	return strings.Join(fields, "\t") + "\n"
}

// allowed returns all algorithms that may be in force, sorted, each once.
func (a *Adaptable) allowed() []string {
	list := []string{a.Algorithm}
	for _, name := range a.Algorithms {
		if indexOf(list, name) < 0 {
			list = append(list, name)
		}
	}
	sort.Strings(list)
	return list
}
