package advisor

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/tools/must"
)

// startPrometheus starts a Prometheus with a history of four days up to noon, and returns its address. Each 30 seconds it has scraped a proxy with two rules.
// api has a season of a day; its counters were reset once, and an hour is missing. login is as api, until three keys ask for as much as all others, 40 minutes
// before noon.
func startPrometheus(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Fatalf("%s is not installed: apt-get install prometheus; brew install prometheus", name)
		}
	}
	dir := t.TempDir()
	history := filepath.Join(dir, "history.txt")
	writeHistory(t, history)
	if out, err := exec.Command("promtool", "tsdb", "create-blocks-from", "--max-block-duration=240h", "openmetrics", "--quiet", history, filepath.Join(dir, "data")).CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v: %s", err, out)
	}
	must.Succeed(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), nil, 0o600))
	l := listen(t)
	address := l.Addr().String()
	_ = l.Close()
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--storage.tsdb.retention.time=100y", "--web.listen-address="+address, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	must.Succeed(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if answer, err := http.Get("http://" + address + "/-/ready"); err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return "http://" + address
			}
		}
	}
	t.Fatal("Prometheus does not come up")
	return ""
}

func writeHistory(t *testing.T, name string) {
	t.Helper()
	file, err := os.Create(name)
	must.Succeed(t, err)
	defer file.Close()
	w := bufio.NewWriter(file)
	defer w.Flush()
	lines := make(map[string][]string) // of each metric
	say := func(metric, labels string, value float64, at time.Time) {
		lines[metric] = append(lines[metric], fmt.Sprintf("%s{%s} %v %d\n", metric, labels, value, at.Unix()))
	}
	const gauge, requests, demand = "weir_top_keys_share", "weir_requests_total", "weir_key_demand"
	totals := map[string]float64{}
	for at := noon.Add(-4*day - 10*time.Minute); !at.After(noon); at = at.Add(30 * time.Second) {
		before := noon.Sub(at)
		for _, rule := range []string{"api", "login"} {
			usual := 10 + 4*math.Sin(2*math.Pi*float64(at.Unix())/86400) // requests a second
			total, keys, share := usual, 100.0, 0.2
			abused := rule == "login" && before <= 40*time.Minute
			if abused {
				total, share = 2*usual, 0.6
			}
			totals[rule] += total * 30
			totals[rule+"8"] += keys * 3 * 0.95 // in 30 seconds each key counts three times
			totals[rule+"16"] += keys * 3
			if abused {
				totals[rule+"many"] += 9
			}
			if before == 30*time.Hour { // the proxy starts anew
				clear(totals)
			}
			if before > 49*time.Hour && before <= 50*time.Hour { // nothing is scraped
				continue
			}
			label := `job="caddy",instance="a",rule="` + rule + `"`
			say(requests, label+`,outcome="allowed"`, totals[rule]*0.9, at)
			say(requests, label+`,outcome="rejected"`, totals[rule]*0.1, at)
			say(gauge, label+`,guard="g",keys="10"`, share, at)
			say(gauge, label+`,guard="g",keys="1"`, share/5, at)
			for le, n := range map[string]float64{"8": totals[rule+"8"], "16": totals[rule+"16"], "64": totals[rule+"16"], "+Inf": totals[rule+"16"] + totals[rule+"many"]} {
				say(demand+"_bucket", label+`,guard="g",le="`+le+`"`, n, at)
			}
			say(demand+"_count", label+`,guard="g"`, totals[rule+"16"]+totals[rule+"many"], at)
			say(demand+"_sum", label+`,guard="g"`, totals[rule], at)
		}
	}
	write := func(metric, kind string, parts ...string) {
		_, _ = fmt.Fprintf(w, "# TYPE %s %s\n", metric, kind)
		for _, part := range parts {
			for _, line := range lines[part] {
				_, _ = w.WriteString(line)
			}
		}
	}
	write("weir_requests", "counter", requests)
	write(gauge, "gauge", gauge)
	write(demand, "histogram", demand+"_bucket", demand+"_count", demand+"_sum")
	_, _ = w.WriteString("# EOF\n")
}

