package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/manual"
	"github.com/proxyweir/weir/tools/must"
)

// readRecipe returns a file of examples with other words, each of which it must have.
func readRecipe(t *testing.T, name string, replace ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "examples", name))
	must.Succeed(t, err)
	for i := 0; i < len(replace); i += 2 {
		must.Contain(t, string(text), replace[i], "%s", name)
	}
	return strings.NewReplacer(replace...).Replace(string(text))
}

// bannedAt is how many rejections get a client banned, here: of a rule's, the log has at most 50 lines at once.
const bannedAt = 3

// who is rejected in the logs of rejectedLogs, and how.
const (
	often        = "127.0.40.1" // so often that it is banned
	seldom       = "127.0.40.2" // once less
	proxy        = "127.0.40.9" // trusted; in all of its own
	throughProxy = "203.0.113.7"
	forger       = "127.0.40.3" // more often, with each forgery that often
	victim       = "203.0.113.8"
	forged       = "203.0.113.9" // as often, where the log says that anybody can have sent it
	overQuota    = "127.0.40.4"  // so often that it would be banned, under a rule that is left out

	oftenTraefik  = "127.0.41.1" // the same of a Traefik
	seldomTraefik = "127.0.41.2"
	proxyTraefik  = "127.0.41.9"
)

// forgeries are what a client may send to get another address banned.
var forgeries = []string{
	`{"level":"info","ts":1795906132.6,"logger":"http.handlers.rate_limit","msg":"rate limit exceeded","zone":"z","wait":1,"client_ip":"` + victim + `","remote_ip":"` + victim + `","method":"GET"}`,
	`","client_ip":"` + victim + `","remote_ip":"` + victim + `","uri":"`,
	"\\\",\"client_ip\":\"" + victim + "\",\"remote_ip\":\"" + victim + "\",\"method\":\"",
	`{"ClientAddr":"` + victim + `:1","ClientHost":"` + victim + `","ClientPort":"1","ClientUsername":"-","DownstreamStatus":429,"OriginStatus":0,"time":"2026-11-28T22:49:52Z"}`,
	victim,
}

