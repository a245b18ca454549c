package deferral

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/proxyweir/weir/core/answer"
)

// Desk is the clients' side of a queue. It is safe for concurrent use.
type Desk struct {
	Queue *Queue

	// Known is what the node knows of the queue; its Worker has the same.
	Known *Known

	// Path is where jobs are: <Path>/<id>, and <Path>/<id>/result. It begins with a slash, and does not end with one.
	Path string

	// Always defers all requests that can be deferred, and not only those with Prefer: respond-async.
	Always bool

	// MaxBody is the longest body of a request, in bytes.
	MaxBody int64

	// Headers are the names of the header fields that are stored, in their canonical form.
	Headers []string

	// MaxWait is the longest that a new job may have to wait, as far as can be said.
	MaxWait time.Duration

	// Pace returns the time in which the limit admits one more request of a key, when it is used up.
	Pace func() time.Duration

	// Doubt is how long a client waits for its answer while nobody knows whether its job is in the line. Then it gets a 202 that says so.
	Doubt time.Duration

	// Stopping is closed when nobody may wait any longer; nil: never.
	Stopping <-chan struct{}

	// Report is called with what an operator should know; it must not block, and gets nothing of a request.
	Report func(e Event)

	waiting atomic.Int64 // clients that poll

	unsettled atomic.Int64 // jobs of which nobody knows yet whether they are in the line
	closing   atomic.Bool  // Settle was called, so that no more jobs are stored
	given     atomic.Bool  // Settle has given up
}

// DefaultHeaders are the header fields that are stored unless others are configured: what a body is, and which answer the client understands.
var DefaultHeaders = []string{"Accept", "Accept-Language", "Content-Encoding", "Content-Language", "Content-Type"}

// secretParts are what the names of header fields and parameters with credentials have in them.
var secretParts = []string{"authorization", "cookie", "api-key", "api_key", "apikey", "token", "secret", "password", "session"}

// IsSecret reports whether the value of a header field, a parameter or a placeholder is a credential, by its name. Such values are stored
// only if they are encrypted.
func IsSecret(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(name, part) })
}

// otherHeaders cannot be stored: they are about the connection or the message, or are kept in another way.
var otherHeaders = []string{"Connection", "Content-Length", "Expect", "Host", "Idempotency-Key", "Keep-Alive", "Prefer", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// CheckHeaders returns the canonical names of the header fields that are to be stored. The error says which cannot be.
func CheckHeaders(names []string, encrypt bool) ([]string, error) {
	var list []string
	for _, name := range names {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case !isToken(name):
			return nil, fmt.Errorf("headers %q: is no name of a header field; write names such as Content-Type", name)
		case slices.Contains(otherHeaders, canonical):
			return nil, fmt.Errorf("headers %s: cannot be stored; a deferred request has its own", name)
		case IsSecret(name) && !encrypt:
			return nil, fmt.Errorf("headers %s: is a secret, which is stored only with encrypt; write encrypt with a key, or leave it out", name)
		case slices.Contains(list, canonical):
			return nil, fmt.Errorf("headers %s: duplicate; keep one", name)
		}
		list = append(list, canonical)
	}
	return list, nil
}

func isToken(name string) bool {
	for _, c := range []byte(name) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte("()<>@,;:\\\"/[]?={}", c) >= 0 {
			return false
		}
	}
	return name != ""
}

// mostHead is the longest that what is stored of a request may be besides its body, in bytes.
const mostHead = 16 << 10

// longestOnce is the longest Idempotency-Key, in bytes.
const longestOnce = 255

