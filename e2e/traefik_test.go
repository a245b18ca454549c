package e2e

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// module is the plugin's name in Traefik.
const module = "github.com/proxyweir/weir"

// traefik is a running Traefik, in its own process, which has loaded the plugin from this checkout.
type traefik struct {
	dir     string // where it runs
	dynamic string // the folder of its dynamic configuration, a file for each site
	web     string // the address of the entry point for the sites
	admin   string // the address of its API

	program *exec.Cmd
	done    chan struct{} // closed when the process has ended
	client  *http.Client
	version atomic.Int64 // of the dynamic configuration, counted over all sites
}

// settings are the differences of a test's static configuration.
type settings struct {
	providers string // further providers, in YAML
	plugin    string // the folder of the plugin; default: this checkout
	env       []string
}

// static is the static configuration. It has nothing that a user would not write.
const static = `
global: {checkNewVersion: false, sendAnonymousUsage: false}
log: {level: DEBUG, format: json}
accessLog: {filePath: rejected.log, format: json, filters: {statusCodes: ["429"]}, fields: {headers: {defaultMode: keep}}}
api: {insecure: true, debug: true, dashboard: false}
ping: {}
entryPoints:
  web: {address: "%s", forwardedHeaders: {insecure: true}}
  traefik: {address: "%s"}
experimental:
  localPlugins:
    weir: {moduleName: ` + module + `}
providers:
  providersThrottleDuration: 1ms
  file: {directory: dynamic, watch: true}
%s`

// startTraefik starts a Traefik for a single test.
func startTraefik(t testing.TB, with settings) *traefik {
	t.Helper()
	tr, err := newTraefik(t.TempDir(), with)
	if err == nil {
		err = tr.start()
	}
	if tr != nil && tr.program != nil {
		t.Cleanup(func() {
			tr.stop()
			tr.checkCalm(t, 0)
		})
	}
	must.Succeed(t, err)
	return tr
}

// shared is the Traefik of all tests that do not need their own. The first of them starts it.
var shared struct {
	sync.Once
	*traefik
	err error
}

