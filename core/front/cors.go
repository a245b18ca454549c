package front

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// CORS lets pages of other origins read what a proxy answers in place of the service, and lets their preflights pass uncounted. It sets
// its fields in front of the decision, and takes those back that are only for answers of the proxy before the service is asked: so all that answers
// in between has them. It is read only, and safe for concurrent use.
type CORS struct {
	any         bool            // of every origin
	origins     map[string]bool // in lower case
	credentials bool
	exposed     string // the fields that pages may read of all answers
	rule        *ruleset.Rule
	limiter     *core.Limiter
}

// The header fields of CORS, as http.Header has them.
const (
	headerAllowOrigin      = "Access-Control-Allow-Origin"
	headerAllowCredentials = "Access-Control-Allow-Credentials"
	headerExpose           = "Access-Control-Expose-Headers"
	headerVary             = "Vary"
)

// Preflights of one client that pass uncounted: 600 a minute, and 100 at once. Clients with IPv6 are networks of 64 bits.
const (
	preflightLimit = "600/1m"
	preflightBurst = "100"
)

// NewCORS checks the settings of cors. exposed are the names of the fields that pages may read of all answers. The error begins with cors.
func NewCORS(origins []string, credentials bool, exposed []string) (*CORS, error) {
	c := &CORS{origins: make(map[string]bool), credentials: credentials, exposed: strings.Join(exposed, ", ")}
	if len(origins) == 0 {
		return nil, words.Wrong("cors", "", "names no origin; write those of the pages that may read answers, such as https://app.example.com, or * for all")
	}
	for _, origin := range origins {
		if origin == "*" {
			c.any = true
			continue
		}
		name := strings.ToLower(origin)
		if !isOrigin(strings.Replace(name, "://*.", "://x.", 1)) {
			return nil, words.Wrong("cors", strconv.Quote(origin), "must be an origin as browsers send it: scheme, host, and a port that is not the scheme's own, such as https://app.example.com, https://xn--bcher-kva.example or http://localhost:3000; https://*.example.com is every name one level below, and * every origin")
		}
		c.origins[name] = true
	}
	if c.any && len(origins) > 1 {
		return nil, words.Wrong("cors", `"*"`, "stands for all origins; write it alone, or remove it")
	}
	if c.any && credentials {
		return nil, words.Wrong("cors", `"*"`, "excludes credentials, since browsers refuse answers with both; name the origins")
	}
	return c, nil
}

// isOrigin reports whether a text is an origin as browsers send it, in lower case.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme+"://"+u.Host != text || strings.ContainsAny(text, "*, \t") {
		return false
	}
	for i := 0; i < len(text); i++ {
		if text[i] > '~' { // browsers send such a name in ASCII: xn--…
			return false
		}
	}
	port, _ := strconv.Atoi(u.Port())
	return !(u.Scheme == "https" && port == 443 || u.Scheme == "http" && port == 80 || port > 65535 || strings.HasSuffix(u.Host, ":") || strings.HasSuffix(u.Host, "."))
}

// allows reports whether pages of an origin may read answers.
func (c *CORS) allows(origin string) bool {
	if c.any || c.origins[origin] && !strings.Contains(origin, "*") {
		return true
	}
	scheme, host, _ := strings.Cut(origin, "://")
	dot := strings.IndexByte(host, '.')
	return dot > 0 && c.origins[scheme+"://*"+host[dot:]]
}

// Count makes preflights count against their bound in a store, which must be one in memory, under the rules' namespace. Release ends that.
func (c *CORS) Count(store core.Store, namespace string) error {
	text := &ruleset.RuleText{Name: "cors.preflights"}
	ruleset.SetText(&text.Object, "limit", preflightLimit)
	ruleset.SetText(&text.Object, "algorithm", "token_bucket")
	ruleset.SetText(&text.Object, "burst", preflightBurst)
	rule, wrong := ruleset.Compile(text, ruleset.Context{Namespace: namespace, Prefixes: ruleset.Standard})
	if len(wrong) > 0 { // not reached: it is right
		return wrong[0]
	}
	c.rule = rule
	c.limiter = core.NewLimiter(store)
	_, err := c.limiter.OpenAll(rule.Limits.Rules())
	return err
}

// Release ends Count. c may be nil.
func (c *CORS) Release() {
	if c != nil && c.limiter != nil {
		c.limiter.Release(c.rule.Limits.Own())
	}
}

// Uncounted reports whether a request is a preflight, from an origin that is allowed, within the bound of its client, whose address it is. Others are
// requests like any.
func (c *CORS) Uncounted(r *http.Request, address string) bool {
	origins, methods := r.Header["Origin"], r.Header["Access-Control-Request-Method"]
	if r.Method != http.MethodOptions || r.ContentLength != 0 || len(origins) != 1 || len(methods) != 1 || !words.IsToken(methods[0]) || !c.allows(origins[0]) {
		return false
	}
	q := Evaluations.Get().(*Evaluation)
	key, _ := ruleset.KeyOf(c.rule, r, address, nil)
	q.Checks = append(q.Checks, core.Check{Rule: c.rule.Limits.Own(), Key: key, Cost: 1})
	err := c.limiter.Decide(q.Checks, false, &q.Verdict)
	passes := err == nil && q.Verdict.Outcome == core.Allow
	Free(q)
	return passes
}

// Enter sets the fields of the answer to a request, and reports whether Leave must take some back before the service is asked. It
// adds none of these if an earlier handler has allowed an origin: then that says who may read answers.
func (c *CORS) Enter(h http.Header, r *http.Request) bool {
	exposed := h[headerExpose]
	if len(exposed) == 0 || exposed[len(exposed)-1] != c.exposed { // else another handler with the same fields has done so
		h[headerExpose] = append(exposed[:len(exposed):len(exposed)], c.exposed)
	}
	if h[headerAllowOrigin] != nil {
		return false
	}
	if c.any {
		h[headerAllowOrigin] = []string{"*"}
		return true
	}
	vary := h[headerVary]
	h[headerVary] = append(vary[:len(vary):len(vary)], "Origin")
	origins := r.Header["Origin"]
	if len(origins) == 1 && c.allows(origins[0]) {
		h[headerAllowOrigin] = []string{origins[0]}
		if c.credentials {
			h[headerAllowCredentials] = []string{"true"}
		}
	}
	return true
}

// Leave takes back what Enter has set for answers of the proxy alone.
func (c *CORS) Leave(h http.Header) {
	delete(h, headerAllowOrigin)
	if c.any {
		return
	}
	delete(h, headerAllowCredentials)
	vary := h[headerVary]
	if len(vary) <= 1 {
		delete(h, headerVary)
		return
	}
	h[headerVary] = vary[:len(vary)-1]
}
