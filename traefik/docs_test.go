//go:build gc
// +build gc

package traefik

// The manual of the plugin is held to its code: what docs/traefik.md and the README show of a configuration must load, as Traefik
// would have it, and the tables must have the settings that there are.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/tools/manual"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/traefik/config"
	"github.com/proxyweir/weir/traefik/dynamic"
)

// shown is a middleware's configuration on a page.
type shown struct {
	middleware string
	config     object
}

// documents decodes a block of YAML.
func documents(t *testing.T, s manual.Snippet) []interface{} {
	t.Helper()
	var list []interface{}
	decoder := yaml.NewDecoder(strings.NewReader(s.Text))
	for {
		var document interface{}
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("%s: %v", s.Place, err)
		}
		list = append(list, document)
	}
}

// label is one that configures the plugin; key is a path in a key-value store that does.
var (
	label = regexp.MustCompile(`^traefik\.http\.middlewares\.([^.]+)\.plugin\.weir\.([^=]+)(?:=(.*))?$`)
	key   = regexp.MustCompile(`(?m)\btraefik/http/middlewares/([^/]+)/plugin/weir/(\S+) (.*)$`)
)

// find collects the plugin's configurations in a document, wherever they are. name is that of what the value is of.
func find(t *testing.T, name string, value interface{}, found *[]shown) {
	t.Helper()
	labels := make(map[string]object)
	set := func(name, path string, value interface{}) {
		if labels[name] == nil {
			labels[name] = object{}
		}
		setPath(t, labels[name], path, fmt.Sprint(value))
	}
	switch v := value.(type) {
	case object:
		if metadata, ok := v["metadata"].(object); ok { // of Kubernetes
			name = fmt.Sprint(metadata["name"])
		}
		for k, member := range v {
			if plugin, ok := member.(object); ok && k == "plugin" {
				if config, ok := plugin["weir"].(object); ok {
					*found = append(*found, shown{name, config})
				}
				continue
			}
			if m := label.FindStringSubmatch(k); m != nil {
				set(m[1], m[2], member)
				continue
			}
			inner := k
			if k == "spec" {
				inner = name
			}
			find(t, inner, member, found)
		}
	case []interface{}:
		for _, member := range v {
			if text, ok := member.(string); ok {
				if m := label.FindStringSubmatch(text); m != nil {
					set(m[1], m[2], m[3])
				}
				continue
			}
			find(t, name, member, found)
		}
	}
	for name, config := range labels {
		*found = append(*found, shown{name, config})
	}
}

// setPath sets a.b[0].c in an object of objects and lists. Lists come in order.
func setPath(t *testing.T, in object, path, value string) {
	t.Helper()
	head, rest, deeper := strings.Cut(path, ".")
	name, index, listed := strings.Cut(head, "[")
	if !listed {
		if !deeper {
			in[name] = value
			return
		}
		member, _ := in[name].(object)
		if member == nil {
			member = object{}
			in[name] = member
		}
		setPath(t, member, rest, value)
		return
	}
	n, err := strconv.Atoi(strings.TrimSuffix(index, "]"))
	list, _ := in[name].([]interface{})
	if err != nil || n > len(list) {
		t.Fatalf("%s: does not come in order", path)
	}
	if n == len(list) {
		list = append(list, interface{}(object{}))
		in[name] = list
	}
	if !deeper {
		list[n] = value
		return
	}
	setPath(t, list[n].(object), rest, value)
}

// configurations returns the plugin's configurations in a block of YAML.
func configurations(t *testing.T, s manual.Snippet) []shown {
	t.Helper()
	var found []shown
	for _, document := range documents(t, s) {
		if s.Marker == "in: weir" {
			document = object{"example": object{"plugin": object{"weir": document}}}
		}
		find(t, "", document, &found)
	}
	return found
}

