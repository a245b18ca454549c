package adapt

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/proxyweir/weir/advisor"
	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/core/adaptive"
	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/ruleset"
)

// The settings of the builtin advisor.
const (
	builtinStep    = 5 * time.Minute // from one snapshot and one document to the next
	builtinHistory = 14 * 24 * time.Hour
	builtinSeason  = 24 * time.Hour
	builtinHorizon = 30 * time.Minute
	builtinExpires = 30 * time.Minute
	builtinSkill   = 0.05

	builtinQuantile = 0.99
	builtinHeadroom = 1.2
)

// builtin is an advisor inside Caddy. It learns from what Caddy's guards see, over reloads, until Caddy ends.
type builtin struct {
	telemetry *advisor.Telemetry
	advisor   *advisor.Advisor // for the rules in force
	rules     map[string]*adaptive.Rule
	looked    time.Time // the step of the last snapshot
	logger    *zap.Logger
}

// use has the advisor advise on rules, whose settings these are.
func (b *builtin) use(rules map[string]*adaptive.Rule, settings []advice.Settings, logger *zap.Logger) {
	if b.telemetry == nil {
		b.telemetry = advisor.NewTelemetry(builtinStep, builtinHistory)
	}
	b.rules, b.logger = rules, logger
	c := &advisor.Config{Step: builtinStep, History: builtinHistory, Season: builtinSeason, Horizon: builtinHorizon, Interval: builtinStep, Expires: builtinExpires, MinimumSkill: builtinSkill}
	labels := make(map[string]bool)
	for i := range settings {
		s := &settings[i]
		r := rules[s.Label].Instances[0].Rule
		demand := advisor.DemandOfKey
		if ruleset.OneKey(r) {
			demand = advisor.DemandInAll
		}
		c.Rules = append(c.Rules, advisor.Rule{Label: s.Label, Limit: r.Limits.Own().Limit, Calendar: s.Calendar, Burst: s.Burst, Floor: s.Floor, Ceiling: s.Ceiling,
			Algorithms: s.Algorithms, Demand: demand, Quantile: builtinQuantile, Headroom: builtinHeadroom, Abuse: true})
		labels[s.Label] = true
	}
	b.telemetry.Keep(labels)
	b.advisor = advisor.New(c, b.telemetry)
	b.advisor.SetClock(func() time.Time { return time.UnixMicro(AdviceClock.Now()) })
}

// tick looks at the guards once a step, and makes a document, if it is this node that advises.
func (b *builtin) tick(now time.Time, proxy *adaptive.Proxy) {
	if b.advisor == nil || now.Truncate(builtinStep).Equal(b.looked) {
		return
	}
	b.looked = now.Truncate(builtinStep)
	for label, r := range b.rules {
		if s := snapshotOf(r.Guards, protect.GuardNow()); s.Keys != nil {
			b.telemetry.Add(label, now, s)
		}
	}
	if !proxy.MayPoll() {
		return
	}
	if err := b.advisor.Compute(context.Background()); err != nil {
		b.logger.Error("the builtin advisor has no advice", zap.Error(err))
		return
	}
	proxy.Take(b.advisor.Latest(), "", now.UnixMicro())
}

// snapshotOf returns what guards have seen of a rule, all together.
func snapshotOf(guards []adaptive.Watched, now int64) advisor.Snapshot {
	var all advisor.Snapshot
	for _, w := range guards {
		if w.Rule == nil {
			continue
		}
		at := guard.LookAt(w.Rule, now)
		if all.Keys == nil {
			all.Keys = make([]int64, len(at.Demand))
		}
		for i, n := range at.Demand {
			all.Keys[i] += n
		}
		all.AllKeys += at.Asked
		all.Requests += at.Requests
		all.TopShare = max(all.TopShare, at.Ten)
	}
	return all
}

// AdviceClock is the time by which advice goes: microseconds since the Unix epoch, ticks of a second, and how a poller waits (nil: by itself). Tests
// have one of their own.
var AdviceClock = struct {
	Now   func() int64
	Ticks func() (ticks <-chan time.Time, stop func())
	Wait  func(ctx context.Context, d time.Duration)
}{
	Now: func() int64 { return time.Now().UnixMicro() },
	Ticks: func() (<-chan time.Time, func()) { // with the whole seconds of the clock: so nodes whose clocks agree change a limit together
		rest := time.Second - time.Duration(time.Now().Nanosecond())
		t := time.NewTicker(rest)
		whole := time.AfterFunc(rest, func() { t.Reset(time.Second) })
		return t.C, func() {
			whole.Stop()
			t.Stop()
		}
	},
}
