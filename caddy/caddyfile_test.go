package ratelimit

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	_ "github.com/caddyserver/caddy/v2/modules/standard" // the adapter and the matchers

	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

var update = flag.Bool("update", false, "write what the golden files of testdata/adapt come to now; read the difference before you commit it")

const (
	goldenSeparator = "\n----------\n"
	markOfError     = "# here" // the comment on the line that an error must name
)

// golden is a file of testdata/adapt: a Caddyfile, ten dashes, and the JSON that it adapts to or the error that refuses it. Most errors are in the table
// refused instead.
type golden struct {
	path, caddyfile, want string
}

func (g golden) isError() bool {
	return strings.HasPrefix(filepath.Base(g.path), "error_")
}

func readGolden(t testing.TB) []golden {
	t.Helper()
	paths, err := filepath.Glob("testdata/adapt/*.caddyfiletest")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	files := make([]golden, len(paths))
	for i, path := range paths {
		data, err := os.ReadFile(path)
		must.Succeed(t, err)
		text := strings.ReplaceAll(string(data), "\r\n", "\n")
		config, want, found := strings.Cut(text, goldenSeparator)
		if !found {
			t.Fatalf("%s: has no line of ten dashes", path)
		}
		files[i] = golden{path, config + "\n", strings.TrimSpace(want)}
	}
	return append(files, refusedCaddyfiles()...)
}

// adapt turns a Caddyfile into JSON as `caddy adapt` does.
func adaptText(config string) ([]byte, []caddyconfig.Warning, error) {
	return caddyconfig.GetAdapter("caddyfile").Adapt([]byte(config), nil)
}

// TestCaddyfileComesToItsGoldenJSONOrError compares every subdirective and every error message with the files of testdata/adapt.
func TestCaddyfileComesToItsGoldenJSONOrError(t *testing.T) {
	underrace.OneGoroutine(t)
	for _, g := range readGolden(t) {
		t.Run(strings.TrimSuffix(filepath.Base(g.path), ".caddyfiletest"), func(t *testing.T) {
			adapted, _, err := adaptText(g.caddyfile)
			got := ""
			if err != nil {
				got = err.Error()
			} else {
				got = indented(t, adapted)
			}
			if *update && strings.HasSuffix(g.path, ".caddyfiletest") {
				text := strings.TrimSuffix(g.caddyfile, "\n") + goldenSeparator + got + "\n"
				if err := os.WriteFile(g.path, []byte(text), 0o644); err != nil { //nolint:gosec // for all to read
					t.Fatal(err)
				}
				g.want = got
			}
			if g.isError() != (err != nil) {
				t.Errorf("the file's name says error: %v, but it came to\n%s", g.isError(), got)
			}
			if got != g.want {
				t.Errorf("got\n%s\nwant\n%s", got, g.want)
			}
		})
	}
}

// TestCaddyfileErrorNamesFileLineAndZone does not trust the line numbers in the golden files: a comment marks the line that the
// error must name.
func TestCaddyfileErrorNamesFileLineAndZone(t *testing.T) {
	underrace.OneGoroutine(t)
	for _, g := range readGolden(t) {
		if !g.isError() {
			continue
		}
		t.Run(filepath.Base(g.path), func(t *testing.T) {
			before, after, marked := strings.Cut(g.caddyfile, markOfError)
			if !marked || strings.Contains(after, markOfError) {
				t.Fatalf("exactly one line must be marked with %q", markOfError)
			}
			line := strings.Count(before, "\n") + 1
			_, _, err := adaptText(g.caddyfile)
			if err == nil {
				t.Fatal("there is no error")
			}
			if at := fmt.Sprintf("Caddyfile:%d", line); !containsPlace(err.Error(), at) {
				t.Errorf("does not say %s: %v", at, err)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("has several lines: %v", err)
			}
			if zone := zoneOf(before); zone != "" && !strings.Contains(err.Error(), fmt.Sprintf("zone %q", zone)) {
				t.Errorf("does not say zone %q: %v", zone, err)
			}
		})
	}
}

// containsPlace reports whether an error has a place, and not only as the beginning of a longer number.
func containsPlace(text, place string) bool {
	i := strings.Index(text, place)
	return i >= 0 && (i+len(place) == len(text) || strings.IndexByte("0123456789", text[i+len(place)]) < 0)
}

// zoneOf returns the zone in whose block a text ends, or "".
func zoneOf(text string) string {
	zone := ""
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case strings.HasSuffix(line, "\n") && len(words) == 3 && words[0] == "zone" && words[2] == "{":
			zone = words[1]
		case strings.HasPrefix(line, "\t\t}"):
			zone = ""
		}
	}
	return zone
}

// TestGoldenCaddyfilesAreFormatted checks that `caddy fmt` leaves the accepted ones unchanged.
func TestGoldenCaddyfilesAreFormatted(t *testing.T) {
	underrace.OneGoroutine(t)
	for _, g := range readGolden(t) {
		if g.isError() {
			continue
		}
		if _, warnings, err := adaptText(g.caddyfile); err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v %v", g.path, warnings, err)
		}
	}
}

