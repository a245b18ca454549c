package advice

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Version is the version of the documents.
const Version = 1

// MaxBytes is how long a document may be: a mebibyte.
const MaxBytes = 1 << 20

// The bounds of a document's times and numbers.
const (
	MaxSerial  = 1<<53 - 1
	MaxNumber  = 1_000_000_000         // of requests, a burst, or requests a second
	MaxDemand  = 1_000_000_000_000     // of a forecast
	MaxRules   = 10_000                //
	MaxHorizon = 7 * 24 * 60 * 60      // seconds
	MaxAhead   = time.Minute           // how far issued_at may be ahead of the proxy's clock
	MaxDelay   = time.Hour             // from issued_at to effective_at
	MaxValid   = 24 * time.Hour        // from issued_at to expires_at
	mostAbove  = int64(3600 * seconds) // of the durations of a threshold, as is the next one
	leastAbove = int64(seconds)        //
	seconds    = 1_000_000             // microseconds
)

// Document is advice for the adaptable rules of a proxy. Parse and Read check it. A proxy treats it as immutable.
type Document struct {
	Version     int       `json:"version"`
	Serial      int64     `json:"serial"` // rises with each document: 1 to MaxSerial
	Config      string    `json:"config"` // the Digest of the rules that it is for
	IssuedAt    time.Time `json:"issued_at"`
	EffectiveAt time.Time `json:"effective_at"` // when all proxies of a fleet follow it: not before IssuedAt, and at most MaxDelay after
	ExpiresAt   time.Time `json:"expires_at"`   // after EffectiveAt, and at most MaxValid after IssuedAt
	Model       Model     `json:"model"`
	Rules       []Rule    `json:"rules"` // none: the advisor abstains. Each label once, here and in Abstained together

	// Abstained says why there is nothing for some of the other rules. It changes nothing.
	Abstained []Abstained `json:"abstained,omitempty"`
}

// Abstained is why the advisor has nothing for a rule.
type Abstained struct {
	Rule   string `json:"rule"`   // its label
	Reason string `json:"reason"` // 1 to 32 of a-z and _, such as history
}

// Model is what the advisor has made its forecasts with.
type Model struct {
	Name           string   `json:"name"`            // 1 to 64 printable letters of ASCII
	HorizonSeconds int64    `json:"horizon_seconds"` // how far it looks ahead: 1 to MaxHorizon
	SkillVsLast    *float64 `json:"skill_vs_last"`   // 1 − its error / the error of the last value; at most 1; nil: not known
}

// Rule is advice for one rule: a limit, a threshold, or both.
type Rule struct {
	Rule       string    `json:"rule"` // its label, as in metrics
	Limit      *Limit    `json:"limit,omitempty"`
	Reason     string    `json:"reason"`               // 1 to 32 of a-z and _, such as growth
	Confidence *float64  `json:"confidence,omitempty"` // 0 to 1; shown, and nothing depends on it, as for Impact
	Impact     *Impact   `json:"impact,omitempty"`
	Above      *Above    `json:"above,omitempty"`
	Forecast   *Forecast `json:"forecast,omitempty"` // without it the full gates loosen nothing
}

// Limit is the limit that an advisor would set. It has the period of the configured one.
type Limit struct {
	Requests  int64  `json:"requests"`            // 1 to MaxNumber
	Burst     int64  `json:"burst,omitempty"`     // 1 to MaxNumber; 0: the configured burst, in proportion to Requests
	Algorithm string `json:"algorithm,omitempty"` // "": the configured one
}

// Impact is what the advisor takes its advice to do.
type Impact struct {
	BaselineKeys float64 `json:"baseline_keys"` // the part of usual keys that it would reject, 0 to 1
}

// Above is a threshold: keys that ask for more get a limit of their own, for a while. It names no key.
type Above struct {
	RequestsPerSecond float64 `json:"requests_per_second"` // more than 0, up to MaxNumber
	Limit             string  `json:"limit"`               // "2/1s": <requests>/<duration from 1s to 1h>
	For               string  `json:"for"`                 // a duration from 1s to 1h
}

// Forecast is of the demand that the limit is for, in requests in the limit's period: of the key that Quantile of the keys do not exceed, or of all
// requests where the key is the same for all. 0 ≤ Lower ≤ Mean ≤ Upper ≤ MaxDemand.
type Forecast struct {
	Mean     float64 `json:"mean"`
	Lower    float64 `json:"lower"`
	Upper    float64 `json:"upper"`
	Quantile float64 `json:"quantile"` // between 0 and 1
}

