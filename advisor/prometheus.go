package advisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// Prometheus is a Source: a server with Prometheus's HTTP API, version 1.
type Prometheus struct {
	URL      string        // its address, with a path where it has one
	Token    string        // of an Authorization field; "": none
	Selector string        // of series, in PromQL without braces, such as job="caddy"; "": all
	Timeout  time.Duration // of one request
	Client   *http.Client  // nil: one of its own, which follows no redirect
}

// mostPointsAtOnce is the most points that Prometheus returns of a series.
const mostPointsAtOnce = 11_000

// longestAnswer is the most bytes of an answer: 11,000 points have 400 KiB.
const longestAnswer = 16 << 20

// check says what is wrong with the settings.
func (p *Prometheus) check() error {
	u, err := url.Parse(p.URL)
	if p.URL != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return fmt.Errorf("url %q: must be an address such as http://127.0.0.1:9090", p.URL)
	}
	if strings.ContainsAny(p.Selector, "{}") {
		return fmt.Errorf("selector %q: must be what stands between the braces in PromQL, such as job=\"caddy\"", p.Selector)
	}
	return nil
}

// Series implements Source. Counters that were reset are rate's concern. A value that is no number, such as a quantile of no keys, is 0. One that is infinite
// is not known.
func (p *Prometheus) Series(ctx context.Context, q Quantity, from, to time.Time, step time.Duration) (Series, error) {
	s := unknown(from, to, step)
	expression := p.expression(q, step)
	for i := 0; i < len(s.Values); i += mostPointsAtOnce {
		end := min(i+mostPointsAtOnce, len(s.Values)) - 1
		if err := p.part(ctx, expression, &s, i, end); err != nil {
			return Series{}, fmt.Errorf("prometheus: %s: %w", expression, err)
		}
	}
	return s, nil
}

// expression returns the PromQL of a quantity.
func (p *Prometheus) expression(q Quantity, step time.Duration) string {
	of := func(more ...string) string {
		labels := append([]string{"rule=" + strconv.Quote(q.Rule)}, more...)
		if p.Selector != "" {
			labels = append(labels, p.Selector)
		}
		return "{" + strings.Join(labels, ",") + "}"
	}
	window := q.Window
	if window == 0 {
		window = max(step, 5*time.Minute)
	}
	within := "[" + model.Duration(window).String() + "]"
	switch q.Of {
	case KeyDemand:
		quantile := strconv.FormatFloat(q.Quantile, 'g', -1, 64)
		return "histogram_quantile(" + quantile + ",sum by(le)(rate(weir_key_demand_bucket" + of() + within + ")))"
	case TotalDemand:
		return "sum(rate(weir_requests_total" + of() + "[" + model.Duration(max(step, time.Minute)).String() + "]))"
	case TopShare:
		// Of several proxies, each for as much as its keys ask for.
		share, demand := "weir_top_keys_share"+of(`keys="10"`), "rate(weir_key_demand_sum"+of()+within+")"
		return "sum(" + share + "*ignoring(keys)" + demand + ")/sum(" + demand + ")"
	}
	return q.Query
}

// answer is what the API says.
type answer struct {
	Status string `json:"status"`
	Error  string `json:"error"`
	Data   struct {
		ResultType string       `json:"resultType"`
		Result     model.Matrix `json:"result"`
	} `json:"data"`
}

// part asks for the values from the i-th to the j-th of a series, and fills them in.
func (p *Prometheus) part(ctx context.Context, expression string, s *Series, i, j int) error {
	ctx, stop := context.WithTimeout(ctx, p.Timeout)
	defer stop()
	form := url.Values{"query": {expression}, "start": {unix(s.At(i))}, "end": {unix(s.At(j))}, "step": {strconv.FormatFloat(s.Step.Seconds(), 'f', -1, 64)}, "timeout": {strconv.FormatFloat(p.Timeout.Seconds(), 'f', -1, 64)}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(p.URL, "/")+"/api/v1/query_range", strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if p.Token != "" {
		r.Header.Set("Authorization", "Bearer "+p.Token)
	}
	client := p.Client
	if client == nil {
		client = ownClient
	}
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, longestAnswer+1))
	if err != nil {
		return err
	}
	if len(body) > longestAnswer {
		return fmt.Errorf("the answer has more than %d bytes", longestAnswer)
	}
	var said answer
	err = json.Unmarshal(body, &said)
	switch {
	case said.Error != "":
		return fmt.Errorf("%s: %s", response.Status, said.Error)
	case response.StatusCode != http.StatusOK:
		return errors.New(response.Status)
	case err != nil:
		return fmt.Errorf("the answer is not Prometheus's: %w", err)
	case said.Data.ResultType != "matrix":
		return fmt.Errorf("the answer is a %s, not a matrix", said.Data.ResultType)
	case len(said.Data.Result) > 1:
		return fmt.Errorf("returns %d series; one is wanted, such as that of sum(…)", len(said.Data.Result))
	}
	for _, series := range said.Data.Result {
		for _, sample := range series.Values {
			at := sample.Timestamp.Time().Sub(s.Start.Truncate(time.Millisecond)) // as it was asked for
			if n := int(at / s.Step); at >= 0 && n >= i && n <= j {
				s.Values[n] = number(float64(sample.Value))
			}
		}
	}
	return nil
}

// number returns a sample's value: 0 for what is no number, and a gap for what is infinite.
func number(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	if math.IsInf(x, 0) {
		return math.NaN()
	}
	return x
}

// unix writes a time as Prometheus reads it.
func unix(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

// ownClient has no cookies, and follows no redirect, which could take the token elsewhere.
var ownClient = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
