package redis

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/proxyweir/weir/core/advice"
)

// Fleet is a place in Redis where the nodes of a fleet agree on one document, which one of them has fetched: see Agree. All nodes with the same
// store, prefix and name share it.
type Fleet struct {
	store *Store
	key   string
	node  string
}

// NewFleet returns the fleet of that name. node sets this node apart from the others.
func NewFleet(s *Store, name, node string) *Fleet {
	// No client's key has a percent sign and a letter there: see plainKey.
	return &Fleet{store: s, key: s.naming.prefix + "%advice}:" + format + ":" + name, node: node}
}

// Agreeing returns a function that takes part, as a node of its own, in the fleet of those that ask the same advisor for the rules of a digest: see Agree.
func Agreeing(s *Store, fleet, url string) func(digest string, known int64, p *advice.Proposal) (*advice.Agreement, error) {
	random := make([]byte, 8)
	_, _ = rand.Read(random)
	node := hex.EncodeToString(random)
	return func(digest string, known int64, p *advice.Proposal) (*advice.Agreement, error) {
		agreement, err := Agree(NewFleet(s, advice.FleetName(fleet, url, digest), node), known, p)
		return agreement, err
	}
}

// leaseOfFleet is how long a node leads after it has last said so. It should say so each second: the next node takes over so long after it has died.
const leaseOfFleet = 3 * time.Second

// Agree takes part in a fleet: it should be called each second. A node that calls it leads if no other does. known is the serial of the document that
// the node has; p is what it proposes, nil: nothing. Only what a leading node proposes is taken. On an error of the store nothing is known.
func Agree(f *Fleet, known int64, p *advice.Proposal) (*advice.Agreement, error) {
	var none *advice.Agreement
	args := []string{f.node, strconv.FormatInt(leaseOfFleet.Microseconds(), 10), strconv.FormatInt(known, 10), "0", "0", "", "0", "0"}
	if p != nil {
		args[4] = strconv.FormatInt(p.Serial, 10)
		args[5] = string(p.Document)
		args[6] = strconv.FormatInt(p.After.Microseconds(), 10)
		args[7] = strconv.FormatInt(p.Keep.Milliseconds(), 10)
	}
	a := &advice.Agreement{}
	for {
		call := &Call{Script: scriptOfFleet, Keys: []string{f.key}, Args: append([]string(nil), args...)}
		if err := f.store.runApart(call); err != nil {
			return none, err
		}
		reply := call.Reply
		if len(reply) < fleetNumbers {
			return none, errReply
		}
		offset := len(a.Document)
		if reply[2] != a.Serial || int(reply[5]) != offset { // the first part, or that of a document that has come while another was read
			a.Document = nil
			offset = 0
		}
		a.Now = reply[0]
		a.Leads = reply[1] == 1
		a.Serial = reply[2]
		a.Effective = reply[3]
		length := int(reply[4])
		if length > mostDocument {
			return none, errReply
		}
		if int(reply[5]) == offset {
			for _, word := range reply[fleetNumbers:] {
				for i := uint(0); i < fleetBytes && len(a.Document) < length; i++ {
					a.Document = append(a.Document, byte(word>>(8*i)))
				}
			}
			if len(a.Document) < length && len(a.Document) == offset { // no progress
				return none, errReply
			}
		}
		if len(a.Document) >= length {
			return a, nil
		}
		args[3] = strconv.Itoa(len(a.Document))
		args[4] = "0" // it is proposed once
		args[5] = ""
	}
}

// runApart makes a call that no request waits for, and returns why it has failed.
func (s *Store) runApart(c *Call) error {
	server, err := s.client.Server(c.Keys[0])
	if err != nil {
		return err
	}
	c.wait = aside
	return s.callFor(server, c)
}

const (
	fleetNumbers = 6 // of a reply of scriptOfFleet, before the part of the document
	fleetBytes   = 6 // of the document, in each number

	mostDocument = 2 << 20 // bytes; nodes propose no longer ones
)
