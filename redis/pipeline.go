package redis

import (
	"bufio"
	"net"
	"net/textproto"
	"sync"
	"time"
)

// Pipeline is a connection that callers use by themselves: each sends its command and reads its reply, so that there is no goroutine to switch
// to. It is for the fast path, which has these steps inlined:
//
//  1. With Mu it takes the Stream, adds its command to Out, and takes the next Number.
//  2. If nobody is Sending, it does so: it lets goroutines run that are about to call, and writes the commands of all, as Out has them then.
//  3. When its turn comes, which Turns says, it reads a line, which is the reply, and ends its turn.
//
// If anything is not as usual, Finish or Unsent goes on.
type Pipeline struct {
	Mu     sync.Mutex
	Stream *Stream // nil: callers use Conn.Run, after Rouse

	// Rouse has a Stream made, in the background, if there is none. It does not wait.
	Rouse func()

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
	Line   []byte        // what was read; only until Finish returns
	Err    error         // of reading; nil: the Line is whole, and the turn has ended
}

// Started is the time from which durations of calls are counted, and that of the node's clock, so that both can be compared.
var Started = time.Now()
