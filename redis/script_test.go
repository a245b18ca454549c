package redis

import (
	"crypto/sha1"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core/rate"
)

var folder = flag.String("scripts", "", "write the scripts into this folder, each as Redis gets it")

// released are the scripts of the last release, by the SHA-1 of each. While a fleet changes from that to the next, nodes of both share the keys.
// So whoever changes a script, and the sum here, has made sure that each of the two understands what the other has written.
var released = map[string]string{
	"block":                       "521309a0312ee293fb82fad4fe19d11b85af4448",
	"carry":                       "661e0bb42689eb9cb53163d2b077b52ae60b9d94",
	"eventual":                    "09e85c33eb8ada1656e9a44a0747c51cb21c0899",
	"fixed_window":                "813ff2f2e8d492e4ed80eb195513ece8ed2d46d8",
	"fixed_window_line":           "f111cda68d6ed78d709caa669cf0dd81ed516844",
	"fleet":                       "0c858dcdd7d0017bddd80fc5f02984c0e4d9b734",
	"leaky_bucket":                "24c4729ae47d03bc85a9afd642d49ba61fb38407",
	"leaky_bucket_line":           "ff6a7a6fa0709b8f3afea53855b0db8969c973d1",
	"lease":                       "d5eda2b67edca16377396961105f1d92af28e715",
	"mark":                        "5b6e5c96a0d5d8b6c27619abb599329f8ccbaa01",
	"nothing":                     "a1f69b9bbdca300f484bf7358a6a85eb88f25830",
	"overflow":                    "a9c9ffe8b5c62c68e179239386c8b02d7b55d259",
	"refund":                      "f6acec8bfadc4cac9e614365b0e8e9db31601e04",
	"release":                     "84fdf95508657366e67f6aa9a4395765116f2d81",
	"renewal":                     "74fd24a5ab42673ff332264c3bd64607ea7e3919",
	"reset":                       "6f485e08b8744708cd277b7c856f0c76b80cd0e2",
	"settle":                      "bf13c3026a47e3259574b2f6b63dceeb34fbbb20",
	"several":                     "49adc35ad0a7467cddbaa4c62c4439f251554fa8",
	"several_line":                "2d351b44156cc37b18f90388b40e253a8f596dae",
	"sliding_window_counter":      "6c05795224ce60e538e5a3068ec1c36ff331917b",
	"sliding_window_counter_line": "8829a5fb8e72d4a706f258c376cf8701287c0a5c",
	"sliding_window_log":          "145d7c72fdba5e6b1281a452a7136a9e5a315693",
	"sliding_window_log_line":     "82b1096851dd036477794313e6f1e68f7a3b0bc2",
	"token_bucket":                "5d13a840e906b53b1ffafea225955f5b94138012",
	"token_bucket_line":           "e3f64aa90cb059093224c9397cb7c3542d8f751e",
}

func TestTheScriptsAreThoseOfTheLastRelease(t *testing.T) {
	known := 0
	for _, s := range scripts {
		if sum := fmt.Sprintf("%x", sha1.Sum([]byte(withoutNew(s.Source)))); strings.HasPrefix(s.name, newAlgorithm) {
			known-- // the last release has none
		} else if sum != released[s.name] {
			t.Errorf("%q: %q, // and not %q", s.name, sum, released[s.name])
		}
		known++
		if *folder != "" {
			if err := os.WriteFile(filepath.Join(*folder, s.name+".lua"), []byte(s.Source), 0o644); err != nil {
				t.Error(err)
			}
		}
	}
	if known != len(released) {
		t.Errorf("%d scripts, want %d", known, len(released))
	}
}

// newAlgorithm is the algorithm that the last release does not have. It is the last of a choice.
const newAlgorithm = "sliding_window_segments"

// withoutNew returns a script without the branches of that algorithm.
func withoutNew(source string) string {
	for {
		before, rest, found := strings.Cut(source, fmt.Sprintf("\nelseif algorithm == %d then -- %s\n", int(rate.SlidingWindowSegments), newAlgorithm))
		if !found {
			return source
		}
		source = before + rest[strings.Index(rest, "\nelse\n\terror('no algorithm"):]
	}
}

// thatCount has the names of all algorithms but that of requests in flight.
func thatCount() map[rate.Algorithm]string {
	all := make(map[rate.Algorithm]string)
	for a := rate.TokenBucket; a.String() != ""; a++ {
		if a != rate.InFlight {
			all[a] = a.Row().Name
		}
	}
	return all
}

// Each of core's algorithms has a row with its number, and scripts.
func TestEveryAlgorithmHasItsRow(t *testing.T) {
	for i, name := range thatCount() {
		if a := algorithms[i]; a == nil || a.name != name || scriptsOfOne[i] == nil || scriptsOfOneLine[i] == nil {
			t.Errorf("%s: row %v", name, a)
		}
	}
	concurrency, err := rate.NewConcurrency(3)
	if err != nil || algorithmOf(concurrency).name != "concurrency" {
		t.Errorf("of requests in flight: row %v, %v", algorithmOf(concurrency), err)
	}
}

// If an algorithm has no row, or no numbers in it, or a file lacks a part, the program panics when it starts. No other algorithm takes its place.
func TestAnAlgorithmWithoutItsRowOrAPartIsRefusedByName(t *testing.T) {
	for i, name := range thatCount() {
		for lacks, row := range map[string]*algorithm{
			"row":     {name: "another", numbers: noNumbers},
			"numbers": {name: name},
		} {
			rows := append([]*algorithm{}, algorithms[1:]...)
			rows[i-1] = row
			if said := refusalOf(func() { tabulate(rows) }); !strings.Contains(said, name) || !strings.Contains(said, lacks) {
				t.Errorf("%s without %s: %q", name, lacks, said)
			}
		}
		for part, file := range map[string]string{"most": "several", "decide": "several_line", "refund": "refund", "settle": "lease", "window": "lease", "lend": "lease"} {
			lacks := name + "." + part
			if _, ok := lua[lacks]; !ok && algorithms[i].kind&kindQueue > 0 {
				continue
			}
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
