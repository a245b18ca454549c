package deferral

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Config configures a Queue. Client and Name are required, and each bound.
type Config struct {
	Client goredis.UniversalClient

	// Prefix begins the keys in Redis, such as weir:.
	Prefix string

	// Name is the rule's namespace and name. Queues of one name on one Redis are the same queue, on all nodes.
	Name string

	// KeySecret turns what identifies clients in Redis into an HMAC, as that of the store of counters.
	KeySecret string

	Keys Keys // encrypt what is stored

	MaxJobs    int64 // that wait or run
	MaxKeyJobs int64 // of one key
	MaxBytes   int64 // of all that is stored, with Overhead for each job

	Keep     time.Duration // of results; what else is known of a job that is done is kept twice as long
	KeepDead time.Duration // of dead letters

	// Lease is how long the claim of a running job lasts, unless its worker renews it. If a node dies, its jobs are repeated after that time.
	Lease time.Duration

	// Timeout is the longest wait for Redis.
	Timeout time.Duration

	// Replicas is how many replicas must acknowledge a job before it is accepted.
	Replicas int
}

// Overhead is what one job counts for besides the bytes of its request and result: what Redis 7 takes for its fields and its places in
// queue and sets, if it has a key of its own and an Idempotency-Key.
const Overhead = 1536

// Queue keeps the jobs of one rule in Redis. It is safe for concurrent use.
type Queue struct {
	Config
	prefix string
}

// NewQueue returns a queue. It does not wait for Redis.
func NewQueue(c Config) *Queue {
	return &Queue{Config: c, prefix: c.Prefix + "{defer:" + c.Name + "}:"}
}

// Errors of a Queue.
var (
	// ErrUnknown says that there is no such job.
	ErrUnknown = errors.New("there is no such job")

	// ErrRuns says that the job runs, so that it cannot be cancelled.
	ErrRuns = errors.New("the job is running")

	// ErrLost says that a worker has lost its claim: the lease has ended, and another worker may have the job.
	ErrLost = errors.New("the claim is lost")

	// ErrNotDead says that a job cannot be tried again, since it is no dead letter.
	ErrNotDead = errors.New("only a dead job can be tried again")

	// ErrUnreadable says that what is stored of a job cannot be decrypted, or is not what was stored.
	ErrUnreadable = errors.New("cannot be read")

	// ErrGone says that a claimed job was cancelled before it began.
	ErrGone = errors.New("the job was cancelled")

	// ErrUnconfirmed says that nobody knows whether a job is in the line.
	ErrUnconfirmed = errors.New("nobody knows whether the job is in the line")

	// ErrNotReplicated says that too few replicas have acknowledged a job.
	ErrNotReplicated = errors.New("too few replicas have acknowledged")
)

// FullError says why there is no room for a job: "jobs", "key", "bytes"; "drain", if an operator has it so; or "unsafe", if Redis may lose it.
type FullError struct{ Why string }

// Error implements error.
func (e *FullError) Error() string { return "there is no room: " + e.Why }

// NewID returns a new id: 128 random bits.
func NewID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// ValidID reports whether a text can be an id.
func ValidID(text string) bool {
	id, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return err == nil && len(id) == 16
}

// digest returns the name that stands for texts in Redis. what says what they are.
func (q *Queue) digest(what string, texts ...string) string {
	sum := mac([]byte(q.KeySecret), append([]string{"weir deferral", what}, texts...)...)
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}

// KeyDigest returns what stands for a client's key in Redis.
func (q *Queue) KeyDigest(key string) string { return q.digest("key", key) }

// proofs returns MACs of texts, by which they can be recognized and not read: the first is what is stored, and the others are what may have been
// stored with the keys before.
func (q *Queue) proofs(what string, texts ...string) [][]byte {
	texts = append([]string{"weir deferral", what}, texts...)
	var list [][]byte
	for i := range q.Keys.all {
		list = append(list, mac(q.Keys.all[i].secret, texts...))
	}
	return append(list, mac([]byte(q.KeySecret), texts...))
}

// proves reports whether a stored MAC is of these texts.
func (q *Queue) proves(stored []byte, what string, texts ...string) bool {
	proven := false
	for _, proof := range q.proofs(what, texts...) {
		proven = hmac.Equal(stored, proof) || proven
	}
	return proven
}

// access returns what is stored of the Authorization that may see a job; nothing if there is none. It differs from job to job.
func (q *Queue) access(id, authorization string) []byte {
	if authorization == "" {
		return nil
	}
	return q.proofs("access", id, authorization)[0]
}

// contextOf is authenticated with what is stored of a job.
func (q *Queue) contextOf(id, what string) string { return q.Name + "\x00" + id + "\x00" + what }

// run runs a script.
func (q *Queue) run(ctx context.Context, s *goredis.Script, args ...any) *goredis.Cmd {
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	return s.Run(ctx, q.Client, []string{q.prefix}, args...)
}

