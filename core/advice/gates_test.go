package advice

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// gateSettings are a rule's, as gates.json writes them.
type gateSettings struct {
	Requests   int64    `json:"requests"`
	Period     int64    `json:"period"`
	Burst      int64    `json:"burst"`
	Algorithm  string   `json:"algorithm"`
	Algorithms []string `json:"algorithms"`
	Floor      int64    `json:"floor"`
	Ceiling    int64    `json:"ceiling"`
	Step       int64    `json:"step"`
	Every      int64    `json:"every"`
	Gates      string   `json:"gates"`
	WarmUp     int64    `json:"warm_up"`
	OneKey     bool     `json:"one_key"`
}

// with returns the settings with those changed that a text of JSON has.
func (g gateSettings) with(t *testing.T, text json.RawMessage) gateSettings {
	t.Helper()
	changed := g
	if len(text) > 0 {
		must.Succeed(t, json.Unmarshal(text, &changed))
	}
	return changed
}

func (g gateSettings) settings(t *testing.T) *Settings {
	t.Helper()
	s := &Settings{
		Adaptable: Adaptable{
			Label: "api", Requests: g.Requests, Period: g.Period * seconds, Burst: g.Burst, Algorithm: g.Algorithm, Algorithms: g.Algorithms,
			Floor: g.Floor, Ceiling: g.Ceiling,
		},
		Step: g.Step, Every: g.Every * seconds, Gates: g.Gates, WarmUp: g.WarmUp * seconds, OneKey: g.OneKey,
	}
	must.Succeed(t, CheckSettings(s))
	return s
}

type gateConditions struct {
	Known        bool  `json:"known"`
	Overloaded   bool  `json:"overloaded"`
	Concentrated bool  `json:"concentrated"`
	Switching    bool  `json:"switching"`
	Learnt       int64 `json:"learnt"`
	Edge         int64 `json:"edge"`
	P90          int64 `json:"p90"`
}

func (c *gateConditions) conditions() Conditions {
	return Conditions{
		Known: c.Known, Overloaded: c.Overloaded, Concentrated: c.Concentrated, Switching: c.Switching, Learnt: c.Learnt * seconds,
		Edge: c.Edge, P90: c.P90,
	}
}

type gateTake struct {
	Serial    int64 `json:"serial"`
	Effective int64 `json:"effective"`
	Expires   int64 `json:"expires"`
	Rule      *Rule `json:"rule"`
}

type gateLine struct {
	At         int64                      `json:"at"`
	Conditions *gateConditions            `json:"conditions"`
	Take       *gateTake                  `json:"take"`
	Freeze     *int64                     `json:"freeze"`
	Revert     bool                       `json:"revert"`
	Reload     json.RawMessage            `json:"reload"`
	Want       map[string]json.RawMessage `json:"want"`
}

type gateCase struct {
	Title      string          `json:"title"`
	Settings   json.RawMessage `json:"settings"`
	Conditions gateConditions  `json:"conditions"`
	Script     []gateLine      `json:"script"`
}

type gateVectors struct {
	Settings gateSettings `json:"settings"`
	Cases    []gateCase   `json:"cases"`
}

// begins is when the vectors begin, in microseconds.
const begins int64 = 1_795_341_600 * seconds

func TestGatesAreClosedAndOpenAsTheVectorsSay(t *testing.T) {
	var file gateVectors
	readVectors(t, "gates.json", &file)
	if len(file.Cases) < 50 {
		t.Errorf("%d cases", len(file.Cases))
	}
	closed := make(map[string]bool)
	for i := range file.Cases {
		c := &file.Cases[i]
		t.Run(c.Title, func(t *testing.T) { playGates(t, c, file.Settings, closed) })
	}
	for _, kind := range ClampKinds {
		if !closed[kind] {
			t.Errorf("no case is clamped by %s", kind)
		}
	}
}

// playGates plays a case. It notes the kinds of clamps that it meets.
func playGates(t *testing.T, c *gateCase, standard gateSettings, closed map[string]bool) {
	written := standard.with(t, c.Settings)
	s := written.settings(t)
	st := Start(s)
	conditions := c.Conditions.conditions()
	var now int64
	clamps := make([]string, 0)
	for i := range c.Script {
		line := &c.Script[i]
		if line.At < now {
			now = line.At // the clock is set back
		}
		for ; now < line.At; now++ {
			turned := Turn(s, &st, conditions, begins+now*seconds)
			clamps = append(clamps, turned.Clamps...)
		}
		if line.Conditions != nil {
			conditions = line.Conditions.conditions()
		}
		if taken := line.Take; taken != nil {
			Take(&st, taken.Rule, taken.Serial, begins+taken.Effective*seconds, begins+taken.Expires*seconds, begins+now*seconds)
			clamps = make([]string, 0)
		}
		if line.Freeze != nil {
			Freeze(&st, begins+*line.Freeze*seconds)
		}
		if line.Revert {
			Revert(s, &st, begins+now*seconds)
		}
		if len(line.Reload) > 0 {
			written = written.with(t, line.Reload)
			s = written.settings(t)
			st = Resume(s, st)
		}
		o := Turn(s, &st, conditions, begins+now*seconds)
		clamps = append(clamps, o.Clamps...)
		for _, kind := range clamps {
			closed[kind] = true
		}
		compareOutcome(t, c.Title, line, &o, clamps)
		now++
	}
}

func compareOutcome(t *testing.T, title string, line *gateLine, o *Outcome, clamps []string) {
	t.Helper()
	got := map[string]interface{}{
		"requests": o.Requests, "why": o.Why, "burst": o.Burst, "algorithm": o.Algorithm, "serial": o.Serial, "clamps": clamps, "above": nil,
	}
	if a := o.Above; a != nil {
		got["above"] = map[string]interface{}{"edge": a.Edge, "limit": a.Limit, "until": (a.Until - begins) / seconds}
	}
	for name, want := range line.Want {
		value, known := got[name]
		if !known {
			t.Errorf("%s: %s is unknown", title, name)
		}
		text, err := json.Marshal(value)
		must.Succeed(t, err)
		must.Equal(t, string(text), strings.ReplaceAll(string(want), " ", ""), "%s: at %d: %s %s, not %s (%+v)", title, line.At, name, text, want, *o)
	}
	if o.Requests < 1 || Explain(o) == "" {
		t.Errorf("%s: %+v", title, *o)
	}
}
