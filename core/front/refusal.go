package front

import (
	"encoding/json"
	"html"
	"math/rand"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/rate"
)

// StatusClientClosedRequest is the status that Caddy's reverse proxy and Traefik, too, log for a client that left before it was answered.
const StatusClientClosedRequest = 499

// Jittered returns a wait in microseconds with a random part of it added: from nothing to jitter, a fraction of the wait.
func Jittered(wait int64, jitter float64) int64 {
	if jitter == 0 || wait <= 0 {
		return wait
	}
	return wait + int64(rand.Float64()*jitter*float64(wait)) //nolint:gosec // spreads clients, keeps no secret
}

// Later returns by how much later than it is a client is told that its quota of a rule is renewed, in microseconds: a part of the rule's Jitter that a hash of
// its key says, so that it is always told the same time; or of its connection's address if all have that key.
func Later(rule *core.Rule, key string, r *http.Request) int64 {
	if rule.Jitter == 0 {
		return 0
	}
	if rule.OneKey {
		key = r.RemoteAddr
	}
	return rate.PartOf(key, rule.Jitter)
}

// SetLater makes later what the client of a request is told of its rules: the wait of a rejection, and with JittersReset all times. jitter is that of the proxy's
// configuration, for rules without one; negative: it has none.
func SetLater(q *Evaluation, r *http.Request, jitter float64) {
	v := &q.Verdict
	if v.Outcome == core.Reject && v.RetryAfter > 0 {
		c := core.Reported(q.Checks, v)
		v.RetryAfter = WaitOf(v.RetryAfter, c.Rule, c.Key, r, jitter)
	}
	if q.Set != nil && q.Set.JittersReset {
		setResetsLater(q.Checks, r)
	}
}

// WaitOf returns the wait of a client that a rule rejects, in microseconds, made later as SetLater does it.
func WaitOf(wait int64, rule *core.Rule, key string, r *http.Request, jitter float64) int64 {
	if wait <= 0 {
		return wait
	}
	if jitter >= 0 && !rule.JitterIsOwn {
		return Jittered(wait, jitter)
	}
	return wait + Later(rule, key, r)
}

// SetQuotasLater makes later what the status handler tells a client, as answers to its requests tell it. What the proxy's jitter would add at random is left out.
func SetQuotasLater(checks []core.Check, r *http.Request, jitter float64) {
	for i := range checks {
		c := &checks[i]
		if c.Decision.RetryAfter > 0 && (jitter < 0 || c.Rule.JitterIsOwn) {
			c.Decision.RetryAfter += Later(c.Rule, c.Key, r)
		}
	}
	setResetsLater(checks, r)
}

// setResetsLater makes later what clients are told of when their quotas come back, for rules with JittersReset.
func setResetsLater(checks []core.Check, r *http.Request) {
	for i := range checks {
		c := &checks[i]
		if !c.Rule.JittersReset {
			continue
		}
		later := Later(c.Rule, c.Key, r)
		if c.Decision.ResetAfter > 0 {
			c.Decision.ResetAfter += later
		}
		if c.Decision.MoreAfter > 0 {
			c.Decision.MoreAfter += later
		}
	}
}

// LacksKey is the text of a rejection's body if the request has no key, and no text is configured.
const LacksKey = "This request lacks what its limit tells clients apart by."

// Fill replaces a proxy's own placeholders in a text by their values, each of which escape writes. If that is nil, the text is a message, and not of an
// answer of a rule's own: then the proxy decides how its placeholders are found and written.
type Fill func(text string, escape func(value string) string) string

// Reject answers a request that is over a limit, after answer.WriteHeaders. message is the configuration's text for the body if the reported rule
// has none; "": the default text. fill may be nil.
func Reject(w http.ResponseWriter, r *http.Request, q *Evaluation, message string, fill Fill) {
	own := OwnAnswer(w, r, q)
	if answer.IsGRPC(r) {
		answer.GRPC(w, answer.GRPCResourceExhausted, answer.GRPCLimited)
		return
	}
	v := &q.Verdict
	if v.Reported >= 0 {
		if own := core.Reported(q.Checks, v).Rule.Message; own != "" {
			message = own
		}
	}
	if message != "" && fill != nil {
		var asMessage func(value string) string
		message = fill(message, asMessage)
	}
	if message == "" && q.Lacking && v.RetryAfter == rate.Never {
		message = LacksKey
	}
	if own != nil {
		rejectAs(own, w, r, q, message, fill)
		return
	}
	contentType, body := answer.Body(http.StatusTooManyRequests, answer.WantsProblem(r.Header), message, q.Checks, v)
	w.Header()["Content-Type"] = []string{contentType}
	w.WriteHeader(http.StatusTooManyRequests)
	_, _ = w.Write(body) // the client may be gone; there is nobody to tell
}