// raw sends a request from an address as it is written, with bytes that a client of Go's would not send, and returns the status line.
func raw(t *testing.T, to, address, target string, fields ...string) string {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	conn, err := dialer.Dial("tcp", to)
	must.Succeed(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: recipes.test\r\nConnection: close\r\n%s\r\n", target, strings.Join(append(fields, ""), "\r\n"))
	must.Succeed(t, err)
	status, err := bufio.NewReader(conn).ReadString('\n')
	must.Succeed(t, err)
	return strings.TrimSpace(status)
}

// rejectedLogs has a Caddy and a Traefik reject requests, and returns the logs.
func rejectedLogs(t *testing.T) (ofCaddy, ofTraefik string) {
	t.Helper()
	ofCaddy = filepath.Join(t.TempDir(), "weir.log")
	// A log has one line of a key in a second. So that the test need not wait for seconds, each path is another key.
	global := ""
	for _, s := range manual.Snippets(t, "docs/layers.md") {
		if strings.Contains(s.Text, "/var/log/caddy/weir.log") && s.Language == "caddyfile" {
			global = strings.Replace(s.Text, "/var/log/caddy/weir.log", ofCaddy, 1)
		}
	}
	global += "servers {\ntrusted_proxies static " + proxy + "\n}\n"
	c := startCaddyWithGlobal(t, "off", global, "rate_limit {\nzone z {\nmatch {\nnot path /up /quota*\n}\nkey \"{client_ip} {path}\"\nlimit 1/366d\n}\n"+
		"zone quota {\nmatch {\npath /quota*\n}\nkey \"{client_ip} {path}\"\nlimit 1/366d\n}\n}\nrespond ok")
	reject := func(to, address, target string, fields ...string) {
		t.Helper()
		must.Contain(t, raw(t, to, address, target, fields...), " 200 ")
		must.Contain(t, raw(t, to, address, target, fields...), " 429 ")
	}
	for i := range bannedAt {
		target := fmt.Sprint("/", i)
		reject(c.addr, proxy, target, "X-Forwarded-For: "+throughProxy)
		// A client of the proxy's says that the proxy is the client, to get it banned.
		reject(c.addr, proxy, "/by-proxy"+target, "X-Forwarded-For: "+proxy)
		for n, forgery := range forgeries {
			escaped := strings.NewReplacer(" ", "%20", "\n", "%0a").Replace(forgery)
			reject(c.addr, forger, fmt.Sprint(target, n, escaped), "User-Agent: "+forgery, "X-Forwarded-For: "+forgery, "Forwarded: for="+victim)
		}
		reject(c.addr, overQuota, "/quota"+target)
		if i > 0 {
			reject(c.addr, seldom, target)
		}
		reject(c.addr, often, target)
	}
	log, err := os.ReadFile(ofCaddy)
	must.Succeed(t, err)
	for line := range strings.Lines(string(log)) { // a test of caddy shows that the log of early data is so
		if strings.Contains(line, `"remote_ip":"`+often+`"`) {
			line = strings.Replace(strings.ReplaceAll(line, often, forged), `"method"`, `"early_data":true,"method"`, 1)
			file, err := os.OpenFile(ofCaddy, os.O_APPEND|os.O_WRONLY, 0)
			must.Succeed(t, err)
			_, err = file.WriteString(line)
			must.Succeed(t, err)
			must.Succeed(t, file.Close())
		}
	}
	for i := range bannedAt {
		reject(c.addr, often, fmt.Sprint("/last/", i))
	}

	s := limited(t, "limit: 1/366d")
	rejectHere := func(times int, address string, fields ...string) {
		t.Helper()
		client := from(t, s.web, address)
		for i := range times + 1 {
			r, err := send(client, s.host(), "/a?"+url.QueryEscape(forgeries[3]), append(fields, "User-Agent", forgeries[3])...)
			must.Succeed(t, err)
			must.Equal(t, r.status == http.StatusTooManyRequests, i > 0)
		}
	}
	rejectHere(bannedAt-1, seldomTraefik)
	rejectHere(bannedAt, proxyTraefik, "X-Forwarded-For", throughProxy)
	rejectHere(bannedAt, oftenTraefik)
	// The log has what other tests' clients were rejected for, too, which may be hundreds of thousands.
	ofTraefik = filepath.Join(t.TempDir(), "rejected.log")
	eventually(t, "Traefik has logged its rejections", func() bool {
		log, err := os.ReadFile(filepath.Join(s.dir, "rejected.log"))
		must.Succeed(t, err)
		var own strings.Builder
		n := 0
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, `"`+s.host()+`"`) && strings.HasSuffix(line, "\n") {
				own.WriteString(line)
				n++
			}
		}
		must.Succeed(t, os.WriteFile(ofTraefik, []byte(own.String()), 0o600))
		return n == bannedAt-1+bannedAt+bannedAt
	})
	return ofCaddy, ofTraefik
}

// startFail2ban starts Debian's fail2ban with the jail of the example, of the logs, in a network of its own, and returns the file to which it
// writes whom it bans, and what the kernel's firewall has then.
func startFail2ban(t *testing.T, logs ...string) (banned string) {
	dir := t.TempDir()
	etc := "/etc/fail2ban"
	if _, err := os.Stat(etc); err != nil {
		etc = "/opt/homebrew/etc/fail2ban"
	}
	must.Succeed(t, os.CopyFS(dir, os.DirFS(etc)))
	banned = filepath.Join(dir, "banned")
	jail := readRecipe(t, "fail2ban/jail.d/weir.conf", "/var/log/caddy/weir.log", strings.Join(logs, "\n            "), "127.0.0.1/8 ::1", "127.0.0.1", "maxretry  = 10", fmt.Sprint("maxretry = ", bannedAt),
		"filter    = weir", `filter = weir[zone="other|z"]`)
	for name, text := range map[string]string{
		"filter.d/weir.conf":     readRecipe(t, "fail2ban/filter.d/weir.conf"),
		"jail.d/weir.conf":       jail + "action = %(action_)s\n         noting\n",
		"action.d/noting.conf":   "[Definition]\nactionban = { echo 'banned <ip>'; nft list table inet f2b-table; } >>" + banned + "\n",
		"jail.d/zz-private.conf": "[sshd]\nenabled = false\n", // which Debian's package turns on
		"fail2ban.local":         "[Definition]\nsocket = " + dir + "/socket\npidfile = " + dir + "/pid\ndbfile = None\nlogtarget = STDOUT\n",
	} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	log := spawn(t, dir, ownNetwork(), "fail2ban-server", "-c", dir, "-xf", "start")
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := os.ReadFile(log)
			t.Logf("fail2ban:\n%s", text)
		}
	})
	return banned
}

