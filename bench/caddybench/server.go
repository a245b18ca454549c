package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/proxyweir/weir/bench/cputime"
)

// server is a running Caddy.
type server struct {
	address string
	process *exec.Cmd
	ended   chan error
}

// start starts a Caddy with that configuration, on one core, and waits until it accepts connections.
func start(binary, caddyfile, file string) (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := listener.Addr().String()
	listener.Close()
	if err := os.WriteFile(file, []byte(fmt.Sprintf(caddyfile, address)), 0o600); err != nil {
		return nil, err
	}
	s := &server{address: address, ended: make(chan error, 1)}
	s.process = onCore(0, binary, "run", "--config", file, "--adapter", "caddyfile")
	s.process.Env = append(os.Environ(), "GOMAXPROCS=1")
	if err := s.process.Start(); err != nil {
		return nil, err
	}
	go func() { s.ended <- s.process.Wait() }()
	for range 100 {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return s, nil
		}
		select {
		case err := <-s.ended:
			return nil, fmt.Errorf("it ended at once (%v); its configuration was\n%s", err, caddyfile)
		case <-time.After(100 * time.Millisecond):
		}
	}
	s.stop()
	return nil, fmt.Errorf("it does not listen on %s", address)
}

// expect makes two requests. The answer to the second must have that status.
func (s *server) expect(status int) error {
	got := 0
	for range 2 {
		request, err := http.NewRequest("GET", "http://"+s.address+"/", nil)
		if err != nil {
			return err
		}
		request.Header.Set(keyHeader, "none of the load's")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		response.Body.Close()
		got = response.StatusCode
	}
	if got != status {
		return fmt.Errorf("status %d where it should be %d", got, status)
	}
	return nil
}

// cpu returns the CPU time that the process has used.
func (s *server) cpu() (time.Duration, error) { return cputime.Of(s.process.Process.Pid) }

func (s *server) stop() {
	s.process.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(10 * time.Second):
		s.process.Process.Kill()
		<-s.ended
	}
}

// onCore is exec.Command on one core, if there are several, and taskset is installed.
func onCore(core int, name string, args ...string) *exec.Cmd {
	if taskset, err := exec.LookPath("taskset"); err == nil && runtime.NumCPU() > core {
		return exec.Command(taskset, append([]string{"-c", strconv.Itoa(core), name}, args...)...)
	}
	return exec.Command(name, args...)
}

// The addresses of the benchmark's Redis and upstream.
const (
	redisAddress    = "127.0.0.1:17398"
	upstreamAddress = "127.0.0.1:17397"
)

// startRedis starts a redis-server without persistence, on the core of the load, since a fleet's Redis is on another machine.
func startRedis() (stop func(), err error) {
	return startRedisAt(redisAddress, "--save", "", "--appendonly", "no")
}

// startRedisAt starts a redis-server on that core.
func startRedisAt(address string, args ...string) (stop func(), err error) {
	_, port, _ := strings.Cut(address, ":")
	stop, err = startBeside(address, "redis-server", append([]string{"--bind", "127.0.0.1", "--port", port}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("redis-server (apt-get install redis-server): %w", err)
	}
	return stop, nil
}

// startUpstream starts a Caddy that answers all requests, on the core of the load.
func startUpstream(binary, file string) (stop func(), err error) {
	config := "{\n\tadmin off\n\tpersist_config off\n\tauto_https off\n}\nhttp://" + upstreamAddress + " {\n\trespond \"ok\"\n}\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	return startBeside(upstreamAddress, binary, "run", "--config", file, "--adapter", "caddyfile")
}

// startBeside starts a server on the core of the load, and waits until it accepts connections.
func startBeside(address, name string, args ...string) (stop func(), err error) {
	server := onCore(1, name, args...)
	if err := server.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		server.Process.Kill()
		server.Wait()
	}
	for range 100 {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			return stop, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	stop()
	return nil, fmt.Errorf("%s does not listen on %s", name, address)
}
