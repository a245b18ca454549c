package advisor

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/tools/must"
)

// steady is a source in which demand has a season: a sine around 80 requests a minute. What is wrong with it is its error.
type steady struct {
	mu  sync.Mutex
	err error
}

func (s *steady) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *steady) Series(_ context.Context, q Quantity, from, to time.Time, step time.Duration) (Series, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := unknown(from, to, step)
	for i := range out.Values {
		out.Values[i] = (80 + 30*math.Sin(2*math.Pi*float64(out.At(i).Unix())/86400)) / 6
	}
	return out, s.err
}

// noon is when the advisors of the tests compute, unless a test says otherwise.
var noon = time.Date(2024, 11, 22, 2, 0, 0, 0, time.UTC)

// newTestAdvisor returns an advisor of the fleet shop for a rule api, at noon.
func newTestAdvisor(t *testing.T, source Source) *Advisor {
	t.Helper()
	c := configOf(t, map[string]any{"fleet": "shop", "step": "15m", "history": "6d", "horizon": "1h"},
		map[string]any{"rule": "api", "limit": "60/1m", "floor": "30/1m", "ceiling": "400/1m"})
	a := New(c, source)
	a.now = func() time.Time { return noon }
	return a
}

func TestAnswersAreAsTheVectorsSay(t *testing.T) {
	for _, c := range readVectors(t).HTTP {
		t.Run(c.Title, func(t *testing.T) {
			a := newTestAdvisor(t, new(steady))
			a.config.Token = c.Token
			if c.Fleet != nil {
				a.config.Fleet = *c.Fleet
			}
			if c.Signs {
				_, a.config.PrivateKey, _ = ed25519.GenerateKey(nil)
			}
			if c.Computed == nil || *c.Computed {
				must.Succeed(t, a.Compute(t.Context()))
			}
			filled := strings.NewReplacer("{config}", a.digest, "{etag}", a.latest.tag, "{signature}", a.latest.signature)
			server := httptest.NewServer(a.Handler())
			defer server.Close()
			r, err := http.NewRequest(c.Request.Method, server.URL+c.Request.Path, nil)
			must.Succeed(t, err)
			for name, value := range c.Request.Headers {
				r.Header.Set(name, filled.Replace(value))
			}
			answer, err := server.Client().Do(r)
			must.Succeed(t, err)
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			must.Succeed(t, err)
			if answer.StatusCode != c.Want.Status {
				t.Fatalf("the status is %d, not %d: %s", answer.StatusCode, c.Want.Status, body)
			}
			for name, want := range c.Want.Headers {
				got := answer.Header.Get(name)
				if want == "{seconds}" && len(got) > 0 && strings.Trim(got, "0123456789") == "" && got != "0" {
					continue
				}
				must.Equal(t, got, filled.Replace(want), "%s", name)
			}
			for _, name := range c.Want.Absent {
				must.Equal(t, answer.Header.Get(name), "", "%s", name)
			}
			var said map[string]any
			if strings.Contains(answer.Header.Get("Content-Type"), "json") && json.Unmarshal(body, &said) != nil {
				t.Errorf("the body is no JSON: %s", body)
			}
			for name, want := range c.Body {
				if got := said[name]; got != filled.Replace(want.(string)) {
					t.Errorf("%s is %v", name, got)
				}
			}
			if answer.StatusCode == http.StatusOK && strings.HasPrefix(c.Request.Path, "/v1/advice") {
				checkDocument(t, a, body)
			}
		})
	}
}

// checkDocument checks that a proxy with the advisor's rules takes a document.
func checkDocument(t *testing.T, a *Advisor, body []byte) *advice.Document {
	t.Helper()
	d, refusal := advice.Parse(body, advice.Expect{Now: a.now().UnixMicro(), Config: a.digest, Rules: map[string]bool{"api": true}})
	if refusal != nil {
		t.Fatalf("%v: %s", refusal, body)
	}
	return d
}

func TestDocumentsSayWhatWasFound(t *testing.T) {
	a := newTestAdvisor(t, new(steady))
	must.Succeed(t, a.Compute(t.Context()))
	d := checkDocument(t, a, a.Latest())
	if len(d.Rules) != 1 || d.Rules[0].Limit == nil || d.Rules[0].Forecast == nil || d.Rules[0].Reason != reasonGrowth {
		t.Fatalf("the document is %s", a.latest.body)
	}
	if r := d.Rules[0]; r.Limit.Requests < 110 || r.Limit.Requests > 132 || r.Forecast.Quantile != 0.99 {
		t.Errorf("advises %s", a.latest.body)
	}
	if d.ExpiresAt.Sub(d.IssuedAt) != 10*time.Minute || d.Model.HorizonSeconds != 3600 || *d.Model.SkillVsLast < 0.5 {
		t.Errorf("the document is %s", a.latest.body)
	}
}

