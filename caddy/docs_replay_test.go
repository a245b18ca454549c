package ratelimit

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
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

// Every field of the JSON is in the schema, in its place, and every field of the schema is in the JSON, unless it is omitted when it is empty.
func TestAReplaysJSONIsWhatTheSchemaSays(t *testing.T) {
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
	var s replaySchema
	must.Succeed(t, json.Unmarshal([]byte(manual.Page(t, "docs/replay.schema.json")), &s))
	seen := make(map[string]bool)
	s.check(t, &s, "", report, seen)
	for name, at := range s.Defs {
		for _, field := range at.Required {
			if !seen["#/$defs/"+name+"."+field] {
				t.Errorf("nothing has the field %s of %s", field, name)
			}
		}
	}
}

// replaySchema is what the test reads of a JSON Schema.
type replaySchema struct {
	Ref        string `json:"$ref"`
	Required   []string
	Properties map[string]*replaySchema
	Items      *replaySchema
	Defs       map[string]*replaySchema `json:"$defs"`
}

// check holds a value to the schema, whose definitions are those of root, and notes the fields that it has.
func (s *replaySchema) check(t *testing.T, root *replaySchema, place string, value any, seen map[string]bool) {
	t.Helper()
	if s.Ref != "" {
		place = s.Ref
		s = root.Defs[strings.TrimPrefix(s.Ref, "#/$defs/")]
	}
	switch value := value.(type) {
	case map[string]any:
		for _, field := range s.Required {
			if _, has := value[field]; !has {
				t.Errorf("%s: the field %s is missing", place, field)
			}
		}
		for field, member := range value {
			seen[place+"."+field] = true
			if s.Properties[field] == nil {
				t.Errorf("%s: the field %s is not in the schema", place, field)
				continue
			}
			s.Properties[field].check(t, root, place+"."+field, member, seen)
		}
	case []any:
		for _, item := range value {
			s.Items.check(t, root, place, item, seen)
		}
	}
}
