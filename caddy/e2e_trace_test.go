package ratelimit_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/proxyweir/weir/tools/must"
)

// receiver gets what Caddy exports over OTLP, and passes on the events of the spans, each as the names of both and the attributes.
type receiver struct{ events chan string }

func (c *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, resource := range request.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				for _, event := range span.Events {
					said := []string{span.Name, event.Name}
					for _, a := range event.Attributes {
						value := a.Value.GetStringValue()
						if value == "" {
							value = strings.Trim(fmt.Sprint(a.Value.GetIntValue(), int64(a.Value.GetDoubleValue())), "0 ")
						}
						said = append(said, a.Key+"="+value)
					}
					c.events <- strings.Join(said, " ")
				}
			}
		}
	}
}

// Each decision is an event of the span that Caddy's tracing exports. The key is in it only where the log has it, too.
func TestADecisionIsAnEventOfCaddysSpan(t *testing.T) {
	c := &receiver{make(chan string, 100)}
	collector := httptest.NewServer(c)
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
	zones := `zone api {
			limit 1/366d
			algorithm fixed_window
			window_start first_request
		}
		zone tried {
			limit 1/366d
			enforcement shadow
		}`
	s := startSite(t, "handle /plain {\ntracing {\nspan plain\n}\nrate_limit {\ntrace\n"+zones+"\n}\nrespond ok\n}\n"+
		"handle /keyed {\ntracing {\nspan keyed\n}\nrate_limit {\nzone named {\nkey {query.k}\nlimit 5/366d\n}\nlog_key\ntrace\n}\nrespond ok\n}\n"+
		"handle {\nrate_limit {\ntrace\nzone silent {\nlimit 5/366d\n}\n}\nrespond ok\n}")
	for _, path := range []string{"/plain", "/plain", "/keyed?k=alice", "/else"} {
		r, err := s.client.Get("http://" + s.addr + path)
		must.Succeed(t, err)
		r.Body.Close()
	}
	want := []string{
		"keyed rate_limit rate_limit.rule=named rate_limit.outcome=allowed rate_limit.limit=5 rate_limit.remaining=4 rate_limit.key=alice",
		"plain rate_limit rate_limit.rule=api rate_limit.outcome=allowed rate_limit.limit=1 rate_limit.remaining=",
		"plain rate_limit rate_limit.rule=api rate_limit.outcome=rejected rate_limit.limit=1 rate_limit.remaining= rate_limit.retry_after=",
		"plain rate_limit rate_limit.rule=tried rate_limit.outcome=allowed rate_limit.limit=1 rate_limit.remaining=",
		"plain rate_limit rate_limit.rule=tried rate_limit.outcome=shadow_rejected rate_limit.limit=1 rate_limit.remaining= rate_limit.retry_after=",
	}
	var got []string
	for range want { // the exporter sends spans in the background
		select {
		case event := <-c.events:
			got = append(got, event)
		case <-time.After(30 * time.Second):
			t.Fatalf("these events have come, and no more: %q", got)
		}
	}
	slices.Sort(got)
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("event %d is %q, want %q", i, got[i], want[i])
		}
	}
}
