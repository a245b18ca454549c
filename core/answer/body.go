package answer

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/rate"
)

// DefaultMessage is the text of a rejection's body where none is configured.
const DefaultMessage = "Too many requests: you have used up what you may send for now."

// The texts that follow DefaultMessage, around the seconds of Retry-After, and in place of these for one second.
const (
	againIn      = " Try again in "
	againSeconds = " seconds."
	againSecond  = " Try again in 1 second."
)

// The media types of a rejection's body.
const (
	textType    = "text/plain; charset=utf-8"
	pageType    = "text/html; charset=utf-8"
	problemType = "application/problem+json"
)

// IsPage reports whether a message is a page in HTML: it begins with a <, after white space.
func IsPage(message string) bool { return strings.HasPrefix(strings.TrimSpace(message), "<") }

// TypeOf returns the media type of a message.
func TypeOf(message string) string {
	if IsPage(message) {
		return pageType
	}
	return textType
}

// NewRefusal prepares the rejections of a rule for memory.Serve, which makes them as WriteHeaders, Body and GRPC do. message is the text of the
// body; "": the default text.
func NewRefusal(message, rule string) *memory.Refusal {
	name, _ := json.Marshal(rule)
	asProblem := func(detail string) string { return problemOf(http.StatusTooManyRequests, detail, []string{rule}) }
	refusal := &memory.Refusal{Violated: string(name), Form: formOf}
	refusal.Plain = refusalBody(TypeOf(message), message, func(detail string) string { return detail + "\n" })
	if IsPage(message) {
		message = ""
	}
	refusal.Problem = refusalBody(problemType, message, asProblem)
	return refusal
}

// refusalBody prepares the bodies of rejections with a message. write returns the body with that text.
func refusalBody(contentType, message string, write func(detail string) string) memory.RefusalBody {
	const seconds = "@" // is in no body in front of the seconds
	body := memory.RefusalBody{ContentType: contentType}
	if message != "" {
		body.Text = write(message)
		return body
	}
	body.Text = write(DefaultMessage + againSecond)
	before, after, _ := strings.Cut(write(DefaultMessage+againIn+seconds+againSeconds), seconds)
	body.Before = before
	body.After = after
	return body
}

// formOf returns the form that a request wants of its rejection: see memory.Refusal.
func formOf(h http.Header, r *http.Request) memory.Form {
	if IsGRPC(r) {
		setGRPC(h, GRPCResourceExhausted, GRPCLimited)
		return memory.CallForm
	}
	if WantsProblem(r.Header) {
		return memory.ProblemForm
	}
	return memory.PlainForm
}

// QuotaExceeded is the problem type of a rejection, from the IANA registry of HTTP problem types.
const QuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"

// ReducedCapacity is the problem type of a request that a guard has turned away, from the same registry.
const ReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"

// ReducedCapacityBody returns the problem details of a request that a guard has turned away.
func ReducedCapacityBody() []byte {
	return []byte(`{"type":"` + ReducedCapacity + `","title":"Request cannot be satisfied due to temporary server capacity constraints","status":503,` +
		`"detail":"The service has as much to do as it can. Try again."}` + "\n")
}

// problem is a rejection as RFC 9457 has it.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Violated []string `json:"violated-policies"`
}

// WantsProblem reports whether the Accept field of a request names JSON (and not with q=0, which refuses it), so that a
// rejection's body is problem details.
func WantsProblem(h http.Header) bool {
	for _, accept := range h["Accept"] {
		accept = strings.ToLower(accept)
		if !strings.Contains(accept, "json") { // as in most
			continue
		}
		for _, part := range strings.Split(accept, ",") {
			media, parameters, _ := strings.Cut(part, ";")
			if strings.Contains(media, "json") && !refuses(parameters) {
				return true
			}
		}
	}
	return false
}

// refuses reports whether the parameters of a media range have a weight of zero.
func refuses(parameters string) bool {
	parameters = strings.Replace(parameters, " ", "", -1)
	for _, p := range strings.Split(parameters, ";") {
		if weight := strings.TrimPrefix(p, "q="); weight != p {
			return strings.Trim(weight, "0.") == ""
		}
	}
	return false
}

// Body returns the content type and the body of a rejected request's response with that status: problem details if the request accepts them,
// else text, or a page if the message is one, which a problem does not have. The default message says when to try again, if that is known.
func Body(status int, asProblem bool, message string, checks []core.Check, v *core.Verdict) (contentType string, body []byte) {
	if message == "" || asProblem && IsPage(message) {
		message = DefaultMessage
		if v.RetryAfter == rate.Never {
			message = "This request is over its limit, and waiting does not change that."
		} else if s := RetrySeconds(v.RetryAfter); s == 1 {
			message += againSecond
		} else {
			message += againIn + strconv.FormatInt(s, 10) + againSeconds
		}
	}
	if !asProblem {
		return TypeOf(message), []byte(message + "\n")
	}
	body = []byte(problemOf(status, message, violatedBy(checks)))
	return problemType, body
}

// violatedBy returns the names of the rules that reject a request.
func violatedBy(checks []core.Check) []string {
	var violated []string
	for i := range checks {
		for c := &checks[i]; c != nil; c = c.InFlight {
			if !c.Decision.Allowed && c.Rule.Shown {
				violated = append(violated, c.Rule.Name())
			}
		}
	}
	return violated
}

// problemOf returns the problem details of a rejection.
func problemOf(status int, detail string, violated []string) string {
	p := problem{
		Type:     QuotaExceeded,
		Title:    "Request cannot be satisfied as assigned quota has been exceeded",
		Status:   status,
		Detail:   detail,
		Violated: violated,
	}
	body, _ := json.Marshal(p) // strings and numbers always marshal
	return string(body) + "\n"
}

// The codes of gRPC that clients are answered with.
const (
	GRPCResourceExhausted = "8"
	GRPCUnavailable       = "14"
)

// GRPCLimited is the message of a rejection.
const GRPCLimited = "rate limit exceeded"

// IsGRPC reports whether a request is a gRPC call, as gRPC's protocol over HTTP/2 defines one.
func IsGRPC(r *http.Request) bool {
	types := r.Header["Content-Type"]
	if r.ProtoMajor < 2 || r.Method != http.MethodPost || len(types) == 0 {
		return false
	}
	media := strings.ToLower(types[0])
	rest := strings.TrimPrefix(media, "application/grpc")
	return rest != media && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// GRPC writes a gRPC response without messages, whose status is in the header fields. Clients take the code only from
// a response with HTTP status 200.
func GRPC(w http.ResponseWriter, code, message string) {
	header := w.Header()
	header["Content-Type"] = []string{"application/grpc"}
	setGRPC(header, code, message)
	w.WriteHeader(http.StatusOK)
}

// setGRPC sets the fields of a gRPC response's status.
func setGRPC(header http.Header, code, message string) {
	header["Grpc-Status"] = []string{code}
	header["Grpc-Message"] = []string{message}
}