// From the blocks of a real Prometheus to a signed document, over TLS with a client's certificate.
func TestAPrometheusBecomesADocument(t *testing.T) {
	address := startPrometheus(t)
	dir := t.TempDir()
	ca := newCA(t)
	ca.write(t, dir, "server")
	ca.write(t, dir, "client")
	public, private, err := ed25519.GenerateKey(rand.Reader)
	must.Succeed(t, err)
	writePEM(t, filepath.Join(dir, "advisor.key"), "PRIVATE KEY", private)
	t.Setenv("WEIR_ADVISOR_TOKEN", "s3cret")
	text := `
fleet: shop
token: "${WEIR_ADVISOR_TOKEN}"
private_key: advisor.key
tls: {certificate: server.pem, key: server.key, client_ca: ca.pem}
prometheus: {url: ` + address + `, selector: 'job="caddy"'}
history: 4d
step: 2m
season: 24h
horizon: 30m
rules:
  - {rule: api, limit: 600/1m, ceiling: 2000/1m, demand: total}
  - {rule: login, limit: 600/1m, ceiling: 2000/1m, demand: key, abuse: true}
  - {rule: missing, limit: 600/1m, ceiling: 2000/1m}
`
	file := filepath.Join(dir, "advisor.yaml")
	must.Succeed(t, os.WriteFile(file, []byte(text), 0o600))
	c, err := Read(file)
	must.Succeed(t, err)
	a := New(c, &c.Prometheus)
	a.now = func() time.Time { return noon.Add(7 * time.Second) }
	l := listen(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- a.Serve(ctx, l, func(text string) {
			must.Contain(t, text, "didn't provide a certificate")
		})
	}()
	url := "https://" + l.Addr().String()
	if _, err := ca.client(t, dir, "").Get(url + "/healthz"); err == nil {
		t.Error("clients without a certificate are answered")
	}
	client := ca.client(t, dir, "client")
	for computed := false; !computed; {
		answer, err := client.Get(url + "/healthz")
		must.Succeed(t, err)
		computed = answer.StatusCode == http.StatusOK
		_ = answer.Body.Close()
	}
	r, err := http.NewRequest("GET", url+"/v1/advice?fleet=shop", nil)
	must.Succeed(t, err)
	r.Header.Set("Authorization", "Bearer s3cret")
	r.Header.Set("Weir-Config", c.Digest())
	answer, err := client.Do(r)
	must.Succeed(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%v: %s: %s", err, answer.Status, body)
	}
	if refusal := advice.Verify(public, body, answer.Header.Get(advice.SignatureHeader)); refusal != nil {
		t.Error(refusal)
	}
	d, refusal := advice.Parse(body, advice.Expect{Now: a.now().UnixMicro(), Config: c.Digest(), Rules: map[string]bool{"api": true, "login": true, "missing": true}})
	if refusal != nil {
		t.Fatalf("%v: %s", refusal, body)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(d.Rules) != 2 {
		t.Fatalf("the document is %s", body)
	}
	// At 2:30 the demand is 10 + 4·sin(2π·2.5/24) = 12.44 requests a second, 746 a minute.
	if api := d.Rules[0]; api.Limit == nil || api.Limit.Requests < 890 || api.Limit.Requests > 960 || math.Abs(api.Forecast.Mean-746) > 10 {
		t.Errorf("of api it says %s", body)
	}
	// The quantile 0.999 of keys is in the bucket from 8 to 16: 8 + 8·0.049/0.05 = 15.84. Nine of ten are within 8·0.9/0.95 = 7.58 in 10 seconds.
	if login := d.Rules[1]; login.Above == nil || login.Limit != nil || math.Abs(login.Above.RequestsPerSecond-3*1.584) > 0.05 || login.Above.Limit != "46/1m" || login.Reason != reasonAbuse {
		t.Errorf("of login it says %s", body)
	}
	// A clock has nanoseconds, and Prometheus milliseconds.
	c.PressureQuery = "vector(1)"
	if f := New(c, &c.Prometheus).Find(t.Context(), noon.Add(7*time.Second+123_456_789))[0]; f.Reason != UnderPressure || f.Requests != 0 || f.Err != nil {
		t.Errorf("under pressure it finds %+v", f)
	}
}

func TestHistoriesAreReadInPartsOfElevenThousand(t *testing.T) {
	from := noon
	parts := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts++
		start, _ := strconv.ParseFloat(r.FormValue("start"), 64)
		end, _ := strconv.ParseFloat(r.FormValue("end"), 64)
		if (end-start)/60+1 > 11000 {
			t.Errorf("asks for %v points", (end-start)/60+1)
		}
		if r.Header.Get("Authorization") != "Bearer abc" || r.FormValue("step") != "60" {
			t.Errorf("asks with %v and %v", r.Header, r.Form)
		}
		var values [][2]any
		for at := start; at <= end; at += 60 {
			switch n := (at - float64(from.Unix())) / 60; {
			case n == 5:
			case n == 7:
				values = append(values, [2]any{at, "NaN"})
			default:
				values = append(values, [2]any{at, strconv.FormatFloat(n, 'f', -1, 64)})
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "matrix", "result": []any{map[string]any{"metric": map[string]string{}, "values": values}}}})
	}))
	defer server.Close()
	p := &Prometheus{URL: server.URL, Token: "abc", Timeout: time.Minute}
	s, err := p.Series(t.Context(), Quantity{Of: TotalDemand, Rule: "api"}, from, from.Add(24999*time.Minute), time.Minute)
	must.Succeed(t, err)
	if parts != 3 || len(s.Values) != 25000 {
		t.Errorf("%d values came in %d parts", len(s.Values), parts)
	}
	for i, y := range s.Values {
		if i == 5 && !math.IsNaN(y) || i == 7 && y != 0 || i != 5 && i != 7 && y != float64(i) {
			t.Fatalf("the value %d is %v", i, y)
		}
	}
}

