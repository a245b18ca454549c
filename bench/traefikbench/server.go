package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/proxyweir/weir/bench/cputime"
)

// bench has what runs: Traefik, the service behind it, and Redis.
type bench struct {
	addresses map[string]string // of the scenarios' entry points
	admin     string            // the address of Traefik's API
	log       string            // the path of Traefik's log
	traefik   *process
	redis     *process // nil: no scenario needs it
	service   *http.Server
}

// static is Traefik's static configuration. %s are the entry points.
const static = `
global: {checkNewVersion: false, sendAnonymousUsage: false}
log: {level: ERROR}
api: {insecure: true, debug: true, dashboard: false}
ping: {}
experimental:
  localPlugins:
    weir: {moduleName: ` + weirModule + `}
    tiny: {moduleName: ` + tinyModule + `}
providers:
  file: {filename: dynamic.yml, watch: false}
entryPoints:
%s`

// startBench starts everything that the scenarios need.
func startBench(work string, list []scenario, cores int) (b *bench, err error) {
	program, err := traefikProgram()
	if err != nil {
		return nil, err
	}
	b = &bench{addresses: make(map[string]string), log: filepath.Join(work, "traefik.log")}
	defer func() {
		if err != nil {
			b.stop()
		}
	}()
	free, err := freeAddresses(len(list) + 2)
	if err != nil {
		return nil, err
	}
	redis := free[len(list)]
	b.admin = free[len(list)+1]
	service, err := b.startService()
	if err != nil {
		return nil, err
	}
	entryPoints := fmt.Sprintf("  traefik: {address: '%s'}\n", b.admin)
	for i, s := range list {
		b.addresses[s.name] = free[i]
		entryPoints += fmt.Sprintf("  %s: {address: '%s', forwardedHeaders: {insecure: %t}}\n", s.name, free[i], s.clients == forwarded)
		if s.redis && b.redis == nil {
			if b.redis, err = startRedis(work, redis); err != nil {
				return nil, err
			}
		}
	}
	if err := installPlugins(work); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"traefik.yml": fmt.Sprintf(static, entryPoints), "dynamic.yml": dynamic(list, service, redis)} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	traefik := onCores(cores, program, "--configFile=traefik.yml")
	traefik.Dir = work
	output, err := os.Create(b.log)
	if err != nil {
		return nil, err
	}
	defer output.Close()
	traefik.Stdout, traefik.Stderr = output, output
	if b.traefik, err = start(traefik); err != nil {
		return nil, err
	}
	err = b.traefik.await("Traefik", func() bool {
		answer, err := http.Get("http://" + b.admin + "/ping")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	if err != nil {
		return nil, fmt.Errorf("%w; its log ends with\n%s", err, b.logTail())
	}
	return b, nil
}

// stop stops what runs.
func (b *bench) stop() {
	b.traefik.stop()
	b.redis.stop()
	if b.service != nil {
		b.service.Close()
	}
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
		return "", fmt.Errorf("there is no Traefik to measure: run scripts/traefik, which finds or builds one, or set TRAEFIK_BIN (%w)", err)
	}
	return path, nil
}

// startService starts the service behind the routers, in this process.
func (b *bench) startService() (address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	b.service = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })}
	go b.service.Serve(listener)
	return listener.Addr().String(), nil
}

