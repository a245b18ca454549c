package match

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// taken returns the value of a source for a request.
func taken(t *testing.T, text string, r *http.Request) string {
	t.Helper()
	s, err := ParseKey(text)
	must.Succeed(t, err)
	return s.Value(r, "192.0.2.1")
}

// No spelling of a path reaches another counter.
func TestPartsOfAPathAreTakenFromItsCanonicalSpelling(t *testing.T) {
	for _, c := range []struct{ source, path, want string }{
		{"path_segment:1", "/orders/acme", "orders"},
		{"path_segment:2", "/orders/acme", "acme"},
		{"path_segment:2", "//orders/./x/../ACME/7", "acme"},
		{"path_segment:3", "/orders/acme", ""},
		{"path_segment:2", "/orders/", ""},
		{"path_segment:1", "", ""},
		{"path_segment:1", "*", "*"}, // as Caddy has it
		{"path_segment:02", "/orders/acme", "acme"},
		{"path_regexp:^/t/([^/]+)", "/t/acme/x", "acme"},
		{"path_regexp:^/t/([^/]+)", "//T/./ACME", "acme"},
		{"path_regexp:^/T/([A-Z]+)$", "/t/Acme", "acme"},
		{"path_regexp:^/t/([^/]+)", "/u/acme", ""},
		{"path_regexp:^/t/(?:v1/|v2/)?([0-9]{2,3})", "/t/v2/123", "123"},
		{"path_regexp:(x)?", "/t", ""},
	} {
		must.Equal(t, taken(t, c.source, &http.Request{URL: &url.URL{Path: c.path}}), c.want, "%s of %q", c.source, c.path)
	}
	if _, err := ParseSource("path_regexp:(" + strings.Repeat("a", longestRegexp) + ")"); err == nil || !strings.Contains(err.Error(), "has 502 bytes; a regular expression may have 500") {
		t.Error(err)
	}
}

// What a proxy has not verified says nothing of a client.
func TestACertificateIsReadIfTheProxyHasVerifiedIt(t *testing.T) {
	cert := &x509.Certificate{
		Raw: []byte("cert"), Subject: pkix.Name{CommonName: "till-7", Organization: []string{"Acme"}}, Issuer: pkix.Name{CommonName: "Acme CA"}, SerialNumber: big.NewInt(77),
		DNSNames: []string{"Till.Acme.test", "b.test"}, URIs: []*url.URL{{Scheme: "spiffe", Host: "acme.test", Path: "/till"}},
	}
	state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}, VerifiedChains: [][]*x509.Certificate{{cert}}}
	for field, want := range map[string]string{
		"fingerprint": "06298432e8066b29e2223bcc23aa9504b56ae508fabf3435508869b9c3190e22", "subject": "CN=till-7,O=Acme", "common_name": "till-7", "issuer": "CN=Acme CA", "serial": "77",
		"dns": "till.acme.test", "uri": "spiffe://acme.test/till",
	} {
		source := "client_cert:" + field
		must.Equal(t, taken(t, source, &http.Request{URL: &url.URL{}, TLS: state}), want, "%s", source)
		must.Equal(t, taken(t, source, &http.Request{URL: &url.URL{}, TLS: &tls.ConnectionState{PeerCertificates: state.PeerCertificates}}), "", "%s, not verified", source)
		must.Equal(t, taken(t, source, &http.Request{URL: &url.URL{}, TLS: &tls.ConnectionState{}}), "", "%s without a certificate", source)
		must.Equal(t, taken(t, source, &http.Request{URL: &url.URL{}}), "", "%s without TLS", source)
	}
	bare := &x509.Certificate{SerialNumber: big.NewInt(1)}
	for _, source := range []string{"client_cert:dns", "client_cert:uri", "client_cert:common_name"} {
		must.Equal(t, taken(t, source, &http.Request{URL: &url.URL{}, TLS: &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{bare}}}}), "", "%s of a certificate without it", source)
	}
}
