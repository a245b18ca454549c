package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyweir/weir/caddy/deferred"
	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/words"
	"github.com/proxyweir/weir/deferral"
)

// queueOf returns the queue of the zone that a request names; the only one if it names none.
func queueOf(a *View, label string) (*deferred.Deferral, error) {
	list := a.Queues
	labels := make([]string, len(list))
	for i, d := range list {
		if labels[i] = d.Label(); labels[i] == label {
			return d, nil
		}
	}
	switch {
	case len(list) == 0:
		return nil, adminError(http.StatusNotFound, "no zone defers requests: none has on_limit defer")
	case label == "" && len(list) == 1:
		return list[0], nil
	case label == "":
		return nil, adminError(http.StatusBadRequest, "rule: is missing; write one of %s", strings.Join(labels, ", "))
	}
	hint := ""
	if near := words.Nearest(label, labels); near != "" {
		hint = " (did you mean " + near + "?)"
	}
	return nil, adminError(http.StatusNotFound, "rule %q: no zone of that name defers requests%s", label, hint)
}

// queueAnswer describes a queue of deferred requests, over all nodes.
type queueAnswer struct {
	Rule      string   `json:"rule"`
	Path      string   `json:"path"`
	Accepting bool     `json:"accepting"`
	Why       string   `json:"why,omitempty"` // it does not accept requests
	Waiting   int64    `json:"waiting"`
	Running   int64    `json:"running"`
	Dead      int64    `json:"dead"`
	Oldest    *float64 `json:"oldest_seconds,omitempty"` // since the oldest that waits or runs was accepted
	MaxWait   float64  `json:"max_wait_seconds"`
	MaxJobs   int64    `json:"max_jobs"`
	Bytes     int64    `json:"bytes"`
	MaxBytes  int64    `json:"max_bytes"`
	Total     struct { // since the queue is in use
		Accepted  int64 `json:"accepted"`
		Done      int64 `json:"done"`
		Dead      int64 `json:"dead"`
		Cancelled int64 `json:"cancelled"`
		Attempts  int64 `json:"attempts"`
		Retaken   int64 `json:"retaken"`
	} `json:"total"`
	Error string `json:"error,omitempty"` // of Redis; then the numbers are missing
}

// askQueue asks Redis for the numbers of the queue.
func askQueue(d *deferred.Deferral, ctx context.Context) queueAnswer {
	sums, err := d.API.Queue.Sums(ctx)
	if err != nil {
		q := queueAnswerOf(d, nil)
		q.Error = err.Error()
		return q
	}
	return queueAnswerOf(d, &sums)
}

// queueAnswerOf describes the queue with these numbers; nil: Redis does not answer.
func queueAnswerOf(d *deferred.Deferral, sums *deferral.Sums) queueAnswer {
	q := queueAnswer{Rule: d.Label(), Path: d.API.Path, MaxWait: d.API.MaxWait.Seconds(), MaxJobs: d.Config.MaxJobs, MaxBytes: d.Config.MaxBytes}
	if sums == nil {
		q.Why = "Redis does not answer"
		return q
	}
	if q.Why = d.Worker.Obstacle(); q.Why == "" && sums.Draining {
		q.Why = "an operator drains it"
	}
	q.Accepting = q.Why == ""
	q.Waiting, q.Running, q.Dead, q.Bytes = sums.Open-sums.Claimed, sums.Claimed, sums.Letters, sums.Bytes
	if !sums.Oldest.IsZero() {
		q.Oldest = new(sums.Age().Seconds())
	}
	t := &q.Total
	t.Accepted, t.Done, t.Dead, t.Cancelled, t.Attempts, t.Retaken = sums.Accepted, sums.Done, sums.Died, sums.Cancelled, sums.Attempts, sums.Retaken
	return q
}

// jobAnswer describes a job. A list has what is known without its request; endpoint deferred/job has the rest but the body and the header.
type jobAnswer struct {
	ID       string         `json:"id"`
	Status   deferral.State `json:"status"`
	KeyID    string         `json:"key_id"` // the same for jobs of the same key
	Position int            `json:"position,omitempty"`
	Due      *time.Time     `json:"due,omitempty"`
	Accepted time.Time      `json:"accepted"`
	Ended    *time.Time     `json:"ended,omitempty"`
	Attempts int            `json:"attempts"`
	Answered int            `json:"answered,omitempty"` // the status of the response
	Reason   string         `json:"reason,omitempty"`
	Bytes    int64          `json:"bytes"`

	*requestAnswer
	Contents *contentsAnswer `json:"contents,omitempty"`
	Error    string          `json:"error,omitempty"` // why the request cannot be read
}

