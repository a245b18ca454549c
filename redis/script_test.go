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
	"block":                       "5c2ecf6216182961afcda8db3c9935b6900e3ddf",
	"carry":                       "661e0bb42689eb9cb53163d2b077b52ae60b9d94",
	"credit":                      "ef7e07949f2dfd2a6bb252f5d575fd00f28b13b6",
	"exceptions":                  "9c8b836169fa68694cf2b8492ff381d41167058f",
	"eventual":                    "09e85c33eb8ada1656e9a44a0747c51cb21c0899",
	"fixed_window":                "7a127cc83e4b91f2184e7e5795db555cdcf00503",
	"fixed_window_line":           "9cf057e0144f28624d525a4d85049f1a07c7e0f8",
	"fleet":                       "0c858dcdd7d0017bddd80fc5f02984c0e4d9b734",
	"leaky_bucket":                "2b18aa9d00cf5ce12b24e1e9b65a30e4b61167fa",
	"leaky_bucket_line":           "abe8bf1af1eba31975b60be7d6b6c9d4d4800887",
	"lease":                       "d7cc02f26b82777735b35fe8c093c84fc07536f2",
	"mark":                        "5b6e5c96a0d5d8b6c27619abb599329f8ccbaa01",
	"nothing":                     "a1f69b9bbdca300f484bf7358a6a85eb88f25830",
	"overflow":                    "b84920777f934f2f0f1f429614d8e65642fcb37d",
	"refund":                      "fb9ee51bf63eb5b759e7351d8113df605679fa8c",
	"release":                     "84fdf95508657366e67f6aa9a4395765116f2d81",
	"renewal":                     "74fd24a5ab42673ff332264c3bd64607ea7e3919",
	"reset":                       "20ce5971c4fe6d599e66ca12a3c3801e3c7addf6",
	"settle":                      "06a8f70d38488b2e9ffb90f1364cb9aa591d2dd2",
	"several":                     "9df8b0f8f2ca7450b0b67e249db9ddacc779f845",
	"several_line":                "f561b077dd10a7d514f253448c6fc1ac87a65ea0",
	"sliding_window_counter":      "1705e0edd96aabf5395ffc4aa1cd9464de964c43",
	"sliding_window_counter_line": "2fcde9a1954347376f309dc3bc974f2fd4cffdfa",
	"sliding_window_log":          "365f68332c4f3c3464a4b515a2fdabc82b3bc743",
	"sliding_window_log_line":     "1b4632f5c77e431954c404002d459207fb3e2db9",
	"token_bucket":                "4c33753b4f0c5f9be7dfcf7e7209c1131907dd30",
	"token_bucket_line":           "2977c26562ca885a1576e3e1d24f1410abccc772",
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
		for part, file := range map[string]string{"most": "several", "decide": "several_line", "refund": "refund", "credit": "credit", "settle": "lease", "window": "lease", "lend": "lease"} {
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
