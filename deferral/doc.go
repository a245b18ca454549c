// Package deferral keeps requests that are over their limit, and has them done when their turn comes. A client gets 202 at once; the
// request is a job in Redis from then on, over restarts of everything. The package knows HTTP and go-redis, but no proxy: package caddy is
// its adapter, which decides by limits, and knows what comes behind it.
//
// # Parts
//
//   - Queue is the store: one for each deferring rule. Each of its methods is one script, so each is one atomic step.
//   - Job and Request are what it stores; seal.go encrypts them.
//   - API is the clients' side: which requests can be deferred, the 202, the status, the result, and cancelling.
//   - Worker claims jobs whose turn has come, has the adapter do them, and records what became of them. Each node has one for each queue.
//
// The adapter calls API for requests from clients, and gives Worker a function that does one job: it asks the limiter whether the job may
// run now, charges it, and passes it on to the handler behind. The limiter's decision is the same as for a request that was not deferred,
// with the same rules and keys, so direct and deferred requests share one limit.
//
// # From a request to a job
//
//  1. API finds that the client wants an answer at once (Prefer: respond-async), and that the request can be repeated later from what is
//     stored: it has a body of known length, and no upgrade, trailer or stream.
//  2. Queue.Look tells whether its Idempotency-Key has a job already, and whether its key has jobs in the queue.
//  3. If the key has none, the limiter decides. A request that it allows is passed on, and is no job.
//  4. Otherwise the body is read, and Queue.Enter stores the job in two steps. The first script stores it in no line, so that nobody does it. When Redis has
//     acknowledged, and as many replicas as are required, the second checks the bounds (jobs in all, jobs of the key), looks for the
//     Idempotency-Key once more, and puts the job at the end of its key's line. The 202 is written when that is acknowledged in the same way.
//
// Between 3 and 4 another request of the key may be deferred or allowed. Both are then under way at the same time, so there is no order
// between them: the order that is kept is that of requests of which the second was sent when the first had its 202.
//
// So what the client is told and what is in the line never disagree. If the first step fails, or is not acknowledged, the job is certainly in no line: the client
// gets a 429, and Queue.Withdraw removes what may be stored in the background. If the second step is not acknowledged, nobody knows, though enough servers
// have the job. Its node repeats Queue.Confirm until Redis has acknowledged. The client waits for that, but no longer than API.Doubt: then it gets a 202 with the
// state unconfirmed. Only if the node dies after that, and before Redis answers again, is such a job lost.
//
// # Keys in Redis
//
// All keys of a queue have one hash tag, so they are in one slot of a Cluster: <prefix>{defer:<namespace>/<rule>}: and then
//
//	job:<id>       hash    one job: see the fields in scripts/describe.lua
//	queue:<key>    list    the ids of a key's jobs, in order; the first may be running
//	due            zset    keys that nobody has claimed, by the time of their next turn
//	held           zset    keys that a worker has claimed, by the end of the lease
//	fences         hash    the number of the claim of each held key
//	unconfirmed    zset    ids of the jobs that are in no line yet, by the time at which they were stored
//	open           zset    ids of the jobs that wait or run, by the time at which they were accepted
//	results        zset    ids of the jobs that have a result, by the time at which they ended
//	ended          zset    ids of the jobs that are done, by the same
//	dead           zset    ids of the dead letters, by the same
//	once:<key>     string  the id of the job with that Idempotency-Key
//	sums           hash    the bytes in use, the last fence, and counters
//
// <key> is 128 bits of the HMAC of the client's key with the store's key_secret, or of its SHA-256 if there is none. Time is that of Redis, in
// microseconds.
//
// # Why no Streams
//
// A consumer group gives each entry to any consumer. Two nodes that take two entries of one key at the same time lose their order; an
// entry that is put back goes to the end; and a consumer whose entry was claimed by another (XAUTOCLAIM) can still acknowledge it. A stream
// for each key has the same problems from two consumers on, and costs about a kilobyte a key. Here what is claimed is a key and not a job.
// So a key has at most one job under way, its jobs are done in order, and a number (the fence) makes every later step of a worker that has
// lost its claim fail. The price: the jobs of one key are done one after the other, so a key's pace is also bounded by how long the
// service takes for one.
//
// # States of a job
//
//	(none)  → unconfirmed   Enter's first step
//	unconfirmed → waiting   Enter's second step, and Confirm
//	unconfirmed → (none)    Withdraw; or after a day, if its node has died
//	waiting → running   Start: a worker has the key's claim, and the limiter has admitted the job. It counts an attempt.
//	running → waiting   PutBack: the attempt has failed, and may be repeated after a pause; or a stopping node hands it back.
//	running → waiting   Claim: the lease has ended, since the node has died.
//	running → done      Finish: there is an answer
//	running → dead      Finish: the attempt must not be repeated, or it was the last, or the time is over in which the job is tried
//	waiting → dead      Claim's caller: all attempts began, and nodes died during the last
//	waiting → (none)    Cancel: by the client or an operator
//	dead    → waiting   Retry: by an operator; at the end of its key's queue
//	done    → (none)    after the time for which results are kept, and once again as long; Cancel
//	dead    → (none)    after the time for which dead letters are kept; Cancel
//
// A result may be dropped before its time, if its bytes are needed for new jobs, the oldest first; never a job that waits, and never a dead
// letter. A job without its result is still done, and its result is 410.
//
// A key is in due if it has jobs and no claim, in held if it has a claim, and in neither if it has no jobs:
//
//	due  → held   Claim, with a new fence
//	held → due    PutBack, Finish if jobs are left, and Claim after the lease
//	held → gone   PutBack and Finish if no jobs are left
//
// # Order
//
// The jobs of a key are done in the order of its line. A request that is not deferred must not be done before them: while Redis answers, Look finds jobs
// of its key, and it is queued behind them. While it does not, Known says which keys had some, and such a request is not done at all (ErrHeld). What
// other nodes accept is known a second later, and not while only this node is cut off: there the order ends. A job that was promised and is in no line yet holds
// the requests of its key at its own node for as long as it lasts, and at others, where Look finds it, for as long as its node may be alive (API.Doubt).
//
// # What happens if a node dies between two steps
//
//	before Enter's second step  the client has no answer, and there is no job in the line
//	after it, before the 202    there is a job without a 202, and it is done: the client does not know whether, and asks again with its Idempotency-Key
//	after Claim                 the key waits until the short lease of a claim ends (claimFor); nothing was charged
//	after the decision          the same, and a charge is lost
//	after Start                 the key waits until the lease ends; then the job is repeated
//	after the service has it    the same: the job is repeated with the same Idempotency-Key. This is the duplicate of "at least once".
//	after the answer            the same
//	after Finish                nothing is lost
//
// If Redis dies, it has what its append-only file has. With appendfsync always that is every step that was acknowledged; with everysec, if the
// machine itself dies, all but the last second. Workers that cannot reach Redis stop when the lease of their claim ends by their own clock, less
// a margin. A job whose Finish was not acknowledged is repeated.
//
// # Duplicates
//
// A job reaches the service more often than once only if an attempt may be repeated: a failure before a byte was sent, which is no duplicate;
// a 502, 503 or 504, if the method is idempotent or the client has sent an Idempotency-Key; and the death of a node or of Redis during an attempt.
// Every attempt has the client's Idempotency-Key, or the job's id in its place.
package deferral
