package advice

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/underrace"
)

// someState returns a state of one rule, which someRule describes.
func someState(t testing.TB, gates string) *State {
	t.Helper()
	return NewState(StateConfig{Rules: []Settings{*someRule(t, gates)}}, nil)
}

// bodyOf writes a document for a state with one rule, or with none if that is nil.
func bodyOf(t testing.TB, b *State, serial, issued int64, r *Rule) []byte {
	t.Helper()
	d := plain()
	d.Serial = serial
	d.Config = b.Digest()
	d.IssuedAt = time.UnixMicro(issued)
	d.EffectiveAt = d.IssuedAt
	d.ExpiresAt = d.IssuedAt.Add(10 * time.Minute)
	d.Rules = nil
	if r != nil {
		d.Rules = append(d.Rules, *r)
	}
	body, err := Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// loosening is advice for a limit with a forecast that allows it.
func loosening(requests int64) *Rule {
	return &Rule{Rule: "api", Reason: "growth", Limit: &Limit{Requests: requests}, Forecast: &Forecast{Mean: 1e9, Upper: 1e9, Quantile: 0.99}}
}

var healthy = Conditions{Known: true, Learnt: 86400 * seconds}

func always(c Conditions) func(string) Conditions { return func(label string) Conditions { return c } }

func TestABoardTakesADocumentOnce(t *testing.T) {
	b := someState(t, Full)
	body := bodyOf(t, b, 5, begins, loosening(150))
	if d, refusal := b.Take(body, "", begins); d == nil || refusal != nil {
		t.Fatalf("%v %v", d, refusal)
	}
	if d, refusal := b.Take(body, "", begins+seconds); d != nil || refusal != nil {
		t.Errorf("the same again: %v %v", d, refusal)
	}
	if _, refusal := b.Take(bodyOf(t, b, 5, begins, loosening(160)), "", begins); refusal == nil || refusal.Reason != OldSerial {
		t.Errorf("the same serial with other bytes: %v", refusal)
	}
	if _, refusal := b.Take(body, "", begins+600*seconds); refusal == nil || refusal.Reason != BadTime {
		t.Errorf("the same again, when it is over: %v", refusal)
	}
	view := b.Look()
	if view.Document == nil || view.Document.Serial != 5 || view.TakenAt != begins || view.Refused[OldSerial] != 1 || view.Refused[BadTime] != 1 || view.LastRefusal.Reason != BadTime {
		t.Errorf("%+v", view)
	}
}

func TestABoardSaysWhyTheAdvisorAbstains(t *testing.T) {
	b := someState(t, Bounds)
	take := func(serial int64, abstained string) Outcome {
		t.Helper()
		body := string(bodyOf(t, b, serial, begins, nil))
		body = strings.Replace(body, `"rules":[]`, `"rules":[]`+abstained, 1)
		if d, refusal := b.Take([]byte(body), "", begins); d == nil || refusal != nil {
			t.Fatalf("%v: %s", refusal, body)
		}
		b.Turn(begins, always(healthy))
		view, _ := b.LookAt("api")
		return view.Outcome
	}
	for serial, test := range []struct{ abstained, reason, text string }{
		{"", "", "advice 1 has nothing for this rule; the configured limit holds"},
		{`,"abstained":[{"rule":"api","reason":"skill"}]`, "skill", "advice 2 has nothing for this rule (skill: forecasts were not better than simpler ones); the configured limit holds"},
		{`,"abstained":[{"rule":"api","reason":"strike"}]`, "strike", "advice 3 has nothing for this rule (strike); the configured limit holds"},
		{`,"abstained":[]`, "", "advice 4 has nothing for this rule; the configured limit holds"},
	} {
		o := take(int64(serial+1), test.abstained)
		if o.Why != Abstains || o.Reason != test.reason || Explain(&o) != test.text {
			t.Errorf("%s: %+v: %s", test.abstained, o, Explain(&o))
		}
	}
}

// A defect: one document with the highest serial silenced its advisor until the proxy was started again.
func TestASerialCountsUntilItsAdviceIsOver(t *testing.T) {
	b := someState(t, Bounds)
	take := func(serial, at int64) *Refusal {
		_, refusal := b.Take(bodyOf(t, b, serial, at, loosening(100+serial%100)), "", at)
		return refusal
	}
	if refusal := take(MaxSerial, begins); refusal != nil {
		t.Fatal(refusal)
	}
	b.Revert("api", begins)
	before := begins + 600*seconds - 1 // the advice is over in a microsecond
	if refusal := take(50, before); refusal == nil || refusal.Reason != OldSerial {
		t.Errorf("%v", refusal)
	}
	b = NewState(StateConfig{Rules: []Settings{*someRule(t, Bounds)}}, b)
	if refusal := take(50, before+1); refusal != nil {
		t.Fatal(refusal)
	}
	if c := b.Turn(before+1, always(Conditions{})); c[0].After.Target != 150 || c[0].After.Serial != 50 {
		t.Errorf("the rule does not follow it: %+v", c[0].After)
	}
	// Older advice that is not over keeps its serial from coming again.
	short := []byte(strings.Replace(string(bodyOf(t, b, 51, before+1, nil)), "T10:20:00Z", "T10:10:10Z", 1))
	if _, refusal := b.Take(short, "", before+1); refusal != nil {
		t.Fatal(refusal)
	}
	if refusal := take(50, before+30*seconds); refusal == nil || refusal.Reason != OldSerial {
		t.Errorf("%v", refusal)
	}
	// A clock that is set back by a year makes it last no longer than a day.
	if refusal := take(1, begins-365*86400*seconds); refusal != nil {
		t.Error(refusal)
	}
}

func TestABoardSaysWhatHasChanged(t *testing.T) {
	b := someState(t, Full)
	if c := b.Turn(begins, always(healthy)); len(c) != 1 || c[0].Changed || c[0].Label != "api" || c[0].After.Requests != 100 {
		t.Errorf("%+v", c)
	}
	b.Take(bodyOf(t, b, 5, begins, loosening(150)), "", begins)
	if c := b.Turn(begins+seconds, always(healthy)); !c[0].Changed || c[0].Before.Requests != 100 || c[0].After.Requests != 125 || c[0].After.Serial != 5 {
		t.Errorf("%+v", c)
	}
	if c := b.Turn(begins+2*seconds, always(healthy)); c[0].Changed {
		t.Errorf("%+v", c)
	}
	view, ok := b.LookAt("api")
	if !ok || view.Outcome.Requests != 125 || view.Advice == nil || view.Advice.Limit.Requests != 150 || view.WalksBack != 30*seconds || view.Settings.Ceiling != 200 {
		t.Errorf("%v %+v", ok, view)
	}
	if !b.Revert("api", begins+3*seconds) {
		t.Error("not reverted")
	}
	if c := b.Turn(begins+3*seconds, always(healthy)); !c[0].Changed || c[0].After.Requests != 100 || c[0].After.Why != Reverted {
		t.Errorf("%+v", c)
	}
	if _, ok = b.LookAt("other"); ok || b.Revert("other", 0) || b.Freeze("other", 0) {
		t.Error("there is no such rule")
	}
}

func TestWhatIsInForceGoesOnOverAReload(t *testing.T) {
	b := someState(t, Full)
	body := bodyOf(t, b, 5, begins, loosening(150))
	b.Take(body, "", begins)
	b.Refuse(refuse(Unavailable, "gone"), begins)
	b.Turn(begins, always(healthy))
	b.Freeze("api", begins+100*seconds)
	next := NewState(StateConfig{Rules: []Settings{*someRule(t, Full)}}, b)
	if c := next.Turn(begins+seconds, always(healthy)); c[0].Changed || c[0].Before.Requests != 125 || c[0].After.Requests != 125 || c[0].After.Why != Frozen {
		t.Errorf("%+v", c)
	}
	if d, refusal := next.Take(body, "", begins+seconds); d != nil || refusal != nil {
		t.Errorf("the same again: %v %v", d, refusal)
	}
	if before := b.Look(); before.TakenAt != begins { // it may still be asked
		t.Errorf("%+v", before)
	}
	if view := next.Look(); view.Refused[Unavailable] != 1 || view.Document.Serial != 5 || view.TakenAt != begins || view.LastRefusal == nil || view.RefusedAt != begins {
		t.Errorf("%+v", view)
	}
	// One with other rules begins as configured.
	other := *someRule(t, Full)
	other.Ceiling = 300
	last := NewState(StateConfig{Rules: []Settings{other}}, next)
	if c := last.Turn(begins+2*seconds, always(healthy)); c[0].Changed || c[0].After.Requests != 100 || c[0].After.Why != Frozen {
		t.Errorf("%+v", c)
	}
	if _, refusal := last.Take(body, "", begins+seconds); refusal == nil || refusal.Reason != OtherConfig {
		t.Errorf("%v", refusal)
	}
}

// A defect: nothing told that a reload had moved a limit.
func TestABoardSaysWhatAReloadHasChanged(t *testing.T) {
	publicText, _ := keys(t, 1)
	key, _ := ParsePublicKey(publicText)
	same := StateConfig{Rules: []Settings{*someRule(t, Full)}, Advisor: "a", Applies: true}
	observed := same
	observed.Applies = false
	another := same
	another.Advisor = "b"
	signed := same
	signed.PublicKey = key
	larger := *someRule(t, Full)
	larger.Requests = 110
	other := same
	other.Rules = []Settings{larger}
	lower := observed
	lower.Rules = []Settings{larger}
	for _, c := range []struct {
		title         string
		before, after StateConfig
		from, to      int64 // 0: nothing changes
		next          int64 // the limit with the next turn, when a step is due
	}{
		{"nothing", same, same, 0, 0, 150},
		{"it is applied no longer", same, observed, 125, 100, 125},
		{"it is applied from now on", observed, same, 0, 0, 125},
		{"another advisor", same, another, 125, 100, 100},
		{"another key", same, signed, 125, 100, 100},
		{"another configured limit", same, other, 125, 110, 110},
		{"another configured limit of an observed rule", observed, lower, 100, 110, 110},
	} {
		b := NewState(c.before, nil)
		b.Take(bodyOf(t, b, 5, begins, loosening(150)), "", begins)
		b.Turn(begins, always(healthy))
		b = NewState(c.after, b)
		changes := b.Reloaded()
		if c.from == 0 && len(changes) != 0 || c.from > 0 && (len(changes) != 1 || changes[0].Before.Requests != c.from || changes[0].After.Requests != c.to || changes[0].After.Why != Reloaded) {
			t.Errorf("%s: %+v", c.title, changes)
		}
		if again := b.Reloaded(); len(again) != 0 {
			t.Errorf("%s: told twice: %+v", c.title, again)
		}
		if after := b.Turn(begins+30*seconds, always(healthy))[0].After; after.Requests != c.next {
			t.Errorf("%s: then it is %+v", c.title, after)
		}
	}
}

// By hand is by hand, whoever advises.
func TestAFreezeHoldsWithAnotherAdvisor(t *testing.T) {
	c := StateConfig{Rules: []Settings{*someRule(t, Full)}, Advisor: "a", Applies: true}
	b := NewState(c, nil)
	b.Freeze("api", begins+100*seconds)
	c.Advisor = "b"
	b = NewState(c, b)
	b.Take(bodyOf(t, b, 5, begins, loosening(150)), "", begins)
	if after := b.Turn(begins+99*seconds, always(healthy))[0].After; after.Why != Frozen || after.Requests != 100 {
		t.Errorf("%+v", after)
	}
}

func TestAThresholdThatBeginsOrEndsIsAChange(t *testing.T) {
	b := someState(t, Bounds)
	b.Take(bodyOf(t, b, 5, begins, &Rule{Rule: "api", Reason: "abuse", Above: &Above{RequestsPerSecond: 1, Limit: "60/1m", For: "10s"}}), "", begins)
	for second := int64(0); second < 20; second++ {
		c := b.Turn(begins+second*seconds, always(Conditions{Known: true, Learnt: 86400 * seconds}))[0]
		if c.Changed != (second == 0 || second == 10) || (c.After.Above != nil) != (second < 10) {
			t.Errorf("second %d: %+v", second, c)
		}
	}
}

func TestToCheckADocumentTakesNothing(t *testing.T) {
	b := someState(t, Full)
	body := bodyOf(t, b, 5, begins, loosening(150))
	if d, refusal := b.Check(body, "", begins); d == nil || refusal != nil || b.Look().Document != nil {
		t.Errorf("%v %v", d, refusal)
	}
	if d, refusal := b.Check([]byte("{"), "", begins); d != nil || refusal == nil || len(b.Look().Refused) != 0 {
		t.Errorf("%v %v", d, refusal)
	}
	b.Take(body, "", begins)
	if d, refusal := b.Check(body, "", begins); d != nil || refusal != nil {
		t.Errorf("the same again: %v %v", d, refusal)
	}
	if d, refusal := b.Check(bodyOf(t, b, 6, begins, nil), "", begins); d == nil || d.Serial != 6 || refusal != nil {
		t.Errorf("%v %v", d, refusal)
	}
}

// A reload is no way around a gate: not that of overload, and not the time between two steps.
func TestAReloadOpensNoGate(t *testing.T) {
	b := someState(t, Full)
	b.Take(bodyOf(t, b, 1, begins, loosening(150)), "", begins)
	b.Turn(begins, always(healthy))
	b.Turn(begins+10*seconds, always(Conditions{Known: true, Learnt: 86400 * seconds, Overloaded: true}))
	other := *someRule(t, Full)
	other.Ceiling = 300
	b = NewState(StateConfig{Rules: []Settings{other}}, b)
	b.Take(bodyOf(t, b, 2, begins+11*seconds, loosening(150)), "", begins+11*seconds)
	if c := b.Turn(begins+39*seconds, always(healthy)); c[0].After.Why != GateOverload || c[0].After.Requests != 100 {
		t.Errorf("%+v", c)
	}
	if c := b.Turn(begins+40*seconds, always(healthy)); c[0].After.Requests != 125 {
		t.Errorf("%+v", c)
	}
	other.Ceiling = 400
	b = NewState(StateConfig{Rules: []Settings{other}}, b)
	b.Take(bodyOf(t, b, 3, begins+41*seconds, loosening(150)), "", begins+41*seconds)
	if c := b.Turn(begins+41*seconds, always(healthy)); c[0].After.Why != HeldByStep || c[0].After.Requests != 100 {
		t.Errorf("%+v", c)
	}
	if view, _ := b.LookAt("api"); view.Outcome.Target != 150 {
		t.Errorf("%+v", view)
	}
}

func TestABoardWithAKeyWantsSignatures(t *testing.T) {
	publicText, privateText := keys(t, 1)
	public, _ := ParsePublicKey(publicText)
	private, _ := ParsePrivateKey(privateText)
	b := NewState(StateConfig{Rules: []Settings{*someRule(t, Full)}, PublicKey: public}, nil)
	body := bodyOf(t, b, 5, begins, nil)
	if _, refusal := b.Take(body, "", begins); refusal == nil || refusal.Reason != BadSignature {
		t.Errorf("%v", refusal)
	}
	if _, refusal := b.Take([]byte("{"), "", begins); refusal == nil || refusal.Reason != BadSignature {
		t.Errorf("a signature is checked before anything is read: %v", refusal)
	}
	if d, refusal := b.Take(body, Sign(private, body), begins); d == nil || refusal != nil {
		t.Errorf("%v", refusal)
	}
}

// hostile is an advisor that does harm as far as it can: it returns the body for a time, in seconds.
type hostile func(t *testing.T, b *State, second int64) []byte

func changed(t *testing.T, b *State, second int64, from, to string) []byte {
	t.Helper()
	body := bodyOf(t, b, second+1, begins+second*seconds, loosening(150))
	if !strings.Contains(string(body), from) {
		t.Fatalf("no %s in %s", from, body)
	}
	return []byte(strings.Replace(string(body), from, to, 1))
}

func limitOf(requests func(second int64) int64) hostile {
	return func(t *testing.T, b *State, second int64) []byte {
		t.Helper()
		return bodyOf(t, b, second+1, begins+second*seconds, loosening(requests(second)))
	}
}

var hostiles = map[string]hostile{
	"floor":   limitOf(func(second int64) int64 { return 1 }),
	"ceiling": limitOf(func(second int64) int64 { return MaxNumber }),
	"alternating": limitOf(func(second int64) int64 {
		if second%60 < 30 {
			return MaxNumber
		}
		return 1
	}),
	"not a number": func(t *testing.T, b *State, second int64) []byte {
		t.Helper()
		return changed(t, b, second, `"requests":150`, `"requests":NaN`)
	},
	"old serials": func(t *testing.T, b *State, second int64) []byte {
		t.Helper()
		return bodyOf(t, b, 1_000_000-second, begins+second*seconds, loosening(1+second%200))
	},
	"another digest": func(t *testing.T, b *State, second int64) []byte {
		t.Helper()
		return changed(t, b, second, b.Digest(), Digest(nil))
	},
	"too long": func(t *testing.T, b *State, second int64) []byte {
		t.Helper()
		return make([]byte, MaxBytes+1)
	},
	"garbage": func(t *testing.T, b *State, second int64) []byte {
		t.Helper()
		return []byte("garbage")
	},
}

// played is what comes of an hour of traffic: the good requests that were asked for and answered.
type played struct{ asked, good float64 }

// play plays an hour in which an advisor is asked each 10 s. 100 clients ask for 54 to 96 requests a minute, which the limit of 100 a minute allows, and
// abusers for 3,000 each. The service answers 160 requests a second; of more it answers
// the fewer in time, the more there are.
func play(t *testing.T, b *State, advise hostile, abusers float64) played {
	t.Helper()
	var p played
	limit := 100.0
	c := healthy
	for second := int64(0); second < 3600; second++ {
		now := begins + second*seconds
		if second%10 == 0 && advise != nil {
			b.Take(advise(t, b, second), "", now)
		}
		for _, change := range b.Turn(now, always(c)) {
			limit = float64(change.After.Requests)
		}
		asked, admitted := 0.0, 0.0
		for client := 0; client < 100; client++ {
			wants := 54 + 42*float64(client)/99
			asked += wants / 60
			if wants > limit {
				wants = limit
			}
			admitted += wants / 60
		}
		abuse := abusers * limit / 60
		part := 1.0
		if all := admitted + abuse; all > 160 {
			part = (160 / all) * (160 / all)
		}
		c.Overloaded = part < 1
		p.asked += asked
		p.good += admitted * part
	}
	return p
}

// A hostile advisor costs at most 0.25 points of goodput, on steady traffic and where abusers leave the service little room.
func TestAHostileAdvisorCostsNextToNothing(t *testing.T) {
	underrace.OneGoroutine(t)
	if interpreted {
		t.Skip("the gates are tested there by their vectors; this takes a minute")
	}
	share := func(p played) float64 { return 100 * p.good / p.asked }
	for name, advise := range hostiles {
		for _, abusers := range []float64{0, 18} {
			without := share(play(t, someState(t, Full), nil, abusers))
			lost := without - share(play(t, someState(t, Full), advise, abusers))
			if lost > 0.25 {
				t.Errorf("%s, %v abusers: %.2f points of %.2f lost", name, abusers, lost, without)
			}
		}
	}
	// With the bounds alone it costs much: so this measures something.
	if lost := 100 - share(play(t, someState(t, Bounds), hostiles["floor"], 0)); lost < 15 {
		t.Errorf("with the gates bounds %.2f points are lost", lost)
	}
}

func TestViewsCanBeWrittenAsJSON(t *testing.T) {
	b := someState(t, Full)
	view, _ := b.LookAt("api")
	if text, err := json.Marshal(view.Outcome); err != nil || !strings.Contains(string(text), `"Requests":100`) {
		t.Errorf("%s %v", text, err)
	}
}