// Wants reports whether a request is to be deferred if it is over its limit, and can be: whether it can be repeated later from what is stored of it.
func (d *Desk) Wants(r *http.Request) bool {
	if !d.Always {
		if async, _ := preferences(r.Header); !async {
			return false
		}
	}
	h := r.Header
	hasBody := r.ContentLength != 0
	switch {
	case r.Method == http.MethodConnect || r.Method == http.MethodTrace,
		h.Get("Upgrade") != "" || listed(h, "Connection", "upgrade") || len(h[":protocol"]) > 0, // net/http has the last of HTTP/2
		answer.IsGRPC(r) || hasPrefix(h.Get("Content-Type"), "application/grpc"),
		listed(h, "Accept", "text/event-stream"),
		len(r.Trailer) > 0 || h.Get("Trailer") != "",
		len(r.TransferEncoding) > 0 || r.ContentLength < 0 || r.ContentLength > d.MaxBody,
		hasBody && (r.Method == http.MethodGet || r.Method == http.MethodHead),
		h.Get("Early-Data") != "",
		h.Get("Range") != "" || h.Get("Content-Range") != "",
		slices.ContainsFunc(decisiveHeaders, func(name string) bool { return h.Get(name) != "" && !slices.Contains(d.Headers, name) }),
		len(h.Values("Idempotency-Key")) > 1 || len(h.Get("Idempotency-Key")) > longestOnce,
		len(h.Values("Authorization")) > 1:
		return false
	}
	if !IsText(r.URL.RequestURI(), r.Host, h.Get("Idempotency-Key")) {
		return false
	}
	head := len(r.Method) + len(r.RequestURI) + len(r.Host)
	for _, name := range d.Headers {
		for _, value := range h[name] {
			head += len(name) + len(value)
		}
		if !IsText(h[name]...) {
			return false
		}
	}
	return head <= mostHead
}

// decisiveHeaders are fields without which a request would do something else: its body would be unreadable, its condition would not be checked, or it
// would have another method. A request with one of them is deferred only if the field is stored.
var decisiveHeaders = []string{"Content-Encoding", "If-Match", "If-Modified-Since", "If-None-Match", "If-Unmodified-Since", "X-Http-Method", "X-Http-Method-Override", "X-Method-Override"}

// IsText reports whether all of some strings are UTF-8. What is stored of a request is JSON, which cannot have others.
func IsText(all ...string) bool {
	return !slices.ContainsFunc(all, func(one string) bool { return !utf8.ValidString(one) })
}

// hasPrefix reports whether a text begins with another, in upper or lower case.
func hasPrefix(text, prefix string) bool {
	return len(text) >= len(prefix) && strings.EqualFold(text[:len(prefix)], prefix)
}

// listed reports whether one of the members of a field is that word. Parameters of a member are ignored.
func listed(h http.Header, field, word string) bool {
	for _, value := range h.Values(field) {
		for member := range strings.SplitSeq(value, ",") {
			member, _, _ = strings.Cut(member, ";")
			if strings.EqualFold(strings.TrimSpace(member), word) {
				return true
			}
		}
	}
	return false
}

// longestPoll is the longest that a client may wait for a job to end.
const longestPoll = time.Minute

// preferences reads Prefer (RFC 7240): whether the client wants an answer at once, and how long it will wait for one; 0: it does not say.
func preferences(h http.Header) (async bool, wait time.Duration) {
	for _, value := range h.Values("Prefer") {
		for member := range strings.SplitSeq(value, ",") {
			member, _, _ = strings.Cut(member, ";")
			name, value, _ := strings.Cut(member, "=")
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "respond-async":
				async = true
			case "wait":
				n, err := strconv.ParseUint(strings.Trim(strings.TrimSpace(value), `"`), 10, 32)
				if err == nil && wait == 0 {
					wait = min(time.Duration(n)*time.Second, longestPoll)
				}
			}
		}
	}
	return async, wait
}

// Deferrable is a request that the desk wants to defer, while it is decided.
type Deferrable struct {
	desk *Desk
	r    *http.Request
	key  string // the digest of the client's key
	once string // the digest of its Idempotency-Key; "": it has none
	Look
}