// requestAnswer is what an operator sees of a request.
type requestAnswer struct {
	Key       []string `json:"key"`
	Method    string   `json:"method"`
	Host      string   `json:"host"`
	Path      string   `json:"request_path"` // without the query, which may have credentials
	BodyBytes int      `json:"body_bytes"`
}

// contentsAnswer is all that is stored of a request and its response. The bodies are in base64.
type contentsAnswer struct {
	URI    string      `json:"uri,omitempty"`
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
	Result *struct {
		Status int         `json:"status"`
		Header http.Header `json:"header,omitempty"`
		Body   []byte      `json:"body,omitempty"`
	} `json:"result,omitempty"`
}

func jobOf(j *deferral.Job) jobAnswer {
	timeOf := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		t = t.UTC()
		return &t
	}
	return jobAnswer{ID: j.ID, Status: j.State, KeyID: j.Key, Position: j.Position, Due: timeOf(j.Due), Accepted: j.Accepted.UTC(), Ended: timeOf(j.Ended),
		Attempts: j.Attempts, Answered: j.Status, Reason: j.Reason, Bytes: j.Bytes}
}

// readRequest adds to an answer what is stored of its request; with contents, all of it and of the response.
func readRequest(d *deferred.Deferral, ctx context.Context, one *jobAnswer, contents bool) error {
	_, request, err := d.API.Queue.RequestOf(ctx, one.ID)
	if errors.Is(err, deferral.ErrUnreadable) {
		one.Error = err.Error()
	} else if err != nil {
		return jobError(one.ID, err)
	}
	if contents {
		one.Contents = new(contentsAnswer)
	}
	if request != nil {
		path, _, _ := strings.Cut(request.URI, "?")
		one.requestAnswer = &requestAnswer{Method: request.Method, Host: request.Host, Path: path, BodyBytes: len(request.Body)}
		for _, c := range request.Checks {
			if c.Rule == d.Zone.Rule.Name {
				one.Key = describe.KeysOf(d.Zone.Rule).Show(c.Key)
			}
		}
		if contents {
			one.Contents.URI, one.Contents.Header, one.Contents.Body = request.URI, request.Header, request.Body
		}
	}
	if !contents {
		return nil
	}
	_, answer, err := d.API.Queue.Result(ctx, one.ID)
	if errors.Is(err, deferral.ErrUnreadable) {
		one.Error = err.Error()
	} else if err != nil {
		return jobError(one.ID, err)
	}
	if answer != nil {
		one.Contents.Result = &struct {
			Status int         `json:"status"`
			Header http.Header `json:"header,omitempty"`
			Body   []byte      `json:"body,omitempty"`
		}{answer.Status, answer.Header, answer.Body}
	}
	return nil
}

// jobError returns the error of an endpoint for one of package deferral about a job.
func jobError(id string, err error) error {
	status := http.StatusServiceUnavailable
	switch {
	case errors.Is(err, deferral.ErrUnknown):
		status = http.StatusNotFound
	case errors.Is(err, deferral.ErrRuns), errors.Is(err, deferral.ErrNotDead):
		status = http.StatusConflict
	}
	return adminError(status, "job %q: %w", id, err)
}

// jobSets are the sets of jobs by the words of the API.
var jobSets = map[string]string{"open": deferral.SetOpen, "dead": deferral.SetDead, "done": deferral.SetEnded}

// setOf returns the set that a request names.
func setOf(status string, accepted ...string) (string, error) {
	if !slices.Contains(accepted, status) {
		return "", adminError(http.StatusBadRequest, "status %q: must be one of %s", status, strings.Join(accepted, ", "))
	}
	return jobSets[status], nil
}

// Bounds of a page of jobs.
const (
	mostListed    = 1000
	defaultListed = 100
)

