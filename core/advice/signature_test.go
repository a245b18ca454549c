package advice

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// keys returns a pair of keys in PEM, which a number tells from others.
func keys(t *testing.T, number byte) (public, private []byte) {
	t.Helper()
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = number
	key := ed25519.NewKeyFromSeed(seed)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(t, err)
	private = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	der, err = x509.MarshalPKIXPublicKey(key.Public())
	must.Succeed(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), private
}

func TestASignatureIsOfTheBytesAndByTheKey(t *testing.T) {
	publicText, privateText := keys(t, 1)
	public, err := ParsePublicKey(publicText)
	must.Succeed(t, err)
	private, err := ParsePrivateKey(privateText)
	must.Succeed(t, err)
	body := []byte(`{"version":1}`)
	header := Sign(private, body)
	if refusal := Verify(public, body, header); refusal != nil {
		t.Error(refusal)
	}
	otherText, _ := keys(t, 2)
	other, err := ParsePublicKey(otherText)
	must.Succeed(t, err)
	for name, refusal := range map[string]*Refusal{
		"another key":      Verify(other, body, header),
		"other bytes":      Verify(public, []byte(`{"version":1} `), header),
		"none":             Verify(public, body, ""),
		"no algorithm":     Verify(public, body, strings.TrimPrefix(header, "ed25519=")),
		"another":          Verify(public, body, "rsa="+header[8:]),
		"cut":              Verify(public, body, header[:len(header)-4]),
		"no base64":        Verify(public, body, "ed25519=!"),
		"something behind": Verify(public, body, header+", x"),
	} {
		if refusal == nil || refusal.Reason != BadSignature {
			t.Errorf("%s: %v", name, refusal)
		}
	}
}

func TestKeysAreOneBlockOfTheirKind(t *testing.T) {
	public, private := keys(t, 1)
	if _, err := ParsePublicKey([]byte("\n" + string(public) + "\n")); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{
		"nothing": "", "text": "key", "a private key": string(private), "two": string(public) + string(public),
		"damaged": strings.Replace(string(public), "MCow", "MCov", 1),
	} {
		if _, err := ParsePublicKey([]byte(text)); err == nil {
			t.Errorf("%s is taken as a public key", name)
		}
	}
	if _, err := ParsePrivateKey(public); err == nil {
		t.Error("a public key is taken as a private one")
	}
}
