package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certificates is an authority with a certificate for a server on loopback (127.0.0.1, ::1 and localhost) and one for a
// client, in PEM files that are deleted when the test ends. They are valid from 1970 to 9999, for any time that a server's clock is set to.
type Certificates struct {
	// CAFile is the authority's certificate.
	CAFile string
	// ClientCertFile and ClientKeyFile are the client's.
	ClientCertFile, ClientKeyFile string

	serverCertFile, serverKeyFile string

	roots  *x509.CertPool
	client tls.Certificate
}

// NewCertificates makes an authority and its certificates. Each call makes another authority, which does not trust the others.
func NewCertificates(t testing.TB) *Certificates {
	t.Helper()
	dir := t.TempDir()
	c := &Certificates{
		CAFile:         filepath.Join(dir, "ca.pem"),
		ClientCertFile: filepath.Join(dir, "client.pem"),
		ClientKeyFile:  filepath.Join(dir, "client-key.pem"),
		serverCertFile: filepath.Join(dir, "server.pem"),
		serverKeyFile:  filepath.Join(dir, "server-key.pem"),
		roots:          x509.NewCertPool(),
	}
	ca := issue(t, nil, &x509.Certificate{
		Subject:               pkix.Name{CommonName: "redistest"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	})
	server := issue(t, &ca, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "redistest server"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, // both: nodes are clients of other nodes
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		DNSNames:    []string{"localhost"},
	})
	c.client = issue(t, &ca, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "redistest client"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	c.roots.AddCert(ca.Leaf)
	writePEM(t, c.CAFile, "CERTIFICATE", ca.Certificate[0])
	writePair(t, c.serverCertFile, c.serverKeyFile, server)
	writePair(t, c.ClientCertFile, c.ClientKeyFile, c.client)
	return c
}

// Config returns a configuration that trusts the authority and presents the client's certificate. The caller may change it.
func (c *Certificates) Config() *tls.Config {
	return &tls.Config{RootCAs: c.roots, Certificates: []tls.Certificate{c.client}}
}

// issue makes a key and a certificate for it, signed by the authority, or self-signed if authority is nil.
func issue(t testing.TB, authority *tls.Certificate, template *x509.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.NotBefore = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC)
	template.NotAfter = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	parent, signer := template, any(key)
	if authority != nil {
		parent, signer = authority.Leaf, authority.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func writePair(t testing.TB, certFile, keyFile string, c tls.Certificate) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, certFile, "CERTIFICATE", c.Certificate[0])
	writePEM(t, keyFile, "PRIVATE KEY", key)
}

func writePEM(t testing.TB, path, kind string, der []byte) {
	t.Helper()
	b := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