// jobsAnswer is a page of jobs. Next names the place behind it; it is empty behind the last.
type jobsAnswer struct {
	Rule string      `json:"rule"`
	Jobs []jobAnswer `json:"jobs"`
	Next string      `json:"next,omitempty"`
}

// markText writes a place in a list of jobs, and parseMark reads it.
func markText(m deferral.Mark) string {
	if m == (deferral.Mark{}) {
		return ""
	}
	return strconv.FormatInt(m.Time.UnixMicro(), 10) + "." + m.ID
}

func parseMark(text string) (deferral.Mark, error) {
	if text == "" {
		return deferral.Mark{}, nil
	}
	at, id, found := strings.Cut(text, ".")
	n, err := strconv.ParseInt(at, 10, 64)
	if err != nil || !found || !deferral.ValidID(id) {
		return deferral.Mark{}, adminError(http.StatusBadRequest, "after %q: must be what the answer before had as next", text)
	}
	return deferral.Mark{Time: time.UnixMicro(n), ID: id}, nil
}

// jobsAsked is what a request for a list of jobs asks for.
type jobsAsked struct {
	Rule   string      `json:"rule"`
	Status string      `json:"status"` // "": open, if there is no key
	Key    []string    `json:"key"`    // of whose queue the jobs are
	After  string      `json:"after"`
	Limit  json.Number `json:"limit"` // "": defaultListed
}

// readJobsAsked reads what a request asks for: in the query, or in the body of a POST, since Caddy logs URIs.
func readJobsAsked(r *http.Request) (asked jobsAsked, err error) {
	if r.Method == http.MethodPost {
		return asked, readBody(r, &asked)
	}
	query := r.URL.Query()
	return jobsAsked{query.Get("rule"), query.Get("status"), query["key"], query.Get("after"), json.Number(query.Get("limit"))}, nil
}

// most returns how many jobs are asked for.
func (asked *jobsAsked) most() (int, error) {
	if asked.Limit == "" {
		return defaultListed, nil
	}
	n, err := strconv.Atoi(string(asked.Limit))
	if err != nil || n < 1 || n > mostListed {
		return 0, adminError(http.StatusBadRequest, "limit %q: must be a whole number from 1 to %d", asked.Limit, mostListed)
	}
	return n, nil
}

// listDeferred answers with the queues; or with jobs of one, if the request says of which.
func listDeferred(a *View, r *http.Request) (any, error) {
	if err := checkQuery(r, "rule", "status", "key", "after", "limit"); err != nil {
		return nil, err
	}
	if r.Method != http.MethodPost && r.URL.RawQuery == "" {
		answer := struct {
			Queues []queueAnswer `json:"queues"`
		}{[]queueAnswer{}}
		for _, d := range a.Queues {
			answer.Queues = append(answer.Queues, askQueue(d, r.Context()))
		}
		return answer, nil
	}
	asked, err := readJobsAsked(r)
	if err != nil {
		return nil, err
	}
	d, err := queueOf(a, asked.Rule)
	if err != nil {
		return nil, err
	}
	jobs, next, err := listJobs(d, r.Context(), &asked)
	if err != nil {
		return nil, err
	}
	answer := jobsAnswer{Rule: d.Label(), Jobs: []jobAnswer{}, Next: markText(next)}
	for _, j := range jobs {
		answer.Jobs = append(answer.Jobs, jobOf(j))
	}
	return answer, nil
}

// listJobs returns the jobs that are asked for, and the place behind the last if there may be more.
func listJobs(d *deferred.Deferral, ctx context.Context, asked *jobsAsked) (jobs []*deferral.Job, next deferral.Mark, err error) {
	most, err := asked.most()
	if err != nil {
		return nil, next, err
	}
	if len(asked.Key) > 0 {
		if asked.Status != "" || asked.After != "" {
			return nil, next, adminError(http.StatusBadRequest, "key: lists the first jobs in the queue of a key; remove status and after")
		}
		digest, err := keyDigest(d, asked.Key)
		if err != nil {
			return nil, next, err
		}
		if jobs, err = d.API.Queue.ListKey(ctx, digest, 0, most); err != nil {
			return nil, next, adminError(http.StatusServiceUnavailable, "%w", err)
		}
		return jobs, next, nil
	}
	set, err := setOf(cmp.Or(asked.Status, "open"), "open", "dead", "done")
	if err != nil {
		return nil, next, err
	}
	after, err := parseMark(asked.After)
	if err != nil {
		return nil, next, err
	}
	if jobs, next, err = d.API.Queue.List(ctx, set, after, most); err != nil {
		return nil, next, adminError(http.StatusServiceUnavailable, "%w", err)
	}
	return jobs, next, nil
}

