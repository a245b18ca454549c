// Package xcaddy builds a Caddy with Weir as a new user does, with xcaddy in a separate folder, and uses it to limit the README's
// site and the example.
package xcaddy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

const module = "github.com/proxyweir/weir"

func TestACaddyThatXcaddyBuildsLimitsTheReadmesSiteAndTheExample(t *testing.T) {
	root, err := filepath.Abs("../..")
	must.Succeed(t, err)
	readme, example := read(t, root, "README.md"), read(t, root, "Caddyfile.example")
	command := regexp.MustCompile(`(?m)^(xcaddy build --with .* --replace .*)$`).FindStringSubmatch(readme)
	site := regexp.MustCompile("(?s)<!-- session: Caddyfile -->\n```caddyfile\n(.*?)```").FindStringSubmatch(readme)
	if command == nil || site == nil {
		t.Fatal("the README does not say how to build Caddy from a checkout, or has no site of a session")
	}
	path := build(t, root, strings.Fields(command[1]))
	if modules := run(t, exec.Command(path, "list-modules")); !strings.Contains(modules, "\nhttp.handlers.rate_limit\n") {
		t.Fatalf("the Caddy has no http.handlers.rate_limit:\n%s", modules)
	}
	t.Run("README", func(t *testing.T) {
		limits(t, path, "{\n\tadmin off\n\tpersist_config off\n}\n"+site[1], "localhost:8080")
	})
	t.Run("example", func(t *testing.T) {
		limits(t, path, strings.Replace(example, "admin localhost:2029", "admin off\n\tpersist_config off\n\tdefault_bind 127.0.0.1", 1), ":8080")
	})
}

func read(t *testing.T, elements ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elements...))
	must.Succeed(t, err)
	return string(data)
}

// run runs a command, and returns what it prints.
func run(t *testing.T, command *exec.Cmd) string {
	t.Helper()
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command.Args, " "), err, out)
	}
	return string(out)
}

// build runs the README's command in a clean folder next to a link to the checkout, and returns the path of the Caddy that it has
// built. The version of Caddy is this module's, since the newest one changes from week to week.
func build(t *testing.T, root string, args []string) string {
	t.Helper()
	folder := t.TempDir()
	xcaddy := filepath.Join(folder, "xcaddy")
	run(t, exec.Command("go", "build", "-o", xcaddy, "github.com/caddyserver/xcaddy/cmd/xcaddy"))
	must.Succeed(t, os.Symlink(root, filepath.Join(folder, "weir")))
	version := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "github.com/caddyserver/caddy/v2")
	version.Dir = root
	caddy := exec.Command(xcaddy, append([]string{"build", strings.TrimSpace(run(t, version))}, args[2:]...)...)
	caddy.Dir = folder
	// Go asks the repository whether the folder caddy is a separate module. Before the first release no public index has it, so an
	// empty repository answers.
	repository := filepath.Join(folder, "repository")
	run(t, exec.Command("git", "init", "-q", repository))
	run(t, exec.Command("git", "-C", repository, "-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "-q", "--allow-empty", "-m", "empty"))
	caddy.Env = append(os.Environ(), "XCADDY_GO_BUILD_FLAGS=-ldflags=-s", // and without other flags of xcaddy's, so that what was built for other tests is reused
		"GOPRIVATE="+module, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+repository+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+module)
	run(t, caddy)
	return filepath.Join(folder, "caddy")
}

// limits runs a site whose login page allows five requests a minute, and sends six.
func limits(t *testing.T, path, config, address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	free := listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(free)
	if strings.Count(config, address+" {") != 1 {
		t.Fatalf("the configuration has no site %s", address)
	}
	folder := t.TempDir()
	config = strings.Replace(config, address+" {", strings.Replace(address, "8080", port, 1)+" {", 1)
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "Caddyfile"), []byte(config), 0o600))
	caddy := exec.Command(path, "run")
	caddy.Dir = folder
	caddy.Env = append(os.Environ(), "XDG_DATA_HOME="+folder, "XDG_CONFIG_HOME="+folder)
	var log strings.Builder
	caddy.Stdout, caddy.Stderr = &log, &log
	must.Succeed(t, caddy.Start())
	ended := make(chan error, 1)
	go func() { ended <- caddy.Wait() }()
	defer func() {
		_ = caddy.Process.Kill()
		<-ended
	}()
	url := "http://localhost:" + port
	for {
		if answer, err := http.Get(url + "/up"); err == nil {
			_ = answer.Body.Close()
			break
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("Caddy has ended: %v\n%s", err, log.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	for try := 0; ; try++ {
		minute := time.Now().Truncate(time.Minute)
		got := ""
		for range 6 {
			got += fmt.Sprint(status(t, url+"/login"), " ")
		}
		if got == "200 200 200 200 200 429 " {
			return
		}
		// In windows of a minute, the sixth request may pass if a new window has begun: at most once, since six requests take less
		// than a minute.
		if try > 0 || time.Now().Truncate(time.Minute).Equal(minute) {
			t.Fatalf("statuses %s", got)
		}
	}
}

func status(t *testing.T, url string) int {
	t.Helper()
	answer, err := http.Get(url)
	must.Succeed(t, err)
	defer answer.Body.Close()
	if _, err = io.Copy(io.Discard, answer.Body); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode
}