// TestGoldenCaddyfilesProvision loads the JSON of the accepted ones, as `caddy validate` does.
func TestGoldenCaddyfilesProvision(t *testing.T) {
	for _, g := range readGolden(t) {
		if g.isError() {
			continue
		}
		adapted, _, err := adaptText(g.caddyfile)
		if err != nil {
			t.Errorf("%s: %v", g.path, err)
			continue
		}
		if log, err := validate(t, string(adapted)); err != nil || strings.Contains(log, `"level":"warn"`) {
			t.Errorf("%s: %v\n%s", g.path, err, log)
		}
	}
}

// The words of the Caddyfile's blocks.
var (
	deferWords    = syntax.WordsOf(new(syntax.Defer).Settings(""))
	handlerWords  = syntax.WordsOf(new(Handler).settings())
	redisWords    = syntax.WordsOf(new(stores.RedisStore).Settings())
	redisTLSWords = syntax.WordsOf(new(stores.ClientTLS).Settings(""))
)

// TestEveryWordOfTheCaddyfileHasAGoldenFile fails when a word is added without one.
func TestEveryWordOfTheCaddyfileHasAGoldenFile(t *testing.T) {
	good, refused := "", ""
	for _, g := range readGolden(t) {
		if g.isError() {
			refused += g.caddyfile
		} else {
			good += g.caddyfile
		}
	}
	for _, word := range slices.Concat([]string{"max_keys"}, handlerWords, syntax.ZoneWords(), deferWords) {
		if !hasLineOf(good, word) {
			t.Errorf("no golden file has %s in a Caddyfile that is accepted", word)
		}
		if !hasLineOf(refused, word) {
			t.Errorf("no golden file has %s in a Caddyfile that is refused", word)
		}
	}
}

func hasLineOf(text, word string) bool {
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 0 && words[0] == word {
			return true
		}
	}
	return false
}

// TestShortFormIsNamedAfterMatcherAndKeyNotAfterItsLimit: so counters survive a change of the limit.
func TestShortFormIsNamedAfterMatcherAndKeyNotAfterItsLimit(t *testing.T) {
	name := func(line string) string {
		t.Helper()
		h := new(Handler)
		must.Succeed(t, h.unmarshalCaddyfile(tokens(t, line), matcherOf(line)))
		return slices.Sorted(maps.Keys(h.RateLimits))[0]
	}
	if a, b := name("rate_limit 100/1m"), name("rate_limit 5/1s"); a != b {
		t.Errorf("another limit has another name: %s, %s", a, b)
	}
	seen := make(map[string]string)
	for _, key := range []string{"", "{http.vars.client_ip}", "{http.request.host}", "{http.request.host}{http.vars.client_ip}", "{http.vars.client_ip}{http.request.host}"} {
		for _, matcher := range []string{"", "/a", "/b", "/a/b", "/a_b", "/a/*", "@a", "@b", "/" + strings.Repeat("x", 90), "/" + strings.Repeat("x", 91)} {
			if key == "{http.vars.client_ip}" {
				continue // the key is left out
			}
			got := shortName(matcher, orDefault(key))
			if other, taken := seen[got]; taken {
				t.Errorf("%q is the name of %q and of %q", got, other, matcher+" "+key)
			}
			seen[got] = matcher + " " + key
			if err := checkedName(got); err != nil {
				t.Error(err)
			}
		}
	}
}

func orDefault(key string) string {
	if key == "" {
		return syntax.ClientIPPlaceholder
	}
	return key
}

func matcherOf(line string) string {
	if words := strings.Fields(line); strings.HasPrefix(words[1], "/") || strings.HasPrefix(words[1], "@") {
		return words[1]
	}
	return ""
}

func checkedName(name string) error {
	_, err := (&syntax.Zone{Requests: 1, Period: "1s"}).Compile(name, "")
	return err
}

func tokens(t testing.TB, text string) *caddyfile.Dispenser {
	t.Helper()
	list, err := caddyfile.Tokenize([]byte(text), "Caddyfile")
	must.Succeed(t, err)
	return caddyfile.NewDispenser(list)
}

// TestCaddyfileSurvivesTheWayThroughJSON: the JSON of a Caddyfile means the same.
func TestCaddyfileSurvivesTheWayThroughJSON(t *testing.T) {
	for _, g := range readGolden(t) {
		if g.isError() {
			continue
		}
		for _, raw := range handlersIn(t, g.want) {
			h := new(Handler)
			if err := json.Unmarshal(raw, h); err != nil {
				t.Errorf("%s: %v", g.path, err)
				continue
			}
			again := caddyconfig.JSON(h, nil)
			if !sameJSON(t, raw, again) {
				t.Errorf("%s: %s became %s", g.path, raw, again)
			}
		}
	}
}