// OwnAnswer returns the answer that the rule has which rejects a request, nil: the default, and sets the field that closes the connection.
func OwnAnswer(w http.ResponseWriter, r *http.Request, q *Evaluation) *core.Answer {
	var own *core.Answer
	if q.Verdict.Reported >= 0 {
		own = core.Reported(q.Checks, &q.Verdict).Rule.Answer
	}
	if own != nil && own.Close && r.ProtoMajor < 3 { // over HTTP/2 Go ends the connection when the field is set; HTTP/3 must not have it
		w.Header()["Connection"] = []string{"close"}
	}
	return own
}

// rejectAs is Reject for a rule with an answer of its own. message is filled.
func rejectAs(own *core.Answer, w http.ResponseWriter, r *http.Request, q *Evaluation, message string, fill Fill) {
	header := w.Header()
	status := own.PlainStatus()
	jsonOwn := strings.Contains(strings.ToLower(own.Type), "json")
	asProblem := answer.WantsProblem(r.Header) && !jsonOwn
	if own.Location != "" && !asProblem {
		status = own.Status
		header["Location"] = []string{target(filled(own.Location, q, fill, url.QueryEscape))}
	}
	contentType := own.Type
	var body []byte
	if own.Body == "" || asProblem {
		contentType, body = answer.Body(own.PlainStatus(), asProblem, message, q.Checks, &q.Verdict)
	} else {
		if contentType == "" {
			contentType = answer.TypeOf(own.Body)
		}
		body = []byte(filled(own.Body, q, fill, escaping(contentType)))
	}
	header["Content-Type"] = []string{contentType}
	header["Content-Length"] = []string{strconv.Itoa(len(body))} // also of an answer to HEAD
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
}

// target returns where a client is redirected to. Of a path that begins with empty values one slash stays: //example.org/ would be another host.
func target(location string) string {
	for strings.HasPrefix(location, "//") {
		location = location[1:]
	}
	return location
}

// filled returns a text with the values of a rejection, and those of the proxy's placeholders.
func filled(text string, q *Evaluation, fill Fill, escape func(value string) string) string {
	if !strings.Contains(text, "{") {
		return text
	}
	c := core.Reported(q.Checks, &q.Verdict)
	after := ""
	if q.Verdict.RetryAfter != rate.Never {
		after = strconv.FormatInt(answer.RetrySeconds(q.Verdict.RetryAfter), 10)
	}
	text = strings.NewReplacer("{limit}", c.Rule.LimitText, "{remaining}", strconv.FormatInt(c.Decision.Remaining, 10), "{reset}", strconv.FormatInt((c.Decision.ResetAfter+999_999)/1_000_000, 10),
		"{retry_after}", after, "{rule}", c.Rule.Name()).Replace(text)
	if fill != nil {
		text = fill(text, escape)
	}
	return text
}

// escaping returns how values are written in a text of that media type.
func escaping(contentType string) func(value string) string {
	contentType = strings.ToLower(contentType)
	if strings.Contains(contentType, "json") {
		return func(value string) string { return inJSON(value) } // in Yaegi a function of this package itself panics here
	}
	if strings.Contains(contentType, "html") || strings.Contains(contentType, "xml") {
		return html.EscapeString
	}
	return func(value string) string { return value }
}

// inJSON returns a value as it stands between the quotes of a text in JSON.
func inJSON(value string) string {
	text, _ := json.Marshal(value)
	return string(text[1 : len(text)-1])
}

// Unavailable answers a request that can be served only after a while, in microseconds. message is a sentence that says why.
func Unavailable(w http.ResponseWriter, r *http.Request, after int64, message string) {
	header := w.Header()
	header["Cache-Control"] = []string{"no-store"}
	answer.SetRetryAfter(header, after)
	if answer.IsGRPC(r) {
		answer.GRPC(w, answer.GRPCUnavailable, message)
		return
	}
	header["Content-Type"] = []string{"text/plain; charset=utf-8"}
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write([]byte(message + " Try again.\n"))
}

// Overloaded answers a request that a guard turns away, which may come again after a while, in microseconds.
func Overloaded(w http.ResponseWriter, r *http.Request, after int64) {
	header := w.Header()
	if !answer.WantsProblem(r.Header) || answer.IsGRPC(r) {
		Unavailable(w, r, after, "The service has as much to do as it can.")
		return
	}
	header["Cache-Control"] = []string{"no-store"}
	answer.SetRetryAfter(header, after)
	header["Content-Type"] = []string{"application/problem+json"}
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(answer.ReducedCapacityBody())
}

// CannotCheck is the message of Unavailable if the store has failed and a rule then turns requests away.
const CannotCheck = "The rate limit cannot be checked."
