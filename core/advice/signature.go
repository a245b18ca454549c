package advice

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
)

// SignatureHeader is the header field that has a document's signature: "ed25519=" and the signature of the body's bytes in base64.
const SignatureHeader = "Weir-Signature"

const signaturePrefix = "ed25519="

// ParsePublicKey reads an Ed25519 public key in PEM (PUBLIC KEY, as openssl pkey -pubout writes it).
func ParsePublicKey(text []byte) (ed25519.PublicKey, error) {
	der, err := onlyBlock(text, "PUBLIC KEY")
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, fmt.Errorf("public key: %w", err)
	}
	public, is := key.(ed25519.PublicKey)
	if !is {
		return nil, fmt.Errorf("public key: must be of Ed25519")
	}
	return public, nil
}

// ParsePrivateKey reads an Ed25519 private key in PEM (PRIVATE KEY, PKCS 8, as openssl genpkey -algorithm ed25519 writes it), for advisors.
func ParsePrivateKey(text []byte) (ed25519.PrivateKey, error) {
	der, err := onlyBlock(text, "PRIVATE KEY")
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	private, is := key.(ed25519.PrivateKey)
	if !is {
		return nil, fmt.Errorf("private key: must be of Ed25519")
	}
	return private, nil
}

func onlyBlock(text []byte, kind string) ([]byte, error) {
	block, rest := pem.Decode(text)
	if block == nil || block.Type != kind || strings.TrimSpace(string(rest)) != "" {
		return nil, fmt.Errorf("must be one block of PEM, BEGIN %s", kind)
	}
	return block.Bytes, nil
}

// Sign returns the value of the SignatureHeader for a body.
func Sign(key ed25519.PrivateKey, body []byte) string {
	return signaturePrefix + base64.StdEncoding.EncodeToString(ed25519.Sign(key, body))
}

// Verify checks the value of the SignatureHeader of a body. It returns nil if it is a signature by that key.
func Verify(key ed25519.PublicKey, body []byte, header string) *Refusal {
	if header == "" {
		return refuse(BadSignature, "%s: is missing; is private_key set at the advisor?", SignatureHeader)
	}
	encoded := strings.TrimPrefix(header, signaturePrefix)
	signature, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if encoded == header || err != nil || len(signature) != ed25519.SignatureSize {
		return refuse(BadSignature, "%s: must be %s<base64 of 64 bytes>", SignatureHeader, signaturePrefix)
	}
	if !ed25519.Verify(key, body, signature) {
		return refuse(BadSignature, "%s: is not by the advisor's key, public_key", SignatureHeader)
	}
	return nil
}
