package advice

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"sort"
	"sync"
)

// StateConfig is what a State is made of.
type StateConfig struct {
	Rules []Settings // CheckSettings has checked them; each label once

	Advisor string // who advises: another's advice does not outlive a reload
	Applies bool   // the proxy puts in force what Turn says; else that is only what would be

	// PublicKey is that of the advisor; nil: documents need no signature.
	PublicKey ed25519.PublicKey
}

// State has the adaptable rules of a proxy. It takes documents, from a poller or from elsewhere, and says each second what is in force. NewBoard
// makes it. It is safe for concurrent use, and on no request's way.
type State struct {
	digest  string
	advisor string
	applies bool
	key     ed25519.PublicKey
	labels  []string // in order

	mu       sync.Mutex
	rules    map[string]*advisedRule
	known    map[string]bool // the labels
	document *Document       // the last one that was taken; nil: none
	newest   newest          // its serial
	sum      [sha256.Size]byte
	takenAt  int64
	refused  map[string]int64 // documents, by reason
	last     *Refusal
	lastAt   int64
	reloaded []Change
}

type advisedRule struct {
	settings *Settings
	state    RuleState
	outcome  Outcome
	clamped  map[string]int64 // documents, by kind
}

// NewState makes a state. before is that of the configuration before a reload, whose limits in force, freezes, serials and counts go on; nil: there is
// none, and every rule begins as configured. So do all rules where what is said comes into force only now, or no longer; and of another advisor, or one
// with another key, nothing goes on but freezes. before may still be asked, but is not to be turned any more.
func NewState(c StateConfig, before *State) *State {
	b := &State{key: c.PublicKey, advisor: c.Advisor, applies: c.Applies, rules: make(map[string]*advisedRule), known: make(map[string]bool), refused: make(map[string]int64)}
	rules := make([]Adaptable, 0, len(c.Rules))
	for i := range c.Rules {
		s := c.Rules[i]
		rules = append(rules, s.Adaptable)
		b.labels = append(b.labels, s.Label)
		b.known[s.Label] = true
		r := &advisedRule{settings: &s, state: Start(&s), clamped: make(map[string]int64)}
		r.outcome = configured(&s)
		b.rules[s.Label] = r
	}
	sort.Strings(b.labels)
	b.digest = Digest(rules)
	if before != nil {
		b.resume(before)
	}
	return b
}

// configured returns the configured limit as what is in force.
func configured(s *Settings) Outcome {
	o := Outcome{Requests: s.Requests, Algorithm: s.Algorithm, Target: s.Requests, Why: Configured}
	if isBucket(s.Algorithm) {
		o.Burst = s.usualBurst()
	}
	return o
}

func (b *State) resume(before *State) {
	before.mu.Lock()
	defer before.mu.Unlock()
	same := b.advisor == before.advisor && bytes.Equal(b.key, before.key)
	if same {
		b.document = before.document
		b.newest = before.newest
		b.sum = before.sum
		b.takenAt = before.takenAt
		b.last = before.last
		b.lastAt = before.lastAt
		for reason, n := range before.refused {
			b.refused[reason] = n
		}
	}
	for _, label := range b.labels {
		r := b.rules[label]
		previous := before.rules[label]
		if previous == nil {
			continue
		}
		if same {
			r.resume(previous, b.applies == before.applies)
		} else {
			r.state = startAnew(r.settings, previous.state)
		}
		was := previous.inForce(before.applies)
		is := r.inForce(b.applies)
		if differs(&was, &is) {
			is.Why = Reloaded
			b.reloaded = append(b.reloaded, Change{Label: label, Before: was, After: is, Changed: true})
		}
	}
}

// resume has a rule go on from the previous one.
func (r *advisedRule) resume(previous *advisedRule, sameMode bool) {
	r.state = Resume(r.settings, previous.state)
	if !sameMode {
		r.state.goHome(r.settings)
		r.state.algorithm = r.settings.Algorithm
	} else if previous.state.line == r.state.line {
		r.outcome = previous.outcome // with which the next Turn's is compared
		r.state.write(r.settings, &r.outcome)
	}
	for kind, n := range previous.clamped {
		r.clamped[kind] = n
	}
}

// inForce returns what is in force of a rule.
func (r *advisedRule) inForce(applies bool) Outcome {
	if !applies {
		return configured(r.settings)
	}
	return r.outcome
}

// differs reports whether two outcomes have other limits, or only one has a threshold.
func differs(a, b *Outcome) bool {
	return a.Requests != b.Requests || a.Burst != b.Burst || a.Algorithm != b.Algorithm || (a.Above == nil) != (b.Above == nil)
}

// Applies reports whether the proxy puts in force what Turn says.
func (b *State) Applies() bool { return b.applies }

// Reloaded returns, once, what the reload for which the state was made has changed of what is in force.
func (b *State) Reloaded() []Change {
	b.mu.Lock()
	defer b.mu.Unlock()
	changes := b.reloaded
	b.reloaded = nil
	return changes
}

// Digest returns the digest of the state's rules.
func (b *State) Digest() string { return b.digest }

// Labels returns the labels of its rules, in order.
func (b *State) Labels() []string { return b.labels }

// Take takes a document: the body of an answer, and its SignatureHeader. It returns the document, and nothing where it is the last one again. Or it
// returns why it is refused, and counts that.
func (b *State) Take(body []byte, signature string, now int64) (*Document, *Refusal) {
	return b.TakeAt(body, signature, now, 0)
}

