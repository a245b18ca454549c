package advisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// advisorVectors are the cases of testdata/advice/advisor.json, whose README has the format.
type advisorVectors struct {
	Series []seriesCase `json:"series"`
	HTTP   []httpCase   `json:"http"`
}

type seriesCase struct {
	Title  string                       `json:"title"`
	Config map[string]any               `json:"config"`
	Rule   map[string]any               `json:"rule"`
	Now    time.Time                    `json:"now"`
	Demand []map[string]json.RawMessage `json:"demand"`

	Pressure *float64 `json:"pressure"`
	Keys     *struct {
		Usual, Now struct {
			TopTenShare float64 `json:"top_ten_share"`
		}
		Demand map[string]float64 `json:"demand_10s"`
	} `json:"keys"`
	Want struct {
		Abstains     bool     `json:"abstains"`
		Reason       string   `json:"reason"`
		Limit        *bounded `json:"limit"`
		SkillAtLeast *float64 `json:"skill_at_least"`
		Forecast     *struct {
			MeanAtLeast float64 `json:"mean_at_least"`
			MeanAtMost  float64 `json:"mean_at_most"`
		} `json:"forecast"`
		Above json.RawMessage `json:"above"`
	} `json:"want"`
	Begins []float64 `json:"begins"`
}

type bounded struct {
	AtLeast float64 `json:"at_least"`
	AtMost  float64 `json:"at_most"`
}

func (b *bounded) has(x float64) bool { return x >= b.AtLeast && x <= b.AtMost }

type httpCase struct {
	Title    string         `json:"title"`
	Token    string         `json:"token"`
	Signs    bool           `json:"signs"`
	Fleet    *string        `json:"fleet"`
	Computed *bool          `json:"computed"`
	Body     map[string]any `json:"body"`
	Request  struct {
		Method  string            `json:"method"`
		Path    string            `json:"path"`
		Headers map[string]string `json:"headers"`
	} `json:"request"`
	Want struct {
		Status  int               `json:"status"`
		Headers map[string]string `json:"headers"`
		Absent  []string          `json:"absent"`
	} `json:"want"`
}

func readVectors(t *testing.T) advisorVectors {
	t.Helper()
	data, err := os.ReadFile("../testdata/advice/advisor.json")
	must.Succeed(t, err)
	var v advisorVectors
	must.Succeed(t, json.Unmarshal(data, &v))
	return v
}

// configOf makes the configuration of a case.
func configOf(t *testing.T, fields map[string]any, rules ...map[string]any) *Config {
	t.Helper()
	whole := map[string]any{"prometheus": map[string]any{"url": "http://127.0.0.1:9"}, "rules": rules}
	for name, value := range fields {
		whole[name] = value
	}
	text, err := json.Marshal(whole)
	must.Succeed(t, err)
	c, err := Parse("advisor.yaml", text)
	must.Succeed(t, err)
	return c
}

// gauss returns the generator of noise that the vectors describe.
func gauss(seed int64) func() float64 {
	x := seed
	return func() float64 {
		sum := 0.0
		for range 12 {
			x = 48271 * x % (1<<31 - 1)
			sum += float64(x) / (1<<31 - 1)
		}
		return sum - 6
	}
}

// demandOf returns the points of a case.
func (c *seriesCase) points(t *testing.T, config *Config) Series {
	t.Helper()
	n := int(config.History / config.Step)
	s := unknown(c.Now.Add(-config.Step*time.Duration(n-1)), c.Now, config.Step)
	for i := range s.Values {
		s.Values[i] = 0
	}
	for _, term := range c.Demand {
		for name, raw := range term {
			var p struct {
				Period    string
				Amplitude float64
				PerDay    float64 `json:"per_day"`
				Seed      int64
				Deviation float64
				From, To  time.Time
				By        float64
			}
			level := 0.0
			if json.Unmarshal(raw, &level) != nil {
				must.Succeed(t, json.Unmarshal(raw, &p))
			}
			period, _ := time.ParseDuration(p.Period)
			noise, walked := gauss(p.Seed), 0.0
			for i := range s.Values {
				at := s.At(i)
				switch name {
				case "level":
					s.Values[i] += level
				case "sine":
					s.Values[i] += p.Amplitude * math.Sin(2*math.Pi*float64(at.Unix())/period.Seconds())
				case "trend":
					s.Values[i] += p.PerDay * at.Sub(s.Start).Hours() / 24
				case "noise":
					s.Values[i] += p.Deviation * noise()
				case "walk":
					walked += noise()
					s.Values[i] += p.Deviation * walked
				case "jump":
					if !at.Before(p.From) {
						s.Values[i] += p.By
					}
				case "gap":
					if !at.Before(p.From) && at.Before(p.To) {
						s.Values[i] = math.NaN()
					}
				default:
					t.Fatalf("the term %q is unknown", name)
				}
			}
		}
	}
	for i := range s.Values {
		s.Values[i] = math.Max(s.Values[i], 0) // NaN stays
	}
	for i, want := range c.Begins {
		if math.Abs(s.Values[i]-want) > 0.00501 {
			t.Errorf("the point %d is %v, not %v", i, s.Values[i], want)
		}
	}
	return s
}

