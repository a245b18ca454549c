package goredis_test

import (
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/redis/resp"
	"github.com/proxyweir/weir/tools/must"
)

// Where only one of client and server speaks TLS, the first error says which one, for both clients. Where both do or neither does, no error says so.
func TestTLSOnOneSideOnlyIsSaid(t *testing.T) {
	t.Parallel()
	certificates := redistest.NewCertificates(t)
	plain, secret := redistest.Start(t), redistest.Start(t, redistest.WithPassword("secret"))
	encrypted, strict := redistest.Start(t, redistest.WithTLS(certificates, "no")), redistest.Start(t, redistest.WithTLS(certificates, "yes"), redistest.WithPassword("secret"))
	dead := redistest.Start(t)
	dead.Stop()
	own := certificates.Config()
	const serverDoes, clientDoes = "speaks TLS, and the client does not", "speaks no TLS, and the client does"
	for _, c := range []struct {
		what, addr, password string
		tls                  *tls.Config
		says                 string
	}{
		{"TLS, a plain port", plain.Addr(), "", own, clientDoes},
		{"TLS, a plain port with a password", secret.Addr(), "secret", own, clientDoes},
		{"plain, a TLS port", encrypted.Addr(), "", nil, serverDoes},
		{"plain, a TLS port that wants certificates", strict.Addr(), "secret", nil, serverDoes},
		{"TLS, an unknown authority", encrypted.Addr(), "", &tls.Config{MinVersion: tls.VersionTLS12}, ""},
		{"plain, a wrong password", secret.Addr(), "wrong", nil, ""},
		{"TLS, nobody listens", dead.Addr(), "", own, ""},
		{"plain, nobody listens", dead.Addr(), "", nil, ""},
	} {
		for name, s := range clientsOfBothKinds(t, redis.ClientConfig{Addresses: []string{c.addr}, Password: c.password, TLS: c.tls}) {
			err := s.Check(time.Millisecond)
			for began := time.Now(); c.says != "" && err != nil && !strings.Contains(err.Error(), "what listens there") && time.Since(began) < patience; {
				err = s.Check(time.Millisecond) // on a busy machine it does not find out each time
			}
			if err == nil || c.says != "" && !strings.Contains(err.Error(), c.says) || c.says == "" && strings.Contains(err.Error(), "what listens there") {
				t.Errorf("%s, %s client: %v, want %q", c.what, name, err, c.says)
			}
		}
	}
}

// A client that speaks TLS, with a server that does, too, and is too slow for it, is not told to speak it. The server is so slow for those that name it.
func TestAClientOfASlowServerWithTLSIsNotToldToSpeakIt(t *testing.T) {
	t.Parallel()
	own := redistest.NewCertificates(t).Config()
	slow := make(chan struct{})
	server, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: own.Certificates, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if hello.ServerName != "" {
			<-slow
		}
		return nil, nil
	}})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = server.Close() })
	t.Cleanup(func() { close(slow) })
	go func() {
		for nc, err := server.Accept(); err == nil; nc, err = server.Accept() {
			go func() { _ = nc.(*tls.Conn).Handshake() }()
		}
	}()
	own.ServerName = "localhost"
	c := redis.ClientConfig{Addresses: []string{server.Addr().String()}, TLS: own, Timeout: time.Millisecond, Background: time.Millisecond, DialTimeout: patience}
	for name, s := range clientsOfBothKinds(t, c) {
		if err := s.Check(time.Millisecond); !errors.Is(err, redis.ErrTimeout) || strings.Contains(err.Error(), "what listens there") {
			t.Errorf("%s client: %v, want only that it was too slow", name, err)
		}
	}
}

// clientsOfBothKinds returns stores over the clients of Caddy and of the plugin, until the test ends.
func clientsOfBothKinds(t *testing.T, c redis.ClientConfig) map[string]*redis.Store {
	t.Helper()
	g, err := goredis.New(c)
	must.Succeed(t, err)
	r, err := resp.New(c)
	must.Succeed(t, err)
	stores := make(map[string]*redis.Store)
	for name, client := range map[string]redis.Client{"Caddy's": g, "the plugin's": r} {
		stores[name], err = redis.NewStore(redis.Config{Client: client, Prefix: "tls:"})
		must.Succeed(t, err)
		t.Cleanup(func() { must.Succeed(t, stores[name].Close()) })
	}
	return stores
}