// asTexts returns a configuration as a file comes out of Traefik: with numbers and booleans as texts, and nothing for an
// empty object.
func asTexts(value interface{}) interface{} {
	switch v := value.(type) {
	case object:
		if len(v) == 0 {
			return ""
		}
		members := object{}
		for k, member := range v {
			members[k] = asTexts(member)
		}
		return members
	case []interface{}:
		list := make([]interface{}, 0, len(v))
		for _, member := range v {
			list = append(list, asTexts(member))
		}
		return list
	}
	return fmt.Sprint(value)
}

// load makes a handler of a configuration, in the ways that Traefik's providers would give it.
func load(t *testing.T, s shown) error {
	t.Helper()
	for _, config := range []interface{}{s.config, asTexts(s.config)} {
		fields, ok := config.(object)
		if !ok {
			return errors.New("is empty")
		}
		c := CreateConfig()
		if err := dynamic.Decode(fields, c); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		h, err := newStage(t).newHandler(ctx, http.NotFoundHandler(), c, s.middleware+"@file")
		if err != nil {
			return err
		}
		if h == nil {
			return errors.New("there is no handler")
		}
	}
	return nil
}

var manualPages = []string{"README.md", "docs/start-traefik.md", "docs/traefik.md", "docs/from-traefik.md", "docs/redis.md", "docs/caddy.md", "docs/past-the-limit.md", "docs/guard.md", "docs/outgoing.md"}

func TestDocsConfigurationsLoad(t *testing.T) {
	setenv(t, "REDIS_PASSWORD", "a password")
	secret := writeFile(t, filepath.Join(t.TempDir(), "weir-key"), "a secret\n")
	files := writeRuleFiles(t)
	loaded := 0
	for _, page := range manualPages {
		snippets := manual.Snippets(t, page)
		for i, s := range snippets {
			if s.Language != "yaml" || isRuleFile(t, s) {
				continue
			}
			s.Text = strings.ReplaceAll(s.Text, "/run/secrets/weir-key", secret)
			s.Text = strings.ReplaceAll(s.Text, ruleFolder, files)
			found := configurations(t, s)
			if len(found) == 0 && !isStatic(t, s) {
				t.Errorf("%s: is neither a configuration of the plugin nor Traefik's static one", s.Place)
			}
			for _, config := range found {
				err := load(t, config)
				if s.Marker != "refused" {
					loaded++
					if err != nil {
						t.Errorf("%s: %s is refused: %v", s.Place, config.middleware, err)
					}
					continue
				}
				if err == nil {
					t.Errorf("%s: %s is said to be refused, and is not", s.Place, config.middleware)
				} else if says := strings.ReplaceAll(snippets[i+1].Text, `\"`, `"`); !strings.Contains(says, err.Error()+"\n") && !strings.Contains(says, `error="`+err.Error()+`" `) {
					t.Errorf("%s: the error is %s", snippets[i+1].Place, err)
				}
			}
			if s.Marker == "refused" && strings.Count(snippets[i+1].Text, `middleware `) != len(found) {
				t.Errorf("%s: has other errors than configurations", snippets[i+1].Place)
			}
		}
	}
	if loaded < 10 {
		t.Errorf("only %d configurations found", loaded)
	}
}

// ruleFolder is where the manual has rule files.
const ruleFolder = "/etc/traefik/rules"

// writeRuleFiles writes the blocks that the manual marks as files into a folder, and returns it.
func writeRuleFiles(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	for _, s := range manual.Snippets(t, "docs/traefik.md") {
		if file, marked := strings.CutPrefix(s.Marker, "file: "); marked {
			writeFile(t, filepath.Join(folder, file), s.Text)
		}
	}
	return folder
}