func TestAnAddressWithoutAHostIsNoPrometheus(t *testing.T) {
	for url, right := range map[string]bool{"http://p": true, "https://p:9090/prefix": true, "http://": false, "ftp://p": false, "p:9090": false, "http://%zz": false} {
		if err := (&Prometheus{URL: url}).check(); (err == nil) != right {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestWhatPrometheusRefusesIsSaid(t *testing.T) {
	for _, c := range []struct {
		status     int
		body, want string
	}{
		{400, `{"status":"error","errorType":"bad_data","error":"parse error: unexpected end"}`, "parse error: unexpected end"},
		{502, "<html>", "502 Bad Gateway"},
		{200, "<html>", "not Prometheus's"},
		{302, "", "302 Found"},
		{200, `{"status":"success","data":{"resultType":"vector","result":[]}}`, "a vector, not a matrix"},
		{200, `{"status":"success","data":{"resultType":"matrix","result":[{"values":[]},{"values":[]}]}}`, "returns 2 series; one is wanted"},
		{200, strings.Repeat(" ", longestAnswer+1), "more than"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		p := &Prometheus{URL: server.URL, Timeout: time.Minute}
		_, err := p.Series(t.Context(), Quantity{Of: QueryDemand, Query: "sum(x)"}, noon, noon, time.Minute)
		server.Close()
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "prometheus: sum(x): ") {
			t.Errorf("%d %.60s: the error is %v, without %q", c.status, c.body, err, c.want)
		}
	}
}

// authority signs the certificates of a test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newCA(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(day), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(t, err)
	certificate, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	return &authority{certificate, key}
}

// write writes ca.pem, and a certificate with its key for a name, into a folder.
func (a *authority) write(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(day), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	must.Succeed(t, err)
	for file, block := range map[string]*pem.Block{"ca.pem": {Type: "CERTIFICATE", Bytes: a.certificate.Raw}, name + ".pem": {Type: "CERTIFICATE", Bytes: der}} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, file), pem.EncodeToMemory(block), 0o600))
	}
	writePEM(t, filepath.Join(dir, name+".key"), "PRIVATE KEY", key)
}

func writePEM(t *testing.T, file, kind string, key any) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
}

// client returns a client that trusts the authority, and has the certificate of a name; "": none.
func (a *authority) client(t *testing.T, dir, name string) *http.Client {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	config := &tls.Config{RootCAs: pool}
	if name != "" {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key"))
		must.Succeed(t, err)
		config.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: config}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
