package advisor

import (
	"crypto/ed25519"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/tools/must"
)

// What proxies ask with gets on with what answers them.
func TestAProxysPollerTakesWhatAnAdvisorServes(t *testing.T) {
	public, private, err := ed25519.GenerateKey(nil)
	must.Succeed(t, err)
	a := newTestAdvisor(t, new(steady))
	a.config.Token, a.config.PrivateKey = "s3cret", private
	server := httptest.NewServer(a.Handler())
	defer server.Close()
	taken, refused, digest := int64(0), "", a.digest
	poller, err := advice.NewPoller(advice.PollerConfig{
		Source: advice.Source{URL: server.URL + "/v1/advice", Fleet: "shop", Token: "s3cret", Timeout: time.Minute},
		Digest: func() string { return digest },
		Take: func(body []byte, signature string, _ int64) *advice.Refusal {
			if refusal := advice.Verify(public, body, signature); refusal != nil {
				return refusal
			}
			d, refusal := advice.Parse(body, advice.Expect{Now: a.now().UnixMicro(), Config: digest, Rules: map[string]bool{"api": true}, Serial: taken})
			if refusal == nil {
				taken = d.Serial
			}
			return refusal
		},
		Refuse: func(refusal *advice.Refusal, _ int64) { refused = refusal.Error() },
	})
	must.Succeed(t, err)
	poll := func(what string, serial int64, fails bool) {
		t.Helper()
		refused = ""
		advice.Poll(t.Context(), poller)
		if failed := poller.Health().Failures > 0; taken != serial || failed != fails {
			t.Errorf("%s: the last serial is %d, not %d; failed: %v: %s", what, taken, serial, failed, refused)
		}
	}
	compute := func(at time.Time) int64 {
		a.now = func() time.Time { return at }
		must.Succeed(t, a.Compute(t.Context()))
		return at.UnixMilli()
	}
	poll("nothing is computed", 0, true)
	first := compute(noon)
	poll("a document", first, false)
	poll("the same", first, false)
	second := compute(noon.Add(time.Minute))
	poll("the next", second, false)
	digest = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	poll("other rules", second, true)
	digest = a.digest
	a.config.Token = "another"
	poll("another token", second, true)
}
