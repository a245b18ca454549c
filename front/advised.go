package front

import (
	"bytes"
	"sync"
	"time"

	"github.com/proxyweir/weir/advice"
)

// Advised is a proxy whose rules an advisor advises: the board that takes its documents, and the fleet that agrees on one. Tick is to be called each
// second, by one goroutine.
type Advised struct {
	Adaptation *Adaptation

	// Agree takes part in the fleet of the nodes with rules of that digest, as redis.Agree does; nil: the node is alone.
	Agree func(digest string, known int64, p *Proposal) (*Agreement, error)

	mu       sync.Mutex
	known    int64     // the serial of the fleet's document
	proposal *Proposal // that is not handed over yet; nil: none
	held     *Proposal // the last document, as it was handed over or came; nil: none
	expires  int64     // when it is over
	failed   bool      // the fleet's store fails, and each node polls
	leads    bool
}

// Proposal is a redis.Proposal.
type Proposal struct {
	Serial   int64
	Document []byte
	After    time.Duration
	Keep     time.Duration
}

// Agreement is a redis.Agreement.
type Agreement struct {
	Now       int64
	Leads     bool
	Serial    int64
	Effective int64
	Document  []byte
}

// fleetDelay is how long after it was handed over a fleet's document takes effect: by then all nodes have asked for it, each second, and taken it. Nodes
// tick with the whole seconds of their clocks, so the time between two of them is in the middle of two ticks, and all follow it with the same one.
const fleetDelay = 1500 * time.Millisecond

// Digest returns the digest of the rules.
func (a *Advised) Digest() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Adaptation.Board.Digest()
}

// Replace replaces the board and Adaptation.Rules, since the rules are others, and puts in force at once what the board goes on with.
func (a *Advised) Replace(board *advice.Board, rules func(label string) ([]*Place, []Watched), now, guardNow int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Adaptation.Board = board
	a.Adaptation.Rules = rules
	a.known = 0 // what the fleet has may be for these rules
	a.held = nil
	a.proposal = nil
	a.Adaptation.Turn(now, guardNow)
}

// End ends what guards do by advice, when the proxy has no advisor any more.
func (a *Advised) End() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Adaptation.Board != nil {
		a.Adaptation.End()
	}
}

// Refuse notes that no document came.
func (a *Advised) Refuse(refusal *advice.Refusal, now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Adaptation.Board.Refuse(refusal, now)
}

// MayPoll reports whether there is an adaptable rule, and it is this node that asks the advisor.
func (a *Advised) MayPoll() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.Adaptation.Board.Labels()) > 0 && (a.Agree == nil || a.failed || a.leads)
}

// Take takes a document that the advisor has sent to this node, and hands it to the fleet, if there is one. It returns why it is refused; nil: it is not.
func (a *Advised) Take(body []byte, signature string, now int64) *advice.Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Agree == nil {
		_, refusal := a.Adaptation.Board.Take(body, signature, now)
		return refusal
	}
	d, refusal := a.Adaptation.Board.Check(body, signature, now)
	if refusal != nil {
		a.Adaptation.Board.Refuse(refusal, now)
		return refusal
	}
	if d != nil {
		a.proposal = &Proposal{Serial: d.Serial, Document: append([]byte(signature+"\n"), body...), After: fleetDelay}
		a.expires = d.ExpiresAt.UnixMicro()
		a.proposal.Keep = time.Duration(a.expires-now) * time.Microsecond
		a.held = a.proposal
		if a.failed {
			a.take(a.held.Document, now, 0)
		}
	}
	return refusal
}

// Tick does what is to be done each second. The times are as in Adaptation.Turn.
func (a *Advised) Tick(now, guardNow int64) {
	if a.Agree != nil {
		a.agree(now)
	}
	a.Now(now, guardNow)
}

// Now carries out at once what was done by hand.
func (a *Advised) Now(now, guardNow int64) {
	a.mu.Lock()
	a.Adaptation.Turn(now, guardNow)
	a.mu.Unlock()
}

// agree takes part in the fleet. While its store fails, each node asks the advisor for itself; what a store has lost, the node that leads hands over again.
func (a *Advised) agree(now int64) {
	a.mu.Lock()
	known := a.known
	p := a.proposal
	digest := a.Adaptation.Board.Digest()
	a.mu.Unlock()
	got, err := a.Agree(digest, known, p)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = err != nil
	if err != nil {
		if p != nil && a.proposal == p { // handed over later, if that is still needed
			a.take(p.Document, now, 0)
		}
		return
	}
	if a.proposal == p {
		a.proposal = nil
	}
	a.leads = got.Leads
	if got.Serial != known {
		a.known = got.Serial
		if got.Document != nil {
			a.held = &Proposal{Serial: got.Serial, Document: got.Document, After: fleetDelay}
			a.take(got.Document, now, now+got.Effective-got.Now)
			if d := a.Adaptation.Board.Look().Document; d != nil {
				a.expires = d.ExpiresAt.UnixMicro()
			}
		}
	}
	if got.Leads && a.proposal == nil && a.held != nil && got.Serial < a.held.Serial && now < a.expires {
		again := *a.held
		again.Keep = time.Duration(a.expires-now) * time.Microsecond
		a.proposal = &again
	}
}

// take takes a fleet's document, which has its signature in front.
func (a *Advised) take(document []byte, now, effective int64) {
	end := bytes.IndexByte(document, '\n')
	if end < 0 {
		return
	}
	_, _ = a.Adaptation.Board.TakeAt(document[end+1:], string(document[:end]), now, effective) // the board counts a refusal
}