// keyDigest returns what stands in Redis for the key that a request names by its parts.
func keyDigest(d *deferred.Deferral, parts []string) (string, error) {
	key, err := describe.KeysOf(d.Zone.Rule).Of(parts)
	if err != nil {
		return "", adminError(http.StatusBadRequest, "%w", err)
	}
	return d.API.Queue.KeyDigest(key), nil
}

// showJob answers with what an operator may see of a job: not its body, its header or its query.
func showJob(a *View, r *http.Request) (any, error) {
	if err := checkQuery(r, "rule", "id"); err != nil {
		return nil, err
	}
	d, err := queueOf(a, r.URL.Query().Get("rule"))
	if err != nil {
		return nil, err
	}
	id := r.URL.Query().Get("id")
	j, err := d.API.Queue.Get(r.Context(), id)
	if err != nil {
		return nil, jobError(id, err)
	}
	one := jobOf(j)
	if err := readRequest(d, r.Context(), &one, false); err != nil {
		return nil, err
	}
	return one, nil
}

// retryJobs puts a dead job, or all of them, into the queue again.
func retryJobs(a *View, r *http.Request) (any, error) {
	var asked struct {
		Rule string `json:"rule"`
		ID   string `json:"id"`
		All  bool   `json:"all"`
	}
	if err := readBody(r, &asked); err != nil {
		return nil, err
	}
	if (asked.ID == "") != asked.All {
		return nil, adminError(http.StatusBadRequest, `id, or all: one of them is wanted: "id": "<job>", or "all": true`)
	}
	d, err := queueOf(a, asked.Rule)
	if err != nil {
		return nil, err
	}
	defer d.Worker.Wake()
	answer := struct {
		Retried int `json:"retried"`
	}{}
	fail := func(err error) error {
		return adminError(http.StatusServiceUnavailable, "%d jobs wait again; then: %w", answer.Retried, err)
	}
	if !asked.All {
		if err := d.API.Queue.Retry(r.Context(), asked.ID); err != nil {
			return nil, jobError(asked.ID, err)
		}
		answer.Retried = 1
		return answer, nil
	}
	sums, err := d.API.Queue.Sums(r.Context())
	if err != nil {
		return nil, fail(err)
	}
	for after := (deferral.Mark{}); ; {
		jobs, next, err := d.API.Queue.List(r.Context(), deferral.SetDead, after, mostListed)
		if err != nil {
			return nil, fail(err)
		}
		for _, j := range jobs {
			if j.Ended.After(sums.Now) { // it died since, perhaps once more
				return answer, nil
			}
			switch err := d.API.Queue.Retry(r.Context(), j.ID); {
			case err == nil:
				answer.Retried++
			case !errors.Is(err, deferral.ErrUnknown) && !errors.Is(err, deferral.ErrNotDead): // else somebody else was faster
				return nil, fail(err)
			}
		}
		if after = next; after == (deferral.Mark{}) {
			return answer, nil
		}
	}
}

// cancelJobs removes a job that does not run, or all jobs of a key that wait.
func cancelJobs(a *View, r *http.Request) (any, error) {
	var asked struct {
		Rule string   `json:"rule"`
		ID   string   `json:"id"`
		Key  []string `json:"key"`
	}
	if err := readBody(r, &asked); err != nil {
		return nil, err
	}
	if (asked.ID == "") == (len(asked.Key) == 0) {
		return nil, adminError(http.StatusBadRequest, `id, or key: one of them is wanted: "id": "<job>", or the parts of a key: "key": ["ann"]`)
	}
	d, err := queueOf(a, asked.Rule)
	if err != nil {
		return nil, err
	}
	answer := struct {
		Cancelled int `json:"cancelled"`
	}{}
	if asked.ID != "" {
		if err := d.API.Queue.Cancel(r.Context(), asked.ID); err != nil {
			return nil, jobError(asked.ID, err)
		}
		answer.Cancelled = 1
		return answer, nil
	}
	digest, err := keyDigest(d, asked.Key)
	if err != nil {
		return nil, err
	}
	for {
		n, err := d.API.Queue.CancelKey(r.Context(), digest)
		if err != nil {
			return nil, adminError(http.StatusServiceUnavailable, "%d jobs are cancelled; then: %w", answer.Cancelled, err)
		}
		if answer.Cancelled += n; n == 0 {
			return answer, nil
		}
	}
}

