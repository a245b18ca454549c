package redis

import (
	"errors"
	"fmt"
	"sort"
	"sync/atomic"
	"time"
)

// Client finds the server that has a key. It is safe for concurrent use.
type Client interface {
	// Server returns the server that has the key, without waiting for one; the error says why none is known.
	Server(key string) (*Server, error)

	// Cluster reports whether only keys with one hash tag, the part in braces, may be in one call.
	Cluster() bool

	// Timeout returns how long a decision is waited for.
	Timeout() time.Duration

	// Servers returns the servers that are known by now: of a Cluster the masters that have been asked for.
	Servers() []*Server

	// Name returns what messages call the servers together: an address, the first of several.
	Name() string

	// Close ends the client. Calls that are under way fail.
	Close() error
}

// Conn runs scripts on one server. It is safe for concurrent use.
type Conn interface {
	// Run runs the call's script, and sets its Reply. It returns within the client's timeout, connecting included, and by
	// the call's deadline: with ErrTimeout where that did not do, and the call may have been executed, or yet be. A call
	// that was surely not executed may be sent again by Run; one that may have been is not.
	Run(c *Call) error
}

// Call is one run of a script. After ErrTimeout its Conn may still read from it: it must not be changed any more.
type Call struct {
	Script   *Script
	Keys     []string
	Args     []string
	Deadline time.Time // zero: the client's timeout from now
	Reply    []int64

	// Asked is set by Run where the server that has the keys' slot did not have the keys, and has referred the call to the one that the
	// slot is on its way to.
	Asked bool

	// Constant promises that the call is made again with other keys only. The Conn may keep in Head and Tail, which are its
	// own, what it has made of the rest.
	Constant   bool
	Head, Tail string
}

// Errors of decisions that were not come to.
var (
	ErrTimeout     = errors.New("redis: no answer in time")
	ErrUnavailable = errors.New("redis: not available")
	ErrMoving      = errors.New("redis: the keys are on their way to another node") // nothing was executed, and no server has failed

	// ErrOpen is an ErrUnavailable, of a server that was not asked, since its breaker is open.
	ErrOpen = fmt.Errorf("%w", ErrUnavailable)

	// ErrReply is in errors that a server has replied, and of replies that make no sense. It adds nothing to their text.
	ErrReply = errors.New("")

	// ErrRefused is an ErrReply, of a call that a server has refused which answers: the call's own rules are concerned, and no others. See OfReply.
	ErrRefused = fmt.Errorf("%w", ErrReply)

	errReply = fmt.Errorf("redis: the reply is not that of the script%w", ErrReply)
)

// ErrorKind returns what kind of error a store has returned, in one of a few words: "timeout", where there was no answer in time;
// "unavailable", where the server was not asked, since it has failed too often; "reply", where it has answered with an error, or with
// nonsense; and "connection" otherwise, where there is none or it was lost. Of nil it is "".
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

// Server is one that answers for itself: a master of a Cluster, or the only one. Made by NewServer.
type Server struct {
	name    string
	conn    Conn
	breaker breaker
	trouble *atomic.Int64 // the breaker's
}

// NewServer returns a server that is reached by conn; name is what messages call it.
func NewServer(name string, conn Conn) *Server {
	s := &Server{name: name, conn: conn}
	s.trouble = s.breaker.Trouble()
	return s
}

// Name returns what messages call the server.
func (s *Server) Name() string { return s.name }

// Available reports whether the server is asked: its breaker is closed.
func (s *Server) Available() bool { return !s.breaker.Open() }

// ServerState is how a server stands.
type ServerState struct {
	Name string // what messages call it
	Open bool   // its breaker is open: it has failed, and is not asked until a probe succeeds
}

// Servers returns how the servers stand that are known by now, by their names.
func (s *Store) Servers() []ServerState {
	var list []ServerState
	for _, server := range s.client.Servers() {
		list = append(list, ServerState{Name: server.name, Open: server.breaker.Open()})
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}
