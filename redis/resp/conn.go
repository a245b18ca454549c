package resp

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/proxyweir/weir/redis"
)

// conn runs calls on one server, over one connection that all callers share. It is safe for concurrent use.
//
// A caller adds its command to the commands to send. One goroutine sends them, and then those that were added meanwhile. So a single call is
// sent at once, and calls that wait are sent together, without a timer. Another goroutine, the reader, reads the replies, which come in the order of
// the commands.
//
// A call has no timer either. The reader has the deadline of the oldest call, and ends late calls when that passes. So a call costs
// little although each operation is interpreted, and an idle connection costs nothing.
//
// The conn of a redis.Pipeline has no Run: callers send and read by themselves, until one of them hands its call over to the reader. A server has
// such a conn beside the other, since the ways of reading exclude each other. The switches between goroutines that Run needs would cost the fast path a
// fifth of its requests in Traefik (bench/README.md). But callers who read must have deadlines in the order of their calls, and nothing to learn of late replies.
type conn struct {
	config      Config
	address     string
	sentinels   *sentinels                 // know the address; nil: there are none
	referrals   *referrals                 // in a Cluster; nil: the server is no node of one
	pipeline    *redis.Pipeline            // by which callers send and read; nil: they use Run
	again       func(f *pendingCall) error // sends a call of the pipeline again, over the other conn, and returns the result
	timeout     time.Duration
	readTimeout time.Duration
	started     time.Time // all times are durations since then

	mu   *sync.Mutex // that of the pipeline, if there is one
	link *link       // nil: there is no connection
	making
}

// making is the state of a conn while it has no connection, or makes one. The conn's mutex guards it.
type making struct {
	links      map[*link]bool // all links that are still read, also those that get no new calls
	connecting bool           // a goroutine is trying to connect

	// attempt ends with the current attempt to connect; nil: there is none. (Goroutines wait for a context, and never at a select: in Yaegi
	// those at the same select would wait for each other's channels.)
	attempt     context.Context //nolint:containedctx // see above
	attemptEnds context.CancelFunc

	failures int           // failed attempts, and connections without a single decision, in a row
	reason   error         // of the last failure
	asked    time.Duration // when a call last needed a connection that was not there
	closed   bool
	ctx      context.Context //nolint:containedctx // ends with the conn
	cancel   context.CancelFunc
}

// referrals are what the conn of a Cluster's node needs of the Cluster. Neither they nor pending calls nor conns have conns in them: Yaegi makes errors
// in types that form a circle over several files.
type referrals struct {
	// follow sends a pending call again, to the server that the reply of a server refers to, and returns the result of its call.
	follow func(from string, f *pendingCall) error

	// doubt has the slots looked up, since they may be elsewhere.
	doubt func()
}

// newConn returns a conn of the server at an address. All conns between which calls are sent must have the same start.
func newConn(config Config, address string, started time.Time) *conn {
	c := &conn{config: config, address: address, timeout: config.Timeout, readTimeout: config.ReadTimeout, started: started, mu: &sync.Mutex{}}
	c.links = make(map[*link]bool)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// pendingCall is a call between Run and its result.
type pendingCall struct {
	call     *redis.Call // nil: the caller has left
	left     *redis.Call // the call of a caller that has left
	err      error
	retry    int           // how to send the call again, after an error; 0: not at all
	referral string        // the reply that says where to send it
	resent   int           // how often it was sent again
	source   bool          // it is sent with the script's source
	asks     bool          // it is sent with ASKING
	asking   bool          // the reply to that comes before its own
	number   uint          // of the command on its connection
	sent     time.Duration // when Run was called
	deadline time.Duration // of the call; if the caller has left, of the connection
	next     *pendingCall  // was sent after it
	done     chan struct{} // has a buffer of one
}

// How to send a call again that the server has certainly not executed.
const (
	_ = iota
	withSource
	overAnother // connection
	elsewhere   // to the node that has the slot
	asking      // to the node that the slot is migrating to, with ASKING
)

// tries is how often a call is sent at most.
const tries = 4

var pendingCalls = sync.Pool{New: newPendingCall}

func newPendingCall() interface{} { return &pendingCall{done: make(chan struct{}, 1)} }

var (
	errClosed  = fmt.Errorf("%w: the client is closed", redis.ErrUnavailable)
	errNoRedis = fmt.Errorf("what answers is no Redis%w", redis.ErrReply)
)
