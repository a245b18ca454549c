package adaptive

import (
	"bytes"
	"sync"
	"time"

	"github.com/proxyweir/weir/core/advice"
)

// Proxy is a proxy whose rules an advisor advises: the state that takes its documents, and the fleet that agrees on one. Tick is to be called each
// second, by one goroutine.
type Proxy struct {
	Controller *Controller

	// Agree takes part in the fleet of the nodes with rules of that digest, as redis.Agree does; nil: the node is alone.
	Agree func(digest string, known int64, p *advice.Proposal) (*advice.Agreement, error)

	// Clock is the wall clock, in microseconds since the Unix epoch. Agree may take a while, so the time is read again when it has returned.
	Clock func() int64

	mu       sync.Mutex
	known    int64         // the serial of the fleet's document
	proposal *heldDocument // that is not handed over yet; nil: none
	held     *heldDocument // the last one that was taken, as it was handed over or came; nil: none
	failed   bool          // the fleet's store fails, and each node polls
	leads    bool
}

// heldDocument is a document with its signature in front, as a fleet hands it on.
type heldDocument struct {
	serial   int64
	document []byte
	expires  int64 // when it is over
}

// lasts reports whether there is a document, and it is not over.
func lasts(h *heldDocument, now int64) bool { return h != nil && now < h.expires }

// fleetDelay is how long after it was handed over a fleet's document takes effect: by then all nodes have asked for it, each second, and taken it. Nodes
// tick with the whole seconds of their clocks, so the time between two of them is in the middle of two ticks, and all follow it with the same one.
const fleetDelay = 1500 * time.Millisecond

// Digest returns the digest of the rules.
func (a *Proxy) Digest() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Controller.State.Digest()
}

// Replace replaces the state and Controller.Rules, since the rules are others, and puts in force at once what the state goes on with.
func (a *Proxy) Replace(state *advice.State, rules func(label string) ([]*Instance, []Watched), now, guardNow int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Controller.State = state
	a.Controller.Rules = rules
	a.known = 0 // what the fleet has may be for these rules
	a.held = nil
	a.proposal = nil
	a.Controller.Resume()
	a.Controller.Turn(now, guardNow)
}

// Rule is an adaptable rule: where it decides, and what the guards before its services know of it.
type Rule struct {
	Instances []*Instance
	Guards    []Watched
}

// SettingsOf returns the settings of adaptable rules, by label, under such gates and with such a warm-up in microseconds. It leaves out those that advice
// cannot change, and says why.
func SettingsOf(rules map[string]*Rule, gates string, warmUp int64, failed func(label string, err error)) []advice.Settings {
	var list []advice.Settings
	for label, r := range rules {
		s := r.Instances[0].Settings(label, gates, warmUp)
		if err := advice.CheckSettings(&s); err != nil { // adapt was checked
			failed(label, err)
			continue
		}
		list = append(list, s)
	}
	return list
}

// Renew replaces the state by that of other rules, by label, which goes on with the one before, and returns it.
func (a *Proxy) Renew(c advice.StateConfig, rules map[string]*Rule, before *advice.State, now, guardNow int64) *advice.State {
	state := advice.NewState(c, before)
	a.Replace(state, func(label string) ([]*Instance, []Watched) {
		r := rules[label]
		if r == nil {
			r = &Rule{}
		}
		return r.Instances, r.Guards
	}, now, guardNow)
	return state
}

// End ends what guards do by advice, when the proxy has no advisor any more.
func (a *Proxy) End() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Controller.State != nil {
		a.Controller.End()
	}
}

// Refuse notes that no document came.
func (a *Proxy) Refuse(refusal *advice.Refusal, now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Controller.State.Refuse(refusal, now)
}

// MayPoll reports whether there is an adaptable rule, and it is this node that asks the advisor.
func (a *Proxy) MayPoll() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.Controller.State.Labels()) > 0 && (a.Agree == nil || a.failed || a.leads)
}

// Take takes a document that the advisor has sent to this node, and hands it to the fleet, if there is one. It returns why it is refused; nil: it is not.
func (a *Proxy) Take(body []byte, signature string, now int64) *advice.Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Agree == nil {
		_, refusal := a.Controller.State.Take(body, signature, now)
		return refusal
	}
	d, refusal := a.Controller.State.Check(body, signature, now)
	if refusal != nil {
		a.Controller.State.Refuse(refusal, now)
		return refusal
	}
	if d != nil {
		a.proposal = &heldDocument{serial: d.Serial, document: append([]byte(signature+"\n"), body...), expires: d.ExpiresAt.UnixMicro()}
		a.held = a.proposal
		if a.failed {
			_ = a.take(a.held.document, now, 0)
		}
	}
	return refusal
}

// Tick does what is to be done each second. The times are as in Adaptation.Turn.
func (a *Proxy) Tick(now, guardNow int64) {
	if a.Agree != nil {
		a.agree(now)
	}
	a.Now(now, guardNow)
}

// Now carries out at once what was done by hand.
func (a *Proxy) Now(now, guardNow int64) {
	a.mu.Lock()
	a.Controller.Turn(now, guardNow)
	a.mu.Unlock()
}

// agree takes part in the fleet. While its store fails, each node asks the advisor for itself; what a store has lost, the node that leads hands over again.
func (a *Proxy) agree(now int64) {
	a.mu.Lock()
	if !lasts(a.proposal, now) {
		a.proposal = nil
	}
	known := a.known
	p := a.proposal
	var proposed *advice.Proposal
	if p != nil {
		proposed = &advice.Proposal{Serial: p.serial, Document: p.document, After: fleetDelay, Keep: time.Duration(p.expires-now) * time.Microsecond}
	}
	digest := a.Controller.State.Digest()
	a.mu.Unlock()
	got, err := a.Agree(digest, known, proposed)
	now = a.Clock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = err != nil
	if err != nil {
		if p != nil && a.proposal == p { // handed over later, if that is still needed
			_ = a.take(p.document, now, 0)
		}
		return
	}
	if a.proposal == p {
		a.proposal = nil
	}
	a.leads = got.Leads
	if got.Serial != known {
		a.known = got.Serial
		if got.Document != nil && a.take(got.Document, now, now+got.Effective-got.Now) == nil {
			a.held = &heldDocument{serial: got.Serial, document: got.Document, expires: a.Controller.State.Look().Document.ExpiresAt.UnixMicro()}
		}
	}
	if got.Leads && a.proposal == nil && lasts(a.held, now) && got.Serial < a.held.serial {
		a.proposal = a.held
	}
}

// take takes a fleet's document. It returns why it is refused, which the state counts; nil: it is not.
func (a *Proxy) take(document []byte, now, effective int64) *advice.Refusal {
	signature, body, found := bytes.Cut(document, []byte("\n"))
	if !found {
		body = document // no document, as the state will find
	}
	_, refusal := a.Controller.State.TakeAt(body, string(signature), now, effective)
	return refusal
}