// runDurably runs a script, and waits until enough replicas have what it has written. Both go over one connection, since WAIT is about the
// writes of its own.
func (q *Queue) runDurably(ctx context.Context, s *goredis.Script, args ...any) (*goredis.Cmd, error) {
	if q.Replicas == 0 {
		return q.run(ctx, s, args...), nil
	}
	for _, run := range []func(context.Context, goredis.Scripter, []string, ...any) *goredis.Cmd{s.EvalSha, s.Eval} {
		ctx, cancel := context.WithTimeout(ctx, q.Timeout)
		defer cancel()
		node, err := q.node(ctx)
		if err != nil {
			return nil, err
		}
		pipe := node.Pipeline()
		reply := run(ctx, pipe, []string{q.prefix}, args...)
		replicas := pipe.Do(ctx, "wait", q.Replicas, max(1, (q.Timeout/2).Milliseconds())) // half, so that its answer comes in time
		_, _ = pipe.Exec(ctx)                                                              // the replies have its errors
		if goredis.HasErrorPrefix(reply.Err(), "NOSCRIPT") {
			continue
		}
		if reply.Err() == nil && replicas.Err() != nil {
			return nil, replicas.Err()
		}
		if n, _ := replicas.Int(); reply.Err() == nil && n < q.Replicas {
			return nil, ErrNotReplicated
		}
		return reply, nil
	}
	return nil, errors.New("the server forgets scripts")
}

// node returns the client of the server that has the queue.
func (q *Queue) node(ctx context.Context) (goredis.Cmdable, error) {
	if cluster, ok := q.Client.(*goredis.ClusterClient); ok {
		return cluster.MasterForKey(ctx, q.prefix)
	}
	return q.Client, nil
}

// Entry is a request that is to become a job.
type Entry struct {
	ID            string
	Key           string // the digest of the client's key
	Request       *Request
	Once          string // the digest of its Idempotency-Key; "": none
	Fingerprint   []byte // of the request; see Desk; only with Once
	Authorization string
	Wait          time.Duration // until the first turn, if no other job of the key waits
}

// Entered is what became of an Entry.
type Entered struct {
	ID       string
	Position int       // in the key's queue, from 1
	At       time.Time // by Redis's clock
	Due      time.Time // when the turn of the key's first job comes, by the same

	// Same says that there was a job with this Idempotency-Key, which ID names. Its request has that Fingerprint.
	Same        bool
	Fingerprint []byte
}

// Enter stores a job, and when it is certain that enough servers have it, puts it into the line. After a *FullError, or any other error, it is in no line and
// never will be; but after ErrUnconfirmed nobody knows whether it is. Then Confirm must be called until it succeeds, or the job is lost.
func (q *Queue) Enter(ctx context.Context, e *Entry) (Entered, error) {
	request := q.Keys.seal(q.contextOf(e.ID, "request"), join(e.Request, e.Request.Body))
	reply, err := q.runDurably(ctx, enterScript, e.ID, e.Key, request, q.access(e.ID, e.Authorization), q.MaxBytes, len(request)+Overhead,
		q.Keep.Microseconds(), q.KeepDead.Microseconds())
	if err != nil {
		return Entered{}, err
	}
	full, err := reply.Text()
	switch {
	case err != nil:
		return Entered{}, err
	case full != "":
		return Entered{}, &FullError{full}
	}
	return q.Confirm(ctx, e, false)
}

// Confirm puts a job that is stored into the line, once; its errors are those of Enter. If the job was promised, it is put there whether there is room or not, and
// the error is ErrUnknown if Redis has lost it.
func (q *Queue) Confirm(ctx context.Context, e *Entry, promised bool) (Entered, error) {
	got, err := q.confirm(ctx, e, promised)
	switch {
	case errors.As(err, new(*FullError)):
		_ = q.Withdraw(ctx, e.ID) // else its bytes count until it is swept
	case err != nil && !errors.Is(err, ErrUnknown):
		err = fmt.Errorf("%w: %w", ErrUnconfirmed, err)
	}
	return got, err
}

func (q *Queue) confirm(ctx context.Context, e *Entry, promised bool) (Entered, error) {
	p := 0
	if promised {
		p = 1
	}
	reply, err := q.runDurably(ctx, confirmScript, e.ID, e.Key, e.Once, e.Fingerprint, q.MaxJobs, q.MaxKeyJobs, e.Wait.Microseconds(), p)
	if err != nil {
		return Entered{}, err
	}
	list, err := reply.Slice()
	if err != nil {
		return Entered{}, err
	}
	switch {
	case len(list) == 5 && list[0] == "stored":
		return Entered{ID: str(list[1]), Position: int(num(list[2])), At: at(list[3]), Due: at(list[4])}, nil
	case len(list) == 3 && list[0] == "once":
		return Entered{ID: str(list[1]), Same: true, Fingerprint: []byte(str(list[2]))}, nil
	case len(list) == 2 && list[0] == "full":
		return Entered{}, &FullError{str(list[1])}
	case len(list) == 1:
		return Entered{}, ErrUnknown
	}
	return Entered{}, errMalformed
}

// Look is what is known before a request is decided.
type Look struct {
	Waiting     int    // jobs of the key
	ID          string // the job with this Idempotency-Key; "": there is none
	Fingerprint []byte // of its request
	Full        string // why there is no room, as in a FullError; "": there is some
}

