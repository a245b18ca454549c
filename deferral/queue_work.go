package deferral

import (
	"context"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// claims are what claim has found.
type claims struct {
	Sums
	Jobs []*Job

	// Next is when to ask again, by Redis's clock: when the next turn comes, or a lease ends; zero: nothing is known of.
	Next time.Time
}

// claimFor is how long a claim lasts before its job has started. It need only cover the limiter's decision. If the reply of a claim is lost,
// its jobs come after this time.
const claimFor = 5 * time.Second

// claim claims at most so many keys whose turn has come, and returns the first job of each.
func (q *Queue) claim(ctx context.Context, most int) (claims, error) {
	var c claims
	list, err := q.run(ctx, claimScript, most, min(claimFor, q.Lease).Microseconds(), q.Keep.Microseconds(), q.KeepDead.Microseconds()).Slice()
	if err != nil {
		return c, err
	}
	if len(list) != 9 {
		return c, errMalformed
	}
	sums, _ := list[6].([]any)
	jobs, _ := list[7].([]any)
	if len(sums) != 8 {
		return c, errMalformed
	}
	c.Now = at(list[0])
	for _, t := range []time.Time{at(list[1]), at(list[2])} {
		if c.Next.IsZero() || !t.IsZero() && t.Before(c.Next) {
			c.Next = t
		}
	}
	c.Open, c.Oldest, c.Letters = num(list[3]), at(list[4]), num(list[5])
	for i, to := range []*int64{&c.Bytes, &c.Accepted, &c.Done, &c.Died, &c.Attempts, &c.Retaken, &c.Cancelled} {
		*to = num(sums[i])
	}
	c.Draining = sums[7] != nil
	c.Claimed = num(list[8])
	for _, one := range jobs {
		fields, _ := one.([]any)
		if len(fields) != 6 {
			return c, errMalformed
		}
		c.Jobs = append(c.Jobs, &Job{ID: str(fields[0]), Key: str(fields[1]), Fence: num(fields[2]), request: []byte(str(fields[3])),
			Attempts: int(num(fields[4])), Accepted: at(fields[5]), State: Waiting})
	}
	return c, nil
}

// start begins an attempt at a claimed job, and returns how much is left of the time in which it is tried, if that is most from the first attempt on.
func (q *Queue) start(ctx context.Context, j *Job, most time.Duration) (left time.Duration, err error) {
	word, err := q.step(ctx, startScript, j.Key, j.Fence, j.ID, q.Lease.Microseconds(), most.Microseconds())
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(word, 10, 64)
	return time.Duration(n) * time.Microsecond, err
}

// renew renews the lease of a claim.
func (q *Queue) renew(ctx context.Context, j *Job) error {
	_, err := q.step(ctx, renewScript, j.Key, j.Fence, q.Lease.Microseconds())
	return err
}

// putBack ends the claim of a job, which has another turn after a wait.
func (q *Queue) putBack(ctx context.Context, j *Job, wait time.Duration, why string) error {
	_, err := q.step(ctx, putBackScript, j.Key, j.Fence, wait.Microseconds(), why)
	return err
}

// finish records what became of a job: it is Done or Dead. answer may be nil. The key's next job has its turn after a wait.
func (q *Queue) finish(ctx context.Context, j *Job, state State, reason string, answer *Answer, wait time.Duration) error {
	var result []byte
	status := 0
	if answer != nil {
		result = q.Keys.seal(q.contextOf(j.ID, "result"), join(answer, answer.Body))
		status = answer.Status
	}
	_, err := q.step(ctx, finishScript, j.Key, j.Fence, j.ID, string(state), status, reason, result, wait.Microseconds(), q.MaxBytes)
	return err
}

// step runs a script of a worker that has claimed a key, and returns its reply.
func (q *Queue) step(ctx context.Context, s *goredis.Script, args ...any) (string, error) {
	word, err := q.run(ctx, s, args...).Text()
	switch {
	case err != nil:
		return "", err
	case word == "lost":
		return "", ErrLost
	case word == "gone":
		return "", ErrGone
	}
	return word, nil
}

// Why a job is put back.
const (
	unused = "unused" // the attempt that has begun, if any, does not count
	failed = "failed"
	broken = "broken" // nobody knows what has become of the attempt
)
