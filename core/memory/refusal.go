package memory

import (
	"hash/maphash"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/proxyweir/weir/core/rate"
)

// The names of the header fields of a rejection besides the quota fields, as http.Header has them.
const (
	HeaderCacheControl = "Cache-Control"
	HeaderRetryAfter   = "Retry-After"
	HeaderXRetryAfter  = "X-Ratelimit-Retry-After"
)

// Refusal says how a fast path rejects a request. It does so if no earlier handler has set header fields. All other rejections are left to the rest.
// Responses share values: nobody may change one in place.
type Refusal struct {
	Plain, Problem RefusalBody

	// Form returns the form of a request's answer. With CallForm it sets the header fields of the answer, but for Content-Type. It is not asked about
	// requests that surely want PlainForm.
	Form func(h http.Header, r *http.Request) Form

	Violated string                                  // the rule as Problem ends with it
	Jittered func(wait int64, r *http.Request) int64 // returns a request's wait with a part added; nil: there is none

	Rejected *int64 // counts rejections; use functions of sync/atomic; nil: nobody counts
	Shadowed *int64 // counts them, too, and they pass all the same, without fields; nil: they do not pass
	Told     Told   // is told of each rejection; nil: nobody wants to know
}

// Told is told that a request of a key is rejected, and after how many seconds it may come again; below 0: never.
type Told func(key string, seconds int64, r *http.Request)

// Form is one of the forms of a rejection's answer.
type Form int

// The forms.
const (
	_           Form = iota
	PlainForm        // Refusal.Plain
	ProblemForm      // Refusal.Problem
	CallForm         // that of gRPC, with status 200 and no body
)

// RefusalBody is the body of a rejection: Before, the seconds after which the request may come again, and After. For one second it is Text, and so it is for
// any number if Before is "".
type RefusalBody struct{ ContentType, Before, After, Text string }

// endOfProblem is what comes behind the rules in the body of a problem.
const endOfProblem = "]}\n"

// Refuser has what a fast path needs to reject requests. NewRefuser makes it. It is read only afterwards, and safe for concurrent use.
type Refuser struct {
	xRateLimit, ietf    bool
	limit, policy       []string // of the QuotaFields
	stateText           string   // RateLimit, up to the seconds
	member              string   // the beginning of its member of RateLimit, behind another member
	noStore             []string
	status              int
	contentType         []string // of the Refusal's body, as what follows
	before, after, text string
	problem, call       *Refuser // what answers in the other forms
	form                func(h http.Header, r *http.Request) Form
	violated            string
	jittered            func(wait int64, r *http.Request) int64
	plainMajor          int  // requests of a higher version of HTTP may want another form, or have a jittered wait
	notes               bool // any of the following is set
	rejected, shadowed  *int64
	next                http.Handler // of a shadow: gets what it would reject
	told                Told
}

// NewRefuser returns what rejects requests as a Refusal says, with these quota fields.
func NewRefuser(t *QuotaFields, refusal *Refusal) *Refuser {
	tables.Do(makeTables)
	g := &Refuser{
		xRateLimit: t.XRateLimit, ietf: t.IETF, limit: t.Limit, policy: t.Policy, stateText: t.State + "0" + MoreText, member: ", " + t.State, noStore: []string{"no-store"},
		status: http.StatusTooManyRequests, form: refusal.Form, violated: refusal.Violated, jittered: refusal.Jittered, plainMajor: 1,
		notes: refusal.Rejected != nil || refusal.Told != nil, rejected: refusal.Rejected, told: refusal.Told,
	}
	if g.jittered != nil {
		g.plainMajor = -1
	}
	g.problem = withBody(g, &refusal.Problem)
	g.call = withBody(g, &RefusalBody{ContentType: "application/grpc"})
	g.call.status = http.StatusOK
	return withBody(g, &refusal.Plain)
}

