package redis

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/exception"
	"github.com/proxyweir/weir/core/rate"
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

// exceptionsLast is how long exceptions are kept after the last change: longer than the longest of them, so that a node that was away does not take what was
// ended for what was lost.
const exceptionsLast = rate.MaxPeriod + 24*time.Hour

// Exceptions returns an exchange with those in Redis: all nodes with the same server and prefix have them in common. Redis's clock decides when they are
// over.
func Exceptions(s *Store) exception.Exchange {
	key := s.naming.prefix + "%exceptions}:" + format // which no client has: see plainKey
	life := strconv.FormatInt(exceptionsLast.Milliseconds(), 10)
	return func(ask *exception.Ask) (*exception.Answer, error) {
		var none *exception.Answer
		over := ask.Over
		if ask.Lost {
			over = "lost"
		}
		document, err := s.naming.seal(string(ask.Document))
		if err != nil {
			return none, err
		}
		call := &Call{Script: scriptOfExceptions, Keys: []string{key}, Args: []string{ask.Known, over, life, document}}
		if err = s.runApart(call); err != nil {
			return none, err
		}
		if len(call.Texts) != 4 {
			return none, errReply
		}
		a := &exception.Answer{Version: call.Texts[1], Taken: call.Texts[2] == "1"}
		if a.Now, err = strconv.ParseInt(call.Texts[0], 10, 64); err != nil {
			return none, errReply
		}
		text, err := s.naming.unseal(call.Texts[3])
		a.Document = []byte(text)
		return a, err
	}
}

// newSealer returns what encrypts the keys of clients where they stand in clear, with a secret; nil: there is none.
func newSealer(secret string) (cipher.AEAD, error) {
	sum := sha256.Sum256([]byte("exceptions\n" + secret))
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		var none cipher.AEAD
		return none, err
	}
	return cipher.NewGCM(block)
}

// seal returns a text as it is kept in Redis: encrypted, with a secret.
func (n *naming) seal(text string) (string, error) {
	if n.secret == "" || text == "" {
		return text, nil
	}
	sealer, err := newSealer(n.secret)
	if err != nil {
		return "", err
	}
	nonce := make([]byte, sealer.NonceSize())
	if _, err = rand.Read(nonce); err != nil {
		return "", err
	}
	sealed := sealer.Seal(nonce, nonce, []byte(text), nil)
	return string(sealed), nil
}

// unseal is the inverse of seal. The error says that another secret, or none, has sealed the text.
func (n *naming) unseal(sealed string) (string, error) {
	if n.secret == "" || sealed == "" {
		return sealed, nil
	}
	sealer, err := newSealer(n.secret)
	if err != nil {
		return "", err
	}
	if len(sealed) < sealer.NonceSize() {
		return "", errSealed
	}
	text, err := sealer.Open(nil, []byte(sealed[:sealer.NonceSize()]), []byte(sealed[sealer.NonceSize():]), nil)
	if err != nil {
		return "", errSealed
	}
	return string(text), nil
}

var errSealed = fmt.Errorf("%wanother key_secret, or none, has written them; set the same on all nodes", ErrReply)