// Ask asks the store about a request of a client with that key. The error is ErrHeld if the key has jobs, as far as is known, and the request cannot be put behind
// them now: it must not be done. who is what the adapter knows of its identity besides.
func (d *Desk) Ask(r *http.Request, key string, who ...string) (*Deferrable, error) {
	a := &Deferrable{desk: d, r: r, key: d.Queue.KeyDigest(key)}
	if once := r.Header.Get("Idempotency-Key"); once != "" {
		a.once = d.Queue.digest("once", append(d.identity(r, key), append(who, once)...)...)
	}
	var err error
	asked := time.Now()
	a.Look, err = d.Queue.Look(r.Context(), a.key, a.once)
	switch {
	case err != nil && d.Known.held(a.key):
		err = fmt.Errorf("%w: %w", ErrHeld, err)
	case err != nil:
	case a.Waiting > 0:
		d.Known.note(a.key)
	case d.Known.doubtful(a.key):
		err = ErrHeld
	default:
		d.Known.forget(asked, a.key)
	}
	return a, err
}

// identity returns what tells the client of a request from others, who may use the same Idempotency-Key: its key and its credentials.
func (d *Desk) identity(r *http.Request, key string) []string {
	list := []string{key, r.Header.Get("Authorization")}
	return append(list, fields(d.stored(r), IsSecret)...)
}

// proof returns what tells a request from another of the same client with the same Idempotency-Key: all that is stored of it but what is in identity.
func (d *Desk) proof(r *http.Request, body []byte) []string {
	list := []string{r.Method, r.Host, r.URL.RequestURI(), string(body)}
	return append(list, fields(d.stored(r), func(name string) bool { return !IsSecret(name) })...)
}

// stored returns the header fields of a request that are stored, besides its Idempotency-Key.
func (d *Desk) stored(r *http.Request) http.Header {
	h := make(http.Header)
	for _, name := range d.Headers {
		if values := r.Header[name]; len(values) > 0 && !listed(r.Header, "Connection", name) { // which proxies must not pass on
			h[name] = values
		}
	}
	return h
}

// fields returns names and values of the header fields that are wanted, in the order of the names. A field that comes several times is the same as one with
// all its values (RFC 9110, section 5.3).
func fields(h http.Header, wanted func(name string) bool) []string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if wanted(name) {
			list = append(list, name, strings.Join(h[name], ", "))
		}
	}
	return list
}

// Expected returns how long a new job would wait, if its key's next turn comes after a wait.
func (a *Deferrable) Expected(wait time.Duration) time.Duration {
	return wait + time.Duration(a.Waiting)*a.desk.Pace()
}

// ErrHeld says that a request would overtake jobs of its key.
var ErrHeld = errors.New("the key has deferred requests, and Redis does not say whether they are done")

// Errors of Accept.
var (
	// ErrBody says that the request's body did not come as announced.
	ErrBody = errors.New("the request's body is not as long as announced")

	// ErrReused says that the Idempotency-Key belongs to a job with another request.
	ErrReused = errors.New("the Idempotency-Key belongs to another request")

	// ErrClosing says that the desk is closing, and that another one has taken over.
	ErrClosing = errors.New("the configuration was replaced while the request came")

	// ErrTooLate says that the job would have to wait too long.
	ErrTooLate = errors.New("the job would have to wait too long")
)

