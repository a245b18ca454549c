package envoyagreement

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/envoyproxy/ratelimit/src/limiter"

	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/traefik"
)

// difference is an intended difference between Weir and the service. docs/rules.md lists the differences by their names.
type difference struct {
	name    string
	refused []refusal        // files that the service accepts, and Weir refuses
	taken   []string         // files that Weir accepts, and the service refuses
	shown   func(*testing.T) // shows the difference in another way

	// Messages about it: those of Weir for files that the service accepts, and those of the service for files that Weir accepts.
	weir, service []string
}

// refusal is a file, and Weir's error for it.
type refusal struct{ file, says string }

// limited is a file of one descriptor with a limit.
func limited(descriptor string) string {
	return "{domain: d, descriptors: [{" + descriptor + ", rate_limit: {unit: day, requests_per_unit: 5}}]}"
}

// ofLimit is a file of one limit.
func ofLimit(limit string) string {
	return "{domain: d, descriptors: [{key: a, rate_limit: {" + limit + "}}]}"
}

// differences is the list of docs/rules.md, in its order.
var differences = []difference{
	{name: "All or nothing", shown: showAllOrNothing},
	{name: "No confusion", shown: showNoConfusion,
		taken:   []string{"{domain: d, descriptors: [{key: a_b}, {key: a, value: b}]}"},
		service: []string{"duplicate descriptor composite key"}},
	{name: "An empty value makes no descriptor", shown: showEmptyValue},
	{name: "Hosts, methods and paths have one spelling", shown: showOneSpelling},
	{name: "`quota_mode` changes nothing", shown: showQuotaMode},
	{name: "`metadata`, `detailed_metric` and `value_to_metric` change nothing", shown: showUnheeded},
	{name: "Requests bring no limits of their own", shown: showOverride},
	{name: "A domain that is in no file", shown: showUnknownDomain},
	{name: "One domain in two files", shown: showTwoFiles},
	{name: "The answer", shown: showAnswer},
	{name: "While Redis fails", shown: showFailure},
	{name: "A limit without `requests_per_unit`",
		refused: []refusal{{ofLimit("unit: day"), "has no requests_per_unit"}, {ofLimit("unit: day, requests_per_unit: null"), "has no requests_per_unit"}},
		weir:    []string{"has no requests_per_unit"}},
	{name: "More than 1,000,000,000 requests",
		refused: []refusal{{ofLimit("unit: day, requests_per_unit: 1000000001"), "unlimited: true"}, {ofLimit("unit: day, requests_per_unit: 4294967295"), "unlimited: true"}},
		weir:    []string{`requests_per_unit "\d{10}": must be a whole number`}},
	{name: "A unit with `unlimited`",
		refused: []refusal{{ofLimit("unlimited: true, unit: fortnight"), "unit and unlimited: true are mutually exclusive"}},
		weir:    []string{"unit and unlimited: true are mutually exclusive"}},
	{name: "A `*` in a key",
		refused: []refusal{{limited(`key: "a*"`), "a * is for values"}, {limited(`key: "a*b", value: x`), "a * is for values"}},
		weir:    []string{"a \\* is for values, not for keys", "only descriptors with a wildcard share"}},
	{name: "A field in the wrong place", // the service knows the field names, and ignores where they are
		refused: []refusal{
			{"{domain: d, descriptors: [{key: a, unit: day, requests_per_unit: 5}]}", `"unit" is not a field of a descriptor`},
			{ofLimit("unit: day, requests_per_unit: 5, shadow_mode: true"), `"shadow_mode" is not a field of rate_limit`},
			{"{domain: d, key: a, descriptors: []}", `"key" is not a field of the file`},
			{ofLimit("unit: day, requests_per_unit: 5, replaces: [{name: n, value: m}]"), `"value" is not a field of replaces`},
		},
		weir: []string{`"[a-z_]+" is not a field of `}},
	{name: "An empty `name`",
		refused: []refusal{{ofLimit(`unit: day, requests_per_unit: 5, name: ""`), "name: is empty"}},
		weir:    []string{": name: is empty"}},
	{name: "Words and numbers of YAML 1.1",
		refused: []refusal{
			{limited("key: a, shadow_mode: yes"), "true or false"}, {limited("key: a, shadow_mode: Off"), "true or false"},
			{ofLimit("unit: day, requests_per_unit: 5_000"), "whole number"}, {ofLimit("unit: day, requests_per_unit: 010"), "whole number"},
			{ofLimit("unit: day, requests_per_unit: 0x10"), "whole number"}, {ofLimit("unit: day, requests_per_unit: 0b11"), "whole number"},
		},
		weir: []string{"must be true or false", `requests_per_unit "[+-]?0[0-9bxo_]`, `requests_per_unit "[0-9]*_`, "a number of YAML 1.1"}},
	{name: "A duplicate key in a map",
		refused: []refusal{{"{domain: d, domain: e, descriptors: []}", "duplicate key"}, {ofLimit("unit: day, requests_per_unit: 5, unit: hour"), "duplicate key"}},
		weir:    []string{`duplicate key`}},
	{name: "Anchors, aliases, merge keys and tags",
		refused: []refusal{
			{"domain: d\ndescriptors:\n- {key: a, rate_limit: &l {unit: day, requests_per_unit: 5}}\n- {key: b, rate_limit: *l}\n", "aliases"},
			{limited("key: a, value: !!str 5"), "tag"},
		},
		weir: []string{"anchors are not taken", "aliases are not taken", "merging is not taken", "tags? "}},
	{name: "Several documents",
		refused: []refusal{{"domain: d\n---\ndomain: e\n", "document"}},
		weir:    []string{"a second document"}},
	{name: "A key in `metadata` that is no text",
		refused: []refusal{{limited("key: a, metadata: {5: x}"), "text"}},
		weir:    []string{"must be a text"}},
	{name: "Encodings other than UTF-8",
		refused: []refusal{{utf16(limited("key: a")), "UTF-8"}},
		weir:    []string{"UTF-8"}},
	{name: "Files that are too large",
		refused: []refusal{
			{limited("key: a, metadata: " + strings.Repeat("{a: ", 70) + "b" + strings.Repeat("}", 70)), "nested"},
			{"{domain: d, descriptors: []} #" + strings.Repeat("#", ruleset.MaxFile), ""}, // refused when it is read from disk
		},
		weir: []string{"nested", "values; write several files"}},
	{name: "A number in quotes",
		taken:   []string{ofLimit(`unit: day, requests_per_unit: "5"`)},
		service: []string{"cannot unmarshal !!str `\\d+` into uint32"}},
	{name: "A text that looks like a fraction",
		taken:   []string{"{domain: d, descriptors: [{key: version, value: 1.5}]}", "{domain: d, descriptors: [{key: 1e3}]}", "{domain: 1.5}", "{domain: d, descriptors: [{key: a, value: 99999999999999999999}]}"},
		service: []string{"error checking config"}},
	{name: "Weir's own `rules`",
		taken:   []string{`{domain: d, rules: [{name: n, limit: 5/1m}]}`},
		service: []string{"unknown key 'rules'"}},
}

