package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// keyed is a source of keys as each dialect writes it, and requests: the second is of the same client as the first, the others are not, and each of them
// is of another client. %s is the path of the rule.
type keyed struct {
	source, placeholder string
	requests            []keyedRequest
}

type keyedRequest struct {
	request string
	fields  []string
}

func asks(request string, fields ...string) keyedRequest { return keyedRequest{request, fields} }

// token returns a JSON Web Token with that payload, which nobody has signed.
func token(payload string) string {
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"RS256"}`)) + "." + encode([]byte(payload)) + "." + encode([]byte("nobody"))
}

// keyedSources are rows of docs/keys.md.
var keyedSources = []keyed{
	{"path_segment:3", "{path.2}", []keyedRequest{asks("%s/orders/acme"), asks("%s//x/../Orders/ACME/7"), asks("%s/orders/bob"), asks("%s/orders")}},
	{"path_regexp:/t/([^/]{1,20})", "{http.rate_limit.path_regexp:/t/([^/]{1,20})}", []keyedRequest{asks("%s/t/acme"), asks("%s/T/Acme/x"), asks("%s/t/bob"), asks("%s/u/acme")}},
	{"query:user", "{query.user}", []keyedRequest{asks("%s/?user=anna"), asks("%s/x?a=b&user=anna"), asks("%s/?user=bob"), asks("%s/")}},
	{"cookie:session", "{cookie.session}", []keyedRequest{asks("%s/", "Cookie", "session=a"), asks("%s/", "Cookie", "x=y; session=a"), asks("%s/", "Cookie", "session=b"), asks("%s/")}},
	{"method", "{method}", []keyedRequest{asks("%s/"), asks("GET %s/x"), asks("POST %s/")}},
	{"header:CF-IPCountry", "{header.CF-IPCountry}", []keyedRequest{asks("%s/", "CF-IPCountry", "FR"), asks("%s/x", "CF-IPCountry", "FR"), asks("%s/", "CF-IPCountry", "DE")}},
	{"unverified_jwt_claim:tenant.id", "{http.rate_limit.unverified_jwt_claim:tenant.id}", []keyedRequest{
		asks("%s/", "Authorization", "Bearer "+token(`{"sub":"anna","tenant":{"id":7}}`)), asks("%s/", "Authorization", "bearer "+token(`{"tenant":{"id":7}}`)),
		asks("%s/", "Authorization", "Bearer "+token(`{"tenant":{"id":8}}`)), asks("%s/", "Authorization", "Bearer "+token(`{"tenant":["id"]}`)),
	}},
	{"unverified_jwt_claim:sub@cookie:token", "{http.rate_limit.unverified_jwt_claim:sub@cookie:token}", []keyedRequest{
		asks("%s/", "Cookie", "token="+token(`{"sub":"anna"}`)), asks("%s/", "Cookie", "a=b; token="+token(`{"x":1,"sub":"anna"}`)),
		asks("%s/", "Cookie", "token="+token(`{"sub":"bob"}`)), asks("%s/", "Authorization", "Bearer "+token(`{"sub":"anna"}`)),
	}},
	{"first(header:X-User, unverified_jwt_claim:sub, client_ip)", "{http.rate_limit.first({header.X-User}, unverified_jwt_claim:sub, {client_ip})}", []keyedRequest{
		asks("%s/", "X-User", "anna"), asks("%s/", "X-User", "anna", "Authorization", "Bearer "+token(`{"sub":"bob"}`)),
		asks("%s/"), asks("%s/", "X-User", "127.0.0.1"), asks("%s/", "X-User", "client_ip=127.0.0.1"), asks("%s/", "Authorization", "Bearer "+token(`{"sub":"anna"}`)),
	}},
}

// rule is one of a rule file.
func (k keyed) rule(i int, prefixes string) map[string]any {
	return map[string]any{"name": fmt.Sprintf("r%d", i), "match": map[string]any{prefixes: []string{fmt.Sprintf("/%d", i)}}, "key": k.source, "limit": "1/366d"}
}

// plays has the requests of all sources answered as they should be.
func plays(t *testing.T, dialect string, try func(request string, fields ...string) (response, error)) {
	t.Helper()
	for i, k := range keyedSources {
		for j, one := range k.requests {
			want := http.StatusOK
			if j == 1 {
				want = http.StatusTooManyRequests
			}
			request := fmt.Sprintf(one.request, fmt.Sprintf("/%d", i))
			r, err := try(request, one.fields...)
			must.Succeed(t, err)
			must.Equal(t, r.status, want, "%s: %s: request %d, %s %.80q: status", dialect, k.source, j, request, one.fields)
		}
	}
}

// Caddy is asked in a Caddyfile and in a rule file, Traefik in its own configuration and in the same rule file.
func TestASourceTellsTheSameClientsApartInEveryDialect(t *testing.T) {
	var inFile, inTraefik []any
	zones := ""
	for i, k := range keyedSources {
		inFile = append(inFile, k.rule(i, "path_prefixes"))
		inTraefik = append(inTraefik, k.rule(i, "pathPrefixes"))
		zones += fmt.Sprintf("zone r%d {\nmatch {\npath /%[1]d /%[1]d/*\n}\nkey `%s`\nipv6_prefix 64\nlimit 1/366d\n}\n", i, k.placeholder)
	}
	text, err := json.Marshal(map[string]any{"rules": inFile})
	must.Succeed(t, err)
	path := ruleFile(t, filepath.Join(t.TempDir(), "rules.json"), string(text))
	written, err := json.Marshal(map[string]any{"rules": inTraefik})
	must.Succeed(t, err)

	c := startCaddy(t, "rate_limit {\n"+zones+"}\nrespond ok")
	plays(t, "Caddyfile", c.try)
	c = startCaddy(t, "rate_limit {\nrules_file "+path+"\n}\nrespond ok")
	plays(t, "a rule file in Caddy", c.try)
	plays(t, "a rule file in Traefik", limited(t, "{rulesFile: "+path+"}").try)
	plays(t, "Traefik", limited(t, string(written)).try)
}

// The same match has the same requests in both proxies.
func TestParametersAndCookiesAreMatchedInBothProxies(t *testing.T) {
	const rules = `{"rules": [
		{"name": "export", "match": {"query": {"format": "*csv*", "preview": "!*"}, "%[1]s": ["!/free"]}, "key": "static:all", "limit": "1/366d"},
		{"name": "anonymous", "match": {"cookies": {"session": "!*"}, "%[1]s": ["/a"]}, "key": "static:all", "limit": "1/366d"},
		{"name": "beta", "match": {"cookies": {"group": "beta-*"}}, "key": "static:all", "limit": "1/366d"}]}`
	path := ruleFile(t, filepath.Join(t.TempDir(), "rules.json"), fmt.Sprintf(rules, "path_prefixes"))
	zones := "zone export {\nmatch {\nexpression `{query.format}.contains('csv') && {query.preview} == ''`\nnot path /free /free/*\n}\nkey all\nlimit 1/366d\n}\n" +
		"zone anonymous {\nmatch {\npath /a /a/*\nexpression `{cookie.session} == ''`\n}\nkey all\nlimit 1/366d\n}\n" +
		"zone beta {\nmatch {\nexpression `{cookie.group}.startsWith('beta-')`\n}\nkey all\nlimit 1/366d\n}\n"
	for dialect, try := range map[string]func(request string, fields ...string) (response, error){
		"Caddyfile":              startCaddy(t, "rate_limit {\n"+zones+"}\nrespond ok").try,
		"a rule file in Caddy":   startCaddy(t, "rate_limit {\nrules_file "+path+"\n}\nrespond ok").try,
		"a rule file in Traefik": limited(t, "{rulesFile: "+path+"}").try,
		"Traefik":                limited(t, strings.ReplaceAll(fmt.Sprintf(rules, "pathPrefixes"), "\n\t\t", " ")).try,
	} {
		for _, c := range []struct {
			want    int
			request string
			fields  []string
		}{
			{200, "/?format=csv", nil}, {429, "/?format=big-csv&x=1", nil}, {200, "/?format=csv&preview=1", nil}, {200, "/?format=xml", nil}, {200, "/free?format=csv", nil},
			{200, "/a", nil}, {429, "/a/b", []string{"Cookie", "other=1"}}, {200, "/a", []string{"Cookie", "session=1"}}, {200, "/b", nil},
			{200, "/b", []string{"Cookie", "a=b; group=beta-1"}}, {429, "/b", []string{"Cookie", "group=beta-2"}}, {200, "/b", []string{"Cookie", "group=alpha"}},
		} {
			r, err := try(c.request, c.fields...)
			must.Succeed(t, err)
			must.Equal(t, r.status, c.want, "%s: %s %q: status", dialect, c.request, c.fields)
		}
	}
}

// authority issues certificates.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Acme CA"}, NotAfter: time.Now().AddDate(1, 0, 0), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	a.key, a.cert = a.sign(t, a.cert)
	return a
}

// sign makes a key and a certificate of it.
func (a *authority) sign(t *testing.T, template *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, signer)
	must.Succeed(t, err)
	cert, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	return key, cert
}

// issue makes a certificate with that name.
func (a *authority) issue(t *testing.T, name string, serial int64, usage x509.ExtKeyUsage) tls.Certificate {
	t.Helper()
	key, cert := a.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotAfter: time.Now().AddDate(1, 0, 0), ExtKeyUsage: []x509.ExtKeyUsage{usage},
	})
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// write writes a certificate and its key as files.
func write(t *testing.T, dir, name string, of tls.Certificate) (cert, key string) {
	t.Helper()
	pkcs8, err := x509.MarshalPKCS8PrivateKey(of.PrivateKey)
	must.Succeed(t, err)
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	must.Succeed(t, os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: of.Certificate[0]}), 0o600))
	must.Succeed(t, os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), 0o600))
	return cert, key
}

// certified returns the status that a client with a certificate, or without one, gets for a path over TLS.
func certified(t *testing.T, addr, host, path string, certificates []tls.Certificate) int {
	t.Helper()
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: host, Certificates: certificates}, //nolint:gosec // the servers' certificates are not what is tested
		DialContext:     func(_ context.Context, network, _ string) (net.Conn, error) { return net.Dial(network, addr) },
	}
	defer transport.CloseIdleConnections()
	answer, err := send(&http.Client{Transport: transport}, "", "https://"+host+path)
	must.Succeed(t, err)
	return answer.status
}

// A rule takes a certificate that the proxy has verified: in Traefik from the connection, which a plugin sees, and from the field that passTLSClientCert sets.
func TestClientsAreToldApartByTheirCertificatesInBothProxies(t *testing.T) {
	dir := t.TempDir()
	ca, strangers := newAuthority(t), newAuthority(t)
	root, _ := write(t, dir, "ca", tls.Certificate{Certificate: [][]byte{ca.cert.Raw}, PrivateKey: ca.key})
	till7 := []tls.Certificate{ca.issue(t, "till-7", 7, x509.ExtKeyUsageClientAuth)}
	till8 := []tls.Certificate{ca.issue(t, "till-8", 8, x509.ExtKeyUsageClientAuth)}
	forged := []tls.Certificate{strangers.issue(t, "till-9", 9, x509.ExtKeyUsageClientAuth)}
	fields := []string{"fingerprint", "subject", "common_name", "serial", "dns"}
	rules := map[string]string{}
	for _, prefixes := range []string{"path_prefixes", "pathPrefixes"} {
		var list []any
		for i, field := range fields {
			list = append(list, keyed{source: "client_cert:" + field}.rule(i, prefixes))
		}
		text, err := json.Marshal(map[string]any{"rules": list})
		must.Succeed(t, err)
		rules[prefixes] = string(text)
	}
	path := ruleFile(t, filepath.Join(dir, "rules.json"), rules["path_prefixes"])
	of := func(dialect, addr, host string, number int, want map[string][]int) {
		t.Helper()
		for i := range number {
			for name, certificates := range map[string][]tls.Certificate{"till-7": till7, "till-8": till8, "nobody": nil, "a stranger": forged} {
				for j, status := range want[name] {
					must.Equal(t, certified(t, addr, host, fmt.Sprintf("/%d", i), certificates), status, "%s: rule %d: %s, request %d: status", dialect, i, name, j)
				}
			}
		}
	}
	known := map[string][]int{"till-7": {200, 429}, "till-8": {200, 429}, "nobody": {200, 429}}

	serverCert, serverKey := write(t, dir, "server", ca.issue(t, "localhost", 2, x509.ExtKeyUsageServerAuth))
	site := func(mode, directives string) string { // returns the address of a site that asks for certificates
		up, addr := freeAddr(), freeAddr()
		_, plain, _ := net.SplitHostPort(up)
		_, port, _ := net.SplitHostPort(addr)
		trust := "trust_pool file " + root
		if mode == "request" {
			trust = ""
		}
		runCaddy(t, up, "/up", "admin off\nauto_https off", ":"+plain+" {\nrespond ok\n}\nhttps://localhost:"+port+" {\ntls "+serverCert+" "+serverKey+" {\nclient_auth {\nmode "+mode+"\n"+trust+"\n}\n}\n"+directives+"\nrespond ok\n}\n")
		eventually(t, "Caddy listens for TLS, too", func() bool {
			conn, err := net.Dial("tcp", addr)
			return err == nil && conn.Close() == nil
		})
		return addr
	}
	of("a rule file in Caddy", site("verify_if_given", "rate_limit {\nrules_file "+path+"\n}"), "localhost", len(fields), known)
	of("a Caddyfile", site("verify_if_given", "rate_limit {\nzone a {\nkey {tls_client_subject}\nlimit 1/366d\n}\n}"), "localhost", 1, known)
	of("a Caddyfile with a source of Weir's", site("verify_if_given", "rate_limit {\nzone a {\nkey {http.rate_limit.client_cert:common_name}\nlimit 1/366d\n}\n}"), "localhost", 1, known)
	// In a mode that verifies nothing, all are nobody: they share one counter.
	unverified := site("request", "rate_limit {\nrules_file "+path+"\n}\n")
	must.Equal(t, certified(t, unverified, "localhost", "/0", forged), 200, "the first")
	must.Equal(t, certified(t, unverified, "localhost", "/0", till7), 429, "the second, with another certificate that is not verified")

	s := newSite(t)
	s.limit("rules", rules["pathPrefixes"])
	s.limit("field", "{key: header:X-Forwarded-Tls-Client-Cert-Info, limit: 1/366d, onMissingKey: share}")
	s.middleware("pass", "passTLSClientCert: {info: {subject: {commonName: true}}}")
	s.route("/", "rules")
	s.apply()
	tlsFile := strings.TrimSuffix(s.file(), ".yml") + "-tls.yml"
	t.Cleanup(func() { _ = os.Remove(tlsFile) })
	s.publish(tlsFile, fmt.Sprintf("tls:\n  options:\n    %[1]s: {clientAuth: {caFiles: [%[2]s], clientAuthType: VerifyClientCertIfGiven}}\nhttp:\n  routers:\n"+
		"    %[1]s-tls: {rule: Host(`%[3]s`), entryPoints: [web], tls: {options: %[1]s}, middlewares: [%[1]s-rules], service: %[1]s}\n"+
		"    %[1]s-passed: {rule: Host(`%[3]s`) && PathPrefix(`/passed`), entryPoints: [web], tls: {options: %[1]s}, middlewares: [%[1]s-pass, %[1]s-field], service: %[1]s}\n", s.name, root, s.host()))
	eventually(t, "Traefik serves it over TLS", func() bool { return certified(t, s.web, s.host(), "/served", nil) == http.StatusOK })
	of("Traefik", s.web, s.host(), len(fields), known)
	for _, certificates := range [][]tls.Certificate{till7, till8} {
		must.Equal(t, certified(t, s.web, s.host(), "/passed", certificates), 200, "the first with a certificate that is passed on")
		must.Equal(t, certified(t, s.web, s.host(), "/passed", certificates), 429, "the second")
	}
}
