// Package adapt carries out advice on the limits of Caddy's rules: of an advisor that is asked, or of the builtin one.
package adapt

import (
	"cmp"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/adaptive"
	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/redis"
)

// Controller carries out the advice on the rules of the configuration in force. What is in force, and what was frozen or reverted by hand, outlives
// reloads.
type Controller struct {
	mu      sync.Mutex
	of      *Source
	state   *advice.State   // of the last configuration with an advisor; nil: there was none
	proxy   *adaptive.Proxy // nil: there is no advisor
	poller  *advice.Poller  // nil: there is no advisor but the builtin one
	stop    chan struct{}   // ends the ticks; nil: there are none
	ended   chan struct{}
	builtin builtin
}

// Source has the rules of a configuration that an advisor advises on.
type Source struct {
	*Advisor
	Redis *redis.Store // by which the nodes of a fleet agree on who polls; nil: each does
	Rules func() map[string]*adaptive.Rule
}

// Metrics returns the advice on the rules of a configuration, as metrics show it; none without an advisor, or before it begins.
func (g *Controller) Metrics(a *Source) []metrics.Advice {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a == nil || g.of != a || g.state == nil {
		return nil
	}
	polls := int64(0)
	if g.poller != nil {
		polls = g.poller.Health().Polls
	}
	return []metrics.Advice{{State: g.state, Polls: polls, Applies: a.Applies()}}
}

// Use has the advice of a configuration apply, and no other; nil: there is none.
func (g *Controller) Use(a *Source) {
	g.end()
	if a == nil {
		g.state, g.builtin = nil, builtin{}
		return
	}
	g.mu.Lock()
	g.of = a
	g.proxy = a.proxy()
	if a.Redis != nil {
		g.proxy.Agree = redis.Agreeing(a.Redis, a.fleet, a.URL)
	}
	g.mu.Unlock()
	g.Refresh(a)
	if a.URL != adaptive.BuiltinAdvisor {
		g.poll(a.Advisor)
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	g.stop, g.ended = stop, ended
	go g.tick(g.proxy, stop, ended)
}

// end ends what use began.
func (g *Controller) end() {
	if g.stop == nil {
		return
	}
	if g.poller != nil {
		g.poller.Stop()
	}
	close(g.stop)
	<-g.ended
	g.proxy.End()
	g.mu.Lock()
	g.of, g.proxy, g.poller, g.stop = nil, nil, nil, nil
	g.mu.Unlock()
}

// Applies reports whether advice is carried out, and not only shown. Nobody's is not.
func (a *Advisor) Applies() bool { return a != nil && a.Mode == "apply" }

// tick carries advice out each second.
func (g *Controller) tick(proxy *adaptive.Proxy, stop, ended chan struct{}) {
	defer close(ended)
	ticks, end := AdviceClock.Ticks()
	defer end()
	for {
		select {
		case <-stop:
			return
		case <-ticks:
			now := AdviceClock.Now()
			g.advise(time.UnixMicro(now), proxy)
			proxy.Tick(now, protect.GuardNow())
		}
	}
}

// advise has the builtin advisor do its work, if it is that.
func (g *Controller) advise(now time.Time, proxy *adaptive.Proxy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.of != nil && g.of.URL == adaptive.BuiltinAdvisor {
		g.builtin.tick(now, proxy)
	}
}

// Refresh takes over the rules of a configuration, which may have changed, and puts in force what advice had made of them.
func (g *Controller) Refresh(a *Source) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a == nil || g.of != a {
		return
	}
	rules := a.Rules()
	c := advice.StateConfig{PublicKey: a.key, Advisor: a.URL + " " + a.fleet, Applies: a.Applies()}
	warmUp := cmp.Or(time.Duration(a.WarmUp), adaptive.DefaultAdvisorWarmUp).Microseconds()
	c.Rules = adaptive.SettingsOf(rules, a.Gates, warmUp, func(label string, err error) {
		a.logger.Error("advice cannot change the rule", zap.String("rule", label), zap.Error(err))
	})
	if a.URL == adaptive.BuiltinAdvisor {
		g.builtin.use(rules, c.Rules, a.logger)
	}
	g.state = g.proxy.Renew(c, rules, g.state, AdviceClock.Now(), protect.GuardNow())
}

