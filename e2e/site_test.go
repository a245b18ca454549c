package e2e

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// site is a test's part of a Traefik's dynamic configuration: its own host in its own file, with routers, middlewares and a service
// whose names begin with the site's. So tests that share a Traefik do not affect each other.
type site struct {
	*traefik
	t           testing.TB
	client      *http.Client
	name        string
	middlewares []middleware
	routers     []router
	service     string // of the routers; default: the upstream
	logFrom     int64  // how long the log was when the site was made
}

type middleware struct{ name, config string }

type router struct {
	path        string
	middlewares []string
}

var sites atomic.Int64

// newSite returns an empty site.
func (tr *traefik) newSite(t testing.TB) *site {
	t.Helper()
	s := &site{traefik: tr, t: t, client: tr.client, name: fmt.Sprintf("s%d", sites.Add(1)), logFrom: tr.logSize()}
	t.Cleanup(func() {
		upstream.handle(s.host(), nil)
		if err := os.Remove(s.file()); err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
		s.checkCalm(t, s.logFrom)
	})
	return s
}

// newSite returns a site of the Traefik that tests share.
func newSite(t testing.TB) *site {
	t.Helper()
	return sharedTraefik(t).newSite(t)
}

// limited returns a site with one middleware for every path.
func limited(t testing.TB, config string) *site {
	t.Helper()
	s := newSite(t)
	s.limit("limit", config)
	s.route("/", "limit")
	s.apply()
	return s
}

// limit sets a middleware to the plugin with a configuration, in YAML.
func (s *site) limit(name, config string) {
	s.middleware(name, "plugin:\n  weir:\n"+indent(config, "    "))
}

// middleware sets a middleware, of any type, in YAML.
func (s *site) middleware(name, config string) {
	i := slices.IndexFunc(s.middlewares, func(m middleware) bool { return m.name == name })
	if i < 0 {
		i = len(s.middlewares)
		s.middlewares = append(s.middlewares, middleware{})
	}
	s.middlewares[i] = middleware{name, config}
}

// route sets the middlewares of a path and everything below it.
func (s *site) route(path string, middlewares ...string) {
	i := slices.IndexFunc(s.routers, func(r router) bool { return r.path == path })
	if i < 0 {
		i = len(s.routers)
		s.routers = append(s.routers, router{})
	}
	s.routers[i] = router{path, middlewares}
}

// unroute removes a path's router.
func (s *site) unroute(path string) {
	s.routers = slices.DeleteFunc(s.routers, func(r router) bool { return r.path == path })
}

func (s *site) host() string { return s.name + ".test" }

func (s *site) file() string { return filepath.Join(s.dynamic, s.name+".yml") }

// qualified returns the name of a middleware in Traefik.
func (s *site) qualified(middleware string) string { return s.name + "-" + middleware + "@file" }

// apply gives Traefik the site's current configuration, and waits until the entry point serves it.
func (s *site) apply() {
	s.t.Helper()
	version := s.version.Add(1)
	s.write(version)
	eventually(s.t, "Traefik has applied a configuration", func() bool { return s.applied(version) })
}

// write writes the site's configuration with a version number.
func (s *site) write(version int64) {
	s.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "http:\n  services:\n    %s:\n      loadBalancer: {servers: [{url: %q}]}\n", s.name, upstream.url)
	fmt.Fprintf(&b, "  routers:\n    %s-version:\n      rule: Host(`%s`)\n      service: ping@internal\n", s.name, s.versionHost(version))
	for i, r := range s.routers {
		fmt.Fprintf(&b, "    %s-%d:\n      rule: Host(`%s`) && PathPrefix(`%s`)\n      entryPoints: [web]\n      service: %s\n", s.name, i, s.host(), r.path, cmp.Or(s.service, s.name))
		if len(r.middlewares) > 0 {
			fmt.Fprintf(&b, "      middlewares: [%s-%s]\n", s.name, strings.Join(r.middlewares, ", "+s.name+"-"))
		}
	}
	if len(s.middlewares) > 0 {
		fmt.Fprintf(&b, "  middlewares:\n")
	}
	for _, m := range s.middlewares {
		fmt.Fprintf(&b, "    %s-%s:\n%s", s.name, m.name, indent(m.config, "      "))
	}
	s.publish(s.file(), b.String())
}