// Accept stores the request as a job whose first turn comes after a wait, and answers 202. If the Idempotency-Key has a job, it answers with that. The error is one of
// Queue.Enter, or of those above; then nothing is answered, and nothing is stored, if the store answers at all.
func (a *Deferrable) Accept(w http.ResponseWriter, checks []Check, extra json.RawMessage, wait time.Duration) error {
	d, r := a.desk, a.r
	if a.ID == "" && a.Full != "" {
		return &FullError{a.Full}
	}
	if a.ID == "" && a.Expected(wait) > d.MaxWait {
		return ErrTooLate
	}
	body, err := a.read()
	if err != nil {
		return err
	}
	var proof []string // of the request
	if a.once != "" {
		proof = d.proof(r, body)
	}
	if a.ID != "" {
		return a.same(w, a.ID, a.Fingerprint, proof)
	}
	e := &Entry{ID: NewID(), Key: a.key, Once: a.once, Authorization: r.Header.Get("Authorization"), Wait: wait}
	if proof != nil {
		e.Fingerprint = d.Queue.proofs("fingerprint", proof...)[0]
	}
	e.Request = &Request{Method: r.Method, URI: r.URL.RequestURI(), Host: r.Host, Secure: r.TLS != nil, Remote: r.RemoteAddr, Header: d.stored(r),
		Once: a.once != "", Checks: checks, Extra: extra, Body: body}
	e.Request.Header.Set("Idempotency-Key", e.ID)
	if a.once != "" {
		e.Request.Header.Set("Idempotency-Key", r.Header.Get("Idempotency-Key"))
	}
	d.unsettled.Add(1)
	defer d.unsettled.Add(-1)
	if d.closing.Load() {
		return ErrClosing
	}
	// The client may leave, but the job must not stay half stored.
	got, err := d.Queue.Enter(context.WithoutCancel(r.Context()), e)
	if errors.Is(err, ErrUnconfirmed) {
		ctx, cancel := context.WithTimeout(r.Context(), d.Doubt)
		got, err = d.settle(ctx, e, false)
		cancel()
	}
	switch {
	case errors.Is(err, ErrUnconfirmed):
		d.Report(Event{What: "unconfirmed", ID: e.ID, Err: err})
		d.unsettled.Add(1)
		d.Known.doubt(e.Key, 1)
		go d.keep(e)
		d.accepted(w, r, &Job{ID: e.ID, State: Unconfirmed, Accepted: time.Now()}, a.Expected(wait))
		return nil
	case err != nil:
		if !errors.As(err, new(*FullError)) {
			go d.withdraw(e.ID)
		}
		return err
	}
	d.Known.note(e.Key)
	if got.Same {
		return a.same(w, got.ID, got.Fingerprint, proof)
	}
	expected := max(0, got.Due.Sub(got.At)) + time.Duration(got.Position-1)*d.Pace()
	d.accepted(w, r, &Job{ID: got.ID, State: Waiting, Position: got.Position, Accepted: got.At}, expected)
	return nil
}

// read reads the request's body, which must be as long as announced. net/http's server leaves what follows to its handlers in HTTP/2: it takes a length that
// is no number, or that comes without a body, for 0; of several lengths it takes the first; and a body that is too long fails only when all is read.
func (a *Deferrable) read() ([]byte, error) {
	r := a.r
	switch announced := r.Header.Values("Content-Length"); {
	case len(announced) > 1:
		return nil, fmt.Errorf("%w: it has several lengths", ErrBody)
	case len(announced) == 1 && r.ContentLength == 0 && strings.Trim(announced[0], "0") != "":
		return nil, fmt.Errorf("%w: it is empty", ErrBody)
	case r.Body == nil:
		return nil, nil
	}
	body := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, body); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBody, err)
	}
	switch n, err := io.ReadFull(r.Body, make([]byte, 1)); {
	case n > 0:
		return nil, fmt.Errorf("%w: it is longer", ErrBody)
	case err != io.EOF:
		return nil, fmt.Errorf("%w: %w", ErrBody, err)
	}
	return body, nil
}

// same answers a request whose Idempotency-Key has a job.
func (a *Deferrable) same(w http.ResponseWriter, id string, fingerprint []byte, proof []string) error {
	d := a.desk
	if !d.Queue.proves(fingerprint, "fingerprint", proof...) {
		return ErrReused
	}
	j, err := d.Queue.Get(a.r.Context(), id)
	if err != nil {
		return err
	}
	d.accepted(w, a.r, j, d.expected(j))
	return nil
}