// utf16 converts ASCII text to UTF-16.
func utf16(text string) string {
	b := []byte{0xff, 0xfe}
	for _, c := range []byte(text) {
		b = append(b, c, 0)
	}
	return string(b)
}

func TestEachListedDifferenceExists(t *testing.T) {
	for _, d := range differences {
		t.Run(d.name, func(t *testing.T) {
			if len(d.refused)+len(d.taken) == 0 && d.shown == nil {
				t.Fatal("nothing shows it")
			}
			for _, c := range d.refused {
				short := c.file[:min(len(c.file), 300)]
				if _, err := loadEnvoy(c.file); err != nil {
					if strings.Contains(c.file, "metadata") && !knowsMetadata() {
						continue // this version of the service is too old
					}
					t.Errorf("Envoy's service refuses it too: %v, of %s", err, short)
				}
				_, err := loadWeir(c.file)
				if c.says == "" {
					err = readWeir(t, c.file)
				}
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("Weir says %v, of %s", err, short)
				} else if c.says != "" && !speaks(d.weir, err) {
					t.Errorf("%v: no message of %s", err, d.name)
				}
			}
			for _, file := range d.taken {
				if _, err := loadWeir(file); err != nil {
					t.Errorf("Weir refuses it: %v, of %s", err, file)
				}
				if _, err := loadEnvoy(file); err == nil {
					t.Errorf("Envoy's service takes it too: %s", file)
				} else if !speaks(d.service, err) {
					t.Errorf("%v: no message of %s", err, d.name)
				}
			}
			if d.shown != nil {
				d.shown(t)
			}
		})
	}
}

