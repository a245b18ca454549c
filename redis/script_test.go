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

var folder = flag.String("scripts", "", "write the scripts into this folder, each as Redis gets it")

// released are the scripts of the last release, by the SHA-1 of each. While a fleet changes from that to the next, nodes of both share the keys.
// So whoever changes a script, and the sum here, has made sure that each of the two understands what the other has written.
var released = map[string]string{
	"block":                       "b8d2242c09f00ea68d33cb150d0373646ef33dee",
	"carry":                       "b862548ca5c134aac9cfe57f629c09b80947a750",
	"fixed_window":                "855bd748aa171d2943ef56f95029c1ef486cf759",
	"fixed_window_line":           "3ea80aa23f54d778ded9c05b3aa33d4b87707bc5",
	"fleet":                       "0c858dcdd7d0017bddd80fc5f02984c0e4d9b734",
	"leaky_bucket":                "3e102c2dc8616514618ed59fd783296d35cbd015",
	"leaky_bucket_line":           "dba2fc149f82a37627b5006f400aad3d98833dc7",
	"lease":                       "d5eda2b67edca16377396961105f1d92af28e715",
	"mark":                        "5b6e5c96a0d5d8b6c27619abb599329f8ccbaa01",
	"nothing":                     "a1f69b9bbdca300f484bf7358a6a85eb88f25830",
	"overflow":                    "c126f63fb055d21cab97ecc5dd90f5ebc9ae8953",
	"refund":                      "f6acec8bfadc4cac9e614365b0e8e9db31601e04",
	"release":                     "84fdf95508657366e67f6aa9a4395765116f2d81",
	"renewal":                     "74fd24a5ab42673ff332264c3bd64607ea7e3919",
	"replicas":                    "4bb91ea3e5ea6721a4abd3f758dd9c980003cbcd",
	"reset":                       "446bb301eb8c3a024689b44c94b87aa521d17802",
	"settle":                      "77643c0d97dfa312b7bf8deb3162d6beae82b0d1",
	"several":                     "a30734d879ab5c3bf89af6813748f2c438abd26f",
	"several_line":                "11fa4b4c63dc80d384d1c647500e3f3589a0229f",
	"sliding_window_counter":      "745b7630a1f887a597b2bee055e569fb09b2b348",
	"sliding_window_counter_line": "70699ff45a8e206f5f8678467496ce4ac303843f",
	"sliding_window_log":          "001888c2fb74fea38cfb0c2aed76fecf1f81307e",
	"sliding_window_log_line":     "73123e55e0ac71aaad8e7bb3957304af83b022f6",
	"token_bucket":                "d5fe00861846bac2d129a1b056d37bfc86b490b7",
	"token_bucket_line":           "fd9814b831cb9960afba81ae128ba21e3169c53d",
}

func TestTheScriptsAreThoseOfTheLastRelease(t *testing.T) {
	if len(scripts) != len(released) {
		t.Errorf("%d scripts, want %d", len(scripts), len(released))
	}
	for _, s := range scripts {
		if s.SHA1 != released[s.name] {
			t.Errorf("%q: %q, // and not %q", s.name, s.SHA1, released[s.name])
		}
		if *folder != "" {
			if err := os.WriteFile(filepath.Join(*folder, s.name+".lua"), []byte(s.Source), 0o644); err != nil {
				t.Error(err)
			}
		}
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

// If an algorithm has no row, or no numbers in it, or a file lacks a part, the program panics when it starts. No other algorithm takes its place.
func TestAnAlgorithmWithoutItsRowOrAPartIsRefusedByName(t *testing.T) {
	for i, name := range core.AlgorithmNames {
		for lacks, row := range map[string]*algorithm{
			"row":     {name: "another", numbers: noNumbers},
			"numbers": {name: name},
		} {
			rows := append([]*algorithm{}, algorithms[1:]...)
			rows[i] = row
			if said := refusalOf(func() { tabulate(rows) }); !strings.Contains(said, name) || !strings.Contains(said, lacks) {
				t.Errorf("%s without %s: %q", name, lacks, said)
			}
		}
		for part, file := range map[string]string{"most": "several", "decide": "several_line", "refund": "refund"} {
			lacks := name + "." + part
			text := lua[lacks]
			delete(lua, lacks)
			if said := refusalOf(func() { newScript(file) }); !strings.Contains(said, lacks+",") || !strings.Contains(said, file+".lua") {
				t.Errorf("without %s: %q", lacks, said)
			}
			lua[lacks] = text
		}
	}
}

// refusalOf returns the message with which f panics; "" if it does not.
func refusalOf(f func()) (said string) {
	defer func() {
		if p := recover(); p != nil {
			said = fmt.Sprint(p)
		}
	}()
	f()
	return ""
}
