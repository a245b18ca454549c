package redistest

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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

// process is a running redis-server, or one that has ended.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
}

// startProcess starts redis-server in a folder. Its output goes into the file log there.
func startProcess(t testing.TB, dir string, env []string, args ...string) (*process, error) {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatal("redis-server is not installed: apt-get install redis-server")
	}
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

// freePort returns a port that nobody listens on. It is below the ports that systems give to outgoing connections, so none of these takes it
// while a server is down. Another process may still take it. It returns a port once only: a client may go on for a while with the address of a
// server that was stopped.
func freePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		port := 10_000 + rand.IntN(22_000)
		if _, given := givenPorts.LoadOrStore(port, true); given {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("no free port found from 10000 to 31999")
	return 0
}
