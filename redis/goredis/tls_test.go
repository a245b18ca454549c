package goredis_test

import (
	"crypto/tls"
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
		g, err := goredis.New(goredis.Config{Addresses: []string{c.addr}, Password: c.password, TLS: c.tls})
		must.Succeed(t, err)
		r, err := resp.New(resp.Config{Addresses: []string{c.addr}, Password: c.password, TLS: c.tls})
		must.Succeed(t, err)
		for name, client := range map[string]redis.Client{"Caddy's": g, "the plugin's": r} {
			s, err := redis.NewStore(redis.Config{Client: client, Prefix: "tls:"})
			must.Succeed(t, err)
			err = s.Check(time.Millisecond)
			if err == nil || c.says != "" && !strings.Contains(err.Error(), c.says) || c.says == "" && strings.Contains(err.Error(), "what listens there") {
				t.Errorf("%s, %s client: %v, want %q", c.what, name, err, c.says)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