// caseSource is the source of a case.
type caseSource struct {
	*seriesCase
	rule   *Rule
	demand Series
}

func (s caseSource) Series(_ context.Context, q Quantity, from, to time.Time, step time.Duration) (Series, error) {
	out := unknown(from, to, step)
	if q.Query == "max(cpu)" {
		if s.Pressure != nil {
			out.Values[0] = *s.Pressure
		}
		return out, nil
	}
	for i := range out.Values {
		at := out.At(i)
		n := int(at.Sub(s.demand.Start) / step)
		if n < 0 || n >= len(s.demand.Values) {
			continue
		}
		y := s.demand.Values[n] / s.rule.perPeriod()
		switch {
		case q.Window > 0:
			name := map[float64]string{0.9: "p90", 0.999: "p99.9"}[q.Quantile]
			y = s.Keys.Demand[name]
		case q.Of == TopShare:
			y = s.Keys.Usual.TopTenShare
			if s.demand.Values[n] > 2000 {
				y = s.Keys.Now.TopTenShare
			}
		case q.Of == KeyDemand != (s.rule.Demand == DemandOfKey):
			return out, fmt.Errorf("the case has no %v", q)
		}
		out.Values[i] = y
	}
	return out, nil
}

func TestAdviceIsAsTheVectorsSay(t *testing.T) {
	v := readVectors(t)
	if len(v.Series) < 10 {
		t.Fatalf("only %d cases", len(v.Series))
	}
	for _, c := range v.Series {
		t.Run(c.Title, func(t *testing.T) {
			config := configOf(t, c.Config, c.Rule)
			rule := &config.Rules[0]
			source := caseSource{&c, rule, c.points(t, config)}
			f := find(t.Context(), config, rule, source, new(memory), c.Now, config.pressed(t.Context(), source, c.Now))
			if f.Err != nil && !errors.As(f.Err, new(pressureUnknown)) {
				t.Fatal(f.Err)
			}
			t.Logf("%+v", f)
			advises := f.Requests > 0 || f.Above != nil
			if c.Want.Abstains && advises || c.Want.Reason != "" && f.Reason != c.Want.Reason {
				t.Errorf("does not abstain, or for the reason %s", f.Reason)
			}
			if want := c.Want.Limit; want != nil && !want.has(float64(f.Requests)) {
				t.Errorf("advises %d, not %v", f.Requests, *want)
			}
			if f.Requests > 0 && (f.Requests < rule.Floor || f.Requests > rule.Ceiling || f.Requests < rule.Limit.Requests && !rule.Lower) {
				t.Errorf("advises %d", f.Requests)
			}
			if want := c.Want.SkillAtLeast; want != nil && f.Forecast.Skill < *want {
				t.Errorf("has skill %v", f.Forecast.Skill)
			}
			if want := c.Want.Forecast; want != nil && (f.Forecast.Mean < want.MeanAtLeast || f.Forecast.Mean > want.MeanAtMost) {
				t.Errorf("forecasts %v", f.Forecast.Mean)
			}
			if b := f.Forecast.Band; b.Lower > b.Mean || b.Mean > b.Upper {
				t.Errorf("the band is %v", b)
			}
			c.checkAbove(t, f.Above)
		})
	}
}

func (c *seriesCase) checkAbove(t *testing.T, above *Threshold) {
	switch {
	case c.Want.Above == nil:
	case string(c.Want.Above) == "null":
		if above != nil {
			t.Errorf("advises the threshold %v", *above)
		}
	case above == nil:
		t.Error("advises no threshold")
	default:
		var want struct {
			PerSecond bounded `json:"requests_per_second"`
			Limit     bounded `json:"limit_per_second"`
			For       string  `json:"for"`
		}
		must.Succeed(t, json.Unmarshal(c.Want.Above, &want))
		n, per, _ := strings.Cut(above.Limit, "/")
		requests, _ := strconv.ParseFloat(n, 64)
		period, err := time.ParseDuration(per)
		if err != nil || !want.PerSecond.has(above.PerSecond) || !want.Limit.has(requests/period.Seconds()) || want.For != "5m" || forThreshold != 5*time.Minute {
			t.Errorf("advises the threshold %v", *above)
		}
	}
}