// startRedis starts a redis-server without persistence, on the cores of the load, since a fleet's Redis is on another machine.
func startRedis(work, address string) (*process, error) {
	_, port, _ := net.SplitHostPort(address)
	redis := exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", work)
	p, err := start(redis)
	if err != nil {
		return nil, fmt.Errorf("redis-server (apt-get install redis-server): %w", err)
	}
	err = p.await("redis-server", func() bool {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		c.Close()
		return true
	})
	if err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// version returns Traefik's version.
func (b *bench) version() (string, error) {
	answer, err := http.Get("http://" + b.admin + "/api/version")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	var v struct{ Version string }
	err = json.NewDecoder(answer.Body).Decode(&v)
	return v.Version, err
}

// expect makes requests until two answers in a row are those of the scenario. Until then Traefik may not have the router yet, or Weir no
// connection to Redis. The first answer of a limit that rejects is not that of the scenario.
func (b *bench) expect(s scenario) error {
	var failed error
	for range 200 {
		for range 2 {
			failed = b.try(s)
		}
		if failed == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("%w; Traefik's log ends with\n%s", failed, b.logTail())
}

// try makes one request.
func (b *bench) try(s scenario) error {
	l, err := dial(b.addresses[s.name], s)
	if err != nil {
		return err
	}
	defer l.close()
	c := l.workers[0][0]
	c.SetDeadline(time.Now().Add(5 * time.Second))
	return c.do(firstKey, s)
}

// profile writes a CPU profile of Traefik under a scenario's load, for at least a second.
func (b *bench) profile(ctx context.Context, s scenario, length time.Duration, file string) error {
	seconds := max(1, int(length.Round(time.Second).Seconds()))
	l, err := dial(b.addresses[s.name], s)
	if err != nil {
		return err
	}
	defer l.close()
	ctx, cancel := context.WithCancel(ctx)
	loaded := make(chan error, 1)
	go func() {
		_, _, err := l.run(ctx, time.Duration(seconds+30)*time.Second, 0)
		loaded <- err
	}()
	err = download(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", b.admin, seconds), file)
	cancel()
	if failed := <-loaded; !errors.Is(failed, context.Canceled) {
		err = errors.Join(err, failed)
	}
	return err
}

func download(url, file string) error {
	answer, err := http.Get(url)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, answer.Status, body)
	}
	return os.WriteFile(file, body, 0o644)
}

// logTail returns the end of Traefik's log.
func (b *bench) logTail() string {
	text, err := os.ReadFile(b.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

// cpu returns the CPU time that Traefik and Redis have used.
func (b *bench) cpu() (used [2]time.Duration, err error) {
	if used[0], err = b.traefik.cpu(); err != nil {
		return used, err
	}
	if b.redis != nil {
		used[1], err = b.redis.cpu()
	}
	return used, err
}

// process is a child of this one.
type process struct {
	cmd   *exec.Cmd
	ended chan error
}

func start(cmd *exec.Cmd) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, ended: make(chan error, 1)}
	go func() { p.ended <- cmd.Wait() }()
	return p, nil
}

// await waits until the process is up.
func (p *process) await(name string, up func() bool) error {
	for range 300 {
		if up() {
			return nil
		}
		select {
		case err := <-p.ended:
			p.ended <- err
			return fmt.Errorf("%s ended at once: %v", name, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("%s does not come up", name)
}

func (p *process) stop() {
	if p == nil {
		return
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		p.cmd.Process.Kill()
		<-p.ended
	}
}

// cpu returns the CPU time that the process has used.
func (p *process) cpu() (time.Duration, error) { return cputime.Of(p.cmd.Process.Pid) }

// onCores is exec.Command on the first cores, or on any if cores is 0.
func onCores(cores int, name string, args ...string) *exec.Cmd {
	if cores == 0 {
		return exec.Command(name, args...)
	}
	return exec.Command("taskset", append([]string{"-c", "0-" + strconv.Itoa(cores-1), name}, args...)...)
}

// leaveCores moves this process, and those that it starts, off the first cores.
func leaveCores(cores int) error {
	if cores == 0 {
		return nil
	}
	last := runtime.NumCPU() - 1
	set := exec.Command("taskset", "--all-tasks", "--cpu-list", "--pid", fmt.Sprintf("%d-%d", cores, last), strconv.Itoa(os.Getpid()))
	if text, err := set.CombinedOutput(); err != nil {
		return fmt.Errorf("taskset (of util-linux; -cores 0 goes without): %w: %s", err, text)
	}
	runtime.GOMAXPROCS(last + 1 - cores)
	return nil
}

// freeAddresses returns addresses on loopback that nobody listens on.
func freeAddresses(count int) ([]string, error) {
	var list []string
	for range count {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close() // after all are found, so that none is found twice
		list = append(list, listener.Addr().String())
	}
	return list, nil
}