// settle tries to put a job into the line until it is known whether it is there, or ctx ends: then the error is ErrUnconfirmed.
func (d *Desk) settle(ctx context.Context, e *Entry, promised bool) (Entered, error) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		got, err := d.Queue.Confirm(context.WithoutCancel(ctx), e, promised)
		if !errors.Is(err, ErrUnconfirmed) || d.given.Load() {
			return got, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return Entered{}, err
		}
	}
}

// keep puts a job into the line that its client was promised, however long Redis does not answer.
func (d *Desk) keep(e *Entry) {
	defer d.unsettled.Add(-1)
	defer d.Known.doubt(e.Key, -1)
	if _, err := d.settle(context.Background(), e, true); err != nil {
		d.Report(Event{What: "missing", ID: e.ID, Err: err})
		return
	}
	d.Known.note(e.Key)
}

// Settle has no more jobs stored. It waits until it is known of all jobs whether they are in the line, but no longer than grace. Then nobody tries any
// more to put them there, and the queue's connections may be closed.
func (d *Desk) Settle(grace time.Duration) {
	d.closing.Store(true)
	for end := time.Now().Add(grace); d.unsettled.Load() > 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	d.given.Store(true)
}

// withdraw removes a job for which nobody was promised anything; if it cannot, the job is swept a day later. It tries for as long as the lease of a job lasts.
func (d *Desk) withdraw(id string) {
	for end := time.Now().Add(d.Queue.Lease); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		err := d.Queue.Withdraw(context.Background(), id)
		if err == nil || errors.Is(err, ErrUnknown) || errors.Is(err, ErrRuns) {
			return
		}
	}
}

// accepted answers 202.
func (d *Desk) accepted(w http.ResponseWriter, r *http.Request, j *Job, expected time.Duration) {
	h := w.Header()
	h.Set("Location", d.Path+"/"+j.ID)
	if async, _ := preferences(r.Header); async {
		h.Add("Preference-Applied", "respond-async")
	}
	d.write(w, http.StatusAccepted, j, expected)
}

// expected returns when a job's turn comes, as far as can be said.
func (d *Desk) expected(j *Job) time.Duration {
	if j.Position == 0 {
		return 0
	}
	expected := time.Duration(j.Position-1) * d.Pace()
	if !j.Due.IsZero() {
		expected += max(0, time.Until(j.Due))
	}
	return expected
}

// status is the body of the answers about a job.
type status struct {
	ID       string     `json:"id"`
	Status   State      `json:"status"`
	Position int        `json:"position,omitempty"`
	Due      *time.Time `json:"due,omitempty"`
	Accepted time.Time  `json:"accepted"`
	Ended    *time.Time `json:"ended,omitempty"`
	Attempts int        `json:"attempts"`
	Reason   string     `json:"reason,omitempty"`
	Result   string     `json:"result,omitempty"`
}

// write writes an answer about a job.
func (d *Desk) write(w http.ResponseWriter, code int, j *Job, expected time.Duration) {
	s := status{ID: j.ID, Status: j.State, Position: j.Position, Accepted: j.Accepted.UTC(), Attempts: j.Attempts, Reason: j.Reason, Result: d.Path + "/" + j.ID + "/result"}
	h := w.Header()
	if !j.State.Ended() {
		due := time.Now().Add(expected).UTC().Truncate(time.Millisecond)
		s.Due = &due
		h.Set("Retry-After", strconv.FormatInt(max(1, int64((expected+time.Second-1)/time.Second)), 10))
	} else {
		ended := j.Ended.UTC()
		s.Ended = &ended
	}
	writeJSON(w, code, s)
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Del("Content-Length")
	text, _ := json.Marshal(body) // cannot fail
	w.WriteHeader(code)
	_, _ = w.Write(append(text, '\n')) // the client may be gone; there is nobody to tell
}

// problem answers with an error.
func problem(w http.ResponseWriter, code int, text string) {
	writeJSON(w, code, map[string]string{"error": text})
}