// knowsMetadata reports whether the service's code is new enough for metadata.
func knowsMetadata() bool {
	_, err := loadEnvoy(limited("key: a, metadata: {b: c}"))
	return err == nil
}

// speaks reports whether an error matches one of the messages.
func speaks(messages []string, err error) bool {
	return slices.ContainsFunc(messages, func(m string) bool { return regexp.MustCompile(m).MatchString(err.Error()) })
}

// readWeir reads a file from disk. That has additional limits.
func readWeir(t *testing.T, text string) error {
	name := filepath.Join(t.TempDir(), "d.yaml")
	must.Succeed(t, os.WriteFile(name, []byte(text), 0o600))
	if _, problems := ruleset.Read([]string{name}); len(problems) > 0 {
		return problems
	}
	return nil
}

// The manual lists exactly these differences, in this order.
func TestTheManualListsTheDifferences(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "rules.md"))
	must.Succeed(t, err)
	_, section, found := strings.Cut(string(page), "\n### What is different\n")
	if !found {
		t.Fatal("docs/rules.md has no such section")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var listed, want []string
	for _, m := range regexp.MustCompile(`(?m)^- (?:\*\*(.*?)\.?\*\*)?`).FindAllStringSubmatch(section, -1) {
		listed = append(listed, m[1])
	}
	for _, d := range differences {
		want = append(want, d.name)
	}
	if !slices.Equal(listed, want) {
		t.Errorf("docs/rules.md lists\n%q, and the differences are\n%q", listed, want)
	}
}

// counted makes a handler of Weir with a file and one descriptor, and returns a function that makes requests to it.
func counted(t *testing.T, file string, descriptors any) func(header ...string) *http.Response {
	t.Helper()
	return countedIn(t, nil, file, descriptors)
}

// countedIn is counted in a store, as the middleware's setting has it; nil: memory.
func countedIn(t *testing.T, store any, file string, descriptors any) func(header ...string) *http.Response {
	t.Helper()
	name := filepath.Join(t.TempDir(), "rules.json")
	must.Succeed(t, os.WriteFile(name, []byte(file), 0o600))
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	c := traefik.CreateConfig()
	c.RulesFile = []string{name}
	c.Descriptors = descriptors
	c.Store = store
	h, err := traefik.New(ctx, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), c, t.Name()+"@file")
	must.Succeed(t, err)
	return func(header ...string) *http.Response {
		r := httptest.NewRequest("GET", "http://example.com/", nil)
		for i := 0; i < len(header); i += 2 {
			if header[i] == "path" {
				r.URL.Path = header[i+1]
				continue
			}
			r.Header[header[i]] = []string{header[i+1]}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
}

// Of two nodes without their Redis each allows half of the limit.
func showFailure(t *testing.T) {
	ask := countedIn(t, map[string]any{"redis": map[string]any{"address": "127.0.0.1:1", "nodes": 2}},
		`{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unit": "year", "requests_per_unit": 4}}]}`, by("a", "A"))
	for i, want := range []int{200, 200, 429} {
		if got := ask("A", "1").StatusCode; got != want {
			t.Errorf("request %d: %d", i, got)
		}
	}
}

// by returns a list of descriptors with one entry each. pairs are the keys, each with the header field that has its value.
func by(pairs ...string) any {
	var list []any
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, map[string]any{"entries": []any{map[string]any{"key": pairs[i], "source": "header:" + pairs[i+1]}}})
	}
	return list
}

