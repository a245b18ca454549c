package redis

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"sync"
	"sync/atomic"
	"time"
)

// Client finds the server that has a key. It is safe for concurrent use.
type Client interface {
	// Server returns the server that has the key. It does not wait for one: if none is known, the error says why.
	Server(key string) (*Server, error)

	// Cluster reports whether all keys of one call must have the same hash tag, the part in braces.
	Cluster() bool

	// Timeout returns the longest time that a caller waits for a decision.
	Timeout() time.Duration

	// Background returns the longest time that a call of rules with consistency lease or eventual, or one that no request waits for, may take.
	Background() time.Duration

	// Servers returns the servers that are known so far. In a Cluster these are masters, all those among them that Server has returned.
	Servers() []*Server

	// Name returns the name of all the servers in messages: the address, or the first of several.
	Name() string

	// Close closes the client. Calls that are under way fail.
	Close() error
}

// Conn runs scripts on one server. It is safe for concurrent use.
type Conn interface {
	// Run runs the call's script, and sets its Reply. It returns by the call's deadline, connecting included. It returns ErrTimeout
	// if that was too short: the server may have executed the call, or may execute it later, unless that is ErrUnsent. Run may send a call again if the server has certainly not executed it, and never otherwise.
	Run(c *Call) error
}

// Call is one run of a script. After ErrTimeout its Conn may still read from it, so nobody may change it any more.
type Call struct {
	Script   *Script
	Keys     []string
	Args     []string
	Deadline time.Time // zero: the client's timeout from now; with a later one the connection waits as long for the reply
	Reply    []int64
	Texts    []string // the reply of a Script with Texts

	// Late, unless it is nil, is called once after Run has returned ErrTimeout, and that was not ErrUnsent: with nil when the reply has come
	// after all, which then is in Reply, or with the error when it will not come any more. It must not block.
	Late func(err error)

	// Asked is set by Run if the server that has the keys' slot did not have the keys, and has referred the call (with ASK) to the
	// server that the slot is migrating to. Run need not reset it.
	Asked bool

	// Constant promises that later runs of this call differ in their keys only. The Conn may keep the encoding of the rest in Head and
	// Tail, which belong to it.
	Constant   bool
	Head, Tail string

	wait wait // how long the store waits for it
}

// Errors of a store that has not come to a decision.
var (
	ErrTimeout     = errors.New("redis: no answer in time")
	ErrUnavailable = errors.New("redis: not available")
	ErrMoving      = errors.New("redis: the keys are on their way to another node") // nothing was executed, and no server has failed

	// ErrUnsent is the ErrTimeout of a call that was not sent, and will not be.
	ErrUnsent = fmt.Errorf("%w", ErrTimeout)

	// ErrLost is the ErrUnavailable of a call whose connection has ended: the server may have executed it.
	ErrLost = fmt.Errorf("%w", ErrUnavailable)

	// ErrOpen is the ErrUnavailable of a server that nobody calls, because its breaker is open.
	ErrOpen = fmt.Errorf("%w", ErrUnavailable)

	// ErrReply is wrapped by errors that a server has replied with, and by those about invalid replies. It adds nothing to their text.
	ErrReply = errors.New("")

	// ErrRefused is the ErrReply of a call that a healthy server has refused. It concerns the rules of that call, and no others. See
	// OfReply.
	ErrRefused = fmt.Errorf("%w", ErrReply)

	errReply = fmt.Errorf("redis: the reply is not that of the script%w", ErrReply)
)

// executed reports whether a server may have executed a call that has ended with that error, or may yet execute it.
func executed(err error) bool {
	switch {
	case errors.Is(err, ErrUnsent) || errors.Is(err, ErrMoving):
		return false
	case errors.Is(err, ErrUnavailable):
		return errors.Is(err, ErrLost)
	}
	var failed *net.OpError
	return !errors.As(err, &failed) || failed.Op != "dial"
}

// pending reports whether the Late of a call is called after that error.
func pending(err error) bool { return errors.Is(err, ErrTimeout) && !errors.Is(err, ErrUnsent) }

// ErrorKind returns the kind of an error of a store, in one word:
//
//   - "timeout": there was no answer in time;
//   - "unavailable": the server was not called, because its breaker is open;
//   - "reply": the server has answered with an error, or its answer is invalid;
//   - "connection": all other errors, such as a connection that was lost, or could not be made;
//   - "": there is no error.
func ErrorKind(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, ErrTimeout):
		return "timeout"
	case errors.Is(err, ErrOpen):
		return "unavailable"
	case errors.Is(err, ErrReply) || errors.Is(err, ErrMoving):
		return "reply"
	}
	return "connection"
}