// TakeAt is Take for a document that is followed from a time on that the nodes of a fleet have agreed on, if that is later than it says itself.
func (b *State) TakeAt(body []byte, signature string, now, effective int64) (*Document, *Refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, refusal := b.read(body, signature, now)
	if refusal != nil {
		b.note(refusal, now)
		return nil, refusal
	}
	sum := sha256.Sum256(body)
	if sum == b.sum && d.Serial == b.newest.at(now) {
		return nil, nil //nolint:nilnil // no news
	}
	b.document = d
	b.sum = sum
	b.takenAt = now
	of := make(map[string]*Rule)
	for i := range d.Rules {
		of[d.Rules[i].Rule] = &d.Rules[i]
	}
	if own := d.EffectiveAt.UnixMicro(); own > effective {
		effective = own
	}
	expires := d.ExpiresAt.UnixMicro()
	b.newest.take(d.Serial, expires, now)
	why := make(map[string]string)
	for i := range d.Abstained {
		why[d.Abstained[i].Rule] = d.Abstained[i].Reason
	}
	for label, r := range b.rules {
		if of[label] == nil {
			Abstain(&r.state, why[label], d.Serial, effective, expires, now)
			continue
		}
		Take(&r.state, of[label], d.Serial, effective, expires, now)
	}
	return d, nil
}

// Check returns what Take would, but takes nothing.
func (b *State) Check(body []byte, signature string, now int64) (*Document, *Refusal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d, refusal := b.read(body, signature, now)
	if refusal == nil && d.Serial == b.newest.at(now) {
		return nil, nil //nolint:nilnil // no news
	}
	return d, refusal
}

// read reads a document and checks it.
func (b *State) read(body []byte, signature string, now int64) (*Document, *Refusal) {
	if len(body) > MaxBytes {
		return nil, refuse(TooLarge, "over %d bytes", MaxBytes)
	}
	if b.key != nil {
		if refusal := Verify(b.key, body, signature); refusal != nil {
			return nil, refusal
		}
	}
	e := Expect{Now: now, Config: b.digest, Rules: b.known}
	if sha256.Sum256(body) != b.sum {
		e.Serial = b.newest.at(now)
	}
	return Parse(body, e)
}

// Refuse counts that no document came, or none that could be read.
func (b *State) Refuse(refusal *Refusal, now int64) {
	b.mu.Lock()
	b.note(refusal, now)
	b.mu.Unlock()
}

func (b *State) note(refusal *Refusal, now int64) {
	b.refused[refusal.Reason]++
	b.last = refusal
	b.lastAt = now
}

// Change is what a Turn has made of a rule.
type Change struct {
	Label         string
	Before, After Outcome

	// Changed says that requests, burst or algorithm are others than Before, and that the proxy must put them in force; or that a threshold begins or
	// ends.
	Changed bool
}

// Turn draws the consequences of a second for all rules. of returns what the proxy sees of one, by its label. It returns what is in force for each
// rule, in the order of Labels, and what was. A proxy whose configuration is new has configured limits in force, whatever was before: so after a
// reload it calls Turn at once, and puts what that says in force whether it has Changed or not.
func (b *State) Turn(now int64, of func(label string) Conditions) []Change {
	seen := make([]Conditions, len(b.labels))
	for i, label := range b.labels {
		seen[i] = of(label) // without the lock
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	changes := make([]Change, 0, len(b.labels))
	for i, label := range b.labels {
		r := b.rules[label]
		before := r.outcome
		r.outcome = Turn(r.settings, &r.state, seen[i], now)
		for _, kind := range r.outcome.Clamps {
			r.clamped[kind]++
		}
		after := r.outcome
		changes = append(changes, Change{Label: label, Before: before, After: after, Changed: differs(&before, &after)})
	}
	return changes
}

// Freeze keeps a rule as it is until a time; 0 ends that. It reports whether there is such a rule.
func (b *State) Freeze(label string, until int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rules[label]
	if r == nil {
		return false
	}
	Freeze(&r.state, until)
	return true
}

// Revert puts the configured limit of a rule in force with the next Turn, and has all advice so far ignored. It reports whether there is such a rule.
func (b *State) Revert(label string, now int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rules[label]
	if r == nil {
		return false
	}
	Revert(r.settings, &r.state, now)
	return true
}

// RuleView is what a page or a metric shows of a rule.
type RuleView struct {
	Settings  Settings
	Outcome   Outcome          // of the last Turn
	Advice    *Rule            // the newest document's; nil: it has nothing for the rule
	Clamped   map[string]int64 // documents, by kind
	WalksBack int64            // how long it would take to be at the configured limit again, in microseconds
}

// LookAt returns a view of a rule. It reports whether there is such a rule.
func (b *State) LookAt(label string) (view RuleView, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.rules[label]
	if r == nil {
		return view, false
	}
	view.Settings = *r.settings
	view.Outcome = r.outcome
	view.WalksBack = WalkBack(r.settings, &r.state)
	view.Clamped = copyCounts(r.clamped)
	if b.document != nil {
		for i := range b.document.Rules {
			if b.document.Rules[i].Rule == label {
				view.Advice = &b.document.Rules[i]
			}
		}
	}
	return view, true
}

// View is what a page or a metric shows of the advice as a whole.
type View struct {
	Document    *Document        // the last one that was taken; nil: none
	TakenAt     int64            // microseconds since the epoch
	Refused     map[string]int64 // documents, by reason; also Unavailable
	LastRefusal *Refusal         // nil: none
	RefusedAt   int64
}

// Look returns a view of the state.
func (b *State) Look() View {
	b.mu.Lock()
	defer b.mu.Unlock()
	return View{Document: b.document, TakenAt: b.takenAt, Refused: copyCounts(b.refused), LastRefusal: b.last, RefusedAt: b.lastAt}
}

func copyCounts(counts map[string]int64) map[string]int64 {
	c := make(map[string]int64, len(counts))
	for name, n := range counts {
		c[name] = n
	}
	return c
}