func showAllOrNothing(t *testing.T) {
	ask := counted(t, `{"domain": "d", "descriptors": [
		{"key": "a", "rate_limit": {"unit": "year", "requests_per_unit": 5}}, {"key": "b", "rate_limit": {"unit": "year", "requests_per_unit": 1}}]}`, by("a", "A", "b", "B"))
	for i, want := range []int{200, 429, 429, 429, 429, 429, 429} {
		if got := ask("A", "1", "B", "1").StatusCode; got != want {
			t.Fatalf("request %d: %d", i, got)
		}
	}
	// In the service, requests that the second limit has rejected use the first one up.
	for i, want := range []int{200, 200, 200, 200, 429} {
		must.Equal(t, ask("A", "1").StatusCode, want, "request %d", i)
	}
}

// The service joins a path into one text. So the key a with the value b_c, the key a_b with the value c, and the key a_b_c without a value are
// the same to it, also in the names of counters. In Weir they are three.
func showNoConfusion(t *testing.T) {
	const file = `{domain: d, descriptors: [
		{key: a_b, rate_limit: {unit: minute, requests_per_unit: 1}},
		{key: k, value: v_w, rate_limit: {unit: minute, requests_per_unit: 2}},
		{key: p, rate_limit: {unit: minute, requests_per_unit: 3}},
		{key: p, descriptors: [], value: "q*", rate_limit: {unit: minute, requests_per_unit: 4}},
		{key: c, descriptors: [{key: e, rate_limit: {unit: minute, requests_per_unit: 5}}]}]}`
	envoy, err := loadEnvoy(file)
	must.Succeed(t, err)
	weir, err := loadWeir(file)
	must.Succeed(t, err)
	var l ruleset.Lookup
	for _, c := range []struct {
		entries     [][2]string
		theirs      int64 // requests a minute; 0: none
		ours        int64
		explanation string
	}{
		{[][2]string{{"a_b", "x"}}, 1, 1, "as it is written"},
		{[][2]string{{"a", "b"}}, 1, 0, "the file has no key a"},
		{[][2]string{{"k", "v_w"}}, 2, 2, "as it is written"},
		{[][2]string{{"k_v", "w"}}, 2, 0, "the file has no key k_v"},
		{[][2]string{{"p", "qx"}}, 4, 4, "as it is written"},
		{[][2]string{{"p_qx", "y"}}, 4, 0, "a wildcard of one key is none of another's"},
	} {
		_, theirs := askEnvoy(envoy, "d", c.entries)
		found, err := askWeir(&l, weir, "d", c.entries)
		must.Succeed(t, err)
		ours := answer{kind: "none"}
		if len(found) == 1 {
			ours = answerOf(found[0].Rule)
		}
		if theirs.requests != c.theirs || ours.requests != c.ours {
			t.Errorf("%q: Envoy's service finds %+v, Weir %+v, not %d and %d: %s", c.entries, theirs, ours, c.theirs, c.ours, c.explanation)
		}
	}
	generator := limiter.NewCacheKeyGenerator("")
	var cacheKeys []string
	var ours []counter
	for _, entries := range [][][2]string{{{"c", "x_e_y"}, {"e", "z"}}, {{"c", "x"}, {"e", "y_e_z"}}} {
		theirs, _ := askEnvoy(envoy, "d", entries)
		cacheKeys = append(cacheKeys, generator.GenerateCacheKey("d", descriptorOf(entries), theirs, now).Key)
		found, err := askWeir(&l, weir, "d", entries)
		if err != nil || len(found) != 1 {
			t.Fatalf("%q: found %v, %v", entries, found, err)
		}
		ours = append(ours, counter{found[0].Rule, found[0].Key})
	}
	must.Equal(t, cacheKeys[0], cacheKeys[1], "Envoy's service no longer confuses them: %q", cacheKeys)
	if ours[0] == ours[1] {
		t.Errorf("Weir counts them together: %q", ours[0].key)
	}
}

