package main

import (
	"os"
	"path/filepath"
	"strings"
)

// tinyModule is the plugin that shows the cost of the interpreter alone.
const tinyModule = "weir.test/tiny"

const tinySource = `package tiny

import (
	"context"
	"net/http"
)

type Config struct {
	Kind string ` + "`json:\"kind,omitempty\"`" + `
}

func CreateConfig() *Config { return &Config{} }

type nothing struct{ next http.Handler }

func (h *nothing) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.next.ServeHTTP(w, r) }

type headers struct {
	next                                    http.Handler
	limit, remaining, reset, quota, policy []string
}

func (h *headers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header["X-Ratelimit-Limit"] = h.limit
	header["X-Ratelimit-Remaining"] = h.remaining
	header["X-Ratelimit-Reset"] = h.reset
	header["Ratelimit"] = h.quota
	header["Ratelimit-Policy"] = h.policy
	h.next.ServeHTTP(w, r)
}

func New(ctx context.Context, next http.Handler, config *Config, name string) (http.Handler, error) {
	if config.Kind == "headers" {
		return &headers{next, []string{"1000"}, []string{"999"}, []string{"1"}, []string{"\"weir-token-bucket\";r=999;t=1"}, []string{"\"weir-token-bucket\";q=1000;w=1"}}, nil
	}
	return &nothing{next}, nil
}
`

const tinyManifest = `displayName: tiny
type: middleware
import: ` + tinyModule + `
summary: Next to nothing.
testData: {kind: nothing}
`

// installPlugins installs Weir, by a link to the checkout, and the tiny plugin for a Traefik that runs in dir.
func installPlugins(dir string) error {
	checkout := os.Getenv("WEIR_PLUGIN") // another checkout, as for the tests of e2e
	if checkout == "" {
		checkout = ".."
	}
	checkout, err := filepath.Abs(checkout)
	if err != nil {
		return err
	}
	weir := filepath.Join(dir, "plugins-local", "src", filepath.FromSlash(weirModule))
	tiny := filepath.Join(dir, "plugins-local", "src", filepath.FromSlash(tinyModule))
	if err := os.MkdirAll(filepath.Dir(weir), 0o700); err != nil {
		return err
	}
	if err := os.Symlink(checkout, weir); err != nil {
		return err
	}
	if err := os.MkdirAll(tiny, 0o700); err != nil {
		return err
	}
	for name, text := range map[string]string{".traefik.yml": tinyManifest, "go.mod": "module " + tinyModule + "\n", "tiny.go": tinySource} {
		if err := os.WriteFile(filepath.Join(tiny, name), []byte(strings.TrimLeft(text, "\n")), 0o600); err != nil {
			return err
		}
	}
	return nil
}

const weirModule = "github.com/proxyweir/weir"