// Server is one Redis server with breakers of its own: a master of a Cluster, or the only server. NewServer makes it. It is safe for
// concurrent use.
type Server struct {
	name     string
	conn     Conn
	pipeline *Pipeline     // nil: it has none
	breaker  breaker       // of calls that requests wait the client's timeout for
	patient  breaker       // of all others: a server may be too far away for the timeout, and well
	latency  latency       // of the others
	trouble  *atomic.Int64 // the breaker's

	TLS bool // conn speaks TLS; whoever makes the server says so, before its first call
}

// NewServer returns a server that conn connects to. name stands for it in messages.
func NewServer(name string, conn Conn) *Server {
	s := &Server{name: name, conn: conn}
	s.trouble = s.breaker.Trouble()
	return s
}

// NewPipelinedServer returns a server that can be called over a Pipeline, too.
func NewPipelinedServer(name string, conn Conn, pipeline *Pipeline) *Server {
	s := NewServer(name, conn)
	s.pipeline = pipeline
	return s
}

// Name returns the server's name in messages.
func (s *Server) Name() string { return s.name }

// Available reports whether the server's breakers are closed, so that requests are sent to it.
func (s *Server) Available() bool { return !s.breaker.Open() && !s.patient.Open() }

// ServerState is the state of a server.
type ServerState struct {
	Name string // as in messages
	Open bool   // a breaker is open: it has failed, and gets no requests until a probe succeeds
}

// Pipeline is a connection that callers use by themselves: each sends its command and reads its reply, so that there is no goroutine to switch
// to. It is for the fast path, which has these steps inlined:
//
//  1. With Mu it takes the Stream, adds its command to Out, and takes the next Number.
//  2. If nobody is Sending, it does so: it lets goroutines run that are about to call, and writes the commands of all, as Out has them then.
//  3. When its turn comes, which Turns says, it reads a line, which is the reply, or an array of numbers, and ends its turn.
//
// If anything is not as usual, Finish or Unsent goes on.
type Pipeline struct {
	Mu     sync.Mutex
	Stream *Stream // nil: callers use Conn.Run, after Wake

	// Wake has a Stream made, in the background, if there is none. It does not wait.
	Wake func()

	// Unsent notes that writing commands has failed after so many bytes. sent is what Stream.Sent was before. The caller holds Stream.Writing,
	// and goes on as after any write.
	Unsent func(s *Stream, sent uint, bytes int, err error)

	// Finish goes on with a call after an error of reading, or with a line that is no usual reply, as Conn.Run would: it may send the call
	// again. It sets the call's Reply, or returns an error.
	Finish func(t *Turn) error
}

// Stream is one connection of a Pipeline.
type Stream struct {
	Conn    net.Conn
	Reader  *bufio.Reader       // its buffer is longer than any reply
	Turns   *textproto.Pipeline // of responses: whose turn it is to read
	Writing sync.Mutex          // held while commands are written, and taken before the Pipeline's Mu
	Owner   interface{}         // belongs to whoever has made the Stream

	// The Pipeline's Mu guards these.
	Number  uint   // of the next command, from 0
	Sent    uint   // the commands below this number may have been sent
	Out     string // the commands that are to be sent
	Sending bool   // a caller is about to send Out
}

// Turn is a caller's turn to read.
type Turn struct {
	Stream *Stream
	Number uint
	Call   *Call
	Began  time.Duration // when the call began, since Started
	Line   []byte        // what was read of the reply; only until Finish returns
	Err    error         // of reading; nil: the reply is whole, or none to such a call, and the turn has ended
}

// Started is the time from which durations of calls are counted, and that of the node's clock, so that both can be compared.
var Started = time.Now()

// wait says how long the store waits for a call.
type wait int

const (
	promptly  wait = iota // a request waits for it, for the client's timeout at most
	patiently             // a request waits for it that hardly ever asks: as long as answers take
	aside                 // no request waits for it: the client's background timeout
)

// latency is how long a server's answers take of late, in microseconds: the longest, which fades by an eighth with each answer. The zero value is that of a
// server that has never answered, and has not failed to. It is safe for concurrent use.
type latency struct{ longest atomic.Int64 }

// note notes an answer.
func (l *latency) note(took time.Duration) {
	longest := l.longest.Load()
	longest -= longest / 8
	if now := int64(took/time.Microsecond) + 1; now > longest {
		longest = now
	}
	l.longest.Store(longest)
}