// poll begins to ask the advisor.
func (g *Controller) poll(a *Advisor) {
	proxy := g.proxy
	poller, err := advice.NewPoller(advice.PollerConfig{
		Source: a.source, Interval: time.Duration(a.Interval), Digest: proxy.Digest, May: proxy.MayPoll,
		Take: func(body []byte, signature string, now int64) *advice.Refusal {
			return a.noteRefusal(proxy.Take(body, signature, now))
		},
		Refuse: func(refusal *advice.Refusal, now int64) {
			proxy.Refuse(a.noteRefusal(refusal), now)
		},
		Now: AdviceClock.Now, Wait: AdviceClock.Wait,
	})
	if err != nil { // the settings were checked
		a.logger.Error("advice cannot be fetched", zap.Error(err))
		return
	}
	poller.Start()
	g.mu.Lock()
	g.poller = poller
	g.mu.Unlock()
}

// noteRefusal logs that documents are refused for a reason that they were not refused for before, or taken again: nil. It returns what it was given. Only
// the poller calls it.
func (a *Advisor) noteRefusal(refusal *advice.Refusal) *advice.Refusal {
	switch {
	case refusal == nil && a.refused != "":
		a.logger.Info("advice is taken again")
		a.refused = ""
	case refusal != nil && refusal.Reason != a.refused:
		a.logger.Warn("advice is refused", zap.String("reason", refusal.Reason), zap.String("detail", refusal.Text))
		a.refused = refusal.Reason
	}
	return refusal
}

// proxy returns what carries the advisor's advice out.
func (a *Advisor) proxy() *adaptive.Proxy {
	return &adaptive.Proxy{Controller: &adaptive.Controller{Notify: a.logChange}, Clock: AdviceClock.Now}
}

// logChange logs a change, and writes it to the audit file.
func (a *Advisor) logChange(c adaptive.Change) {
	if c.Abstains {
		a.logger.Info("the advisor has nothing for the rule", zap.String("rule", c.Label), zap.Int64("serial", c.After.Serial), zap.String("reason", advice.Explain(&c.After)))
		return
	}
	fields := []zap.Field{
		zap.String("rule", c.Label), zap.String("before", adaptive.LimitText(&c.Before)), zap.String("after", adaptive.LimitText(&c.After)),
		zap.Int64("serial", c.After.Serial), zap.String("reason", advice.Explain(&c.After)),
	}
	switch {
	case c.Err != nil:
		a.logger.Error("advice could not change the limit", append(fields, zap.Error(c.Err))...)
	case !c.Applied:
		a.logger.Info("advice would change the limit; mode apply lets it", fields...)
	default:
		a.logger.Info("the limit has changed", fields...)
	}
	if a.audit == "" {
		return
	}
	if err := adaptive.WriteAudit(a.audit, adaptive.AuditOf(c, time.UnixMicro(AdviceClock.Now()))); err != nil {
		a.logger.Error("the audit file cannot be written", zap.String("file", a.audit), zap.Error(err))
	}
}

// Provision fills in placeholders, and reads the files that the settings name.
func (a *Advisor) Provision(ctx caddy.Context) error {
	a.logger = ctx.Logger()
	repl := caddy.NewReplacer()
	resolved := *a
	if err := syntax.ResolveTexts(repl, &resolved); err != nil {
		return fmt.Errorf("advisor: %w", err)
	}
	if err := resolved.check(); err != nil {
		return err
	}
	a.URL, a.Mode, a.Gates = resolved.URL, resolved.Mode, resolved.Gates // by which others go on
	a.fleet, a.audit = resolved.Fleet, resolved.Audit
	a.source = advice.Source{URL: resolved.URL, Fleet: resolved.Fleet, Token: resolved.Token, Timeout: time.Duration(a.Timeout)}
	if a.TLS != nil {
		t := *a.TLS
		config, _, err := t.Load(repl)
		if err != nil {
			return fmt.Errorf("advisor: tls: %w", err)
		}
		a.source.TLS = config
	}
	if resolved.PublicKey != "" {
		text, err := os.ReadFile(resolved.PublicKey)
		if err != nil {
			return fmt.Errorf("advisor: public_key: %w", err)
		}
		if a.key, err = advice.ParsePublicKey(text); err != nil {
			return fmt.Errorf("advisor: public_key %s: %w", resolved.PublicKey, err)
		}
	}
	if a.audit != "" {
		if err := adaptive.CheckAudit(a.audit); err != nil {
			return fmt.Errorf("advisor: %w", err)
		}
	}
	if resolved.URL != adaptive.BuiltinAdvisor {
		if err := advice.CheckSource(&a.source); err != nil {
			return fmt.Errorf("advisor: %w", err)
		}
	}
	if a.Gates == "bounds" {
		a.logger.Warn("gates bounds lets advice lower limits, and raise them under overload; gates full checks it by what Caddy itself sees")
	}
	return nil
}
