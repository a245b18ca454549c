package e2e

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/manual"
	"github.com/proxyweir/weir/tools/must"
)

// The tutorial's files, in a folder of their own and on other ports, do what the tutorial shows. The service in it is Python's, which answers POST with 501.
func TestTheTutorialOfTraefikDoesWhatItShows(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusNotImplemented)
		}
	}))
	defer service.Close()
	web, admin := freeAddr(), freeAddr()
	ports := strings.NewReplacer(`address: ":8080"`, `address: "`+web+`"`, "localhost:8080", web, "127.0.0.1:8081", admin, "http://127.0.0.1:3000", service.URL)
	dir, session, files := t.TempDir(), "", 0
	for _, s := range manual.Snippets(t, "docs/start-traefik.md") {
		switch {
		case s.Language == "yaml":
			name := []string{"traefik.yml", "dynamic.yml"}[files]
			files++
			must.Succeed(t, os.WriteFile(filepath.Join(dir, name), []byte(ports.Replace(s.Text)), 0o600))
		case s.Marker == "session":
			session = s.Text
		}
	}
	must.Equal(t, files, 2, "files in the tutorial")
	must.Succeed(t, installPlugin(dir, ".."))
	path, err := traefikProgram()
	must.Succeed(t, err)
	log, err := os.Create(filepath.Join(dir, "traefik.log"))
	must.Succeed(t, err)
	defer log.Close()
	program := exec.Command(path, "--configFile=traefik.yml")
	program.Dir, program.Stdout, program.Stderr, program.SysProcAttr = dir, log, log, endWithParent()
	must.Succeed(t, program.Start())
	defer func() {
		_ = program.Process.Kill()
		_ = program.Wait()
	}()
	eventually(t, "the tutorial's Traefik answers", func() bool {
		r, err := http.Get("http://" + web + "/")
		if err != nil {
			return false
		}
		_ = r.Body.Close()
		return r.StatusCode == http.StatusOK && r.Header.Get("X-Ratelimit-Limit") == "300"
	})
	command, want, _ := strings.Cut(strings.TrimPrefix(session, "$ "), "\n")
	output, err := exec.Command("bash", "-c", ports.Replace(command)).Output()
	must.Succeed(t, err)
	must.Equal(t, strings.TrimSpace(string(output)), strings.TrimSpace(want), "%s", command)
	must.Contain(t, manual.Page(t, "docs/start-traefik.md"), "http://127.0.0.1:8081/api/http/middlewares")
	r, err := http.Get("http://" + admin + "/api/http/middlewares")
	must.Succeed(t, err)
	middlewares, err := io.ReadAll(r.Body)
	must.Succeed(t, err)
	_ = r.Body.Close()
	must.Contain(t, string(middlewares), `"usedBy":["site@file"]`)
}
