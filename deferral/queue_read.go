package deferral

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Look is what is known before a request is decided.
type Look struct {
	Waiting     int    // jobs of the key
	ID          string // the job with this Idempotency-Key; "": there is none
	Fingerprint []byte // of its request
	Full        string // why there is no room, as in a FullError; "": there is some

	// Doubtful are jobs of the key that some node has stored, and has not put into the line.
	Doubtful []string
}

// Look looks at the queue of a key, and for the digest of an Idempotency-Key; "" is none. A job counts as doubtful when it was stored longer ago than age.
func (q *Queue) Look(ctx context.Context, key, once string, age time.Duration) (Look, error) {
	list, err := q.run(ctx, lookScript, key, once, q.MaxJobs, q.MaxKeyJobs, age.Microseconds()).Slice()
	if err != nil {
		return Look{}, err
	}
	if len(list) != 5 {
		return Look{}, errMalformed
	}
	return Look{Waiting: int(num(list[0])), ID: str(list[1]), Fingerprint: []byte(str(list[2])), Full: str(list[3]), Doubtful: texts(list[4])}, nil
}

// Get returns a job without what is stored of its request and result. The error is ErrUnknown if there is none.
func (q *Queue) Get(ctx context.Context, id string) (*Job, error) { return q.get(ctx, id, "") }

// Result returns a job with its answer. Without one the answer is nil.
func (q *Queue) Result(ctx context.Context, id string) (*Job, *Answer, error) {
	j, err := q.get(ctx, id, "r")
	if err != nil || !j.HasResult {
		return j, nil, err
	}
	text, err := q.Keys.open(q.contextOf(id, "result"), j.result)
	if err != nil {
		return j, nil, fmt.Errorf("the result of job %s %w: it %w", id, ErrUnreadable, err)
	}
	answer := new(Answer)
	if answer.Body, err = split(text, answer); err != nil {
		return j, nil, fmt.Errorf("the result of job %s %w: it %w", id, ErrUnreadable, err)
	}
	return j, answer, nil
}

// RequestOf returns the request of a job that is not done.
func (q *Queue) RequestOf(ctx context.Context, id string) (*Job, *Request, error) {
	j, err := q.get(ctx, id, "b")
	if err != nil || len(j.request) == 0 {
		return j, nil, err
	}
	r, err := q.open(j)
	return j, r, err
}

// open reads the request of a job.
func (q *Queue) open(j *Job) (*Request, error) {
	text, err := q.Keys.open(q.contextOf(j.ID, "request"), j.request)
	if err != nil {
		return nil, fmt.Errorf("the request of job %s %w: it %w", j.ID, ErrUnreadable, err)
	}
	r := new(Request)
	if r.Body, err = split(text, r); err != nil {
		return nil, fmt.Errorf("the request of job %s %w: it %w", j.ID, ErrUnreadable, err)
	}
	return r, nil
}

func (q *Queue) get(ctx context.Context, id, more string) (*Job, error) {
	list, err := q.run(ctx, getScript, id, more).Slice()
	if errors.Is(err, goredis.Nil) {
		return nil, ErrUnknown
	}
	if err != nil {
		return nil, err
	}
	return described(list, more)
}

// described reads what describe has written in Lua.
func described(list []any, more string) (*Job, error) {
	if len(list) != 15 {
		return nil, errMalformed
	}
	j := &Job{
		ID: str(list[0]), Position: int(num(list[1])) + 1, Due: at(list[2]), HasResult: num(list[3]) == 1,
		State: State(str(list[4])), Key: str(list[5]), Accepted: at(list[6]), Attempts: int(num(list[7])), Ended: at(list[8]), Status: int(num(list[9])), Reason: str(list[10]),
		access: []byte(str(list[11])), fingerprint: []byte(str(list[12])), Bytes: num(list[13]),
	}
	switch more {
	case "r":
		j.result = []byte(str(list[14]))
	case "b":
		j.request = []byte(str(list[14]))
	}
	return j, nil
}

// Mark is a place in a list of jobs.
type Mark struct {
	Time time.Time // when the job was accepted, or has ended
	ID   string
}

// Mark returns the place of a job in the list of its set.
func (j *Job) Mark() Mark {
	if j.Ended.IsZero() {
		return Mark{j.Accepted, j.ID}
	}
	return Mark{j.Ended, j.ID}
}

// List returns the jobs of a set behind a place, in the order of time, at most so many: from 1 to 1000. The zero Mark is the place in front of all. next is the
// place behind the last; it is zero if there are no more.
func (q *Queue) List(ctx context.Context, set string, after Mark, most int) (jobs []*Job, next Mark, err error) {
	from := "-inf"
	if after != (Mark{}) {
		from = strconv.FormatInt(after.Time.UnixMicro(), 10)
	}
	jobs, err = q.list(ctx, set, "", from, after.ID, most)
	if len(jobs) == most {
		next = jobs[most-1].Mark()
	}
	return jobs, next, err
}

// ListKey returns the jobs in the queue of a key, in their order, from a place on: the first is at 0. At most so many: from 1 to 1000.
func (q *Queue) ListKey(ctx context.Context, key string, from, most int) ([]*Job, error) {
	return q.list(ctx, "", key, strconv.Itoa(from), "", most)
}

func (q *Queue) list(ctx context.Context, set, key, from, after string, most int) ([]*Job, error) {
	list, err := q.run(ctx, listScript, set, key, from, after, most, "").Slice()
	if err != nil {
		return nil, err
	}
	jobs := make([]*Job, 0, len(list))
	for _, one := range list {
		fields, _ := one.([]any)
		j, err := described(fields, "")
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, nil
}

// Sums are the numbers of a queue, over all nodes. Counters are since the queue was first used.
type Sums struct {
	Now     time.Time // by Redis's clock
	Open    int64     // jobs that wait or run
	Claimed int64     // keys whose first job runs, or is about to
	Oldest  time.Time // when the oldest of them was accepted; zero: there is none
	Letters int64     // dead letters that are kept
	Bytes   int64     // in use

	Accepted, Done, Died, Attempts, Retaken, Cancelled int64

	Draining bool
}

// Age returns how long ago the oldest job that waits or runs was accepted; 0 if there is none.
func (s *Sums) Age() time.Duration {
	if s.Oldest.IsZero() {
		return 0
	}
	return max(0, s.Now.Sub(s.Oldest))
}

// Sums returns the numbers of the queue.
func (q *Queue) Sums(ctx context.Context) (Sums, error) {
	c, err := q.claim(ctx, 0)
	return c.Sums, err
}

// str, num and at read members of a reply. One that is something else is "", 0, or the zero time.
func str(v any) string {
	s, _ := v.(string)
	return s
}

func num(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

func at(v any) time.Time {
	if n := num(v); n != 0 {
		return time.UnixMicro(n)
	}
	return time.Time{}
}

// Sets of jobs, for List.
const (
	SetOpen  = "open"
	SetDead  = "dead"
	SetEnded = "ended"
)
