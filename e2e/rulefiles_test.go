package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// ruleFile writes a rule file in one step, as an editor does, and returns its path.
func ruleFile(t testing.TB, path, text string) string {
	t.Helper()
	draft := path + ".draft"
	must.Succeed(t, os.WriteFile(draft, []byte(text), 0o600))
	must.Succeed(t, os.Rename(draft, path))
	return path
}

func TestRuleFileLimitsAndIsReadAgain(t *testing.T) {
	path := ruleFile(t, filepath.Join(t.TempDir(), "rules.json"), `{"rules": [{"name": "a", "limit": "3/366d", "key": "header:X-User"}]}`)
	s := limited(t, "{rulesFile: "+path+", rulesInterval: 1s}")
	s.exactly(3, "/", "X-User", "a")
	s.admit(2, "/", "X-User", "b")

	// Counters survive an edit.
	ruleFile(t, path, `{"rules": [{"name": "a", "limit": "5/366d", "key": "header:X-User"}]}`)
	eventually(t, "the edit is in force", func() bool { return s.do("/", "X-User", "x").header.Get("X-RateLimit-Limit") == "5" })
	s.exactly(2, "/", "X-User", "a")
	s.exactly(3, "/", "X-User", "b")

	// A broken edit changes nothing. It is logged once, with line and column and what would be accepted.
	ruleFile(t, path, "{\"rules\": [\n  {\"name\": \"a\", \"limit\": \"9/0s\", \"key\": \"header:X-User\"}\n]}")
	says := path + `:2:26: rule "a": limit "9/0s": the period must be from 1ms to 366d`
	eventually(t, "the log says what is wrong", func() bool { return strings.Contains(strings.Join(s.errors("limit"), "\n"), says) })
	s.reject("/", "X-User", "a")
	s.exactly(5, "/", "X-User", "c")

	// Traefik's own reload while the file is broken changes nothing either, even if the middleware has changed.
	s.limit("limit", "{rulesFile: "+path+", rulesInterval: 1s, message: 'Slow down, please.'}")
	s.apply()
	if r := s.reject("/", "X-User", "c"); r.body != "Slow down, please.\n" {
		t.Errorf("body %q, want the message", r.body)
	}

	must.Succeed(t, os.Remove(path))
	eventually(t, "the log says that the file is gone", func() bool {
		return strings.Contains(strings.Join(s.errors("limit"), "\n"), path+": no such file or directory")
	})
	s.reject("/", "X-User", "c")
	ruleFile(t, path, `{"rules": [{"name": "a", "limit": "6/366d", "key": "header:X-User"}]}`)
	eventually(t, "the file is in force again", func() bool { return s.do("/", "X-User", "c").status == http.StatusOK })
	s.reject("/", "X-User", "c")
	if n := strings.Count(strings.Join(s.errors("limit"), "\n"), says); n > 2 { // of the previous middleware, and of the changed one
		t.Errorf("the log says %d times what is wrong", n)
	}
}

// Traefik's file provider cannot carry a list in a list. If a later version can, the manual can say so.
func TestRuleFilesDescriptorsAsListsInAListAreRefusedByTraefik(t *testing.T) {
	s := newSite(t)
	s.limit("lists", "{rulesFile: x.json, descriptors: [[{key: a, source: path}]]}")
	s.route("/", "lists")
	s.write(s.version.Add(1))
	eventually(t, "Traefik says that it cannot read the file", func() bool {
		for _, e := range s.log() {
			if strings.Contains(e.raw, "unsupported simple value type: slice") {
				return true
			}
		}
		return false
	})
	s.middlewares = nil // so that other tests' sites can be read
	s.routers = nil
	s.apply()
}