// What the log has of a broken rule file is what the manual shows.
func TestDocsRefusalOfARuleFileIsThePlugins(t *testing.T) {
	s := newStage(t)
	folder := writeRuleFiles(t)
	file := filepath.Join(folder, "limits.json")
	s.handler(context.Background(), &Config{RulesFile: []string{file}}, "shop-limit@file")
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	writeFile(t, file, strings.Replace(string(text), "5/1m", "5/0s", 1))
	s.step(2 * standardInterval)
	said := ""
	for _, line := range strings.Split(strings.ReplaceAll(s.log.String(), folder, ruleFolder), "\n") {
		// A middleware of another test may still find out that the Redis of an example is not there.
		if !strings.HasPrefix(line, "weir: middleware ") || strings.HasPrefix(line, "weir: middleware shop-limit@file: ") {
			said += line + "\n"
		}
	}
	for _, s := range manual.Snippets(t, "docs/traefik.md") {
		if strings.TrimSpace(s.Text) == strings.TrimSpace(said) {
			return
		}
	}
	t.Errorf("the manual does not show\n%s", said)
}

// isRuleFile reports whether a block is a rule file, and checks it: it must be right in JSON, too.
func isRuleFile(t *testing.T, s manual.Snippet) bool {
	t.Helper()
	list := documents(t, s)
	if len(list) != 1 {
		return false
	}
	top, _ := list[0].(object)
	if top["rules"] == nil && top["domain"] == nil || s.Marker == "in: weir" {
		return false
	}
	text, err := json.Marshal(top)
	if err != nil {
		t.Fatalf("%s: %v", s.Place, err)
	}
	root, wrong := ruleset.ParseJSON(s.Place, text)
	if wrong == nil {
		_, wrong = ruleset.Decode(s.Place, root)
	}
	if wrong != nil {
		t.Error(wrong)
	}
	return true
}

// isStatic reports whether a block is a static configuration. It must name the plugin's module.
func isStatic(t *testing.T, s manual.Snippet) bool {
	t.Helper()
	static := false
	for _, document := range documents(t, s) {
		top, _ := document.(object)
		_, entryPoints := top["entryPoints"]
		experimental, plugins := top["experimental"].(object)
		_, scrapes := top["scrape_configs"] // Prometheus's
		static = static || entryPoints || plugins || scrapes
		for _, kind := range []string{"plugins", "localPlugins"} {
			list, ok := experimental[kind].(object)
			if !ok {
				continue
			}
			weir, _ := list["weir"].(object)
			if weir["moduleName"] != module {
				t.Errorf("%s: the plugin's module is %v", s.Place, weir["moduleName"])
			}
			if _, versioned := weir["version"]; versioned != (kind == "plugins") {
				t.Errorf("%s: a plugin of the catalogue has a version, a local one has none", s.Place)
			}
		}
	}
	return static
}

// What the manual has in the words of Traefik's RateLimit loads as the plugin's too, unchanged.
func TestDocsRateLimitsMoveOver(t *testing.T) {
	moved := 0
	for _, s := range manual.Snippets(t, "docs/from-traefik.md") {
		if !strings.Contains(s.Text, "rateLimit:") || s.Language != "yaml" {
			continue
		}
		middlewares := documents(t, s)[0].(object)["http"].(object)["middlewares"].(object)
		before := middlewares["before"].(object)["rateLimit"].(object)
		after := middlewares["after"].(object)["plugin"].(object)["weir"].(object)
		if !reflect.DeepEqual(before, after) {
			t.Errorf("%s: %v has become %v", s.Place, before, after)
		}
		moved++
	}
	must.Equal(t, moved, 1, "%d examples", moved)
}

func TestDocsKeysOfAKeyValueStoreLoad(t *testing.T) {
	found := 0
	for _, s := range manual.Snippets(t, "docs/traefik.md") {
		if s.Marker != "keys" {
			continue
		}
		configs := make(map[string]object)
		for _, m := range key.FindAllStringSubmatch(s.Text, -1) {
			if configs[m[1]] == nil {
				configs[m[1]] = object{}
			}
			path := regexp.MustCompile(`/(\d+)(/|$)`).ReplaceAllString(m[2], "[$1]$2")
			setPath(t, configs[m[1]], strings.ReplaceAll(path, "/", "."), m[3])
		}
		for name, config := range configs {
			found++
			if err := load(t, shown{name, config}); err != nil {
				t.Errorf("%s: %v", s.Place, err)
			}
		}
	}
	if found == 0 {
		t.Error("no keys found")
	}
}