// handlersIn returns the JSON of the rate_limit handlers of a configuration.
func handlersIn(t *testing.T, config string) []json.RawMessage {
	t.Helper()
	var root any
	must.Succeed(t, json.Unmarshal([]byte(config), &root))
	var found []json.RawMessage
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, each := range v {
				walk(each)
			}
		case map[string]any:
			if v["handler"] == "rate_limit" {
				delete(v, "handler") // as Caddy does before it asks the module
				raw, err := json.Marshal(v)
				must.Succeed(t, err)
				found = append(found, raw)
				return
			}
			for _, each := range v {
				walk(each)
			}
		}
	}
	walk(root)
	return found
}

func sameJSON(t testing.TB, a, b []byte) bool {
	t.Helper()
	var va, vb any
	must.Succeed(t, json.Unmarshal(a, &va))
	must.Succeed(t, json.Unmarshal(b, &vb))
	return reflect.DeepEqual(va, vb)
}

func indented(t testing.TB, data []byte) string {
	t.Helper()
	var b bytes.Buffer
	must.Succeed(t, json.Indent(&b, data, "", "\t"))
	return b.String()
}

// validate provisions a configuration in JSON as `caddy validate` does, and returns what was logged.
func validate(t testing.TB, config string) (log string, err error) {
	t.Helper()
	var cfg caddy.Config
	if err := caddy.StrictUnmarshalJSON([]byte(config), &cfg); err != nil {
		return "", err
	}
	path := filepath.Join(t.TempDir(), "log")
	cfg.Admin = &caddy.AdminConfig{Disabled: true}
	cfg.Logging = &caddy.Logging{Logs: map[string]*caddy.CustomLog{"default": {
		BaseLog: caddy.BaseLog{
			WriterRaw:  caddyconfig.JSON(map[string]any{"output": "file", "filename": path}, nil),
			EncoderRaw: json.RawMessage(`{"format": "json"}`),
		},
		Include: []string{"http.handlers.rate_limit", "rate_limit"},
	}}}
	err = caddy.Validate(&cfg)
	data, readErr := os.ReadFile(path)
	if readErr != nil && !os.IsNotExist(readErr) {
		t.Fatal(readErr)
	}
	return string(data), err
}

// TestCaddyfileWithABrokenTokenIsRefusedWithItsPlace breaks the good golden files at each token in turn.
func TestCaddyfileWithABrokenTokenIsRefusedWithItsPlace(t *testing.T) {
	underrace.OneGoroutine(t)
	broken := []string{"", `""`, "{", "}", "{}", "{client_ip", "-1", "0", "99999999999999999999", "NaN", "zone", "match", `"a\nb"`, "\x00", "5/0s"}
	for _, g := range readGolden(t) {
		_, block, found := strings.Cut(g.caddyfile, "\trate_limit ")
		if g.isError() || !found {
			continue
		}
		words := strings.SplitAfter(block, " ")
		for i := range words {
			kept := words[i]
			for _, b := range broken {
				words[i] = b + strings.TrimLeft(kept, "abcdefghijklmnopqrstuvwxyz0123456789_/{}.-@*")
				checkCaddyfile(t, "rate_limit "+strings.Join(words, ""))
			}
			words[i] = kept
		}
	}
}

// FuzzCaddyfile: any block is refused with its place, or is a configuration that survives JSON.
func FuzzCaddyfile(f *testing.F) {
	for _, g := range readGolden(f) {
		if _, block, found := strings.Cut(g.caddyfile, "\trate_limit {\n"); found {
			f.Add(block)
		}
	}
	f.Fuzz(func(t *testing.T, block string) {
		checkCaddyfile(t, "rate_limit {\n"+block+"\n}")
	})
}

// checkCaddyfile checks that a text is refused with its place, or is a configuration that survives JSON.
func checkCaddyfile(t *testing.T, text string) {
	t.Helper()
	list, err := caddyfile.Tokenize([]byte(text), "Caddyfile")
	if err != nil {
		return
	}
	h := new(Handler)
	if err := h.UnmarshalCaddyfile(caddyfile.NewDispenser(list)); err != nil {
		if !strings.Contains(err.Error(), "Caddyfile:") && !strings.Contains(err.Error(), "match: ") { // errors of some of Caddy's matchers have no place
			t.Errorf("%q: does not say where: %v", text, err)
		}
		return
	}
	raw := caddyconfig.JSON(h, nil)
	again := new(Handler)
	if err := json.Unmarshal(raw, again); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	if err := again.check(); err != nil {
		t.Errorf("%s: %v", raw, err)
	}
	for name, zone := range again.RateLimits {
		if _, err := zone.Compile(name, again.Namespace); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if !sameJSON(t, raw, caddyconfig.JSON(again, nil)) {
		t.Errorf("%s became %s", raw, caddyconfig.JSON(again, nil))
	}
}
