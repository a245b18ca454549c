package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/proxyweir/weir/tools/must"
)

// namespace is a network namespace of its own: a machine that has nothing to do with this one.
type namespace struct {
	t   *testing.T
	pid int // of a process in it
	dir string

	calls chan func() // see enter
}

func newNamespace(t *testing.T) *namespace {
	t.Helper()
	holder := exec.Command("sleep", "infinity")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := holder.Start(); errors.Is(err, os.ErrPermission) {
		t.Skip("needs root, for network namespaces and nftables: run it as root, or in a container with CAP_NET_ADMIN and CAP_SYS_ADMIN")
	} else {
		must.Succeed(t, err)
	}
	t.Cleanup(func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	})
	n := &namespace{t: t, pid: holder.Process.Pid, dir: t.TempDir()}
	must.Succeed(t, n.enter())
	n.run("ip", "link", "set", "lo", "up")
	return n
}

// command returns a command in the network.
func (n *namespace) command(name string, args ...string) *exec.Cmd {
	c := exec.Command("nsenter", append([]string{"-n", "-t", fmt.Sprint(n.pid), name}, args...)...)
	c.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin", "XDG_CONFIG_HOME="+n.dir, "XDG_DATA_HOME="+n.dir)
	c.SysProcAttr = endWithParent()
	return c
}

// run runs a command, and returns what it says.
func (n *namespace) run(name string, args ...string) string {
	n.t.Helper()
	text, err := n.command(name, args...).CombinedOutput()
	if err != nil {
		n.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, text)
	}
	return string(text)
}

// start starts a command until the test ends, with a file for what it says.
func (n *namespace) start(log, name string, args ...string) *exec.Cmd {
	n.t.Helper()
	file, err := os.OpenFile(filepath.Join(n.dir, log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must.Succeed(n.t, err)
	defer file.Close()
	c := n.command(name, args...)
	c.Stdout, c.Stderr = file, file
	must.Succeed(n.t, c.Start())
	n.t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return c
}

func (n *namespace) said(log string) string {
	text, _ := os.ReadFile(filepath.Join(n.dir, log))
	return string(text)
}

// inside calls f on the thread that is in the network.
func (n *namespace) inside(f func() error) error {
	done := make(chan error)
	n.calls <- func() { done <- f() }
	return <-done
}

// enter has a thread call what is sent to it, in the network. It never ends: what other tests have started by the same thread would end with it.
func (n *namespace) enter() error {
	n.calls = make(chan func())
	entered := make(chan error)
	go func() {
		runtime.LockOSThread()
		space, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", n.pid))
		if err == nil {
			err = unix.Setns(int(space.Fd()), unix.CLONE_NEWNET)
			_ = space.Close()
		}
		entered <- err
		for call := range n.calls {
			call()
		}
	}()
	return <-entered
}

// dial connects from an address of the network; "" is any.
func (n *namespace) dial(from, to string, within time.Duration) (conn net.Conn, err error) {
	d := net.Dialer{Timeout: within}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	err = n.inside(func() (err error) {
		conn, err = d.Dial("tcp", to)
		return err
	})
	return conn, err
}

// get makes a request from an address of the network, and returns status and body.
func (n *namespace) get(from, url string, fields ...string) string {
	n.t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(_ context.Context, _, to string) (net.Conn, error) { return n.dial(from, to, 5*time.Second) }}}
	method, body := http.MethodGet, io.Reader(nil)
	if len(fields) == 1 {
		method, body = http.MethodPost, strings.NewReader(fields[0])
	}
	r, err := http.NewRequest(method, url, body)
	must.Succeed(n.t, err)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	response, err := client.Do(r)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must.Succeed(n.t, err)
	return fmt.Sprint(response.StatusCode, " ", strings.TrimSpace(string(text)))
}

// firewallSite is a Caddy behind a trusted proxy for some, and for others not.
const firewallSite = `{
	admin localhost:2019
	auto_https off
	persist_config off
	servers {
		trusted_proxies static 198.51.100.80
	}
}
:80 {
	rate_limit {
		zone login {
			match {
				path /login
			}
			limit 1/366d
			penalty 1h
		}
		zone short {
			match {
				path /short
			}
			limit 1/100ms
			penalty 3s
		}
		zone tolerant {
			match {
				path /tolerant
			}
			limit 1/366d
			penalty 1h
		}
		zone pages {
			match {
				path /pages
			}
			except 198.51.100.82
			limit 1000/1s
		}
	}
	respond ok
}
`

