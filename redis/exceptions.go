package redis

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strconv"
	"time"

	"github.com/proxyweir/weir/core/exception"
	"github.com/proxyweir/weir/core/rate"
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
