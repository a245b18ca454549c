package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Hundreds of edits of a rule file, a third of them broken, while clients make some thousand requests a second: no request is
// lost, and no key's count. The plugin checks the file once a second, so the edits come in bursts, and it must see the last of each.
func TestRuleFileEditedHundredsOfTimesUnderLoad(t *testing.T) {
	t.Parallel()
	const (
		bursts  = 5
		edits   = 50 // in a burst
		highest = 2000
	)
	path := filepath.Join(t.TempDir(), "rules.json")
	text := func(limit int, version string) string {
		return fmt.Sprintf(`{"rules": [
			{"name": "counted", "match": {"path_prefixes": ["/counted"]}, "limit": "%d/366d", "algorithm": "sliding_window_log", "key": "path"},
			{"name": "version", "match": {"paths": ["/version"]}, "limit": "%s/366d", "enforcement": "hard", "key": "header:X-Probe"}
		]}`, limit, version)
	}
	ruleFile(t, path, text(100, "1000"))
	s := limited(t, "{rulesFile: "+path+", rulesInterval: 1s}")
	s.admit(1, "/version", "X-Probe", "a")

	counted := func(client, n int) (path, fields string) { return fmt.Sprintf("/counted/%d", (client+n)%4), "" }
	l := s.startFlood(8, 0, 14*time.Millisecond, counted)
	probes := 0
	for burst := range bursts {
		version := 2000 + burst
		for edit := range edits {
			if edit%3 == 2 {
				ruleFile(t, path, strings.Replace(text(1, "1"), `"limit"`, `"limt"`, 1+edit%2))
				continue
			}
			ruleFile(t, path, text(200+10*burst+edit, "3000"))
		}
		ruleFile(t, path, text(200+10*burst, strconv.Itoa(version)))
		eventually(t, "the last edit of a burst is in force", func() bool {
			probes++
			return s.do("/version", "X-Probe", strconv.Itoa(probes)).header.Get("X-RateLimit-Limit") == strconv.Itoa(version)
		})
	}
	ruleFile(t, path, text(highest/4, "9000"))
	eventually(t, "the last edit is in force", func() bool {
		probes++
		return s.do("/version", "X-Probe", strconv.Itoa(probes)).header.Get("X-RateLimit-Limit") == "9000"
	})
	rest := s.startFlood(8, 4*highest/8, 0, counted)
	rest.wait()
	l.stop()
	if l.lost+rest.lost > 0 {
		t.Errorf("of %d requests %d were lost: %q", l.requests()+rest.requests(), l.lost+rest.lost, append(l.losses, rest.losses...))
	}
	for i := range 4 {
		path := fmt.Sprintf("/counted/%d", i)
		s.reject(path)
		if n := upstream.reached(s.host(), path); n != highest/4 {
			t.Errorf("%s: %d requests were admitted, want %d", path, n, highest/4)
		}
	}
	t.Logf("%d edits, %d requests", bursts*(edits+1)+1, l.requests()+rest.requests())
}