// Look looks at the queue of a key, and for the digest of an Idempotency-Key; "" is none.
func (q *Queue) Look(ctx context.Context, key, once string) (Look, error) {
	list, err := q.run(ctx, lookScript, key, once, q.MaxJobs, q.MaxKeyJobs).Slice()
	if err != nil {
		return Look{}, err
	}
	if len(list) != 4 {
		return Look{}, errMalformed
	}
	return Look{Waiting: int(num(list[0])), ID: str(list[1]), Fingerprint: []byte(str(list[2])), Full: str(list[3])}, nil
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

// Sets of jobs, for List.
const (
	SetOpen  = "open"
	SetDead  = "dead"
	SetEnded = "ended"
)

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

// mostAtOnce is how many jobs one script removes at most, so that it does not keep others waiting.
const mostAtOnce = 1000

// CancelKey removes up to 1000 jobs of a key that wait, and returns how many. If it returns fewer than 1000 there are no more.
func (q *Queue) CancelKey(ctx context.Context, key string) (int, error) {
	return q.run(ctx, cancelKeyScript, key, mostAtOnce).Int()
}

// Purge removes up to 1000 jobs of SetDead or SetEnded, with their results, that ended at least an age ago; the oldest first. With dry it removes none. It
// returns how many it has removed, and how many there are besides.
func (q *Queue) Purge(ctx context.Context, set string, age time.Duration, dry bool) (purged, left int64, err error) {
	most := mostAtOnce
	if dry {
		most = 0
	}
	list, err := q.run(ctx, purgeScript, set, age.Microseconds(), most).Int64Slice()
	if err != nil {
		return 0, 0, err
	}
	if len(list) != 2 {
		return 0, 0, errMalformed
	}
	return list[0], list[1], nil
}

// Cancel removes a job. The error is ErrRuns if it runs, and ErrUnknown if there is none.
func (q *Queue) Cancel(ctx context.Context, id string) error { return q.cancel(ctx, id, "0") }

// Withdraw removes a job that is in no line yet. The error is ErrRuns if it is in one.
func (q *Queue) Withdraw(ctx context.Context, id string) error { return q.cancel(ctx, id, "1") }

func (q *Queue) cancel(ctx context.Context, id, withdraw string) error {
	state, err := q.run(ctx, cancelScript, id, withdraw).Text()
	switch {
	case err != nil:
		return err
	case state == "none":
		return ErrUnknown
	case state == "running":
		return ErrRuns
	}
	return nil
}

// Retry puts a dead letter at the end of its key's queue. The error is ErrUnknown if there is no job with that id, and ErrNotDead if it is not
// dead.
func (q *Queue) Retry(ctx context.Context, id string) error {
	state, err := q.run(ctx, retryScript, id).Text()
	switch {
	case err != nil:
		return err
	case state == "none":
		return ErrUnknown
	case state != "ok":
		return fmt.Errorf("%w: it is %s", ErrNotDead, state)
	}
	return nil
}

// Drain makes the queue accept no more jobs, or accept them again. Jobs that wait are done as ever.
func (q *Queue) Drain(ctx context.Context, drain bool) error {
	on := "0"
	if drain {
		on = "1"
	}
	return q.run(ctx, drainScript, on).Err()
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

// Why a job is put back.
const (
	unused = "unused" // the attempt that has begun, if any, does not count
	failed = "failed"
	broken = "broken" // nobody knows what has become of the attempt
)

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

// CheckDurability says why jobs are not safe in that Redis by an UnsafeError: it may evict keys, it writes no append-only file, or it does not say. Another
// error means that Redis did not answer.
func (q *Queue) CheckDurability(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	node, err := q.node(ctx)
	if err != nil {
		return err
	}
	pipe := node.Pipeline()
	memory, persistence := pipe.Info(ctx, "memory"), pipe.Info(ctx, "persistence")
	if _, err := pipe.Exec(ctx); goredis.HasErrorPrefix(err, "NOPERM") || goredis.HasErrorPrefix(err, "ERR unknown command") {
		return &UnsafeError{fmt.Sprintf("Redis does not say whether it keeps jobs safely, since it refuses INFO: %v; allow the user INFO", err)}
	} else if err != nil {
		return err
	}
	switch policy := infoField(memory.Val(), "maxmemory_policy"); policy {
	case "noeviction":
	case "":
		return &UnsafeError{"Redis does not say whether it keeps jobs safely: its INFO has no maxmemory_policy"}
	default:
		return &UnsafeError{fmt.Sprintf("maxmemory-policy is %s, so Redis may remove jobs that wait; set it to noeviction", policy)}
	}
	if infoField(persistence.Val(), "aof_enabled") != "1" {
		return &UnsafeError{"there is no append-only file, so jobs do not survive a restart of Redis; set appendonly to yes"}
	}
	return nil
}

// UnsafeError says why jobs are not safe in a Redis.
type UnsafeError struct{ Why string }

// Error implements error.
func (e *UnsafeError) Error() string { return e.Why }

// infoField returns a field of the reply of INFO.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
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
