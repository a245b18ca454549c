package e2e

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// `make demo` starts the example, its page and some traffic, and prints where they are; when it ends, they end.
func TestMakeDemoShowsAPageOnWhichSomethingHappens(t *testing.T) {
	path, err := caddyProgram()
	must.Succeed(t, err)
	example, err := os.ReadFile("../Caddyfile.example")
	must.Succeed(t, err)
	site, admin, page := freeAddr(), freeAddr(), freeAddr()
	text := strings.NewReplacer("admin localhost:2029", "admin "+admin+"\n\tpersist_config off\n\tdefault_bind 127.0.0.1", ":8080 {", "http://"+site+" {").Replace(string(example))
	config := filepath.Join(t.TempDir(), "Caddyfile")
	must.Succeed(t, os.WriteFile(config, []byte(text), 0o600))
	program := exec.Command("../scripts/run", "demo")
	program.Env = append(os.Environ(), "CADDY_BIN="+path, "CONFIG="+config, "SITE="+site, "ADMIN="+admin, "PAGE="+page)
	program.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output, err := program.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, program.Start())
	ended := false
	end := func() {
		if !ended {
			ended = true
			_ = syscall.Kill(-program.Process.Pid, syscall.SIGINT) // the effect of Ctrl-C
			_ = program.Wait()
		}
	}
	defer end()
	says := ""
	for lines := bufio.NewScanner(output); lines.Scan() && !strings.Contains(says, "Ctrl-C"); {
		says += lines.Text() + "\n"
	}
	for _, want := range []string{"http://" + site + "/", "http://" + page + "/", config} {
		must.Contain(t, says, want, "it does not say")
	}
	body := func(url string) string {
		answer, err := http.Get(url)
		if err != nil {
			return ""
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return string(text)
	}
	eventually(t, "the page", func() bool { return strings.Contains(body("http://"+page+"/rate_limit/"), "<title>") })
	eventually(t, "requests of the demo, some of them rejected", func() bool {
		counted := body("http://" + admin + "/metrics")
		return regexp.MustCompile(`\{outcome="allowed",rule="everyone"\} [1-9]`).MatchString(counted) &&
			regexp.MustCompile(`\{outcome="rejected",rule="login-all.client_ip"\} [1-9]`).MatchString(counted)
	})
	end()
	eventually(t, "all of it to end", func() bool { return body("http://"+page+"/rate_limit/") == "" && body("http://"+site+"/") == "" })
}
