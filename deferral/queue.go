package deferral

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
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
	Fingerprint   []byte // of the request; see API; only with Once
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
