package adaptive

import (
	"sync"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
)

// Instance is where an adaptable rule decides on requests: in one handler, middleware, or set of rule files. A rule may have several.
type Instance struct {
	Rule    *ruleset.Rule // with Adapt
	Limiter *core.Limiter // which has opened its limits
	Applies bool          // advice is carried out, and not only shown

	mu  sync.Mutex
	put advice.Outcome // what Put was last called with, as far as it matters; zero: it was not
}

// Settings returns what advice has to know of the rule. label is its name in metrics; gates and warmUp are the advisor's.
func (p *Instance) Settings(label, gates string, warmUp int64) advice.Settings {
	a := p.Rule.Adapt
	own := p.Rule.Limits.Own().Limit
	s := advice.Settings{Step: a.StepPercent, Every: a.StepEvery, Gates: gates, WarmUp: warmUp, OneKey: ruleset.OneKey(p.Rule)}
	s.Label = label
	s.Requests = own.Requests
	s.Period = own.Period
	s.Calendar = own.CalendarText()
	s.Algorithm = own.Algorithm.String()
	s.Floor = a.Floor
	s.Ceiling = a.Ceiling
	if own.IsBucket {
		s.Burst = own.Quota
	}
	for _, algorithm := range a.Algorithms {
		s.Algorithms = append(s.Algorithms, algorithm.String())
	}
	return s
}

// Put puts the limit of an outcome in force. It does nothing if that is in force already, or after End of the rule's Active.
func (p *Instance) Put(o *advice.Outcome) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.put.Requests == o.Requests && p.put.Burst == o.Burst && p.put.Algorithm == o.Algorithm {
		return nil
	}
	var own *rate.Limit
	if !p.isConfigured(o) {
		algorithm, err := rate.ParseAlgorithm(o.Algorithm)
		if err != nil {
			return err
		}
		if own, err = ruleset.Adapted(p.Rule.Adapt, o.Requests, o.Burst, algorithm); err != nil {
			return err
		}
	}
	if err := ruleset.PutOwn(p.Rule, p.Limiter, own); err != nil {
		return err
	}
	p.put = advice.Outcome{Requests: o.Requests, Burst: o.Burst, Algorithm: o.Algorithm}
	return nil
}

// Resume puts in force what is in force in the instance of the same rule before a reload, so that no request meets the configured limit until advice is
// carried out again. It does nothing after Put, or if the reload has changed what advice may do. Either may be nil.
func (p *Instance) Resume(before *Instance) error {
	if p == nil || before == nil || !p.Applies {
		return nil
	}
	before.mu.Lock()
	inForce := before.put
	before.mu.Unlock()
	p.mu.Lock()
	put := p.put.Requests != 0
	p.mu.Unlock()
	ours := p.Settings("", "", 0)
	theirs := before.Settings("", "", 0)
	changed := advice.Digest([]advice.Adaptable{ours.Adaptable}) != advice.Digest([]advice.Adaptable{theirs.Adaptable})
	if put || changed || inForce.Requests == 0 {
		return nil
	}
	return p.Put(&inForce)
}

// isConfigured reports whether an outcome is the configured limit.
func (p *Instance) isConfigured(o *advice.Outcome) bool {
	own := p.Rule.Limits.Own().Limit
	return o.Requests == own.Requests && o.Algorithm == own.Algorithm.String() && (!own.IsBucket || o.Burst == own.Quota)
}