// withBody returns a Refuser with another body.
func withBody(g *Refuser, body *RefusalBody) *Refuser {
	other := *g
	other.contentType = []string{body.ContentType}
	other.before = body.Before
	other.after = body.After
	other.text = body.Text
	return &other
}

// formOf returns what answers a request, in the form that it wants, and its wait, jittered.
func formOf(g *Refuser, retry int64, w http.ResponseWriter, r *http.Request) (*Refuser, int64) {
	if g.jittered != nil {
		retry = g.jittered(retry, r)
	}
	switch g.form(w.Header(), r) {
	case ProblemForm:
		g = g.problem
	case CallForm:
		g = g.call
	}
	return g, retry
}

// Refuse answers a request of that key which is rejected, and of whose quota nothing remains. retry and reset are the microseconds until such a
// request is allowed, and until the quota is whole. It returns false if the request is left to the rest: see Refusal.
//
//flatten:inline
func Refuse(g *Refuser, retry, reset int64, key string, w http.ResponseWriter, r *http.Request) (refused bool) {
	var (
		h                      http.Header
		takes                  []string
		afterField, resetField []string
		text                   string
	)
	h = w.Header()
	if len(h) > 1 {
		return false
	}
	takes = r.Header["Accept"]
	if r.ProtoMajor > g.plainMajor || len(takes) > 0 && (takes[0] != "*/*" || len(takes) > 1) {
		g, retry = formOf(g, retry, w, r)
	}
	retry = (retry + 999_999) / 1_000_000
	reset = (reset + 999_999) / 1_000_000
	afterField = numberValues[retry&(tabled-1)]
	resetField = numberValues[reset&(tabled-1)]
	if retry|reset >= tabled {
		afterField = longValue(retry)
		resetField = longValue(reset)
	}
	h[HeaderCacheControl] = g.noStore
	h[HeaderRetryAfter] = afterField
	if g.xRateLimit {
		h[HeaderXRetryAfter] = afterField
		h[HeaderLimit] = g.limit
		h[HeaderRemaining] = numberValues[0]
		h[HeaderReset] = resetField
	}
	if g.ietf {
		h[HeaderRateLimit] = []string{g.stateText + afterField[0]}
		h[HeaderPolicy] = g.policy
	}
	h["Content-Type"] = g.contentType
	if g.notes {
		noteRefusal(g, key, retry, r)
	}
	text = g.text
	if retry > 1 && g.before != "" {
		text = g.before + afterField[0] + g.after
	}
	w.WriteHeader(g.status)
	if text != "" {
		_, _ = io.WriteString(w, text)
	}
	return true
}

