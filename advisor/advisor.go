package advisor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/proxyweir/weir/core/advice"
)

// Advisor computes advice, and serves it. New makes it; it is safe for concurrent use.
type Advisor struct {
	config  *Config
	source  Source
	digest  string // of the rules
	metrics *metrics
	now     func() time.Time

	computing sync.Mutex // held while advice is computed; kept is used with it alone
	kept      []memory   // of each rule

	mu     sync.RWMutex
	latest issued
	err    error // of the last computation
}

// issued is a document as it is served.
type issued struct {
	document  *advice.Document // nil: nothing was computed yet
	body      []byte
	tag       string
	signature string
}

// New returns an advisor for the rules of a configuration, which it computes from a source.
func New(c *Config, source Source) *Advisor {
	return &Advisor{config: c, source: remember(source), digest: c.Digest(), metrics: newMetrics(), now: time.Now, kept: make([]memory, len(c.Rules))}
}

// SetClock has the advisor go by another clock than the machine's. It is to be called before all others.
func (a *Advisor) SetClock(now func() time.Time) { a.now = now }

// Digest returns the digest of the rules, which proxies with the same rules send.
func (c *Config) Digest() string {
	list := make([]advice.Adaptable, 0, len(c.Rules))
	for i := range c.Rules {
		r := &c.Rules[i]
		a := advice.Adaptable{Label: r.Label, Requests: r.Limit.Requests, Period: r.Limit.Period, Calendar: r.Calendar, Algorithm: r.Limit.Algorithm.String(),
			Floor: r.Floor, Ceiling: r.Ceiling, Algorithms: r.Algorithms}
		if r.Limit.IsBucket {
			a.Burst = r.Limit.Quota
		}
		list = append(list, a)
	}
	return advice.Digest(list)
}

// Find finds out about all rules what the source knows at a time, in the order of the configuration. Errors are in the findings.
func (a *Advisor) Find(ctx context.Context, now time.Time) []Finding {
	a.computing.Lock()
	defer a.computing.Unlock()
	findings := make([]Finding, len(a.config.Rules))
	pressed := a.config.pressed(ctx, a.source, now)
	for i := range a.config.Rules {
		findings[i] = find(ctx, a.config, &a.config.Rules[i], a.source, &a.kept[i], now, pressed)
	}
	return findings
}

// Compute makes the document that is served from now on. If the source answers for no rule, the former one stays until it expires. The error, which is also
// told by the health, has what the source did not answer.
func (a *Advisor) Compute(ctx context.Context) error {
	now := a.now()
	findings := a.Find(ctx, now)
	took := a.now().Sub(now)
	var failed []error
	for _, f := range findings {
		if f.Err != nil {
			failed = append(failed, fmt.Errorf("rule %q: %w", f.Rule, f.Err))
		}
	}
	err := errors.Join(failed...)
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(findings) == 0 || slices.ContainsFunc(findings, func(f Finding) bool { return f.Reason != WithoutSource }) {
		if wrong := a.issue(findings, now); wrong != nil {
			err = errors.Join(err, wrong)
		}
	}
	a.err = err
	a.metrics.computed(a.config, findings, a.latest.document, took, err)
	return err
}

// Latest returns the last document as it is served, or nil if there is none yet.
func (a *Advisor) Latest() []byte {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.latest.body
}

// issue makes a document of findings. The serial is the time in milliseconds, so that it rises over restarts, and at least one more than the last.
func (a *Advisor) issue(findings []Finding, now time.Time) error {
	serial := now.UnixMilli()
	if last := a.latest.document; last != nil {
		serial = max(serial, last.Serial+1)
	}
	d := a.config.document(findings, now, serial)
	d.Config = a.digest
	body, err := advice.Marshal(d)
	if err != nil {
		return fmt.Errorf("the document is wrong: %w", err)
	}
	a.latest = issued{document: d, body: body, tag: strconv.Quote(strconv.FormatInt(serial, 10))}
	if a.config.PrivateKey != nil {
		a.latest.signature = advice.Sign(a.config.PrivateKey, body)
	}
	return nil
}

// document writes findings as advice. Its skill is the least of those of its forecasts.
func (c *Config) document(findings []Finding, now time.Time, serial int64) *advice.Document {
	d := &advice.Document{
		Version: advice.Version, Serial: serial, IssuedAt: now, EffectiveAt: now, ExpiresAt: now.Add(c.Expires),
		Model: advice.Model{Name: "holt-winters", HorizonSeconds: int64(c.Horizon / time.Second)},
	}
	for i, f := range findings {
		r := advice.Rule{Rule: f.Rule, Reason: f.Reason}
		switch {
		case f.Above != nil:
			r.Above = &advice.Above{RequestsPerSecond: rounded(f.Above.PerSecond), Limit: f.Above.Limit, For: "5m"}
			r.Impact = &advice.Impact{BaselineKeys: 0.001} // at most: it is three times what one in a thousand exceeded
			confidence := rounded(f.Above.Confidence)
			r.Confidence = &confidence
		case f.Requests > 0:
			r.Limit = &advice.Limit{Requests: f.Requests}
			b := f.Forecast.Band
			r.Forecast = &advice.Forecast{Mean: rounded(b.Mean), Lower: rounded(b.Lower), Upper: rounded(b.Upper), Quantile: c.Rules[i].Quantile}
			if skill := rounded(f.Forecast.Skill); d.Model.SkillVsLast == nil || skill < *d.Model.SkillVsLast {
				d.Model.SkillVsLast = &skill
			}
		default:
			d.Abstained = append(d.Abstained, advice.Abstained{Rule: f.Rule, Reason: f.Reason})
			continue
		}
		d.Rules = append(d.Rules, r)
	}
	return d
}

// rounded returns a number with at most four digits after the point.
func rounded(x float64) float64 { return math.Round(x*1e4) / 1e4 }
