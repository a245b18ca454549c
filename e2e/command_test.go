package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// weirProgram builds weir from this checkout.
var weirProgram = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs(filepath.Join("..", "bin", "weir"))
	if err != nil {
		return "", err
	}
	build := exec.Command("go", "build", "-o", path, "./cmd/weir")
	build.Dir = ".."
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building weir: %w\n%s", err, text)
	}
	return path, nil
})

// weir runs the command on the site's configuration, and returns what it prints, with single spaces.
func (s *site) weir(args ...string) string {
	s.t.Helper()
	program, err := weirProgram()
	must.Succeed(s.t, err)
	out, err := exec.Command(program, append(args, "--traefik", s.file())...).CombinedOutput()
	must.Succeed(s.t, err)
	return regexp.MustCompile(` +`).ReplaceAllString(string(out), " ")
}

func TestTheCommandSeesAndChangesWhatATraefikCountsInRedis(t *testing.T) {
	server, metrics := redistest.Start(t), freeAddr()
	s := newSite(t)
	s.limit("login", "{limit: 3/366d, algorithm: fixed_window, key: 'header:X-Key', store: "+inRedis(server.Addr())+", metrics: {address: '"+metrics+"'}}")
	s.route("/", "login")
	s.apply()
	rule := s.label("login")
	must.Contain(t, s.weir("check"), "middleware "+s.qualified("login")+": 1 rule")
	s.exactly(3, "/", "X-Key", "ann")
	explain := []string{"explain", "--url", "http://" + s.host() + "/", "--ip", "127.0.0.1", "-H", "X-Key: ann"}
	must.Contain(t, s.weir(explain...), " 3/366d fixed_window 0 rejects for ")
	must.Contain(t, s.weir("top", "--rule", rule), " 3/366d fixed_window 0 100 %\n")

	must.Equal(t, s.weir("reset", "--rule", rule, "--key", "ann"), "1 key\n")
	must.Contain(t, s.weir(explain...), " 3/366d fixed_window 3 allows\nverdict: allow\n")
	eventually(t, "Traefik has forgotten, too", func() bool { return s.do("/", "X-Key", "ann").status == 200 })
	must.Equal(t, s.weir("block", "--rule", rule, "--key", "eve", "--for", "1h"), "done\n")
	must.Contain(t, s.weir("list"), rule+" …#", "header fields may be secrets")
	eventually(t, "Traefik rejects who is blocked", func() bool { return s.do("/", "X-Key", "eve").status == 429 })

	program, err := weirProgram()
	must.Succeed(t, err)
	watch := exec.Command(program, "watch", "--metrics", "http://"+metrics+"/metrics", "--interval", "100ms")
	out, err := watch.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, watch.Start())
	lines := bufio.NewScanner(out)
	rejects := regexp.MustCompile(regexp.QuoteMeta(rule) + `: [0-9.]+ allowed/s, [1-9][0-9.]* rejected/s`)
	for seen := false; !seen; seen = rejects.MatchString(lines.Text()) {
		s.reject("/", "X-Key", "eve")
		if !lines.Scan() {
			t.Fatal("watch has ended by itself")
		}
	}
	must.Succeed(t, watch.Process.Signal(os.Interrupt))
	for lines.Scan() && strings.TrimSpace(lines.Text()) != "" { // the rest
	}
	must.Succeed(t, watch.Wait())
}
