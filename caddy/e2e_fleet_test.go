package ratelimit_test

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// With asCaddy in its environment, this program is a Caddy with Weir.
const asCaddy = "WEIR_TEST_AS_CADDY"

func TestMain(m *testing.M) {
	if os.Getenv(asCaddy) != "" {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin) // it ends when the test has ended, in whatever way
			os.Exit(1)
		}()
		caddycmd.Main()
		return
	}
	os.Exit(m.Run())
}

// member is a Caddy of a fleet: a process of its own.
type member struct {
	*server
	config string
	cmd    *exec.Cmd
	done   chan struct{} // closed when the process has ended
	output string        // a file with what it wrote outside its log
}

// startMember starts a process with the given site, and waits until it answers.
func startMember(t *testing.T, site string) *member {
	t.Helper()
	return startMemberWith(t, "", site)
}

// startMemberWith is startMember with global options.
func startMemberWith(t *testing.T, global, site string) *member {
	t.Helper()
	dir := t.TempDir()
	s := &server{t: t, addr: freeAddr(t), dir: dir, logFile: filepath.Join(dir, "caddy.log")}
	s.client = s.newClient(nil)
	m := &member{server: s, config: filepath.Join(dir, "Caddyfile"), output: filepath.Join(dir, "output")}
	must.Succeed(t, os.WriteFile(m.config, []byte(s.fill("{\n"+globalOptions+global+"}\n:PORT {\n"+site+"\n}\n")), 0o600))
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		m.kill()
		for _, name := range []string{m.output, m.logFile} {
			if text, err := os.ReadFile(name); err != nil {
				t.Error(err)
			} else if strings.Contains(string(text), "panic") || strings.Contains(string(text), "DATA RACE") {
				t.Errorf("something went wrong:\n%s", text)
			}
		}
	})
	m.start()
	return m
}

// start starts the process.
func (m *member) start() {
	m.t.Helper()
	output, err := os.Create(m.output)
	must.Succeed(m.t, err)
	defer output.Close()
	m.cmd = exec.Command(os.Args[0], "run", "--config", m.config, "--adapter", "caddyfile")
	m.cmd.Dir = m.dir
	m.cmd.Env = append(os.Environ(), asCaddy+"=1", "XDG_CONFIG_HOME="+m.dir, "XDG_DATA_HOME="+m.dir)
	m.cmd.Stdout, m.cmd.Stderr = output, output
	if _, err := m.cmd.StdinPipe(); err != nil {
		m.t.Fatal(err)
	}
	must.Succeed(m.t, m.cmd.Start())
	m.done = make(chan struct{})
	go func() {
		_ = m.cmd.Wait()
		close(m.done)
	}()
	eventually(m.t, "a Caddy of the fleet answers", func() bool {
		select {
		case <-m.done:
			text, _ := os.ReadFile(m.output)
			m.t.Fatalf("a Caddy of the fleet has ended:\n%s", text)
		default:
		}
		r, err := m.once(m.client, "/up")
		return err == nil && r.status == http.StatusOK
	})
}

// kill ends the process at once. It does nothing if the process has ended.
func (m *member) kill() {
	_ = m.cmd.Process.Kill()
	<-m.done
}

// startFleet starts that many Caddys at a time.
func startFleet(t *testing.T, n int, site string) []*member {
	t.Helper()
	fleet := make([]*member, n)
	for i := range fleet {
		fleet[i] = startMember(t, site)
	}
	return fleet
}

// tally counts the outcomes of requests.
type tally struct{ admitted, rejected, lost atomic.Int64 }

// loadFleet makes requests from 32 clients at once, each to one member after the other. A request without an answer is lost. under
// is called with the number of requests so far.
func loadFleet(t *testing.T, fleet []*member, path string, each int, under func(n int64)) *tally {
	t.Helper()
	sum := new(tally)
	var requests atomic.Int64
	var clients sync.WaitGroup
	for i := range 32 {
		clients.Go(func() {
			for j := range each {
				m := fleet[(i+j)%len(fleet)]
				r, err := m.once(m.client, path)
				switch {
				case err != nil:
					sum.lost.Add(1)
				case r.status == http.StatusOK:
					sum.admitted.Add(1)
				case r.status == http.StatusTooManyRequests:
					sum.rejected.Add(1)
				default:
					t.Errorf("%s: status %d, want 200 or 429", path, r.status)
				}
				if n := requests.Add(1); under != nil {
					under(n)
				}
			}
		})
	}
	clients.Wait()
	return sum
}

// route returns a route of a site with one zone for all clients.
func route(name, lines, store string) string {
	return "route /" + name + " {\nrate_limit {\nzone " + name + " {\nkey everyone\n" + lines + "\n}\n" + store + "}\nrespond ok\n}\n"
}

const up = "respond /up ok\n"

func TestAFleetAdmitsExactlyTheLimitTogether(t *testing.T) {
	redis := redistest.Start(t)
	fleet := startFleet(t, 3, up+route("a", "limit 300/366d", storeAt(redis.Addr(), patiently)))
	sum := loadFleet(t, fleet, "/a", 20, nil)
	if sum.admitted.Load() != 300 || sum.lost.Load() != 0 {
		t.Errorf("%d of 640 requests were admitted and %d lost, want 300 and none", sum.admitted.Load(), sum.lost.Load())
	}
	for _, m := range fleet {
		m.said(0, saysNotYet, saysDown, saysOfRequest)
	}
	fleet[2].kill() // a new process in its place finds the counts
	fleet[2].start()
	fleet[2].reject("/a")
}

func TestAFleetLosesNoRequestWhenRedisIsKilledAndComesBackEmpty(t *testing.T) {
	redis := redistest.Start(t)
	const share = "timeout 20s\nread_timeout 20s\nnodes 3"
	fleet := startFleet(t, 3, up+route("a", "limit 300/366d", storeAt(redis.Addr(), share))+route("b", "limit 100/366d", storeAt(redis.Addr(), share)))
	kill, restart := sync.OnceFunc(redis.Kill), sync.OnceFunc(redis.Restart)
	sum := loadFleet(t, fleet, "/a", 100, func(n int64) {
		if n > 150 {
			kill()
		}
		if n > 2000 {
			restart()
		}
	})
	must.Equal(t, sum.lost.Load(), 0, "%d requests were lost", sum.lost.Load())
	// At most the limit in Redis before the fault, the shares in memory, and the limit in the empty Redis.
	if n := sum.admitted.Load(); n > 900 || n < 150 {
		t.Errorf("%d of 3200 requests were admitted, want from 150 to 900", n)
	}
	for _, m := range fleet {
		eventually(t, "each Caddy asks Redis again", func() bool { return len(m.logs(saysDown)) == len(m.logs(saysUpAgain)) })
		m.said(0, saysNotYet)
		// The client library's messages also go into the log.
		if output, err := os.ReadFile(m.output); err != nil || strings.Contains(string(output), "redis") {
			t.Errorf("%v: written to standard error: %s", err, output)
		}
	}
	sum = loadFleet(t, fleet, "/b", 10, nil)
	if sum.admitted.Load() != 100 || sum.lost.Load() != 0 {
		t.Errorf("%d requests were admitted and %d lost after that, want 100 and none", sum.admitted.Load(), sum.lost.Load())
	}
}
