package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// arms are what stands in front of the service, as lines of a Caddyfile.
var arms = map[string]string{
	"none":           "",
	"cap":            "cap 48",
	"failsafe":       "failsafe 8 128 20",
	"failsafe 128":   "failsafe 8 128 128",
	"failsafe queue": "failsafe 8 128 20 queue",
	"failsafe fair":  "failsafe 8 128 20 fair",
	"guard":          "rate_limit {\n guard {\n max 128\n min 8\n }\n }",
}

// caddyfile is the configuration of a proxy: the lines of an arm before a service, and its metrics on another port.
const caddyfile = `{
	admin off
	auto_https off
	persist_config off
	log {
		output stderr
		level WARN
	}
}
http://%s {
	bind fd/3
	route {
		%s
		reverse_proxy %s
	}
}
http://%s {
	bind fd/4
	metrics
}
`

func configOf(arm, address, service, metrics string) ([]byte, error) {
	lines, ok := arms[arm]
	if !ok {
		return nil, fmt.Errorf("%q: there is no such arm", arm)
	}
	return fmt.Appendf(nil, caddyfile, address, lines, service, metrics), nil
}

// proxy is a Caddy in a process of its own.
type proxy struct {
	address, metrics string
	process          *exec.Cmd
	said             strings.Builder // to stderr
}

// caddyWord is the first argument with which this program is Caddy. The program is both, so that nothing must be built for it.
const caddyWord = "caddy"

// startProxy starts a Caddy with an arm before a service. It gets its sockets from here, so no port can be lost to others meanwhile, and no
// request comes too early.
func startProxy(folder, arm, service string) (*proxy, error) {
	p := &proxy{}
	var files []*os.File
	for _, to := range []*string{&p.address, &p.metrics} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		file, err := listener.(*net.TCPListener).File()
		if err != nil {
			return nil, err
		}
		defer file.Close()
		*to = listener.Addr().String()
		files = append(files, file)
	}
	config, err := configOf(arm, p.address, service, p.metrics)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(folder, "Caddyfile")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p.process = exec.Command(self, caddyWord, "run", "--config", file, "--adapter", "caddyfile")
	p.process.Env = append(os.Environ(), "XDG_DATA_HOME="+folder, "XDG_CONFIG_HOME="+folder, "GOMAXPROCS=1")
	p.process.ExtraFiles = files
	p.process.Stderr = &p.said
	return p, p.process.Start()
}

// stop ends the process, and returns an error if it had ended before, or ends badly.
func (p *proxy) stop() error {
	if err := p.process.Process.Signal(syscall.SIGTERM); err != nil {
		_ = p.process.Wait()
		return fmt.Errorf("caddy ended before its time: %s", p.said.String())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = p.process.Process.Kill() })
	defer stop()
	err := p.process.Wait()
	if ended := new(exec.ExitError); errors.As(err, &ended) {
		return fmt.Errorf("caddy: %w: %s", err, p.said.String())
	}
	return err
}
