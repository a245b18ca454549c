package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// caddy is a running Caddy with Weir: a process of its own.
type caddy struct {
	addr   string
	log    string // the file
	client *http.Client

	process *os.Process
}

// caddyProgram builds Caddy from this checkout, unless CADDY_BIN names one.
var caddyProgram = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("CADDY_BIN"); path != "" {
		return path, nil
	}
	path, err := filepath.Abs(filepath.Join("..", "bin", "caddy"))
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", path, "./cmd/caddy")
	build.Dir = ".."
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building Caddy: %w\n%s", err, text)
	}
	return path, nil
})

// startCaddy starts a Caddy with one site, and without its admin endpoint.
func startCaddy(t testing.TB, site string) *caddy {
	t.Helper()
	return startCaddyWith(t, "off", site)
}

// startCaddyWith starts a Caddy with one site and an admin endpoint at an address.
func startCaddyWith(t testing.TB, admin, site string) *caddy {
	t.Helper()
	return startCaddyWithGlobal(t, admin, "", site)
}

// startCaddyWithGlobal is startCaddyWith with further global options.
func startCaddyWithGlobal(t testing.TB, admin, global, site string) *caddy {
	t.Helper()
	addr := freeAddr()
	_, port, _ := net.SplitHostPort(addr)
	return runCaddy(t, addr, "/up", "admin "+admin+"\nauto_https off\n"+global, ":"+port+" {\n"+site+"\n}\n")
}

// runCaddy starts a Caddy with global options and sites, and waits until it answers a path at an address.
func runCaddy(t testing.TB, addr, path, global, sites string) *caddy {
	t.Helper()
	binary, err := caddyProgram()
	must.Succeed(t, err)
	return runProgram(t, binary, t.TempDir(), addr, path, global, sites)
}

// runProgram is runCaddy with another program, in a folder.
func runProgram(t testing.TB, binary, dir, addr, path, global, sites string) *caddy {
	t.Helper()
	c := &caddy{addr: addr, client: new(http.Client)}
	c.client.Transport = &http.Transport{MaxIdleConnsPerHost: 256}
	config := "{\npersist_config off\ndefault_bind 127.0.0.1\nstorage file_system " + dir + "\n" + global + "\n}\n" + sites
	file := filepath.Join(dir, "Caddyfile")
	must.Succeed(t, os.WriteFile(file, []byte(config), 0o600))
	output, err := os.Create(filepath.Join(dir, "caddy.log"))
	must.Succeed(t, err)
	defer output.Close()
	program := exec.Command(binary, "run", "--config", file, "--adapter", "caddyfile")
	program.Dir = dir
	program.Env = append(os.Environ(), "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir)
	program.Stdout, program.Stderr = output, output
	program.SysProcAttr = endWithParent()
	must.Succeed(t, program.Start())
	c.process = program.Process
	c.log = output.Name()
	t.Cleanup(func() {
		c.client.CloseIdleConnections()
		_ = program.Process.Kill()
		_ = program.Wait()
		if text, _ := os.ReadFile(output.Name()); strings.Contains(string(text), "panic") {
			t.Errorf("Caddy says: %s", text)
		}
	})
	up := await(func() bool {
		answer, err := c.client.Get("http://" + c.addr + path)
		if err != nil {
			return false
		}
		_ = answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	if !up {
		text, _ := os.ReadFile(output.Name())
		t.Fatalf("Caddy does not come up:\n%s", text)
	}
	return c
}

// try makes a request of "[METHOD ]path" with header fields in pairs, from any goroutine.
func (c *caddy) try(request string, fields ...string) (response, error) {
	return send(c.client, c.addr, request, fields...)
}