// The answer that the manual shows is that of its first configuration, 23 seconds into a minute.
func TestDocsAnswersAreThePlugins(t *testing.T) {
	snippets := manual.Snippets(t, "docs/traefik.md")
	var config *shown
	answers := 0
	for _, s := range snippets {
		if s.Language == "yaml" && config == nil {
			if found := configurations(t, s); len(found) > 0 {
				config = &found[0]
			}
		}
		if !strings.HasPrefix(s.Marker, "answer: ") {
			continue
		}
		answers++
		n, err := strconv.Atoi(strings.TrimPrefix(s.Marker, "answer: "))
		if err != nil || config == nil {
			t.Fatalf("%s: %q", s.Place, s.Marker)
		}
		c := CreateConfig()
		must.Succeed(t, dynamic.Decode(config.config, c))
		st := newStage(t)
		st.step(23 * time.Second)
		h := st.handler(context.Background(), c, config.middleware+"@file")
		statuses(h, "192.0.2.1", n-1)
		response := get(h, "192.0.2.1", nil)
		dump, err := httputil.DumpResponse(response, true)
		must.Succeed(t, err)
		got := strings.ReplaceAll(string(dump), "\r\n", "\n")
		got = strings.Replace(got, "Connection: close\n", "", 1)
		if strings.TrimSpace(got) != strings.TrimSpace(s.Text) {
			t.Errorf("%s: the answer is\n%s", s.Place, got)
		}
	}
	must.Equal(t, answers, 1, "%d answers", answers)
}

// What the manual shows of a client's quotas is what its configuration tells after so many requests, 19 seconds into a minute.
func TestDocsQuotasAreThePlugins(t *testing.T) {
	answers := 0
	var config shown
	for _, s := range manual.Snippets(t, "docs/traefik.md") {
		if s.Language == "yaml" {
			if found := configurations(t, s); len(found) > 0 {
				config = found[0]
			}
		}
		requests, marked := strings.CutPrefix(s.Marker, "quotas: ")
		if !marked {
			continue
		}
		answers++
		n, err := strconv.Atoi(requests)
		if err != nil {
			t.Fatalf("%s: %v", s.Place, err)
		}
		c := CreateConfig()
		must.Succeed(t, dynamic.Decode(config.config, c))
		st := newStage(t)
		st.step(19 * time.Second)
		h := st.handler(context.Background(), c, config.middleware+"@file")
		statuses(h, "192.0.2.1", n)
		if got := quotas(t, h, "192.0.2.1", nil); got != strings.TrimSpace(s.Text) {
			t.Errorf("%s: the answer is\n%s", s.Place, got)
		}
	}
	must.Equal(t, answers, 1, "%d answers", answers)
}

// The manual names the beginnings of all series that Caddy alone has, and of no other. The tests of core/metrics hold the tables of all series to the code.
func TestDocsNameTheSeriesThatTraefikHasNot(t *testing.T) {
	section := manual.Section(t, manual.Page(t, "docs/traefik.md"), "## Metrics")
	excepted := regexp.MustCompile("`(weir_[a-z]+_)…`").FindAllStringSubmatch(section, -1)
	if len(excepted) == 0 {
		t.Fatal("no series are excepted")
	}
	for _, f := range metrics.Families {
		without := false
		for _, m := range excepted {
			without = without || strings.HasPrefix(f.Name, m[1])
		}
		must.Equal(t, without, f.Caddy, "whether the manual says that Traefik has no %s", f.Name)
	}
	must.Contain(t, section, fmt.Sprintf("One decision in %d ", memory.TimedShare), "how many decisions are timed is another number")
}