// publish writes a file of the dynamic configuration in one step.
func (s *site) publish(file, text string) {
	s.t.Helper()
	draft := filepath.Join(s.dir, s.name+".draft")
	must.Succeed(s.t, os.WriteFile(draft, []byte(text), 0o600))
	must.Succeed(s.t, os.Rename(draft, file))
}

// applied reports whether the entry point serves a version of the configuration.
func (s *site) applied(version int64) bool {
	r, err := send(s.client, s.versionHost(version), "/")
	return err == nil && r.status == http.StatusOK
}

// versionHost returns a host that only that version of the configuration serves.
func (s *site) versionHost(version int64) string { return fmt.Sprintf("%s.version%d", s.name, version) }

// log returns what Traefik has logged since the site was made; with some text, only lines that have it.
func (s *site) log(with ...string) []entry { return s.logSince(s.logFrom, with...) }

// errors returns the errors that Traefik has logged about one of the site's middlewares.
func (s *site) errors(middleware string) []string {
	var list []string
	for _, e := range s.log(s.qualified(middleware)) {
		if e.Level == "error" {
			list = append(list, strings.TrimSpace(e.Message+" "+e.Error))
		}
	}
	return list
}

// do makes a request of "[METHOD ]path" with header fields in pairs.
func (s *site) do(request string, fields ...string) response {
	s.t.Helper()
	r, err := s.try(request, fields...)
	must.Succeed(s.t, err)
	return r
}

// try is do for any goroutine.
func (s *site) try(request string, fields ...string) (response, error) {
	return send(s.client, s.host(), request, fields...)
}

// admit makes n requests that must be admitted, and returns the last answer.
func (s *site) admit(n int, request string, fields ...string) (r response) {
	s.t.Helper()
	for i := range n {
		if r = s.do(request, fields...); r.status != http.StatusOK {
			s.t.Fatalf("%s %q, request %d of %d: status %d, want 200 (%s)", request, fields, i+1, n, r.status, strings.TrimSpace(r.body))
		}
	}
	return r
}

// reject makes a request that must be rejected.
func (s *site) reject(request string, fields ...string) response {
	s.t.Helper()
	r := s.do(request, fields...)
	if r.status != http.StatusTooManyRequests {
		s.t.Fatalf("%s %q: status %d, want 429 (%v); Traefik's log since the test began:\n%s", request, fields, r.status, r.header, strings.Join(s.linesSince(s.logFrom), ""))
	}
	return r
}

// exactly makes n requests that must be admitted, and one that must be rejected.
func (s *site) exactly(n int, request string, fields ...string) {
	s.t.Helper()
	s.admit(n, request, fields...)
	s.reject(request, fields...)
}

// from returns the same site for a client with another loopback address.
func (s *site) from(ip string) *site {
	other := *s
	other.client = s.newClient(&net.TCPAddr{IP: net.ParseIP(ip)})
	s.t.Cleanup(other.client.CloseIdleConnections)
	return &other
}

// overHTTP2 returns the same site for a client that speaks HTTP/2, without TLS.
func (s *site) overHTTP2() *site {
	other := *s
	other.client = s.newClient(nil)
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	other.client.Transport.(*http.Transport).Protocols = protocols
	s.t.Cleanup(other.client.CloseIdleConnections)
	return &other
}

// indent replaces the margin of a text, which is that of its first line, with another. Each further tab becomes two spaces.
func indent(text, margin string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	first := len(lines[0]) - len(strings.TrimLeft(lines[0], "\t "))
	var b strings.Builder
	for _, line := range lines {
		rest := strings.TrimLeft(line, "\t")
		if rest == "" {
			continue
		}
		b.WriteString(margin)
		b.WriteString(strings.Repeat("  ", max(0, len(line)-len(rest)-first)))
		b.WriteString(rest)
		b.WriteByte('\n')
	}
	return b.String()
}