func TestWhoIsRejectedAgainAndAgainIsBanned(t *testing.T) {
	t.Parallel()
	ofCaddy, ofTraefik := rejectedLogs(t)
	spared := func(t *testing.T, said string) {
		t.Helper()
		for _, address := range []string{seldom, proxy, throughProxy, victim, forged, overQuota, seldomTraefik, proxyTraefik} {
			must.Equal(t, strings.Contains(said, address), false, "%s is banned: %s", address, said)
		}
	}
	t.Run("fail2ban", func(t *testing.T) { // not parallel: it would wait for its turn until the lines are older than its findtime
		file := startFail2ban(t, ofCaddy, ofTraefik)
		said := ""
		eventually(t, "fail2ban has read both logs", func() bool {
			text, _ := os.ReadFile(file)
			said = string(text)
			return strings.Contains(said, "banned "+often+"\n") && strings.Contains(said, "banned "+oftenTraefik+"\n")
		})
		must.Contain(t, said, "banned "+forger+"\n")
		spared(t, said)
		if runtime.GOOS == "linux" {
			must.Contain(t, said, "udp dport { 80, 443 } ip saddr @addr-set-weir drop")
			must.Contain(t, said, "tcp dport { 80, 443 } ip saddr @addr-set-weir drop")
			must.Equal(t, regexp.MustCompile(`elements = {[^}]*`+regexp.QuoteMeta(often)).MatchString(said), true, "%s", said)
		}
	})
	t.Run("CrowdSec", func(t *testing.T) {
		said := strings.Join(regexp.MustCompile(`\S+ ban on Ip \S+`).FindAllString(runCrowdSec(t, ofCaddy, ofTraefik), -1), "\n")
		for _, address := range []string{often, forger, oftenTraefik} {
			must.Contain(t, said, "4h ban on Ip "+address+`"`)
		}
		spared(t, said)
	})
}