func TestDocsWarningIsThePlugins(t *testing.T) {
	for _, s := range manual.Snippets(t, "docs/traefik.md") {
		if s.Marker != "log: forwarded" {
			continue
		}
		st := newStage(t)
		h := st.handler(context.Background(), &Config{Rule: Rule{Limit: "100/1m"}}, "api-limit@file")
		get(h, "192.0.2.1", func(r *http.Request) { r.Header.Set("X-Forwarded-For", "198.51.100.1") })
		var own []string
		for _, line := range strings.Split(strings.TrimSpace(st.log.String()), "\n") {
			// Examples with Redis, of other tests, log when the name of their server has not been found, which is whenever the resolver says so.
			if !strings.Contains(line, "Redis at redis.internal:6379 cannot be used yet") {
				own = append(own, line)
			}
		}
		must.Equal(t, strings.Join(own, "\n"), strings.TrimSpace(s.Text), "%s: the log has", s.Place)
		return
	}
	t.Error("the warning is not there")
}

// tableWords returns the words in code of the first column of the table with such a heading of that column.
func tableWords(t *testing.T, text, heading string) []string {
	t.Helper()
	_, table, found := strings.Cut(text, "\n| "+heading+" |")
	if !found {
		t.Fatalf("there is no table of %q", heading)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var words []string
	for _, row := range strings.Split(table, "\n")[2:] {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			words = append(words, m[1])
		}
	}
	return words
}

// settingsOf returns the names in Traefik of the fields of an object of the schema of rules.
func settingsOf(object string) []string {
	names := ruleset.Names(object)
	for i := range names {
		names[i] = ruleset.CamelCase(names[i])
	}
	return names
}

// dotted returns the fields of a struct in an object of that name.
func dotted(name string, of interface{}) []string {
	var words []string
	for _, field := range fieldNames(of) {
		words = append(words, name+"."+field)
	}
	return words
}

func without(list []string, words ...string) []string {
	var left []string
	for _, item := range list {
		keep := true
		for _, word := range words {
			keep = keep && item != word
		}
		if keep {
			left = append(left, item)
		}
	}
	return left
}

func TestDocsHaveTheSettingsThatTheCodeHas(t *testing.T) {
	page := manual.Page(t, "docs/traefik.md")
	rateLimit := []string{"average", "period", "sourceCriterion", "redis"}
	manual.SameWords(t, "of the middleware", tableWords(t, manual.Section(t, page, "### Of the middleware"), "setting"), without(fieldNames(Config{}), rateLimit...))
	files := manual.Page(t, "docs/rules.md")
	manual.SameWords(t, "of a rule", tableWords(t, manual.Section(t, files, "## `rules`"), "field"), ruleset.Names("rule"))
	manual.SameWords(t, "of match", tableWords(t, manual.Section(t, files, "### `match`"), "field"), ruleset.Names("match"))
	for _, setting := range tableWords(t, manual.Section(t, page, "### Of a rule"), "setting") {
		must.Contain(t, " "+strings.Join(settingsOf("rule"), " ")+" ", " "+setting+" ", "a rule has no %s", setting)
	}
	for _, field := range append(fieldNames(config.Descriptor{}), fieldNames(config.DescriptorEntry{})...) {
		must.Contain(t, manual.Section(t, page, "### Envoy's descriptors"), "`"+field+"`", "of descriptors: %s is missing", field)
	}
	manual.SameWords(t, "of ipStrategy", tableWords(t, manual.Section(t, page, "### Of `ipStrategy`"), "setting"), fieldNames(config.IPStrategy{}))
	manual.SameWords(t, "of metrics", tableWords(t, manual.Section(t, page, "## Metrics"), "setting of metrics"), fieldNames(config.Metrics{}))
	guards := manual.Section(t, page, "### Of `guard`")
	manual.SameWords(t, "of guard", tableWords(t, guards, "setting of guard"), fieldNames(config.Guard{}))
	manual.SameWords(t, "of cors", tableWords(t, manual.Section(t, page, "### Of `cors`"), "setting of cors"), fieldNames(config.CORS{}))
	manual.SameWords(t, "of a guard's priority", tableWords(t, guards, "setting of priority"), fieldNames(config.GuardPriority{}))
	manual.SameWords(t, "of a guard's pressure", tableWords(t, guards, "setting of pressure"), fieldNames(config.GuardPressure{}))
	manual.SameWords(t, "of advisor", tableWords(t, manual.Section(t, page, "### Of `advisor`"), "setting of advisor"), fieldNames(config.Advisor{}))
	store := manual.Section(t, page, "### Of `store`")
	manual.SameWords(t, "of store", tableWords(t, store, "setting"), fieldNames(config.Store{}))
	manual.SameWords(t, "of store.memory", tableWords(t, store, "setting of memory"), fieldNames(config.Memory{}))
	manual.SameWords(t, "of store.redis", tableWords(t, store, "setting of redis"), fieldNames(config.Redis{}))
	manual.SameWords(t, "of store.redis.tls and advisor.tls", tableWords(t, store, "setting of tls"), fieldNames(config.ClientTLS{}))

	words := append(without(rateLimit, "sourceCriterion", "redis"), "burst")
	words = append(words, dotted("sourceCriterion", config.SourceCriterion{})...)
	words = append(words, without(dotted("redis", config.RateLimitRedis{}), "redis.tls")...)
	words = append(words, dotted("redis.tls", config.RateLimitTLS{})...)
	manual.SameWords(t, "words of RateLimit", tableWords(t, manual.Section(t, manual.Page(t, "docs/from-traefik.md"), "## RateLimit"), "word"), words)
}