func TestDocumentsSayWhyTheAdvisorAbstains(t *testing.T) {
	c := &Config{Rules: make([]Rule, 2)}
	d := c.document([]Finding{{Rule: "api", Reason: WithoutHistory}, {Rule: "login", Reason: reasonAbuse, Above: &Threshold{PerSecond: 2, Limit: "2/1s"}}}, noon, 1)
	if len(d.Rules) != 1 || d.Rules[0].Rule != "login" || len(d.Abstained) != 1 || d.Abstained[0] != (advice.Abstained{Rule: "api", Reason: WithoutHistory}) {
		t.Errorf("the document has %+v and %+v", d.Rules, d.Abstained)
	}
	for _, reason := range abstentions {
		text := advice.Explain(&advice.Outcome{Why: advice.Abstains, Serial: 1, Reason: reason})
		must.Contain(t, text, "("+reason+": ", "%s is not explained", reason)
	}
}

func TestSerialsRiseOverRestartsAndWhenTheClockStepsBack(t *testing.T) {
	a := newTestAdvisor(t, new(steady))
	serials := []int64{}
	for _, at := range []time.Time{noon, noon.Add(time.Minute), noon.Add(-time.Hour), noon.Add(-time.Hour)} {
		a.now = func() time.Time { return at }
		must.Succeed(t, a.Compute(t.Context()))
		serials = append(serials, a.latest.document.Serial)
	}
	for i := range serials {
		if i > 0 && serials[i] <= serials[i-1] {
			t.Errorf("the serials are %v", serials)
		}
	}
	again := newTestAdvisor(t, new(steady))
	again.now = func() time.Time { return noon.Add(2 * time.Minute) }
	if err := again.Compute(t.Context()); err != nil || again.latest.document.Serial <= serials[1] {
		t.Errorf("after a restart the serial is %d, which was %d: %v", again.latest.document.Serial, serials[1], err)
	}
}

func TestAFailingSourceLeavesTheLastDocumentUntilItExpires(t *testing.T) {
	source := new(steady)
	a := newTestAdvisor(t, source)
	must.Succeed(t, a.Compute(t.Context()))
	first := a.latest.document.Serial
	source.fail(errors.New("it is down"))
	at := noon
	a.now = func() time.Time { return at }
	for _, step := range []struct {
		after                  time.Duration
		status, advice         int
		health, mentions, word string
	}{
		{15 * time.Minute, 503, 503, "unavailable", "it is down", "source"},
		{9 * time.Minute, 200, 200, "failing", "it is down", "source"},
	} {
		at = noon.Add(15 * time.Minute) // a new value is wanted
		if err := a.Compute(t.Context()); err == nil {
			t.Fatal("computes of nothing")
		}
		at = noon.Add(step.after)
		must.Equal(t, a.latest.document.Serial, first, "there is another document")
		w := httptest.NewRecorder()
		a.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/healthz", nil))
		if w.Code != step.status || !strings.Contains(w.Body.String(), `"status":"`+step.health) || !strings.Contains(w.Body.String(), step.mentions) {
			t.Errorf("after %s: %d %s", step.after, w.Code, w.Body)
		}
		w = httptest.NewRecorder()
		a.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/v1/advice?fleet=shop", nil))
		must.Equal(t, w.Code, step.advice, "after %s: %d %s", step.after, w.Code, w.Body)
		w = httptest.NewRecorder()
		a.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
		if !strings.Contains(w.Body.String(), `weir_advisor_abstains{reason="`+step.word+`",rule="api"} 1`) || !strings.Contains(w.Body.String(), `weir_advisor_requests_total{status="`) {
			t.Errorf("the metrics are %s", w.Body)
		}
	}
}

// A defect: an advisor that was started a moment before its Prometheus said nothing for a whole interval.
func TestAfterAnErrorItComputesAgainSoon(t *testing.T) {
	for _, c := range []struct {
		interval time.Duration
		err      error
		want     time.Duration
	}{
		{15 * time.Minute, nil, 15 * time.Minute},
		{15 * time.Minute, errors.New("it is down"), 30 * time.Second},
		{10 * time.Second, errors.New("it is down"), 10 * time.Second},
	} {
		a := newTestAdvisor(t, new(steady))
		a.config.Interval = c.interval
		must.Equal(t, a.pause(c.err), c.want, "every %s, with the error %v: after", c.interval, c.err)
	}
}

// listen returns a listener on loopback.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	return l
}

func TestAnAdvisorThatIsStoppedEnds(t *testing.T) {
	a := newTestAdvisor(t, new(steady))
	ctx, stop := context.WithCancel(t.Context())
	l := listen(t)
	ended := make(chan error)
	go func() { ended <- a.Serve(ctx, l, func(text string) { t.Error(text) }) }()
	for { // until it has computed
		answer, err := http.Get("http://" + l.Addr().String() + "/v1/advice?fleet=shop")
		must.Succeed(t, err)
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			break
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := http.Get("http://" + l.Addr().String() + "/healthz"); err == nil {
		t.Error("it still answers")
	}
}