// Serves reports whether a request is about a job.
func (d *Desk) Serves(r *http.Request) bool {
	rest, found := strings.CutPrefix(r.URL.Path, d.Path)
	return found && (rest == "" || rest[0] == '/')
}

// ServeHTTP answers a request about a job: its status, its result, or that it is to be cancelled.
func (d *Desk) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, rest, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, d.Path), "/"), "/")
	allowed := []string{http.MethodGet, http.MethodHead, http.MethodDelete}
	if rest == "result" {
		allowed = allowed[:2]
	} else if rest != "" || strings.HasSuffix(r.URL.Path, "/") {
		id = ""
	}
	if !ValidID(id) {
		d.fail(w, ErrUnknown)
		return
	}
	if !slices.Contains(allowed, r.Method) {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		problem(w, http.StatusMethodNotAllowed, "the method must be one of "+strings.Join(allowed, ", "))
		return
	}
	j, err := d.find(r, id)
	if err != nil {
		d.fail(w, err)
		return
	}
	switch {
	case r.Method == http.MethodDelete:
		if err := d.Queue.Cancel(r.Context(), id); err != nil {
			d.fail(w, err)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
	case rest == "result":
		d.result(w, r, j)
	default:
		j = d.await(w, r, j)
		d.write(w, http.StatusOK, j, d.expected(j))
	}
}

// find returns a job that the client of a request may see.
func (d *Desk) find(r *http.Request, id string) (*Job, error) {
	j, err := d.Queue.Get(r.Context(), id)
	if err != nil {
		return nil, err
	}
	if len(j.access) > 0 && !d.Queue.proves(j.access, "access", id, r.Header.Get("Authorization")) {
		return nil, ErrUnknown
	}
	return j, nil
}

// fail answers a request with an error of the store.
func (d *Desk) fail(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, ErrUnknown):
		problem(w, http.StatusNotFound, "there is no such job")
	case errors.Is(err, ErrRuns):
		problem(w, http.StatusConflict, "the job is running, and can no longer be cancelled")
	default:
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "the job cannot be looked up now")
	}
}

// result answers with the result of a job.
func (d *Desk) result(w http.ResponseWriter, r *http.Request, j *Job) {
	j = d.await(w, r, j)
	if !j.State.Ended() {
		d.write(w, http.StatusAccepted, j, d.expected(j))
		return
	}
	_, a, err := d.Queue.Result(r.Context(), j.ID)
	switch {
	case err != nil:
		d.fail(w, err)
	case a == nil && j.State == Dead:
		problem(w, http.StatusBadGateway, "the job could not be done: "+j.Reason)
	case a == nil || a.Cut:
		problem(w, http.StatusGone, "the result is not kept any more")
	default:
		h := w.Header()
		for name, values := range a.Header {
			h[name] = values
		}
		h.Set("Cache-Control", "no-store")
		w.WriteHeader(a.Status)
		if len(a.Body) > 0 {
			_, _ = io.Copy(w, bytes.NewReader(a.Body)) // the client may be gone
		}
	}
}

// Bounds of polling.
const (
	mostPolls = 1000 // clients that may wait at a time; others are answered at once
	pollEvery = 200 * time.Millisecond
)

// await returns the job when it has ended, or when its client does not want to wait any longer.
func (d *Desk) await(w http.ResponseWriter, r *http.Request, j *Job) *Job {
	_, wait := preferences(r.Header)
	if wait == 0 {
		return j
	}
	w.Header().Add("Preference-Applied", "wait="+strconv.Itoa(int(wait/time.Second)))
	defer d.waiting.Add(-1)
	if d.waiting.Add(1) > mostPolls {
		return j
	}
	end := time.NewTimer(wait)
	defer end.Stop()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !j.State.Ended() {
		select {
		case <-tick.C:
		case <-end.C:
			return j
		case <-d.Stopping:
			return j
		case <-r.Context().Done():
			return j
		}
		if now, err := d.Queue.Get(r.Context(), j.ID); err == nil {
			j = now
		}
	}
	return j
}