// RefuseSeveral answers a request that any of several rules reject, whose Refusers these are. The one at reported is reported, with the microseconds until it
// allows the request, and until its quota is whole. left is what each rule has left without this request, or -1 if it rejects it. waits are the seconds until
// it allows the request, or until more is left, or 0. policies is the value of RateLimit-Policy, and key the key of the first rule. Requests
// with quota fields of an earlier handler have another answer.
func RefuseSeveral(list []*Refuser, policies []string, reported int, left, waits []int64, retry, whole int64, key string, w http.ResponseWriter, r *http.Request) {
	var (
		g                                   *Refuser
		h                                   http.Header
		rest                                int64
		seconds, texts, end, body, violated string
		takes, value                        []string
	)
	g = list[reported]
	takes = r.Header["Accept"]
	if r.ProtoMajor > g.plainMajor || len(takes) > 0 && (takes[0] != "*/*" || len(takes) > 1) {
		g, retry = formOf(g, retry, w, r)
	}
	retry = (retry + 999_999) / 1_000_000
	waits[reported] = retry
	seconds = strconv.FormatInt(retry, 10)
	value = []string{seconds}
	h = w.Header()
	h[HeaderCacheControl] = g.noStore
	h[HeaderRetryAfter] = value
	if g.xRateLimit {
		h[HeaderXRetryAfter] = value
		h[HeaderLimit] = g.limit
		h[HeaderRemaining] = numberValues[0]
		h[HeaderReset] = []string{strconv.FormatInt((whole+999_999)/1_000_000, 10)}
	}
	h["Content-Type"] = g.contentType
	for n, other := range list {
		rest = left[n]
		if rest < 0 {
			rest = 0
			violated += "," + other.violated
			if other.rejected != nil {
				atomic.AddInt64(other.rejected, 1)
			}
		}
		if !g.ietf {
			continue
		}
		end = ""
		if waits[n] > 0 && waits[n] <= retry { // a later one is not allowed there
			end = MoreText + strconv.FormatInt(waits[n], 10)
		}
		texts = texts + other.member + strconv.FormatInt(rest, 10) + end
	}
	if g.ietf {
		h[HeaderRateLimit] = []string{texts[2:]}
		h[HeaderPolicy] = policies
	}
	if list[0].told != nil {
		list[0].told(key, retry, r)
	}
	body = g.text
	if retry > 1 && g.before != "" {
		body = g.before + seconds + g.after
	}
	if g == list[reported].problem {
		body = strings.TrimSuffix(body, g.violated+endOfProblem) + violated[1:] + endOfProblem
	}
	w.WriteHeader(g.status)
	if body != "" {
		_, _ = io.WriteString(w, body)
	}
}

// RefuseKeyless returns a handler that rejects requests without a key, whatever remains, under the rule of e, in which c has them refused. keyOf returns the key
// that they have all the same. Those with a key that the store holds, or with fields of an earlier handler, are left to c.Rest.
func RefuseKeyless(e *FastPath, c *ServeConfig, keyOf func(r *http.Request) string) http.Handler {
	plain := NewRefuser(c.QuotaFields, c.Refusal)
	state := []string{c.QuotaFields.State + plain.limit[0]} // all of the quota is left
	rest := c.Rest
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var (
			g   *Refuser
			h   http.Header
			key string
		)
		h = w.Header()
		key = keyOf(r)
		if len(h) > 1 || holds(e, key) {
			rest.ServeHTTP(w, r)
			return
		}
		g, _ = formOf(plain, 0, w, r)
		h[HeaderCacheControl] = g.noStore
		if g.xRateLimit {
			h[HeaderLimit] = g.limit
			h[HeaderRemaining] = g.limit
			h[HeaderReset] = numberValues[0]
		}
		if g.ietf {
			h[HeaderRateLimit] = state
			h[HeaderPolicy] = g.policy
		}
		h["Content-Type"] = g.contentType
		if g.notes {
			noteRefusal(g, key, rate.Never, r)
		}
		w.WriteHeader(g.status)
		if g.text != "" {
			_, _ = io.WriteString(w, g.text)
		}
	})
}

// holds reports whether the store has a state of a key.
func holds(e *FastPath, key string) bool {
	hash := maphash.String(e.seed, key)&^kindBit ^ e.salt
	s := e.shards[hash&e.mask]
	s.mu.Lock()
	_, ok := s.index[hash]
	s.mu.Unlock()
	return ok
}

// longValue returns a number as the value of a field.
func longValue(n int64) []string { return []string{strconv.FormatInt(n, 10)} }

// passShadowed passes a request on that a shadow would reject.
func passShadowed(g *Refuser, w http.ResponseWriter, r *http.Request) {
	atomic.AddInt64(g.shadowed, 1)
	if g.rejected != nil {
		atomic.AddInt64(g.rejected, 1)
	}
	g.next.ServeHTTP(w, r)
}

// noteRefusal counts a rejection, and tells of it.
func noteRefusal(g *Refuser, key string, seconds int64, r *http.Request) {
	if g.rejected != nil {
		atomic.AddInt64(g.rejected, 1)
	}
	if g.told != nil {
		g.told(key, seconds, r)
	}
}