// drain ends or begins the acceptance of jobs, on all nodes. Jobs that wait are done as ever.
func drain(a *View, r *http.Request) (any, error) {
	var asked struct {
		Rule  string `json:"rule"`
		Drain *bool  `json:"drain"`
	}
	if err := readBody(r, &asked); err != nil {
		return nil, err
	}
	if asked.Drain == nil {
		return nil, adminError(http.StatusBadRequest, "drain: is missing; write true to accept no more requests, or false to accept them again")
	}
	d, err := queueOf(a, asked.Rule)
	if err != nil {
		return nil, err
	}
	if err := d.API.Queue.Drain(r.Context(), *asked.Drain); err != nil {
		return nil, adminError(http.StatusServiceUnavailable, "%w", err)
	}
	return struct{}{}, nil
}

// purgeJobs removes jobs that have ended, at most 1000: the oldest first.
func purgeJobs(a *View, r *http.Request) (any, error) {
	var asked struct {
		Rule      string `json:"rule"`
		Status    string `json:"status"`
		OlderThan string `json:"older_than"`
		DryRun    bool   `json:"dry_run"`
	}
	if err := readBody(r, &asked); err != nil {
		return nil, err
	}
	set, err := setOf(asked.Status, "dead", "done")
	if err != nil {
		return nil, err
	}
	age, err := caddy.ParseDuration(asked.OlderThan)
	if err != nil || age < 0 {
		return nil, adminError(http.StatusBadRequest, "older_than %q: must be a duration such as 24h; 0s is all of them", asked.OlderThan)
	}
	d, err := queueOf(a, asked.Rule)
	if err != nil {
		return nil, err
	}
	purged, left, err := d.API.Queue.Purge(r.Context(), set, age, asked.DryRun)
	if err != nil {
		return nil, adminError(http.StatusServiceUnavailable, "%w", err)
	}
	return struct {
		Purged int64 `json:"purged"`
		Left   int64 `json:"left"` // that are as old
	}{purged, left}, nil
}

// Bounds of a page of exported jobs.
const (
	mostExported      = 100
	mostExportedBytes = 8 << 20 // of what is stored, but for one job
)

// exportJobs answers with a page of jobs and what is stored of their requests: with contents also header, query, body and response, if they can be
// read. The request is a POST, so that no web page can make it.
func exportJobs(a *View, r *http.Request) (any, error) {
	var asked struct {
		Rule     string `json:"rule"`
		Status   string `json:"status"`
		After    string `json:"after"`
		Contents bool   `json:"contents"`
	}
	if err := readBody(r, &asked); err != nil {
		return nil, err
	}
	set, err := setOf(asked.Status, "open", "dead", "done")
	if err != nil {
		return nil, err
	}
	after, err := parseMark(asked.After)
	if err != nil {
		return nil, err
	}
	d, err := queueOf(a, asked.Rule)
	if err != nil {
		return nil, err
	}
	jobs, next, err := d.API.Queue.List(r.Context(), set, after, mostExported)
	if err != nil {
		return nil, adminError(http.StatusServiceUnavailable, "%w", err)
	}
	answer := jobsAnswer{Rule: d.Label(), Jobs: []jobAnswer{}}
	bytes := int64(0)
	for i, j := range jobs {
		if bytes += j.Bytes; bytes > mostExportedBytes && i > 0 {
			next = jobs[i-1].Mark()
			break
		}
		one := jobOf(j)
		if err := readRequest(d, r.Context(), &one, asked.Contents); err != nil {
			if api := new(caddy.APIError); errors.As(err, api) && api.HTTPStatus == http.StatusNotFound {
				continue // it has gone meanwhile
			}
			return nil, err
		}
		answer.Jobs = append(answer.Jobs, one)
	}
	answer.Next = markText(next)
	return answer, nil
}