// The reasons for which a document is refused, as a whole, in the order in which they are checked. They are labels of metrics.
const (
	Unavailable  = "unavailable"   // no connection, a time-out, a status other than 200 and 304, a redirect
	TooLarge     = "too_large"     // over MaxBytes
	BadSignature = "signature"     // none, or none by the advisor's key
	Malformed    = "malformed"     // no JSON, a duplicate name, a field that is missing or has another type
	BadVersion   = "version"       // another than Version
	UnknownField = "unknown_field" //
	BadValue     = "value"         // out of its range
	BadTime      = "time"          // expired, or not as the fields of the times say
	OtherConfig  = "config"        // made for other rules: see Digest
	OtherRule    = "rule"          // for a rule that is not adaptable
	OldSerial    = "serial"        // not above the last one
)

// Reasons are all of them, in that order.
var Reasons = []string{Unavailable, TooLarge, BadSignature, Malformed, BadVersion, UnknownField, BadValue, BadTime, OtherConfig, OtherRule, OldSerial}

// Refusal is why a document is refused.
type Refusal struct {
	Reason string // one of Reasons
	Text   string // what is wrong, and where
}

// Error returns reason and text.
func (r *Refusal) Error() string { return r.Reason + ": " + r.Text }

// Expect is what a proxy expects of a document.
type Expect struct {
	Now    int64           // microseconds since the epoch
	Config string          // the Digest of its adaptable rules
	Rules  map[string]bool // their labels
	Serial int64           // of the last document that it has taken; 0: none
}

// Parse reads a document and checks it against what is expected. It returns the document, or why it is refused.
func Parse(body []byte, e Expect) (*Document, *Refusal) {
	d, refusal := readFor(body, len(e.Rules))
	if refusal != nil {
		return nil, refusal
	}
	if refusal = Check(d, e); refusal != nil {
		return nil, refusal
	}
	return d, nil
}

// Check checks what a document that Read has read says against what is expected.
func Check(d *Document, e Expect) *Refusal {
	now := time.UnixMicro(e.Now)
	switch {
	case d.EffectiveAt.Before(d.IssuedAt) || d.EffectiveAt.After(d.IssuedAt.Add(MaxDelay)):
		return refuse(BadTime, "effective_at %s: must be from issued_at to an hour later", written(d.EffectiveAt))
	case !d.ExpiresAt.After(d.EffectiveAt) || d.ExpiresAt.After(d.IssuedAt.Add(MaxValid)):
		return refuse(BadTime, "expires_at %s: must be after effective_at, and at most a day after issued_at", written(d.ExpiresAt))
	case !d.ExpiresAt.After(now):
		return refuse(BadTime, "expires_at %s: is over; it is %s", written(d.ExpiresAt), written(now))
	case d.IssuedAt.After(now.Add(MaxAhead)):
		return refuse(BadTime, "issued_at %s: must be at most a minute ahead of this clock, which has %s", written(d.IssuedAt), written(now))
	case d.Config != e.Config:
		return refuse(OtherConfig, "config %s: must be the digest of the rules here, %s", d.Config, e.Config)
	}
	for _, r := range d.Rules {
		if !e.Rules[r.Rule] {
			return refuse(OtherRule, "rule %q: no rule of this name has adapt", r.Rule)
		}
	}
	for _, n := range d.Abstained {
		if !e.Rules[n.Rule] {
			return refuse(OtherRule, "rule %q: no rule of this name has adapt", n.Rule)
		}
	}
	if d.Serial <= e.Serial {
		return refuse(OldSerial, "serial %d: must be above the last one, %d", d.Serial, e.Serial)
	}
	return nil
}

// Marshal writes a document, for advisors. It returns an error if proxies would refuse it whatever their rules are and whenever they get it.
func Marshal(d *Document) ([]byte, error) {
	w := *d
	w.Version = Version
	w.IssuedAt, w.EffectiveAt, w.ExpiresAt = d.IssuedAt.UTC(), d.EffectiveAt.UTC(), d.ExpiresAt.UTC()
	if w.Rules == nil {
		w.Rules = []Rule{}
	}
	body, err := json.Marshal(&w)
	if err != nil {
		return nil, err
	}
	read, refusal := Read(body)
	if refusal == nil {
		refusal = Check(read, Expect{Now: read.IssuedAt.UnixMicro(), Config: read.Config, Rules: labelsOf(read)})
	}
	if refusal != nil {
		return nil, errors.New(refusal.Error())
	}
	return body, nil
}

func labelsOf(d *Document) map[string]bool {
	labels := make(map[string]bool)
	for i := range d.Rules {
		labels[d.Rules[i].Rule] = true
	}
	for i := range d.Abstained {
		labels[d.Abstained[i].Rule] = true
	}
	return labels
}

func refuse(reason, format string, args ...interface{}) *Refusal {
	return &Refusal{Reason: reason, Text: fmt.Sprintf(format, args...)}
}

func written(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