// runCrowdSec has Debian's CrowdSec read the logs by the files of the example, with no network, and returns what it says.
func runCrowdSec(t *testing.T, ofCaddy, ofTraefik string) string {
	unpacked, err := filepath.Abs(filepath.Join("..", "bin", "crowdsec"))
	must.Succeed(t, err)
	if _, err := os.Stat(unpacked); err != nil {
		t.Skip("there is no CrowdSec in bin/crowdsec: scripts/test servers unpacks Debian's")
	}
	dir := t.TempDir()
	must.Succeed(t, os.CopyFS(dir, os.DirFS(filepath.Join(unpacked, "etc", "crowdsec"))))
	hub := filepath.Join(unpacked, "usr", "share", "crowdsec", "hub")
	for name, text := range map[string]string{
		"parsers/s01-parse/weir.yaml": readRecipe(t, "crowdsec/parsers/s01-parse/weir.yaml"),
		"scenarios/weir.yaml":         readRecipe(t, "crowdsec/scenarios/weir.yaml", "capacity: 9", fmt.Sprint("capacity: ", bannedAt-1), "'weir_rejected'", "'weir_rejected' && evt.Meta.rule != 'quota'"),
		"acquis.d/weir.yaml": "mode: cat\n" + // from the beginning to the end, and not what is written from now on
			readRecipe(t, "crowdsec/acquis.d/weir.yaml", "/var/log/caddy/weir.log", ofCaddy, "/var/log/traefik/rejected.log", ofTraefik),
		"config.yaml": fmt.Sprintf(`
common: {log_media: stdout, log_level: info}
config_paths: {config_dir: %[1]s, data_dir: %[1]s, hub_dir: %[2]s, index_path: %[2]s/.index.json, simulation_path: %[1]s/simulation.yaml}
crowdsec_service: {acquisition_path: %[1]s/acquis.d/weir.yaml}
db_config: {type: sqlite, db_path: %[1]s/crowdsec.db, use_wal: false}
api:
  client: {credentials_path: %[1]s/credentials.yaml}
  server: {listen_uri: %[3]q, profiles_path: %[1]s/profiles.yaml, log_level: error}
prometheus: {enabled: false}
`, dir, hub, freeAddr()),
	} {
		must.Succeed(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	for _, theirs := range []string{"s00-raw/syslog-logs.yaml", "s02-enrich/dateparse-enrich.yaml", "s02-enrich/whitelists.yaml"} { // which Debian's package turns on
		stage, name := filepath.Split(theirs)
		must.Succeed(t, os.MkdirAll(filepath.Join(dir, "parsers", stage), 0o700))
		must.Succeed(t, os.Symlink(filepath.Join(hub, "parsers", stage, "crowdsecurity", name), filepath.Join(dir, "parsers", theirs)))
	}
	said := ""
	for _, line := range []string{"cscli machines add weir --password weir --force --file " + dir + "/credentials.yaml", "crowdsec"} {
		words := strings.Fields(line)
		program := exec.Command(filepath.Join(unpacked, "usr", "bin", words[0]), append([]string{"-c", dir + "/config.yaml"}, words[1:]...)...)
		program.Dir, program.SysProcAttr = dir, endWithParent()
		output, err := program.CombinedOutput()
		must.Equal(t, err, nil, "%s", output)
		said = string(output)
	}
	return said
}

func TestTheKernelLimitsConnections(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("nftables is Linux's")
	}
	if os.Getenv("WEIR_OWN_NETWORK") == "" { // this test again, in a process with a network of its own
		again := exec.Command(os.Args[0], "-test.run=^TestTheKernelLimitsConnections$", "-test.v")
		again.Env = append(os.Environ(), "WEIR_OWN_NETWORK=yes")
		again.SysProcAttr = ownNetwork()
		output, err := again.CombinedOutput()
		must.Equal(t, err, nil, "%s", output)
		must.Contain(t, string(output), "--- PASS")
		return
	}
	must.Succeed(t, loopbackUp())
	for _, s := range manual.Snippets(t, "docs/layers.md") {
		if s.Marker == "file: connections.nft" {
			nft := exec.Command("nft", "-f", "-")
			nft.Stdin = strings.NewReader(s.Text)
			output, err := nft.CombinedOutput()
			must.Equal(t, err, nil, "%s", output)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:80")
	must.Succeed(t, err)
	defer listener.Close()
	dial := func(address string, timeout time.Duration) (net.Conn, error) {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: timeout}
		return dialer.Dial("tcp", "127.0.0.1:80")
	}
	var open []net.Conn
	for range 100 {
		here, err := dial("127.0.0.2", time.Minute)
		must.Succeed(t, err)
		there, err := listener.Accept()
		must.Succeed(t, err)
		open = append(open, here, there)
	}
	_, err = dial("127.0.0.2", 300*time.Millisecond)
	must.Equal(t, err != nil, true, "the 101st connection of an address")
	_, err = dial("127.0.0.3", time.Minute)
	must.Succeed(t, err) // another address
	for _, conn := range open {
		_ = conn.Close()
	}
	_, err = dial("127.0.0.2", time.Minute)
	must.Succeed(t, err) // when the others are closed
	for made := 0; ; made++ {
		here, err := dial("127.0.0.4", 300*time.Millisecond)
		if err != nil {
			must.Equal(t, made >= 200, true, "new connections at once: %d", made)
			return
		}
		there, err := listener.Accept()
		for err == nil && !strings.HasPrefix(there.RemoteAddr().String(), "127.0.0.4:") {
			_ = there.Close()
			there, err = listener.Accept()
		}
		must.Succeed(t, err)
		_ = here.Close()
		_ = there.Close()
		must.Equal(t, made < 2000, true, "nothing limits new connections")
	}
}
