// Command waiting measures the memory in Caddy of requests that wait under on_limit delay, compared with open connections without a request.
//
// It builds Caddy with Weir (cmd/weir), opens HTTP/1 connections to it, and then makes a request on each, which waits. After each step it reads
// the process's resident memory from /proc, so it runs on Linux only. Run it in the bench module's folder.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const caddyfile = `{
	admin off
	persist_config off
	auto_https off
}
http://%s {
	rate_limit {
		zone queue {
			key everyone
			limit 1/1h
			algorithm token_bucket
			burst 1
			on_limit delay
			max_delay 1h
			max_waiting 1000000
		}
	}
	respond ok
}
`

func main() {
	n := flag.Int("n", 9000, "how many connections; each takes a file of this process, and one of Caddy")
	flag.Parse()
	log.SetFlags(0)
	work, err := os.MkdirTemp("", "waiting")
	if err != nil {
		log.Fatal(err)
	}
	err = run(work, *n)
	os.RemoveAll(work)
	if err != nil {
		log.Fatal(err)
	}
}

func run(work string, n int) error {
	binary := filepath.Join(work, "caddy")
	build := exec.Command("go", "build", "-o", binary, "./cmd/weir")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building Caddy (run this in the bench module's folder): %w", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := l.Addr().String()
	l.Close()
	config := filepath.Join(work, "Caddyfile")
	// As many departures an hour as there are requests, so that most requests wait for longer than the program runs.
	text := strings.Replace(fmt.Sprintf(caddyfile, address), "limit 1/1h", "limit "+strconv.Itoa(n+100)+"/1h", 1)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	caddy := exec.Command(binary, "run", "--config", config, "--adapter", "caddyfile")
	if err := caddy.Start(); err != nil {
		return err
	}
	defer func() {
		_ = caddy.Process.Kill()
		_ = caddy.Wait()
	}()
	var first net.Conn
	for try := 0; ; try++ {
		if first, err = net.Dial("tcp", address); err == nil {
			break
		}
		if try > 1000 {
			return fmt.Errorf("no answer from Caddy: %w", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	defer first.Close()
	if err := ask(first); err != nil {
		return err
	}
	if _, err := bufio.NewReader(first).ReadString('\n'); err != nil {
		return err
	}
	report(caddy.Process.Pid, "idle", 0, 0)
	base := resident(caddy.Process.Pid)
	conns := make([]net.Conn, 0, n)
	for range n {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer c.Close()
		conns = append(conns, c)
	}
	settle(caddy.Process.Pid)
	open := resident(caddy.Process.Pid)
	report(caddy.Process.Pid, "with open connections", open-base, n)
	for _, c := range conns {
		if err := ask(c); err != nil {
			return err
		}
	}
	settle(caddy.Process.Pid)
	report(caddy.Process.Pid, "with requests that wait, beside the open connections", resident(caddy.Process.Pid)-open, n)
	return nil
}

func ask(c net.Conn) error {
	_, err := fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: waiting\r\nAccept: */*\r\n\r\n")
	return err
}

// settle waits until the memory stops growing.
func settle(pid int) {
	for before := int64(-1); ; {
		now := resident(pid)
		if now == before {
			return
		}
		before = now
		time.Sleep(500 * time.Millisecond)
	}
}

func report(pid int, what string, bytes int64, n int) {
	each := ""
	if n > 0 {
		each = fmt.Sprintf(", %d bytes each of %d", bytes/int64(n), n)
	}
	fmt.Printf("%-55s %6.1f MB%s\n", what, float64(resident(pid))/1e6, each)
}

// resident returns the resident memory of a process, in bytes.
func resident(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		log.Fatal(err)
	}
	for _, line := range strings.Split(string(status), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				log.Fatal(err)
			}
			return n * 1024
		}
	}
	log.Fatal("no VmRSS")
	return 0
}