// Real packets between two network namespaces, through a real nftables, beside a real Caddy.
func TestTheFirewallKeepsOutWhomCaddyBlocks(t *testing.T) {
	t.Parallel()
	for program, of := range map[string]string{"nft": "nftables", "ip": "iproute2", "nsenter": "util-linux"} {
		if _, err := exec.LookPath(program); err != nil {
			if _, err = exec.LookPath("/usr/sbin/" + program); err != nil {
				t.Fatalf("%s is not installed: apt-get install %s", program, of)
			}
		}
	}
	binary, err := caddyProgram()
	must.Succeed(t, err)
	machine, clients := newNamespace(t), newNamespace(t)
	machine.run("ip", "link", "add", "machine", "type", "veth", "peer", "name", "clients", "netns", fmt.Sprint(clients.pid))
	machine.run("ip", "addr", "add", "192.0.2.1/24", "dev", "machine")
	machine.run("ip", "addr", "add", "2001:db8:1::1/64", "dev", "machine", "nodad")
	machine.run("ip", "link", "set", "machine", "up")
	clients.run("ip", "link", "set", "clients", "up")
	for _, address := range []string{"192.0.2.2/24", "10.9.9.9/32", "2001:db8:1::2/64", "2001:db8:5::7/128", "2001:db8:5::8/128", "2001:db8:6::1/128"} {
		args := []string{"addr", "add", address, "dev", "clients"}
		if strings.Contains(address, ":") {
			args = append(args, "nodad")
		}
		clients.run("ip", args...)
	}
	for _, last := range []int{1, 2, 3, 4, 80, 81, 82, 83} {
		clients.run("ip", "addr", "add", fmt.Sprintf("198.51.100.%d/32", last), "dev", "clients")
	}
	machine.run("ip", "route", "add", "198.51.100.0/24", "via", "192.0.2.2")
	machine.run("ip", "route", "add", "10.9.9.9", "via", "192.0.2.2")
	machine.run("ip", "route", "add", "2001:db8::/32", "via", "2001:db8:1::2")
	must.Succeed(t, machine.inside(func() error {
		for _, port := range []int{22, 8080} {
			l, err := net.Listen("tcp", fmt.Sprint(":", port))
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = l.Close() })
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					_ = conn.Close()
				}
			}()
		}
		return nil
	}))

	at := func(from string, port int) string {
		if strings.Contains(from, ":") {
			return fmt.Sprintf("[2001:db8:1::1]:%d", port)
		}
		return fmt.Sprint("192.0.2.1:", port)
	}
	ask := func(from, path string, fields ...string) string {
		t.Helper()
		return clients.get(from, "http://"+at(from, 80)+path, fields...)
	}
	reaches := func(from string, port int) bool {
		conn, err := clients.dial(from, at(from, port), 150*time.Millisecond)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	within := func(limit time.Duration, what string, holds func() bool) {
		t.Helper()
		began := time.Now()
		for !holds() {
			if time.Since(began) > limit {
				t.Fatalf("after %s still not: %s\n%s%s%s", limit, what, machine.said("firewall.log")+machine.said("caddy.log"), machine.run("nft", "list", "ruleset"),
					machine.get("", "http://127.0.0.1:2019/rate_limit/blocked?format=text"))
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Logf("%s: %d ms", what, time.Since(began).Milliseconds())
	}
	elements := func() []string {
		var list []string
		for _, m := range regexp.MustCompile(`(\S+) timeout`).FindAllStringSubmatch(machine.run("nft", "list", "ruleset"), -1) {
			if _, err := netip.ParseAddr(m[1]); err == nil {
				list = append(list, m[1])
			}
		}
		slices.Sort(list)
		return list
	}
	offend := func(from, path string, fields ...string) {
		t.Helper()
		got := ask(from, path, fields...)
		for n := 1; n < 100 && !strings.HasPrefix(got, "429"); n++ { // the machine may be too slow for two in 100 ms
			got = ask(from, path, fields...)
		}
		if !strings.HasPrefix(got, "429") {
			t.Fatalf("%s: %s, and its limit is used up", from, got)
		}
	}
	file := filepath.Join(machine.dir, "Caddyfile")
	must.Succeed(t, os.WriteFile(file, []byte(firewallSite), 0o600))
	startCaddy := func() *exec.Cmd {
		t.Helper()
		c := machine.start("caddy.log", binary, "run", "--config", file, "--adapter", "caddyfile")
		within(20*time.Second, "Caddy is up", func() bool { return ask("198.51.100.2", "/") == "200 ok" })
		return c
	}
	const lease = 2 * time.Second
	firewall := []string{"rate-limit", "firewall", "--lease", lease.String(), "--except", "198.51.100.83", "--rule", "login", "--rule", "short"}
	startFirewall := func() *exec.Cmd {
		t.Helper()
		// With no other right than this one.
		c := machine.start("firewall.log", "setpriv", append([]string{"--bounding-set", "-all,+net_admin", "--inh-caps", "-all,+net_admin", binary}, firewall...)...)
		eventually(t, "the table is there", func() bool {
			return strings.Contains(machine.run("nft", "list", "ruleset"), "table inet weir_firewall")
		})
		return c
	}
	caddy, wall := startCaddy(), startFirewall()

	another, err := machine.command(binary, firewall...).CombinedOutput()
	if err == nil || !strings.Contains(string(another), "another caddy rate-limit firewall seems to run on this machine") {
		t.Errorf("a second one: %v: %s", err, another)
	}
	for _, innocent := range []string{"10.9.9.9", "198.51.100.80", "198.51.100.82", "198.51.100.83"} {
		offend(innocent, "/login")
	}
	offend("198.51.100.80", "/login", "X-Forwarded-For", "198.51.100.81")
	offend("198.51.100.4", "/tolerant")
	offend("198.51.100.1", "/login")
	within(2*time.Second, "198.51.100.1 is kept out", func() bool { return !reaches("198.51.100.1", 80) })
	offend("2001:db8:5::7", "/login")
	within(2*time.Second, "the network of 2001:db8:5::7 is kept out", func() bool { return !reaches("2001:db8:5::8", 80) })
	must.Equal(t, fmt.Sprint(elements()), "[198.51.100.1 2001:db8:5::]", "all that is kept out")
	for from, path := range map[string]string{"10.9.9.9": "/login", "198.51.100.80": "/login", "198.51.100.82": "/login", "198.51.100.83": "/login", "198.51.100.4": "/tolerant"} {
		if got := ask(from, path); !strings.HasPrefix(got, "429") {
			t.Errorf("%s: %s, and is never to be kept out", from, got)
		}
	}
	must.Equal(t, ask("198.51.100.2", "/login"), "200 ok", "another address")
	must.Equal(t, ask("2001:db8:6::1", "/login"), "200 ok", "another network")
	for _, from := range []string{"198.51.100.1", "2001:db8:5::7"} {
		must.Equal(t, fmt.Sprint(reaches(from, 22), reaches(from, 8080)), "true true", "the other ports, from %s", from)
	}

	for end := time.Now().Add(lease / 2); time.Now().Before(end); { // in which it is renewed, without a gap
		if conn, err := clients.dial("198.51.100.1", at("198.51.100.1", 80), 2*time.Millisecond); err == nil {
			_ = conn.Close()
			t.Fatal("198.51.100.1 has come in while it was kept out")
		}
	}

	machine.get("", "http://127.0.0.1:2019/rate_limit/reset", `{"rule":"login","key":["198.51.100.1"]}`)
	within(2*time.Second, "198.51.100.1 is back after a reset", func() bool { return reaches("198.51.100.1", 80) })
	must.Equal(t, ask("198.51.100.1", "/login"), "200 ok", "and is served")

	offend("198.51.100.3", "/short")
	began := time.Now()
	within(2*time.Second, "198.51.100.3 is kept out", func() bool { return !reaches("198.51.100.3", 80) })
	time.Sleep(time.Until(began.Add(3 * time.Second)))
	within(2*time.Second, "198.51.100.3 is back after its penalty", func() bool { return reaches("198.51.100.3", 80) })

	must.Equal(t, fmt.Sprint(elements()), "[2001:db8:5::]", "all that is kept out seconds later")
	must.Equal(t, reaches("198.51.100.81", 80), true, "of whom a proxy has told")

	machine.run("nft", "flush", "ruleset")
	within(lease+time.Second, "it stands again when somebody has flushed all", func() bool { return !reaches("2001:db8:5::7", 80) })

	must.Succeed(t, caddy.Process.Kill())
	_ = caddy.Wait()
	startCaddy()
	must.Equal(t, reaches("2001:db8:5::7", 80), false, "while Caddy has started again")
	within(lease+time.Second, "who comes back to a Caddy that knows nothing any more", func() bool { return reaches("2001:db8:5::7", 80) })
	offend("2001:db8:5::7", "/login")
	within(3*time.Second, "2001:db8:5::7 is kept out by the new Caddy", func() bool { return !reaches("2001:db8:5::7", 80) })

	must.Succeed(t, wall.Process.Kill())
	_ = wall.Wait()
	within(lease+time.Second, "all is open after a kill -9", func() bool { return reaches("2001:db8:5::7", 80) })
	must.Equal(t, fmt.Sprint(elements()), "[]", "what is left")
	wall = startFirewall()
	within(2*time.Second, "a new one keeps out whom Caddy has listed", func() bool { return !reaches("2001:db8:5::7", 80) })
	must.Succeed(t, wall.Process.Signal(syscall.SIGTERM))
	must.Succeed(t, wall.Wait())
	must.Equal(t, machine.run("nft", "list", "ruleset"), "", "after its end")
	must.Equal(t, reaches("2001:db8:5::7", 80), true, "after its end")
}