// settling has what the functions settle… need of a fast path.
type settling struct {
	memory  *Store
	space   *space
	limit   *rate.Limit
	rest    http.Handler
	watched string // of the ServeConfig, as noticed; no request has the field "", so that these are not asked
	noticed *atomic.Bool
	refuser *Refuser // nil: it leaves all rejections to the rest
	blocker *Refuser // of keys under penalty; nil: it leaves these to the rest
	tells   bool     // it counts what is admitted, and leaves keys that are not fast to the rest: see Untold
}

// newSettling prepares what a fast path does with requests that it does not allow at once.
func newSettling(e *FastPath, c *ServeConfig) *settling {
	f := &settling{memory: e.memory, space: e.space, limit: e.limit, rest: c.Rest, watched: c.Watched, noticed: c.Noticed, tells: e.ahead != nil}
	if c.Refusal == nil || e.countRejected || e.limit.Cost != 1 {
		return f
	}
	policy := e.rule.Overflow
	if policy != nil && (policy.Wide != nil || e.limit.Delays) {
		return f
	}
	if policy != nil && policy.Longest > 0 {
		if !e.rule.Shadow {
			f.blocker = NewRefuser(c.QuotaFields, c.Refusal)
		}
	} else {
		f.refuser = NewRefuser(c.QuotaFields, c.Refusal)
		if c.Refusal.Shadowed != nil {
			f.refuser.shadowed = c.Refusal.Shadowed
			f.refuser.next = c.Next
		}
	}
	return f
}

// rejectPenalized rejects a request by the key in slot i, which has an account, if all that holds of that is a penalty. It unlocks the shard then.
// Otherwise it returns false.
func rejectPenalized(f *settling, s *shard, i int, now int64, key string, w http.ResponseWriter, r *http.Request) bool {
	var (
		a                  *account
		state              rate.State
		wait, retry, reset int64
		remaining          int64
	)
	if f.blocker == nil {
		return false
	}
	a = s.accounts[s.slots[i].hash]
	state = s.slots[i].state
	if a.blockedUntil <= now || a.last > now || a.underWay > 0 || len(a.pending)+len(a.queue) > 0 || a.credit != nil ||
		state.A >= rate.BlockMark || r.Header[f.watched] != nil && !noticedIn(f) {
		return false
	}
	wait = a.blockedUntil - now
	retry, reset = rejectIn(s, f.limit, &state, now)
	if retry < 0 { // the limit may allow it: reset is then what it would be with this request
		if f.limit.IsLog {
			remaining, reset, _ = tryIn(s, f.limit, &state, now)
		} else {
			remaining, reset, _ = rate.Take(f.limit, &state, now)
		}
		if remaining < 0 {
			return false
		}
	}
	if retry < wait {
		retry = wait
	}
	if reset < wait {
		reset = wait
	}
	s.owners[i] |= rejected
	s.mu.Unlock()
	if !Refuse(f.blocker, retry, reset, key, w, r) {
		f.rest.ServeHTTP(w, r)
	}
	return true
}

// noticedIn reports whether it has been noticed already that a request has the header field that is watched.
func noticedIn(f *settling) bool { return f.noticed.Load() }

// settleNew inserts a new key with an unused state, and returns its slot. If that is not all that there is to do, it unlocks the shard, leaves
// the request to the rest, and returns -1: if there would be more keys than there may be, or if the request must be noticed.
func settleNew(f *settling, s *shard, now int64, hash uint64, w http.ResponseWriter, r *http.Request) int {
	m := f.memory
	if hash == 0 || m.keys.Load() >= m.maxKeys.Load() || m.logTimes.Load() > logBudgetFloor || r.Header[f.watched] != nil && !noticedIn(f) {
		s.mu.Unlock()
		f.rest.ServeHTTP(w, r)
		return -1
	}
	return insertMapped(m, s, f.space, hash, now)
}