func showEmptyValue(t *testing.T) {
	envoy, err := loadEnvoy(limited("key: a"))
	must.Succeed(t, err)
	if l, _ := askEnvoy(envoy, "d", [][2]string{{"a", ""}}); l == nil {
		t.Error("Envoy's service has no limit for an empty value")
	}
	ask := counted(t, `{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unit": "year", "requests_per_unit": 1}}]}`, by("a", "A"))
	for range 3 {
		if r := ask("A", ""); r.StatusCode != 200 || r.Header.Get("RateLimit") != "" {
			t.Errorf("%d, %q", r.StatusCode, r.Header.Get("RateLimit"))
		}
	}
}

func showOneSpelling(t *testing.T) {
	const file = `{"domain": "d", "descriptors": [
		{"key": "path", "value": "/api/*", "rate_limit": {"unit": "year", "requests_per_unit": 0}},
		{"key": "path", "value": "/Login", "rate_limit": {"unit": "year", "requests_per_unit": 0}}]}`
	envoy, err := loadEnvoy(file)
	must.Succeed(t, err)
	ask := counted(t, file, []any{map[string]any{"entries": []any{map[string]any{"key": "path", "source": "path"}}}})
	for _, c := range []struct {
		path         string
		ours, theirs bool // whether there is a limit
	}{{"/api/7", true, true}, {"/API//7", true, false}, {"/Login", false, true}, {"/login", false, false}} {
		must.Equal(t, ask("path", c.path).StatusCode == 429, c.ours, "%s: Weir has a limit", c.path)
		if l, _ := askEnvoy(envoy, "d", [][2]string{{"path", c.path}}); (l != nil) != c.theirs {
			t.Errorf("%s: Envoy's service has a limit: %v", c.path, l != nil)
		}
	}
}

func showQuotaMode(t *testing.T) {
	const file = `{"domain": "d", "descriptors": [
		{"key": "a", "quota_mode": true, "rate_limit": {"unit": "year", "requests_per_unit": 1}}, {"key": "b", "quota_mode": true, "rate_limit": {"unit": "year", "requests_per_unit": 9}}]}`
	envoy, err := loadEnvoy(file)
	must.Succeed(t, err)
	if l, _ := askEnvoy(envoy, "d", [][2]string{{"a", "1"}}); l == nil || !l.QuotaMode {
		t.Errorf("Envoy's service has %+v", l)
	}
	ask := counted(t, file, by("a", "A", "b", "B"))
	for i, want := range []int{200, 429} { // in the service b still has units left
		must.Equal(t, ask("A", "1", "B", "1").StatusCode, want, "request %d", i)
	}
}

func showUnheeded(t *testing.T) {
	for field, file := range map[string]string{
		"metadata":        limited("key: a, metadata: {route: {name: b, weight: [1, 2.5, null]}}"),
		"detailed_metric": limited("key: a, detailed_metric: true"),
		"value_to_metric": limited("key: a, value_to_metric: true"),
		"quota_mode":      limited("key: a, quota_mode: true"),
	} {
		if _, err := loadEnvoy(file); err != nil && (field != "metadata" || knowsMetadata()) {
			t.Errorf("%s: Envoy's service refuses it: %v", field, err)
		}
		weir, err := loadWeir(file)
		if err != nil {
			t.Errorf("%s: %v", field, err)
			continue
		}
		if advice := weir.Advice(); len(advice) != 1 || !strings.Contains(advice[0], field+": has no effect: ") {
			t.Errorf("%s: the advice is %q", field, advice)
		}
		var l ruleset.Lookup
		found, err := askWeir(&l, weir, "d", [][2]string{{"a", "x"}})
		if err != nil || len(found) != 1 || answerOf(found[0].Rule) != (answer{"limit", 5, 86400, false}) {
			t.Errorf("%s: %v, %v", field, found, err)
		}
	}
}

