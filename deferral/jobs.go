package deferral

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/answer"
)

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

// accepted answers 202.
func (d *API) accepted(w http.ResponseWriter, r *http.Request, j *Job, expected time.Duration) {
	h := w.Header()
	h.Set("Location", d.Path+"/"+j.ID)
	if async, _ := preferences(r.Header); async {
		h.Add("Preference-Applied", "respond-async")
	}
	d.write(w, http.StatusAccepted, j, expected)
}

// expected returns when a job's turn comes, as far as can be said.
func (d *API) expected(j *Job) time.Duration {
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
func (d *API) write(w http.ResponseWriter, code int, j *Job, expected time.Duration) {
	s := status{ID: j.ID, Status: j.State, Position: j.Position, Accepted: j.Accepted.UTC(), Attempts: j.Attempts, Reason: j.Reason, Result: d.Path + "/" + j.ID + "/result"}
	h := w.Header()
	if !j.State.Ended() {
		due := time.Now().Add(expected).UTC().Truncate(time.Millisecond)
		s.Due = &due
		answer.SetRetryAfter(h, expected.Microseconds())
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
func (d *API) Serves(r *http.Request) bool {
	rest, found := strings.CutPrefix(r.URL.Path, d.Path)
	return found && (rest == "" || rest[0] == '/')
}

// ServeHTTP answers a request about a job: its status, its result, or that it is to be cancelled.
func (d *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
func (d *API) find(r *http.Request, id string) (*Job, error) {
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
func (d *API) fail(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, ErrUnknown):
		problem(w, http.StatusNotFound, "there is no such job")
	case errors.Is(err, ErrRuns):
		problem(w, http.StatusConflict, "the job is running, and can no longer be cancelled")
	default:
		answer.SetRetryAfter(w.Header(), 0)
		problem(w, http.StatusServiceUnavailable, "the job cannot be looked up now")
	}
}

// result answers with the result of a job.
func (d *API) result(w http.ResponseWriter, r *http.Request, j *Job) {
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

// await returns the job when it has ended, or when its client does not want to wait any longer.
func (d *API) await(w http.ResponseWriter, r *http.Request, j *Job) *Job {
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

// Bounds of polling.
const (
	mostPolls = 1000 // clients that may wait at a time; others are answered at once
	pollEvery = 200 * time.Millisecond
)
