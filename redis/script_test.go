package redis

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core"
)

var update = flag.Bool("update", false, "write the scripts to testdata; read the difference before you commit it")

// goldens returns the folder of the golden files. The interpreter runs tests in the module's folder.
func goldens() string {
	if _, err := os.Stat("go.mod"); err == nil {
		return filepath.Join("redis", "testdata")
	}
	return "testdata"
}

// Each script is a file in testdata, whole, for people to read.
func TestTheGoldenFilesAreTheScripts(t *testing.T) {
	files := make(map[string]bool)
	for _, s := range scripts {
		path := filepath.Join(goldens(), s.name+".lua")
		files[path] = true
		if *update {
			if err := os.WriteFile(path, []byte(s.Source), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("%v; go test ./redis -run Golden -update writes it", err)
		} else if string(want) != s.Source {
			t.Errorf("%s is not the script that Redis gets; go test ./redis -run Golden -update writes what it is now", path)
		}
	}
	there, err := filepath.Glob(filepath.Join(goldens(), "*.lua"))
	if err != nil || len(there) != len(files) || len(files) < 20 {
		t.Errorf("%d files, %d scripts, %v; want a file for each, and no other", len(there), len(files), err)
	}
}

// Each of core's algorithms has a row with its number, and scripts.
func TestEveryAlgorithmHasItsRow(t *testing.T) {
	for i, name := range core.AlgorithmNames {
		if a := algorithms[i+1]; a == nil || a.name != name || scriptsOfOne[i+1] == nil || scriptsOfOneLine[i+1] == nil {
			t.Errorf("%s: row %v", name, a)
		}
	}
	concurrency, err := core.NewConcurrency(3)
	if err != nil || algorithmOf(concurrency).name != "concurrency" {
		t.Errorf("of requests in flight: row %v, %v", algorithmOf(concurrency), err)
	}
}

// If an algorithm has no row, or its row lacks a part, the program panics when it starts. No other algorithm takes its place.
func TestAnAlgorithmWithoutItsRowOrAPartIsRefusedByName(t *testing.T) {
	for i, name := range core.AlgorithmNames {
		for _, lacks := range []string{"row", "read", "most", "decide", "refund", "numbers"} {
			row := *algorithms[i+1]
			switch lacks {
			case "row":
				row.name = "another"
			case "read":
				row.read = ""
			case "most":
				row.most = ""
			case "decide":
				row.decide = ""
			case "refund":
				row.refund = ""
			case "numbers":
				row.numbers = nil
			}
			rows := append([]*algorithm{}, algorithms[1:]...)
			rows[i] = &row
			if said := refusalOf(rows); !strings.Contains(said, name) || !strings.Contains(said, lacks) {
				t.Errorf("%s without %s: %q", name, lacks, said)
			}
		}
	}
}

// refusalOf returns the message with which tabulate panics for the rows; "" if it does not.
func refusalOf(rows []*algorithm) (said string) {
	defer func() {
		if p := recover(); p != nil {
			said = fmt.Sprint(p)
		}
	}()
	tabulate(rows)
	return ""
}
