package ratelimit

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/manual"
	"github.com/proxyweir/weir/tools/must"
)

const replayPage = "docs/replay.md"

var writeReplays = flag.Bool("replays", false, "write what the sessions of docs/replay.md answer into the page")

// playReplay plays a session of the page in a folder with its rule files and its log, and returns it with the actual answers.
func playReplay(t *testing.T, folder, session string) string {
	t.Helper()
	played := ""
	for _, line := range strings.Split(session, "\n") {
		command, isCommand := strings.CutPrefix(line, "$ caddy ")
		if !isCommand {
			continue
		}
		cmd := exec.Command(os.Args[0], strings.Fields(command)...)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "WEIR_TEST_AS_CADDY=1", "XDG_CONFIG_HOME="+folder, "XDG_DATA_HOME="+folder) // see TestMain
		stdin, err := cmd.StdinPipe()                                                                              // the command ends when it is closed
		must.Succeed(t, err)
		answer, err := cmd.Output()
		_ = stdin.Close()
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		played += line + "\n" + string(answer)
	}
	return played
}

func replayFolder(t *testing.T) string {
	t.Helper()
	folder := writeRuleFiles(t, replayPage)
	for _, name := range []string{"access.log.gz", "pages.log.gz"} {
		log, err := os.ReadFile("../replay/testdata/" + name)
		must.Succeed(t, err)
		must.Succeed(t, os.WriteFile(filepath.Join(folder, name), log, 0o600))
	}
	return folder
}

// The page's sessions have the command's actual answers. `go test ./caddy -run Replays -replays` writes them.
func TestReplaysOnThePageAreWhatTheCommandAnswers(t *testing.T) {
	folder := replayFolder(t)
	page := manual.Page(t, replayPage)
	sessions := 0
	for _, s := range manual.Snippets(t, replayPage) {
		if s.Language != "console" {
			continue
		}
		if s.Marker != "replay" {
			t.Errorf("%s: is not marked as a replay", s.Place)
			continue
		}
		sessions++
		played := playReplay(t, folder, s.Text)
		if *writeReplays {
			page = strings.Replace(page, "```console\n"+s.Text+"```", "```console\n"+played+"```", 1)
			continue
		}
		if played != s.Text {
			t.Errorf("%s: the page shows\n%s\nand the command answers\n%s", s.Place, s.Text, played)
		}
	}
	if sessions < 2 {
		t.Errorf("only %d sessions are there", sessions)
	}
	if *writeReplays {
		if err := os.WriteFile("../"+replayPage, []byte(page), 0o644); err != nil { //nolint:gosec // a page for all
			t.Fatal(err)
		}
	}
}

// Every field of the JSON is on the page, and every field on the page is in the JSON, unless it is omitted when it is empty.
func TestTheFieldsOfAReplaysJSONAreOnThePage(t *testing.T) {
	folder := replayFolder(t)
	more := `rules: [{name: api, limit: 2/1m, candidate: {limit: 1/1m}}, {name: cookie, key: "cookie:s", limit: 1/1m}]`
	must.Succeed(t, os.WriteFile(filepath.Join(folder, "more.yaml"), []byte(more), 0o600))
	log, err := os.OpenFile(filepath.Join(folder, "plain.log"), os.O_CREATE|os.O_WRONLY, 0o600)
	must.Succeed(t, err)
	_, _ = log.WriteString("rubbish\n" + `{"ts":1795255300,"status":200,"request":{"method":"GET","uri":"/","client_ip":"192.0.2.1","headers":{"Cookie":["REDACTED"]}}}` + "\n")
	_ = log.Close()
	answer := playReplay(t, folder, "$ caddy rate-limit replay --rules more.yaml --candidate limits.yaml --suggest --json access.log.gz plain.log\n")
	_, answer, _ = strings.Cut(answer, "\n")
	var report any
	must.Succeed(t, json.Unmarshal([]byte(answer), &report))
	var fields []string
	fieldsIn(report, &fields)
	_, table, _ := strings.Cut(manual.Page(t, replayPage), "\n## JSON\n")
	onPage := make(map[string]bool)
	for _, word := range regexp.MustCompile("`([a-z_0-9]+)`").FindAllStringSubmatch(table, -1) {
		onPage[word[1]] = true
	}
	for _, field := range fields {
		if !onPage[field] {
			t.Errorf("%s is not on the page", field)
		}
		delete(onPage, field)
	}
	for _, word := range []string{"combined", "common", "concurrency", "not_logged", "redacted", "never_seen", "ended_early", "burst", "note", "inexact", "one_client_in", "unseen_note"} { // values, and fields that are omitted here
		delete(onPage, word)
	}
	for word := range onPage {
		t.Errorf("%s is on the page, and not in the JSON", word)
	}
}

// fieldsIn collects the names of all members.
func fieldsIn(value any, into *[]string) {
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			if !slices.Contains(*into, name) {
				*into = append(*into, name)
			}
			fieldsIn(member, into)
		}
	case []any:
		for _, item := range value {
			fieldsIn(item, into)
		}
	}
}