func sharedTraefik(t testing.TB) *traefik {
	t.Helper()
	shared.Do(func() {
		dir, err := os.MkdirTemp("", "weir-e2e")
		if err != nil {
			shared.err = err
			return
		}
		if shared.traefik, shared.err = newTraefik(dir, settings{}); shared.err == nil {
			shared.err = shared.start()
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.traefik
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.traefik != nil {
		shared.stop()
		_ = os.RemoveAll(shared.dir)
	}
	if chrome.end != nil {
		chrome.end()
	}
	upstream.Close()
	os.Exit(code)
}

// traefikProgram returns the path of the program.
func traefikProgram() (string, error) {
	path := os.Getenv("TRAEFIK_BIN")
	if path == "" {
		path = filepath.Join("..", "bin", "traefik")
	}
	path, err := filepath.Abs(path)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		return "", fmt.Errorf("there is no Traefik to test with: run scripts/traefik, which finds or builds one, or set TRAEFIK_BIN (%w)", err)
	}
	return path, nil
}

// newTraefik prepares a folder for a Traefik, without starting it.
func newTraefik(dir string, with settings) (*traefik, error) {
	path, err := traefikProgram()
	if err != nil {
		return nil, err
	}
	tr := &traefik{dir: dir, dynamic: filepath.Join(dir, "dynamic"), web: freeAddr(), admin: freeAddr()}
	tr.client = tr.newClient(nil)
	if with.plugin == "" {
		with.plugin = os.Getenv("WEIR_PLUGIN") // another checkout: an older one, or one with a fault that a test must find
	}
	if with.plugin == "" {
		with.plugin = ".."
	}
	config := fmt.Sprintf(static, tr.web, tr.admin, indent(with.providers, "  "))
	if err = os.WriteFile(filepath.Join(dir, "traefik.yml"), []byte(config), 0o600); err != nil {
		return nil, err
	}
	if err = os.Mkdir(tr.dynamic, 0o700); err != nil {
		return nil, err
	}
	if err = installCertificate(dir, tr.dynamic); err != nil {
		return nil, err
	}
	if err = installPlugin(dir, with.plugin); err != nil {
		return nil, err
	}
	tr.program = exec.Command(path, "--configFile=traefik.yml")
	tr.program.Env = append(os.Environ(), with.env...)
	return tr, nil
}

// installCertificate makes a certificate that Traefik uses as its default. Otherwise Traefik would generate an RSA key at every
// change of the configuration, which would take most of the time of a reload.
func installCertificate(dir, dynamic string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(1, 0, 0)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	files := map[string][]byte{
		filepath.Join(dir, "default.crt"): pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		filepath.Join(dir, "default.key"): pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
		filepath.Join(dynamic, "tls.yml"): []byte("tls: {stores: {default: {defaultCertificate: {certFile: default.crt, keyFile: default.key}}}}\n"),
	}
	for name, text := range files {
		if err = os.WriteFile(name, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// installPlugin puts the plugin where a Traefik that runs in dir looks for it, as docs/traefik.md describes.
func installPlugin(dir, plugin string) error {
	plugin, err := filepath.Abs(plugin)
	if err != nil {
		return err
	}
	link := filepath.Join(dir, "plugins-local", "src", filepath.FromSlash(module))
	if err = os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
		return err
	}
	return os.Symlink(plugin, link)
}

// start starts the process, and returns when it serves and has loaded the plugin.
func (tr *traefik) start() error {
	output, err := os.Create(tr.logFile())
	if err != nil {
		return err
	}
	defer output.Close()
	tr.program.Dir = tr.dir
	tr.program.Stdout, tr.program.Stderr = output, output
	tr.program.SysProcAttr = endWithParent()
	if err = tr.program.Start(); err != nil {
		tr.program = nil
		return err
	}
	tr.done = make(chan struct{})
	go func() {
		_ = tr.program.Wait()
		close(tr.done)
	}()
	up := await(func() bool {
		answer, err := tr.client.Get("http://" + tr.admin + "/ping")
		if err != nil {
			return !tr.running()
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	for _, e := range tr.logSince(0) {
		if strings.Contains(e.Message, "Plugins are disabled") {
			return fmt.Errorf("the plugin does not load: %s", e.Error)
		}
	}
	if !up || !tr.running() {
		text, _ := os.ReadFile(tr.logFile())
		return fmt.Errorf("Traefik does not come up:\n%s", text)
	}
	return nil
}

func (tr *traefik) running() bool {
	select {
	case <-tr.done:
		return false
	default:
		return true
	}
}

// stop ends the process, by force if necessary.
func (tr *traefik) stop() {
	tr.client.CloseIdleConnections()
	if tr.done == nil {
		return
	}
	_ = tr.program.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(5 * time.Second)
	defer timer.Stop()
	select {
	case <-tr.done:
	case <-timer.C:
		_ = tr.program.Process.Kill()
		<-tr.done
	}
}

func (tr *traefik) logFile() string { return filepath.Join(tr.dir, "traefik.log") }

// entry is a line of Traefik's log.
type entry struct {
	Level, Message, Error string
	Middleware            string `json:"middlewareName"`
	Router                string `json:"routerName"`
	Plugin                string
	raw                   string
}

// alarming reports whether a line is about something that must never happen: a panic, in Traefik or in the plugin.
func alarming(line string) bool {
	text := strings.ToLower(line)
	return strings.Contains(text, "panic") || strings.HasPrefix(text, "fatal error") || strings.HasPrefix(text, "goroutine ")
}

// checkCalm checks that no line of the log after a given size is alarming, and prints the first few that are.
func (tr *traefik) checkCalm(t testing.TB, size int64) {
	t.Helper()
	alarms := 0
	for _, line := range tr.linesSince(size) {
		if !alarming(line) {
			continue
		}
		if alarms++; alarms <= 3 {
			t.Errorf("Traefik says: %s", line)
		}
	}
	if alarms > 3 {
		t.Errorf("and %d more lines of that kind", alarms-3)
	}
}

// logSize returns how long the log is.
func (tr *traefik) logSize() int64 {
	info, err := os.Stat(tr.logFile())
	if err != nil {
		return 0
	}
	return info.Size()
}

// logSince returns the log after a given size; with some text, only lines that have it.
func (tr *traefik) logSince(size int64, with ...string) []entry {
	var entries []entry
	for _, line := range tr.linesSince(size) {
		if !slices.ContainsFunc(with, func(text string) bool { return !strings.Contains(line, text) }) {
			e := entry{raw: line}
			_ = json.Unmarshal([]byte(line), &e)
			entries = append(entries, e)
		}
	}
	return entries
}

// linesSince returns the lines of the log after a given size.
func (tr *traefik) linesSince(size int64) []string {
	f, err := os.Open(tr.logFile())
	if err != nil {
		return nil
	}
	defer f.Close()
	if _, err = f.Seek(size, io.SeekStart); err != nil {
		return nil
	}
	var lines []string
	for in := bufio.NewReader(f); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return lines // the last line is still being written
		}
		lines = append(lines, strings.TrimSpace(line))
	}
}

// get reads a page of the API.
func (tr *traefik) get(t testing.TB, path string) []byte {
	t.Helper()
	answer, err := tr.client.Get("http://" + tr.admin + path)
	must.Succeed(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d, %v", path, answer.StatusCode, err)
	}
	return body
}

// freeAddr returns an address at which nothing listens, with a port that no outgoing connection gets.
func freeAddr() string {
	for {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+mathrand.IntN(22_000)))
		if _, given := givenAddrs.LoadOrStore(addr, true); given {
			continue
		}
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
}

// givenAddrs are the addresses that freeAddr has returned. None is given twice: two Caddys could listen at one (by SO_REUSEPORT), and each would get a
// part of its requests.
var givenAddrs sync.Map

// await waits until a condition holds, and reports whether it does. It looks less often the longer it has waited, since some looks cost
// Traefik or Prometheus milliseconds.
func await(condition func() bool) bool {
	for began := time.Now(); !condition(); {
		waited := time.Since(began)
		if waited > 2*time.Minute {
			return false
		}
		time.Sleep(min(max(2*time.Millisecond, waited/16), 100*time.Millisecond))
	}
	return true
}

// eventually waits until a condition holds.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	if !await(condition) {
		t.Fatalf("it never happened that %s", what)
	}
}
