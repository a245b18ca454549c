//go:build gc
// +build gc

package advice

// The second line above is for Yaegi, which leaves this file out: it cannot give a server a logger.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestCertificatesAreChecked(t *testing.T) {
	b := someState(t, Full)
	body := bodyOf(t, b, 5, begins, nil)
	a := &advisor{}
	a.Server = httptest.NewUnstartedServer(a.keep(func(w http.ResponseWriter, r *http.Request) { w.Write(body) }))
	a.Config.ErrorLog = log.New(io.Discard, "", 0)
	a.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12}
	a.StartTLS()
	t.Cleanup(func() { a.Server.Close() })
	authorities := x509.NewCertPool()
	authorities.AddCert(a.Certificate())
	client := a.TLS.Certificates[0]
	for name, c := range map[string]struct {
		config *tls.Config
		taken  bool
	}{
		"those of the system":          {nil, false},
		"without a certificate of its": {&tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}, false},
		"both":                         {&tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{client}, MinVersion: tls.VersionTLS12}, true},
		"another authority":            {&tls.Config{RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{client}, MinVersion: tls.VersionTLS12}, false},
		"another name":                 {&tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{client}, ServerName: "other.test", MinVersion: tls.VersionTLS12}, false},
	} {
		config := asking(b, a.URL)
		config.Source.TLS = c.config
		p := newPoller(t, config)
		Poll(context.Background(), p)
		if h := p.Health(); (h.Refusal == nil) != c.taken {
			t.Errorf("%s: %v", name, h.Refusal)
		}
	}
}
