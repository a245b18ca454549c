package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// pause is the time between two checks of a wait.
const pause = 5 * time.Millisecond

// grace is how long a server may take to end by itself.
const grace = time.Second

// process is a server that runs, or one that has ended.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// program is the server that the tests start, and the first number of its version.
type program struct {
	path  string
	major int
}

// theProgram finds what WEIR_REDIS_SERVER names, or redis-server on the PATH.
var theProgram = sync.OnceValues(func() (program, error) {
	name := os.Getenv("WEIR_REDIS_SERVER")
	if name == "" {
		name = "redis-server"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return program{}, fmt.Errorf("%s is not installed: apt-get install redis-server", name)
	}
	out, err := exec.Command(path, "--version").Output()
	version := regexp.MustCompile(` v=(\d+)\.`).FindSubmatch(out)
	if version == nil {
		return program{}, fmt.Errorf("%s --version says %q (%v), and names no version", path, out, err)
	}
	major, err := strconv.Atoi(string(version[1]))
	return program{path, major}, err
})

// Major returns the first number of the server's version, and 0 if there is no server.
func Major() int {
	p, _ := theProgram()
	return p.major
}

// startProcess starts the server in a folder. Its output goes into the file log there.
func startProcess(path, dir string, env []string, args ...string) (*process, error) {
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.SysProcAttr = endWithParent()
	if err = cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd, make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

func (p *process) signal(s os.Signal) error {
	return p.cmd.Process.Signal(s)
}

// stop ends the process, paused or not, by force if it does not end by itself.
func (p *process) stop() {
	if errors.Is(p.signal(syscall.SIGTERM), os.ErrProcessDone) {
		<-p.done
		return
	}
	_ = p.signal(sigcont)
	select {
	case <-p.done:
	case <-time.After(grace):
		p.kill()
	}
}

// kill ends the process by force.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// givenPorts has the ports that freePort has returned, or found in use.
var givenPorts sync.Map

// busOffset is how far the port of a node's cluster bus is above its other port, by default and in Redis before 7.0 always.
const busOffset = 10_000

// freePort returns a port that nobody listens on. It and that of a cluster bus are below the ports that systems give to outgoing connections,
// so none of these takes it while a server is down. Another process may still take it. It returns a port once only: a client may go on for a while with the address of a
// server that was stopped.
func freePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 10_000 + rand.IntN(busOffset)
		if _, given := givenPorts.LoadOrStore(port, true); given {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port found from 10000 to 19999")
	return 0
}
