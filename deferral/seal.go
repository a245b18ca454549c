package deferral

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
)

// Keys seals what is stored of jobs. With the zero value, nothing is encrypted. It is safe for concurrent use.
//
// Each job has keys of its own, which are derived from a key of the list and the job's id by HMAC-SHA256. So a nonce of AES-GCM, which is
// random, is used with one key a few times only, however many jobs there are.
type Keys struct {
	all []sealKey
}

type sealKey struct {
	secret []byte
	id     [4]byte // begins what it has sealed
}

// keySize is the size of an encryption key, in bytes: that of AES-256.
const keySize = 32

// ParseKeys reads encryption keys: each is 32 bytes in base64 or hexadecimal. The first encrypts, and all decrypt. The error repeats nothing of a key.
func ParseKeys(texts []string) (Keys, error) {
	var k Keys
	for i, text := range texts {
		secret := decodeKey(text)
		if secret == nil {
			return Keys{}, fmt.Errorf("encrypt: key %d of %d must be 32 bytes in base64 or hexadecimal; make one with: openssl rand -base64 32", i+1, len(texts))
		}
		sum := sha256.Sum256(append([]byte("weir deferral key id\x00"), secret...))
		one := sealKey{secret: secret, id: [4]byte(sum[:4])}
		for _, other := range k.all {
			if other.id == one.id {
				return Keys{}, fmt.Errorf("encrypt: key %d of %d is a duplicate; keep one", i+1, len(texts))
			}
		}
		k.all = append(k.all, one)
	}
	return k, nil
}

func decodeKey(text string) []byte {
	for _, decode := range []func(string) ([]byte, error){
		hex.DecodeString, base64.StdEncoding.DecodeString, base64.RawStdEncoding.DecodeString, base64.URLEncoding.DecodeString, base64.RawURLEncoding.DecodeString,
	} {
		if secret, err := decode(text); err == nil && len(secret) == keySize {
			return secret
		}
	}
	return nil
}

// Encrypt reports whether there is a key to encrypt with.
func (k Keys) Encrypt() bool { return len(k.all) > 0 }

// The first byte of what is stored.
const (
	inClear byte = iota
	sealed
)

var (
	errNoKey    = errors.New("is encrypted with a key that is not configured")
	errTampered = errors.New("is not what was encrypted")
)

// seal returns what is stored in place of a text: the text itself, or encrypted. context is authenticated with it: the queue, the job's id, and
// which of its parts it is; so nobody can put one text in the place of another.
func (k Keys) seal(context string, text []byte) []byte {
	if !k.Encrypt() {
		return append([]byte{inClear}, text...)
	}
	key := &k.all[0]
	gcm := key.cipher(context)
	out := make([]byte, 0, 1+len(key.id)+gcm.NonceSize()+len(text)+gcm.Overhead())
	out = append(out, sealed)
	out = append(out, key.id[:]...)
	out = out[:len(out)+gcm.NonceSize()]
	nonce := out[len(out)-gcm.NonceSize():]
	_, _ = rand.Read(nonce) // it never fails
	return gcm.Seal(out, nonce, text, []byte(context))
}

// open returns the text that was sealed.
func (k Keys) open(context string, stored []byte) ([]byte, error) {
	if len(stored) > 0 && stored[0] == inClear && !k.Encrypt() {
		return stored[1:], nil
	}
	if len(stored) == 0 || stored[0] > sealed {
		return nil, errTampered
	}
	if stored[0] == inClear {
		// It may be from before encryption was configured, or someone who can write to Redis has made it up.
		return nil, errors.New("is not encrypted, though encrypt is configured")
	}
	stored = stored[1:]
	for i := range k.all {
		key := &k.all[i]
		if !bytes.HasPrefix(stored, key.id[:]) {
			continue
		}
		gcm := key.cipher(context)
		stored = stored[len(key.id):]
		if len(stored) < gcm.NonceSize() {
			return nil, errTampered
		}
		text, err := gcm.Open(nil, stored[:gcm.NonceSize()], stored[gcm.NonceSize():], []byte(context))
		if err != nil {
			return nil, errTampered
		}
		return text, nil
	}
	return nil, errNoKey
}

func (k *sealKey) cipher(context string) cipher.AEAD {
	block, err := aes.NewCipher(mac(k.secret, "weir deferral seal", context))
	if err != nil {
		panic(err) // the key has the right size
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return gcm
}

// mac returns the HMAC-SHA256 of texts, which cannot be confused with other texts that have the same bytes together.
func mac(secret []byte, texts ...string) []byte {
	h := hmac.New(sha256.New, secret)
	for _, text := range texts {
		fmt.Fprintf(h, "%d:%s", len(text), text)
	}
	return h.Sum(nil)
}
