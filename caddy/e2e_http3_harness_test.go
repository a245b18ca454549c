package ratelimit_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/proxyweir/weir/tools/must"
)

// startTLS runs Caddy on the site https://localhost with the given directives: over HTTP/1.1, HTTP/2 and HTTP/3.
func startTLS(t *testing.T, directives string) *server {
	t.Helper()
	s := newServer(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	must.Succeed(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(t, err)
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: certificate}, "key.pem": {Type: "PRIVATE KEY", Bytes: secret}} {
		must.Succeed(t, os.WriteFile(filepath.Join(s.dir, name), pem.EncodeToMemory(block), 0o600))
	}
	s.load(s.caddyfile("", "https://localhost:PORT {\ntls DIR/cert.pem DIR/key.pem\n"+directives+"\n}"))
	return s
}

// unverified are the TLS settings of clients, which know the certificate of startTLS only here.
func unverified(protocols ...string) *tls.Config {
	return &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", NextProtos: protocols} //nolint:gosec // a server of this process
}

// clientOf returns a client that speaks a version of HTTP with a server of startTLS: 1, 2 or 3.
func (s *server) clientOf(version int) *http.Client {
	client := s.newClient(new(http.Protocols))
	transport := client.Transport.(*http.Transport)
	transport.TLSClientConfig = unverified()
	transport.Protocols.SetHTTP1(version == 1)
	transport.Protocols.SetHTTP2(version == 2)
	s.t.Cleanup(transport.CloseIdleConnections)
	if version == 3 {
		quics := &http3.Transport{
			TLSClientConfig: unverified(),
			Dial: func(ctx context.Context, _ string, t *tls.Config, c *quic.Config) (*quic.Conn, error) {
				return quic.DialAddr(ctx, s.addr, t, c)
			},
		}
		s.t.Cleanup(func() { quics.Close() })
		client.Transport = quics
	}
	return client
}

// url returns the URL of a path at a server of startTLS.
func (s *server) url(path string) string {
	_, port, _ := net.SplitHostPort(s.addr)
	return "https://localhost:" + port + path
}

// extendedConnect sends CONNECT with a :protocol over HTTP/3 (RFC 9220), and returns the status of the answer.
func (s *server) extendedConnect(path, protocol string, fields ...string) int {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	conn, err := quic.DialAddr(ctx, s.addr, unverified(http3.NextProtoH3), nil)
	must.Succeed(s.t, err)
	defer conn.CloseWithError(0, "")
	client := new(http3.Transport).NewClientConn(conn)
	awaitOne(s.t, "the settings of HTTP/3", client.ReceivedSettings())
	r, err := http.NewRequestWithContext(ctx, http.MethodConnect, s.url(path), nil)
	must.Succeed(s.t, err)
	r.Proto = protocol
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	stream, err := client.OpenRequestStream(ctx)
	must.Succeed(s.t, err)
	must.Succeed(s.t, stream.SendRequestHeader(r))
	defer stream.Close()
	answer, err := stream.ReadResponse()
	must.Succeed(s.t, err)
	must.Succeed(s.t, stream.SetReadDeadline(time.Now().Add(patience)))
	if answer.StatusCode != http.StatusOK { // else it is a tunnel, which has no end
		_, _ = io.Copy(io.Discard, answer.Body)
	}
	stream.CancelRead(0)
	return answer.StatusCode
}
