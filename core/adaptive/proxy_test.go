package adaptive

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/advice"
)

// store is what the nodes of a fleet agree in, by a clock of the test's. It may fail, and lose what it has.
type fleetStore struct {
	leader string
	fails  bool
	kept   *advice.Proposal

	delay     int64 // from when a document is handed over until it takes effect, in microseconds
	effective int64
}

func (s *fleetStore) agree(node string, known int64, p *advice.Proposal, now int64) (*advice.Agreement, error) {
	if s.fails {
		return nil, errors.New("the store fails")
	}
	if s.leader == "" {
		s.leader = node
	}
	if p != nil && s.leader == node && (s.kept == nil || p.Serial > s.kept.Serial) {
		s.kept = p
		s.effective = now + s.delay
	}
	a := &advice.Agreement{Now: now, Leads: s.leader == node, Effective: s.effective}
	if s.kept != nil {
		a.Serial = s.kept.Serial
		if a.Serial > known {
			a.Document = s.kept.Document
		}
	}
	return a, nil
}

const fleetBegins = int64(1_800_000_000_000_000)

// fleetNode returns a node of the fleet with one rule.
func fleetNode(s *fleetStore, name string, now *int64) *Proxy {
	settings := advice.Settings{Gates: advice.Bounds, Step: 100, Every: 1_000_000}
	settings.Label = "api"
	settings.Requests = 100
	settings.Period = 60_000_000
	settings.Algorithm = "fixed_window"
	settings.Floor = 50
	settings.Ceiling = 200
	a := &Proxy{Controller: &Controller{Notify: func(c Change) {}}, Clock: func() int64 { return *now }}
	a.Agree = func(digest string, known int64, p *advice.Proposal) (*advice.Agreement, error) {
		return s.agree(name, known, p, *now)
	}
	a.Replace(advice.NewState(advice.StateConfig{Rules: []advice.Settings{settings}}, nil), func(label string) ([]*Instance, []Watched) { return nil, nil }, *now, 0)
	return a
}

func limitOf(a *Proxy) int64 {
	view, _ := a.Controller.State.LookAt("api")
	return view.Outcome.Requests
}

func documentOf(a *Proxy, serial, requests, now int64) []byte {
	at := time.UnixMicro(now).UTC()
	return []byte(fmt.Sprintf(`{"version":1,"serial":%d,"config":%q,"issued_at":%q,"effective_at":%q,"expires_at":%q,"model":{"name":"test","horizon_seconds":60,"skill_vs_last":null},"rules":[{"rule":"api","limit":{"requests":%d},"reason":"growth"}]}`,
		serial, a.Digest(), at.Format(time.RFC3339), at.Format(time.RFC3339), at.Add(time.Hour).Format(time.RFC3339), requests))
}

func TestAFleetGoesOnWhenItsStoreHasLostTheDocument(t *testing.T) {
	now := fleetBegins
	s := &fleetStore{}
	a, b := fleetNode(s, "a", &now), fleetNode(s, "b", &now)
	second := func(n int) {
		for i := 0; i < n; i++ {
			now += 1_000_000
			a.Tick(now, 0)
			b.Tick(now, 0)
		}
	}
	if a.MayPoll() || b.MayPoll() {
		t.Error("a node polls before it knows whether it leads")
	}
	second(1)
	if !a.MayPoll() || b.MayPoll() {
		t.Errorf("a may poll: %v, b: %v", a.MayPoll(), b.MayPoll())
	}
	if refusal := a.Take(documentOf(a, 5, 150, now), "", now); refusal != nil {
		t.Fatal(refusal)
	}
	second(3)
	if limitOf(a) != 150 || limitOf(b) != 150 {
		t.Errorf("limits of %d and %d", limitOf(a), limitOf(b))
	}
	// The store fails while the next document is handed over, and comes back empty.
	s.fails = true
	second(1)
	if !a.MayPoll() || !b.MayPoll() {
		t.Error("not each node asks for itself while the store fails")
	}
	if refusal := a.Take(documentOf(a, 6, 180, now), "", now); refusal != nil {
		t.Fatal(refusal)
	}
	second(2)
	s.fails = false
	s.kept = nil
	second(5)
	if limitOf(a) != 180 || limitOf(b) != 180 {
		t.Errorf("limits of %d and %d when the store is back", limitOf(a), limitOf(b))
	}
	// It loses all while nothing new comes.
	s.kept = nil
	c := fleetNode(s, "c", &now)
	second(2)
	c.Tick(now, 0)
	second(1)
	c.Tick(now, 0)
	if limitOf(c) != 180 {
		t.Errorf("a node that comes later has a limit of %d", limitOf(c))
	}
}

// A defect: a node that had to wait for the store put a document in force earlier than the others, by as long as it had waited.
func TestANodeThatWaitsForTheStoreFollowsWithTheOthers(t *testing.T) {
	now := fleetBegins
	s := &fleetStore{delay: fleetDelay.Microseconds()}
	a, b := fleetNode(s, "a", &now), fleetNode(s, "b", &now)
	a.Tick(now, 0)
	if refusal := a.Take(documentOf(a, 5, 150, now), "", now); refusal != nil {
		t.Fatal(refusal)
	}
	agree := a.Agree
	a.Agree = func(digest string, known int64, p *advice.Proposal) (*advice.Agreement, error) {
		now += 3_000_000
		return agree(digest, known, p)
	}
	now += 1_000_000
	a.Tick(now, 0)
	a.Agree = agree
	b.Tick(now, 0)
	a.Tick(now, 0)
	if limitOf(a) != 100 || limitOf(b) != 100 {
		t.Errorf("limits of %d and %d when the document was handed over, want 100 for both", limitOf(a), limitOf(b))
	}
	now += fleetDelay.Microseconds()
	a.Tick(now, 0)
	b.Tick(now, 0)
	if limitOf(a) != 150 || limitOf(b) != 150 {
		t.Errorf("limits of %d and %d when it takes effect, want 150 for both", limitOf(a), limitOf(b))
	}
}

// A defect: a node whose store had failed for longer than a document lasts refused it anew each second, and handed it over when the store was back.
func TestADocumentThatIsOverIsHandedToNobody(t *testing.T) {
	now := fleetBegins
	s := &fleetStore{}
	a := fleetNode(s, "a", &now)
	a.Tick(now, 0)
	s.fails = true
	a.Tick(now, 0)
	if refusal := a.Take(documentOf(a, 5, 150, now), "", now); refusal != nil {
		t.Fatal(refusal)
	}
	now += 3_600_000_000
	for i := 0; i < 5; i++ {
		now += 1_000_000
		a.Tick(now, 0)
	}
	s.fails = false
	a.Tick(now, 0)
	if view := a.Controller.State.Look(); len(view.Refused) > 0 || s.kept != nil {
		t.Errorf("refused %v, handed over %v", view.Refused, s.kept)
	}
}

// A defect: a node held what others had written into the store, and handed it over again when the store had lost it.
func TestWhatIsRefusedIsHandedToNobody(t *testing.T) {
	now := fleetBegins
	s := &fleetStore{kept: &advice.Proposal{Serial: 9, Document: []byte("garbage")}}
	a := fleetNode(s, "a", &now)
	a.Tick(now, 0)
	if view := a.Controller.State.Look(); view.Refused[advice.Malformed] != 1 {
		t.Errorf("refused %v", view.Refused)
	}
	s.kept = nil
	for i := 0; i < 3; i++ {
		now += 1_000_000
		a.Tick(now, 0)
	}
	if s.kept != nil {
		t.Errorf("handed over %q", s.kept.Document)
	}
}
