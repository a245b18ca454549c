package command

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/manual"
	"github.com/proxyweir/weir/tools/must"
)

func TestTheManualNamesEveryCommand(t *testing.T) {
	table := manual.Section(t, manual.Page(t, "../docs/command.md"), "## The commands")
	for _, c := range Root().Commands() {
		if !strings.Contains(table, "`"+c.Name()+"`") && c.Name() != "version" && c.Name() != "help" && c.Name() != "completion" {
			t.Errorf("docs/command.md has no %s", c.Name())
		}
	}
	for _, m := range regexp.MustCompile("(?m)\\| `([^`]*)` \\|$").FindAllStringSubmatch(table, -1) {
		words := strings.Fields(m[1])
		found, rest, err := Root().Find(words)
		must.Succeed(t, err)
		var flags []string
		for _, word := range rest {
			if name, isFlag := strings.CutPrefix(word, "--"); isFlag && found.Flags().Lookup(name) == nil {
				flags = append(flags, word)
			}
		}
		must.Equal(t, len(flags), 0, "%s: no flags of it: %v", m[1], flags)
	}
}

func TestTheSessionOfTheManualIsWhatTheCommandsSay(t *testing.T) {
	server := redistest.Start(t)
	middleware, played := "", 0
	for _, s := range manual.Snippets(t, "../docs/command.md") {
		switch s.Marker {
		case "in: weir":
			middleware = strings.ReplaceAll("\n"+s.Text, "\n", "\n          ")
		case "weir":
			p := newProxy(t, "http:\n  middlewares:\n    api:\n      plugin:\n        weir:"+strings.ReplaceAll(middleware, "localhost:6379", server.Addr()))
			for range 3 {
				must.Equal(t, p.get("POST", "/login", "192.0.2.7"), 404)
			}
			before, err := os.Getwd()
			must.Succeed(t, err)
			t.Chdir(filepath.Dir(p.file))
			var said strings.Builder
			for _, line := range strings.Split(strings.TrimSpace(s.Text), "\n") {
				if command, is := strings.CutPrefix(line, "$ weir "); is {
					out, problems, err := weir(strings.Fields(command)...)
					must.Succeed(t, err)
					fmt.Fprintf(&said, "%s\n%s%s", line, out, problems)
					played++
				}
			}
			t.Chdir(before)
			waits := regexp.MustCompile(`rejects for [0-9.hms]+`)
			must.Equal(t, plain(waits.ReplaceAllString(said.String(), "")), plain(waits.ReplaceAllString(strings.TrimSpace(s.Text)+"\n", "")), s.Place)
		}
	}
	must.Equal(t, played, 3, "commands")
}