func TestDocsHaveTheWordsThatTheCodeTakes(t *testing.T) {
	page := manual.Page(t, "docs/traefik.md")
	_, err := match.ParseSource("?")
	_, list, found := strings.Cut(fmt.Sprint(err), "must be one of ")
	if !found {
		t.Fatalf("the error is %v", err)
	}
	sources := manual.Section(t, manual.Page(t, "docs/keys.md"), "## Every source, in every dialect")
	for _, kind := range strings.Split(list, ", ") {
		if !regexp.MustCompile("(?m)^\\|.*\\|.*\\|.*`" + kind + "[`:]").MatchString(sources) {
			t.Errorf("docs/keys.md has no source %s in its third column", kind)
		}
	}

	rules := manual.Section(t, manual.Page(t, "docs/rules.md"), "## `rules`")
	for setting, words := range map[string][]string{"algorithm": rate.AlgorithmNames, "on_error": core.OnErrorNames} {
		row := regexp.MustCompile("(?m)^\\| `" + setting + "` .*$").FindString(rules)
		for _, word := range words {
			must.Contain(t, row, "`"+word+"`", "%s: %s is missing", setting, word)
		}
	}
	row := regexp.MustCompile("(?m)^\\| `headers` .*$").FindString(manual.Section(t, page, "### Of the middleware"))
	for _, word := range answer.FieldNames {
		must.Contain(t, row, "`"+word+"`", "headers: %s is missing", word)
	}

	refused := []string{"addresses", "poolsize", "onlimit: defer"}
	shown := tableWords(t, manual.Section(t, page, "### Not in this version"), "refused")
	for i := range shown {
		shown[i] = strings.ToLower(shown[i])
	}
	manual.SameWords(t, "what is not in this version", without(shown, "address"), refused)
}

// Else what a user writes would be taken, and not be read.
func TestARuleHasTheFieldsOfTheSchema(t *testing.T) {
	manual.SameWords(t, "of Rule", fieldNames(Rule{}), settingsOf("rule"))
}

// What `weir convert` prints for Traefik loads.
func TestConvertedConfigurationsLoad(t *testing.T) {
	examples, err := filepath.Glob("../cmd/convert/testdata/*.txt")
	must.Succeed(t, err)
	loaded := 0
	for _, example := range examples {
		printed := manual.Converted(t, example)
		if !strings.Contains(printed, "weir:\n") {
			continue
		}
		for _, config := range configurations(t, manual.Snippet{Place: example, Language: "yaml", Text: printed}) {
			loaded++
			if err := load(t, config); err != nil {
				t.Errorf("%s: %s is refused: %v", example, config.middleware, err)
			}
		}
	}
	must.Equal(t, loaded > 7, true, "%d middlewares", loaded)
}
