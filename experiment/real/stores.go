package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// startRedis starts a Redis on an address that it has had before, if it is killed in between.
func startRedis(folder, address string) (*program, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return start(folder, "redis", exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"))
}

// redisAnswers waits until Redis takes connections.
func redisAnswers(p *program, address string) error {
	for range 200 {
		if c, err := net.Dial("tcp", address); err == nil {
			return c.Close()
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("redis does not come up: %s", p.said())
}

// slowdown is how much later Redis answers while it is slow.
const slowdown = 20 * time.Millisecond

// slowLine passes connections on to a server, and delays what it answers while it is slow.
type slowLine struct {
	listener net.Listener
	target   string
	slow     atomic.Bool
	links    sync.Map // of net.Conn
}

func newSlowLine(target string) (*slowLine, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &slowLine{listener: listener, target: target}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go l.pass(client)
		}
	}()
	return l, nil
}

func (l *slowLine) address() string { return l.listener.Addr().String() }

func (l *slowLine) stop() {
	_ = l.listener.Close()
	l.links.Range(func(c, _ any) bool {
		_ = c.(net.Conn).Close()
		return true
	})
}

// piece is what a server has said at a time, and may be passed on later.
type piece struct {
	bytes []byte
	due   time.Time
}

func (l *slowLine) pass(client net.Conn) {
	server, err := net.Dial("tcp", l.target)
	if err != nil {
		_ = client.Close()
		return
	}
	for _, c := range []net.Conn{client, server} {
		l.links.Store(c, true)
		defer l.links.Delete(c)
		defer c.Close()
	}
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	pieces := make(chan piece, 1024)
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 16<<10)
			n, err := server.Read(buffer)
			if n > 0 {
				p := piece{buffer[:n], time.Now()}
				if l.slow.Load() {
					p.due = p.due.Add(slowdown)
				}
				pieces <- p
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		if _, err := client.Write(p.bytes); err != nil {
			_ = server.Close()
		}
	}
}

// startPrometheus starts a Prometheus that scrapes each second, with a history in OpenMetrics; "" is none.
func startPrometheus(folder, history string, targets map[string][]string) (*program, string, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, "", err
	}
	if history != "" {
		file := filepath.Join(folder, "history")
		if err := os.WriteFile(file, []byte(history), 0o600); err != nil {
			return nil, "", err
		}
		make := exec.Command("promtool", "tsdb", "create-blocks-from", "--max-block-duration=240h", "openmetrics", "--quiet", file, filepath.Join(folder, "metrics"))
		var said bytes.Buffer
		make.Stdout, make.Stderr = &said, &said
		if err := asUsual(make.Run); err != nil {
			return nil, "", fmt.Errorf("promtool: %w: %s", err, said.Bytes())
		}
	}
	var config strings.Builder
	config.WriteString("global: {scrape_interval: 1s, evaluation_interval: 1s}\nscrape_configs:\n")
	for _, job := range []string{"load", "proxy", "service"} {
		fmt.Fprintf(&config, "  - {job_name: %s, static_configs: [{targets: [\"%s\"]}]}\n", job, strings.Join(targets[job], `", "`))
	}
	if err := os.WriteFile(filepath.Join(folder, "prometheus.yml"), []byte(config.String()), 0o600); err != nil {
		return nil, "", err
	}
	p, err := start(folder, "prometheus", exec.Command("prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=metrics", "--storage.tsdb.retention.time=10y",
		"--web.listen-address="+address, "--log.level=warn"))
	return p, address, err
}
