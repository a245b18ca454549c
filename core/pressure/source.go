// Package pressure asks how busy a service is: a Prometheus for the value of a query, or the service's own health endpoint for a number. It asks in the
// background, one question at a time. What follows from the answer is package guard's concern.
package pressure

import (
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/words"
)

// Source is whom to ask, and for what. NewSource makes it; the zero value is nobody.
type Source struct {
	URL   string // of a Prometheus where there is a Query, to which /api/v1/query is added; else of an answer with the number
	Query string // PromQL that returns a scalar, or a vector of one series; "": none

	// Field is the path to the number in an answer in JSON: the names of fields, and places in lists from 0, with dots between them, such as
	// measurements.0.value. "": the whole answer is the number.
	Field string

	High     float64       // from what value on the pressure is high; above 0
	Interval time.Duration // from one question to the next, and the longest that an answer may take
}

// The bounds of Source.Interval, and its default. That of Source.High is 0.9.
const (
	DefaultInterval = time.Second
	LeastInterval   = 100 * time.Millisecond
	MostInterval    = time.Minute
)

// NewSource returns a source of settings, or a words.Mistake. high is a number as a text; "" and an interval of 0 mean the defaults.
func NewSource(address, field, query, high string, interval time.Duration) (Source, error) {
	wrong := func(name, value, says string) (Source, error) {
		return Source{}, words.Wrong(name, value, says).Within("pressure", "").Within("guard", "")
	}
	u, err := url.Parse(address)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.Fragment != "" || query != "" && u.RawQuery != "" {
		if u != nil {
			address = u.Redacted()
		} else if at := strings.LastIndex(address, "@"); at >= 0 { // it may have a password all the same
			address = "xxxxx" + address[at:]
		}
		return wrong("url", strconv.Quote(address), "must be an address such as http://10.0.0.5:9100/health, with query that of a Prometheus, and have no password")
	}
	if query != "" && field != "" {
		return wrong("field", strconv.Quote(field), "has no effect with query; write one of them")
	}
	if interval == 0 {
		interval = DefaultInterval
	}
	if interval < LeastInterval || interval > MostInterval {
		return wrong("interval", interval.String(), "must be a duration from 100ms to 1m")
	}
	if high == "" {
		high = "0.9"
	}
	s := Source{URL: address, Query: query, Field: field, Interval: interval}
	if s.High, err = strconv.ParseFloat(high, 64); err != nil || !(s.High > 0) || math.IsInf(s.High, 0) {
		return wrong("high", strconv.Quote(high), "must be a number above 0, such as 0.9")
	}
	return s, nil
}
