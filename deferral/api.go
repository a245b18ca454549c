package deferral

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core/answer"
)

// API is the clients' side of a queue. It is safe for concurrent use.
type API struct {
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

	// Doubt is how long a client waits for its answer while nobody knows whether its job is in the line. Then it gets a 202 that says so. Other nodes, when they
	// find such a job, wait as long for its node to put it into the line before they think it dead; until then requests of the key are held.
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

// mostHead is the longest that what is stored of a request may be besides its body, in bytes.
const mostHead = 16 << 10

// longestOnce is the longest Idempotency-Key, in bytes.
const longestOnce = 255

// Wants reports whether a request is to be deferred if it is over its limit, and can be: whether it can be repeated later from what is stored of it.
func (d *API) Wants(r *http.Request) bool {
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

// Deferrable is a request that the API wants to defer, while it is decided.
type Deferrable struct {
	api  *API
	r    *http.Request
	key  string // the digest of the client's key
	once string // the digest of its Idempotency-Key; "": it has none
	Look
}

// Ask asks the store about a request of a client with that key. The error is ErrHeld if the key has jobs, as far as is known, and the request cannot be put behind
// them now: it must not be done. who is what the adapter knows of its identity besides.
func (d *API) Ask(r *http.Request, key string, who ...string) (*Deferrable, error) {
	a := &Deferrable{api: d, r: r, key: d.Queue.KeyDigest(key)}
	if once := r.Header.Get("Idempotency-Key"); once != "" {
		a.once = d.Queue.digest("once", append(d.identity(r, key), append(who, once)...)...)
	}
	var err error
	asked := time.Now()
	a.Look, err = d.Queue.Look(r.Context(), a.key, a.once, d.Doubt/2) // before that nobody was promised anything
	if err != nil && r.Context().Err() == nil {
		d.Known.away()
	}
	switch {
	case err != nil && d.Known.held(a.key):
		err = fmt.Errorf("%w: %w", ErrHeld, err)
	case err != nil:
	case d.Known.doubtful(a.key, a.Doubtful, asked, d.Doubt):
		err = ErrHeld
	case a.Waiting > 0:
		d.Known.note(a.key)
	default:
		d.Known.forget(asked, a.key)
	}
	return a, err
}

// identity returns what tells the client of a request from others, who may use the same Idempotency-Key: its key and its credentials.
func (d *API) identity(r *http.Request, key string) []string {
	list := []string{key, r.Header.Get("Authorization")}
	return append(list, fields(d.stored(r), IsSecret)...)
}

// proof returns what tells a request from another of the same client with the same Idempotency-Key: all that is stored of it but what is in identity.
func (d *API) proof(r *http.Request, body []byte) []string {
	list := []string{r.Method, r.Host, r.URL.RequestURI(), string(body)}
	return append(list, fields(d.stored(r), func(name string) bool { return !IsSecret(name) })...)
}

// stored returns the header fields of a request that are stored, besides its Idempotency-Key.
func (d *API) stored(r *http.Request) http.Header {
	h := make(http.Header)
	for _, name := range d.Headers {
		if values := r.Header[name]; len(values) > 0 && !listed(r.Header, "Connection", name) { // which proxies must not pass on
			h[name] = values
		}
	}
	return h
}

// Expected returns how long a new job would wait, if its key's next turn comes after a wait.
func (a *Deferrable) Expected(wait time.Duration) time.Duration {
	return wait + time.Duration(a.Waiting)*a.api.Pace()
}

// ErrHeld says that a request would overtake jobs of its key.
var ErrHeld = errors.New("the key has deferred requests, and Redis does not say whether they are done")

// Errors of Accept.
var (
	// ErrBody says that the request's body did not come as announced.
	ErrBody = errors.New("the request's body is not as long as announced")

	// ErrReused says that the Idempotency-Key belongs to a job with another request.
	ErrReused = errors.New("the Idempotency-Key belongs to another request")

	// ErrClosing says that the API is closing, and that another one has taken over.
	ErrClosing = errors.New("the configuration was replaced while the request came")

	// ErrTooLate says that the job would have to wait too long.
	ErrTooLate = errors.New("the job would have to wait too long")
)

// Accept stores the request as a job whose first turn comes after a wait, and answers 202. If the Idempotency-Key has a job, it answers with that. The error is one of
// Queue.Enter, or of those above; then nothing is answered, and nothing is stored, if the store answers at all.
func (a *Deferrable) Accept(w http.ResponseWriter, checks []Check, extra json.RawMessage, wait time.Duration) error {
	d, r := a.api, a.r
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
	d := a.api
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
func (d *API) settle(ctx context.Context, e *Entry, promised bool) (Entered, error) {
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
func (d *API) keep(e *Entry) {
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
func (d *API) Settle(grace time.Duration) {
	d.closing.Store(true)
	for end := time.Now().Add(grace); d.unsettled.Load() > 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
	}
	d.given.Store(true)
}

// withdraw removes a job for which nobody was promised anything; if it cannot, the job is swept a day later. It tries for as long as the lease of a job lasts.
func (d *API) withdraw(id string) {
	for end := time.Now().Add(d.Queue.Lease); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		err := d.Queue.Withdraw(context.Background(), id)
		if err == nil || errors.Is(err, ErrUnknown) || errors.Is(err, ErrRuns) {
			return
		}
	}
}
