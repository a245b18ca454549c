package adaptive

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/proxyweir/weir/core/advice"
)

// Audit is a line of an audit file: a change of a rule's limit.
type Audit struct {
	Time    time.Time  `json:"time"`
	Rule    string     `json:"rule"`
	Applied bool       `json:"applied"` // false: the advisor is only observed, and nothing has changed
	Before  AuditLimit `json:"before"`
	After   AuditLimit `json:"after"`
	Serial  int64      `json:"serial,omitempty"` // of the advice that is followed
	Why     string     `json:"why"`              // a word of advice.Outcome.Why
	Reason  string     `json:"reason"`           // in words
	Actor   string     `json:"actor"`            // advisor; guard, where it ends what advice had loosened; operator, by hand or by a reload; or time, where advice is over
	Error   string     `json:"error,omitempty"`  // why the limit could not change
}

// AuditLimit is a limit in an audit file.
type AuditLimit struct {
	Requests  int64  `json:"requests"`
	Burst     int64  `json:"burst,omitempty"`
	Algorithm string `json:"algorithm"`
	Above     string `json:"above,omitempty"` // the threshold that holds besides, in words
}

// AuditOf returns the line of a change.
func AuditOf(c Change, now time.Time) Audit {
	line := Audit{
		Time: now.UTC(), Rule: c.Label, Applied: c.Applied, Before: AuditLimitOf(&c.Before), After: AuditLimitOf(&c.After),
		Serial: c.After.Serial, Why: c.After.Why, Reason: advice.Explain(&c.After), Actor: actorOf(c.After.Why),
	}
	if c.Before.Above != nil {
		line.Before.Above = c.Before.Above.String()
	}
	if c.After.Above != nil {
		line.After.Above = c.After.Above.String()
	}
	if c.Err != nil {
		line.Error = c.Err.Error()
	}
	return line
}

// AuditLimitOf returns the limit of an outcome.
func AuditLimitOf(o *advice.Outcome) AuditLimit {
	return AuditLimit{Requests: o.Requests, Burst: o.Burst, Algorithm: o.Algorithm}
}

func actorOf(why string) string {
	switch why {
	case advice.GateOverload, advice.GateConcentration, advice.GateUnknown, advice.GateWarmUp:
		return "guard"
	case advice.Frozen, advice.Reverted, advice.Reloaded:
		return "operator"
	case advice.Expired, advice.Configured:
		return "time"
	}
	return "advisor"
}

// LimitText returns the limit of an outcome in words: "120 token_bucket burst 24", and the threshold that holds besides.
func LimitText(o *advice.Outcome) string {
	text := strconv.FormatInt(o.Requests, 10) + " " + o.Algorithm
	if o.Burst > 0 {
		text += " burst " + strconv.FormatInt(o.Burst, 10)
	}
	if o.Above != nil {
		text += "; " + o.Above.String()
	}
	return text
}

// CheckAudit says what is wrong with the name of an audit file. The error begins with the setting.
func CheckAudit(name string) error {
	if folder, err := os.Stat(filepath.Dir(name)); err != nil || !folder.IsDir() {
		return fmt.Errorf("audit %s: its folder does not exist; make it, or write another file", name)
	}
	if there, err := os.Stat(name); err == nil && !there.Mode().IsRegular() { // a pipe would hold up all that waits for it
		return fmt.Errorf("audit %s: must be a file", name)
	}
	return nil
}

// WriteAudit appends a line to an audit file. It opens the file each time, so that it can be rotated.
func WriteAudit(name string, line Audit) error {
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