func showOverride(t *testing.T) {
	envoy, err := loadEnvoy(limited("key: a"))
	must.Succeed(t, err)
	d := descriptorOf([][2]string{{"a", "x"}})
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 42, Unit: typev3.RateLimitUnit_HOUR}
	if l := envoy.GetLimit(context.Background(), "d", d); l == nil || l.Limit.RequestsPerUnit != 42 {
		t.Errorf("Envoy's service has %+v", l)
	}
	for _, field := range []string{"limit", "hits_addend"} {
		c := traefik.CreateConfig()
		c.RulesFile = []string{"rules.json"}
		c.Descriptors = []any{map[string]any{"entries": []any{map[string]any{"key": "a", "source": "path"}}, field: 42}}
		if _, err := traefik.New(context.Background(), http.NotFoundHandler(), c, "m@file"); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: Weir says %v", field, err)
		}
	}
}

func showUnknownDomain(t *testing.T) {
	envoy, err := loadEnvoy(limited("key: a"))
	must.Succeed(t, err)
	if _, a := askEnvoy(envoy, "e", [][2]string{{"a", "x"}}); a.kind != "none" {
		t.Errorf("Envoy's service has %+v", a)
	}
	weir, err := loadWeir(limited("key: a"))
	must.Succeed(t, err)
	if _, err := weir.Domain("e"); err == nil || !strings.Contains(err.Error(), `domain "e": is not in the rule files`) {
		t.Errorf("Weir says %v", err)
	}
}

// Both refuse it, unless the service is configured to merge domains.
func showTwoFiles(t *testing.T) {
	r, seed := newRandom(t)
	for range breaks {
		a, b, other := newTree(r, "d").text(t, r, true), newTree(r, "d").text(t, r, true), newTree(r, "e").text(t, r, true)
		for _, files := range [][]string{{a, b}, {a, other, b}, {other, a, a}} {
			if _, err := loadEnvoy(files...); err == nil || !strings.Contains(err.Error(), "duplicate domain") {
				t.Fatalf("seed %d: Envoy's service says %v of\n%s", seed, err, files)
			}
			if _, err := loadWeir(files...); err == nil || !strings.Contains(err.Error(), `domain "d": is in`) {
				t.Fatalf("seed %d: Weir says %v of\n%s", seed, err, files)
			}
		}
	}
	if _, _, err := loadService(true, limited("key: a"), limited("key: b")); err != nil {
		t.Errorf("Envoy's service does not merge them: %v", err)
	}
}

func showAnswer(t *testing.T) {
	ask := counted(t, `{"domain": "d", "descriptors": [{"key": "a", "rate_limit": {"unit": "year", "requests_per_unit": 1}}]}`, by("a", "A"))
	for i, want := range []int{200, 429} {
		r := ask("A", "1")
		if r.StatusCode != want || r.Header.Get("RateLimit") == "" || r.Header.Get("X-RateLimit-Limit") != "1" || (r.Header.Get("Retry-After") != "") != (want == 429) {
			t.Errorf("request %d: %d %v", i, r.StatusCode, r.Header)
		}
	}
}

// differencesOf returns the names of the differences that explain why only one side accepts a file. If no difference explains a message, it
// returns an error.
func differencesOf(theirs, ours error) ([]string, error) {
	if theirs != nil {
		for _, d := range differences {
			if speaks(d.service, theirs) {
				return []string{d.name}, nil
			}
		}
		return nil, theirs
	}
	messages := []error{ours}
	if problems, ok := ours.(ruleset.Problems); ok {
		messages = nil
		for _, p := range problems {
			messages = append(messages, errors.New(p.Text))
		}
	}
	var names []string
	for _, m := range messages {
		explained := false
		for _, d := range differences {
			if speaks(d.weir, m) {
				names = append(names, d.name)
				explained = true
				break
			}
		}
		if !explained {
			return nil, m
		}
	}
	return names, nil
}
