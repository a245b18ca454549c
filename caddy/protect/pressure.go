package protect

import (
	"math"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/pressure"
)

// GuardPressure says whom to ask how busy the service is, and from what value on that is high.
type GuardPressure struct {
	// The address of the number: of a health endpoint, or with a query that of a Prometheus. Required.
	URL string `json:"url"`

	// Where the number is in an answer in JSON: names of fields and places in lists, with dots between them. Without it the whole answer is the
	// number.
	Field string `json:"field,omitempty"`

	// PromQL that returns one series.
	Query string `json:"query,omitempty"`

	// From what value on the pressure is high. Above 0; the default is 0.9.
	High *float64 `json:"high,omitempty"`

	// How often it is asked. From 100ms to 1m; the default is 1s.
	Interval caddy.Duration `json:"interval,omitempty"`
}

// readPressure reads pressure <url> [{ ... }].
func (g *Guard) readPressure(d *caddyfile.Dispenser) error {
	args := d.RemainingArgs()
	if len(args) != 1 {
		return d.Err("guard: pressure: takes an address, such as http://10.0.0.5:9100/health")
	}
	p := &GuardPressure{URL: args[0]}
	g.Pressure = p
	_, err := syntax.ReadBlock(d, "guard: pressure", []syntax.Setting{
		{Word: "field", To: &p.Field},
		{Word: "query", To: &p.Query},
		{Word: "high", To: &p.High, Most: math.MaxFloat64, Must: "a number above 0, such as 0.9"},
		syntax.DurationTo("interval", &p.Interval, "100ms", "1m"),
	}, nil)
	return err
}

// source returns whom to ask, or says what is wrong with that.
func (p *GuardPressure) source() (s pressure.Source, err error) {
	if p == nil {
		return s, nil
	}
	high := ""
	if p.High != nil {
		high = strconv.FormatFloat(*p.High, 'g', -1, 64)
	}
	return pressure.NewSource(p.URL, p.Field, p.Query, high, time.Duration(p.Interval))
}

// watch has the guard told of the pressure that a source has. A source that is asked already goes on to be.
func (s *GuardState) watch(source pressure.Source) {
	log := func() *zap.Logger { // the watch outlives a handler's own
		return caddy.Log().Named("http.handlers.rate_limit").With(zap.String("guard", s.Label))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pressure = pressure.Renew(s.pressure, pressure.Config{
		Source: source,
		Press:  func(until int64) { guard.Press(s.Guard, until) },
		Warn:   func(message string) { log().Warn(message) },
		Inform: func(message string) { log().Info(message) },
		Now:    func() int64 { return GuardNow() },
		Wait:   advice.Wait,
	})
}

// Pressure returns who asks for the pressure; nil: nobody does.
func (s *GuardState) Pressure() *pressure.Watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pressure
}
