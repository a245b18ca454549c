package deferral

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// Request is what is stored of a request: enough to do it later, by whichever node. All of it is encrypted if there is a key.
type Request struct {
	Method string      `json:"method"`
	URI    string      `json:"uri"` // path and query, as the handlers before have left them
	Host   string      `json:"host"`
	Secure bool        `json:"secure,omitempty"` // it came over TLS
	Remote string      `json:"remote,omitempty"` // the address of the connection
	Header http.Header `json:"header,omitempty"` // the fields of the allow list, and the Idempotency-Key
	Once   bool        `json:"once,omitempty"`   // the client has sent an Idempotency-Key
	Checks []Check     `json:"checks,omitempty"` // the rules that cover it

	// Extra is what the adapter needs besides, in its own form.
	Extra json.RawMessage `json:"extra,omitempty"`

	Body []byte `json:"-"`
}

// Check is one rule that a request was checked by, with what the rule has read in it.
type Check struct {
	Rule string `json:"rule"`
	Key  string `json:"key"`
	Cost int64  `json:"cost,omitempty"` // 0 means 1
	Tier string `json:"tier,omitempty"`
}

// Answer is what is stored of the response.
type Answer struct {
	Status int         `json:"status"`
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"-"`

	// Cut says that the body was too long to be stored.
	Cut bool `json:"cut,omitempty"`
}

// State is the state of a job.
type State string

// The states. The doc comment of the package has the transitions.
const (
	Unconfirmed State = "unconfirmed" // it is in no line yet
	Waiting     State = "waiting"
	Running     State = "running"
	Done        State = "done"
	Dead        State = "dead"
)

// Ended reports whether nothing becomes of a job in that state any more, unless an operator has it tried again.
func (s State) Ended() bool { return s == Done || s == Dead }

// Job is a deferred request.
type Job struct {
	ID       string
	Key      string // the digest of its client's key
	State    State
	Accepted time.Time
	Ended    time.Time // zero: it has not
	Attempts int       // that have begun
	Status   int       // of the answer; 0: there is none
	Reason   string    // why it is dead, in a few words; "" otherwise

	Position int       // in its key's queue, from 1; 0: it does not wait
	Due      time.Time // the next turn of its key; zero: the key is claimed

	Fence int64 // the number of the claim, if a worker has it

	HasResult bool
	Bytes     int64 // that it counts for

	access      []byte // the MAC of the Authorization that may see it; none: whoever knows the id
	fingerprint []byte // of the request
	request     []byte // as it is stored
	result      []byte
}

// join makes one text of a head in JSON and a body. Unlike JSON with the body in it, this does not make the body longer.
func join(head any, body []byte) []byte {
	text, err := json.Marshal(head)
	if err != nil {
		panic(err) // all of it can be marshalled
	}
	out := make([]byte, 4, 4+len(text)+len(body))
	binary.BigEndian.PutUint32(out, uint32(len(text)))
	out = append(out, text...)
	return append(out, body...)
}

var errMalformed = errors.New("is not what was stored")

// split reads what join has made.
func split(text []byte, head any) (body []byte, err error) {
	if len(text) < 4 {
		return nil, errMalformed
	}
	n := int64(binary.BigEndian.Uint32(text))
	text = text[4:]
	if n > int64(len(text)) || json.Unmarshal(text[:n], head) != nil {
		return nil, errMalformed
	}
	return text[n:], nil
}
