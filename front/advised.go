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

	// Agree takes part in a fleet, as redis.Agree does; nil: the node is alone.
	Agree func(known int64, p *Proposal) (*Agreement, error)

	mu       sync.Mutex
	known    int64     // the serial of the fleet's document
	proposal *Proposal // that is not handed over yet; nil: none
	elects   bool      // the fleet says who polls; else this node does
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

// fleetDelay is how long after it was handed over a fleet's document takes effect: by then all nodes have asked for it, each second, and taken it.
const fleetDelay = 2 * time.Second

// Digest returns the digest of the rules.
func (a *Advised) Digest() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Adaptation.Board.Digest()
}

// Adapts reports whether there is any adaptable rule.
func (a *Advised) Adapts() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.Adaptation.Board.Labels()) > 0
}

// Replace replaces the board and Adaptation.Rules, since the rules are others, and puts in force at once what the board goes on with.
func (a *Advised) Replace(board *advice.Board, rules func(label string) ([]*Place, []Watched), now, guardNow int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Adaptation.Board = board
	a.Adaptation.Rules = rules
	a.known = 0 // what the fleet has may be for these rules
	a.Adaptation.Turn(now, guardNow)
}

// Refuse notes that no document came.
func (a *Advised) Refuse(refusal *advice.Refusal, now int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.Adaptation.Board.Refuse(refusal, now)
}

// MayPoll reports whether it is this node that asks the advisor.
func (a *Advised) MayPoll() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.Agree == nil || !a.elects || a.leads
}

// Take takes a document that the advisor has sent to this node, and hands it to the fleet, if there is one. It returns why it is refused; nil: it is not.
func (a *Advised) Take(body []byte, signature string, now int64) *advice.Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.Agree == nil || !a.elects {
		_, refusal := a.Adaptation.Board.Take(body, signature, now)
		return refusal
	}
	d, refusal := a.Adaptation.Board.Check(body, signature, now)
	if refusal != nil {
		a.Adaptation.Board.Refuse(refusal, now)
		return refusal
	}
	if d != nil {
		keep := time.Duration(d.ExpiresAt.UnixMicro()-now) * time.Microsecond
		a.proposal = &Proposal{Serial: d.Serial, Document: append([]byte(signature+"\n"), body...), After: fleetDelay, Keep: keep}
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

// agree takes part in the fleet. While its store fails, each node asks the advisor for itself.
func (a *Advised) agree(now int64) {
	a.mu.Lock()
	known := a.known
	p := a.proposal
	a.proposal = nil
	a.mu.Unlock()
	got, err := a.Agree(known, p)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.elects = err == nil
	if err != nil {
		if p != nil {
			a.take(p.Document, now, 0)
		}
		return
	}
	a.leads = got.Leads
	if got.Serial != known {
		a.known = got.Serial
		a.take(got.Document, now, now+got.Effective-got.Now)
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
