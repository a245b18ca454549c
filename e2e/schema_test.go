package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
	rulesyaml "github.com/proxyweir/weir/core/ruleset/yaml"
	"github.com/proxyweir/weir/tools/must"
)

var schemaFile = filepath.Join("..", "docs", "rules.schema.json")

// readSchema returns the schema of rule files in two forms: compiled, and as it is written.
func readSchema(t *testing.T) (*jsonschema.Schema, object) {
	t.Helper()
	text, err := os.ReadFile(schemaFile)
	must.Succeed(t, err)
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	must.Succeed(t, err)
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	must.Succeed(t, compiler.AddResource("rules.schema.json", document))
	schema, err := compiler.Compile("rules.schema.json") // this validates it against its own schema
	must.Succeed(t, err)
	var written object
	must.Succeed(t, json.Unmarshal(text, &written))
	return schema, written
}

// object is a schema's description of an object or a field.
type object struct {
	Schema               string             `json:"$schema"`
	Description          string             `json:"description"`
	AdditionalProperties any                `json:"additionalProperties"`
	Properties           map[string]object  `json:"properties"`
	Enum                 []string           `json:"enum"`
	Required             []string           `json:"required"`
	Ref                  string             `json:"$ref"`
	Minimum              int64              `json:"minimum"`
	Maximum              int64              `json:"maximum"`
	AnyOf                []object           `json:"anyOf"`
	Defs                 map[string]*object `json:"$defs"`
}

func TestTheSchemaHasTheFieldsThatThereAre(t *testing.T) {
	_, root := readSchema(t)
	must.Equal(t, root.Schema, "https://json-schema.org/draft/2020-12/schema", "it is of")
	for kind, fields := range ruleset.Fields() {
		of := &root
		if kind != "file" {
			of = root.Defs[kind]
		}
		if of == nil {
			t.Errorf("the schema has no %s", kind)
			continue
		}
		if of.AdditionalProperties != false {
			t.Errorf("%s: additionalProperties are %v", kind, of.AdditionalProperties)
		}
		for _, name := range fields {
			if _, there := of.Properties[name]; !there {
				t.Errorf("%s: the schema lacks %s", kind, name)
			}
		}
		for name, property := range of.Properties {
			if !slices.Contains(fields, name) {
				t.Errorf("%s: the schema has %s, which is no field", kind, name)
			}
			if !strings.HasSuffix(property.Description, ".") {
				t.Errorf("%s: %s has no description that is a sentence: %q", kind, name, property.Description)
			}
		}
	}
	for kind, of := range root.Defs {
		if _, there := ruleset.Fields()[kind]; len(of.Properties) > 0 && !there {
			t.Errorf("the schema has %s, which there is not", kind)
		}
	}
}

// The schema and the table by which rules are read agree on each field.
func TestTheSchemaSaysWhatTheTableOfFieldsSays(t *testing.T) {
	_, root := readSchema(t)
	for kind, fields := range ruleset.Schema {
		var needed []string
		for _, f := range fields {
			property := root.Defs[kind].Properties[f.Name]
			must.Equal(t, property.Description, f.Doc, "%s: %s is described as", kind, f.Name)
			if f.Kind == ruleset.OneWord && !slices.Equal(property.Enum, f.Words) {
				t.Errorf("%s: %s: the schema has %q, not %q", kind, f.Name, property.Enum, f.Words)
			}
			if name, found := strings.CutPrefix(property.Ref, "#/$defs/"); found && f.Kind == ruleset.OneNumber {
				property = *root.Defs[name]
			}
			for _, of := range property.AnyOf {
				if of.Maximum > 0 && (of.Minimum != f.Least || of.Maximum != f.Most) {
					t.Errorf("%s: %s: the schema takes %d to %d, not %d to %d", kind, f.Name, of.Minimum, of.Maximum, f.Least, f.Most)
				}
			}
			if f.Needed {
				needed = append(needed, f.Name)
			}
		}
		if !slices.Equal(root.Defs[kind].Required, needed) {
			t.Errorf("%s: the schema requires %q, not %q", kind, root.Defs[kind].Required, needed)
		}
	}
}

// For each field, Weir accepts every word that the schema has, and the schema has every word that exists.
func TestTheSchemaHasTheWordsThatThereAre(t *testing.T) {
	_, root := readSchema(t)
	rule := root.Defs["rule"].Properties
	if got := root.Defs["candidate"].Properties["algorithm"].Enum; !slices.Equal(got, rate.AlgorithmNames) {
		t.Errorf("candidate: algorithm: the schema has %q, not %q", got, rate.AlgorithmNames)
	}
	for field, want := range map[string][]string{"algorithm": rate.AlgorithmNames, "on_error": core.OnErrorNames, "window_start": rate.WindowStarts} {
		if !slices.Equal(rule[field].Enum, want) {
			t.Errorf("%s: the schema has %q, not %q", field, rule[field].Enum, want)
		}
	}
	words := 0
	for field, property := range rule {
		offered := property.Enum
		for _, of := range property.AnyOf {
			offered = append(offered, of.Enum...)
		}
		for _, word := range offered {
			words++
			more := ""
			if field == "refill" || word == "delay" {
				more = "algorithm: token_bucket, "
			} else if field == "window_start" {
				more = "algorithm: fixed_window, "
			}
			must.Equal(t, loadRules("rules.yaml", fmt.Sprintf("rules: [{name: a, limit: 5/1m, %s%s: %s}]", more, field, word)), "", "%s: %s is in the schema", field, word)
		}
	}
	for _, of := range root.Defs["source"].AnyOf {
		for _, word := range of.Enum {
			words++
			must.Equal(t, loadRules("rules.yaml", fmt.Sprintf("rules: [{name: a, limit: 5/1m, key: %s}]", word)), "", "key: %s is in the schema", word)
		}
	}
	for _, of := range root.Defs["rate_limit"].Properties["unit"].AnyOf {
		for _, word := range of.Enum {
			words++
			must.Equal(t, loadRules("rules.yaml", fmt.Sprintf("{domain: d, descriptors: [{key: a, rate_limit: {unit: %s, requests_per_unit: 5}}]}", word)), "", "unit: %s is in the schema", word)
		}
	}
	if words < 29 {
		t.Errorf("only %d words were found", words)
	}
}

// loadRules loads a rule file as Weir does, and returns the errors.
func loadRules(name, text string) string {
	parse := rulesyaml.Parse
	if strings.HasSuffix(name, ".json") {
		parse = ruleset.ParseJSON
	}
	root, problems := parse(name, []byte(text))
	if len(problems) > 0 {
		return problems.Error()
	}
	f, problems := ruleset.Decode(name, root)
	if len(problems) > 0 {
		return problems.Error()
	}
	if _, err := ruleset.NewSet([]*ruleset.File{f}, ""); err != nil {
		return err.Error()
	}
	return ""
}

// validate validates a rule file against the schema, as editors do, and returns the errors.
func validate(t *testing.T, schema *jsonschema.Schema, text string) string {
	t.Helper()
	var document any
	if err := yaml.Unmarshal([]byte(text), &document); err != nil {
		return err.Error()
	}
	asJSON, err := json.Marshal(document)
	if err != nil { // a key that is no text
		return err.Error()
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(asJSON)))
	must.Succeed(t, err)
	if err := schema.Validate(value); err != nil {
		return err.Error()
	}
	return ""
}

// A fenced block of a page, possibly in a list, with the HTML comment right before it, such as "in: weir" or "refused: …".
var fenced = regexp.MustCompile("(?ms)(?:<!-- ([^\n]*) -->\n)?^( *)```(yaml|yml|json)[^\n]*\n(.*?)^ *```")

// isRuleFile reports whether a block has rules or a domain at its top level.
func isRuleFile(text string) bool {
	var top map[string]any
	if yaml.Unmarshal([]byte(text), &top) != nil {
		// It may be a broken rule file.
		return regexp.MustCompile(`(?m)^(rules|domain):`).MatchString(text)
	}
	if _, there := top["domain"]; there {
		return true
	}
	rules, ok := top["rules"].([]any)
	if !ok || len(rules) == 0 {
		return false
	}
	first, ok := rules[0].(map[string]any)
	_, advised := first["rule"] // in an advisor's file, and in what the admin API says of advice
	return ok && !advised
}

func TestRuleFilesInTheDocs(t *testing.T) {
	schema, _ := readSchema(t)
	pages, err := filepath.Glob(filepath.Join("..", "docs", "*.md"))
	must.Succeed(t, err)
	found := 0
	for _, page := range append(pages, filepath.Join("..", "README.md")) {
		text, err := os.ReadFile(page)
		must.Succeed(t, err)
		for _, at := range fenced.FindAllStringSubmatchIndex(string(text), -1) {
			marker := ""
			if at[2] >= 0 {
				marker = string(text[at[2]:at[3]])
			}
			indent, kind, block := string(text[at[4]:at[5]]), string(text[at[6]:at[7]]), string(text[at[8]:at[9]])
			block = strings.TrimPrefix(strings.ReplaceAll("\n"+block, "\n"+indent, "\n"), "\n")
			// A part of another file is no rule file: the plugin's configuration also has rules.
			if strings.HasPrefix(marker, "in: ") || !isRuleFile(block) {
				continue
			}
			found++
			where := fmt.Sprintf("%s:%d", filepath.Base(page), 1+strings.Count(string(text[:at[0]]), "\n"))
			if strings.HasPrefix(marker, "refused") {
				if loadRules("rules."+kind, block) == "" {
					t.Errorf("%s: Weir takes\n%s", where, block)
				}
				continue
			}
			if said := validate(t, schema, block); said != "" {
				t.Errorf("%s: the schema refuses\n%s\n%s", where, block, said)
			}
			if said := loadRules("rules."+kind, block); said != "" {
				t.Errorf("%s: Weir refuses\n%s\n%s", where, block, said)
			}
		}
	}
	if found == 0 {
		t.Error("the docs have no rule file")
	}
}

// inRule adds fields to a rule that is valid without them.
func inRule(fields string) string {
	return "rules: [{name: a, limit: 5/1m, " + fields + "}]"
}

// inDescriptor adds fields to a descriptor.
func inDescriptor(fields string) string {
	return "{domain: d, descriptors: [{" + fields + "}]}"
}

func TestTheSchemaTakesWhatWeirTakes(t *testing.T) {
	schema, _ := readSchema(t)
	for _, file := range []string{
		`{"rules": [{"name": "a", "limit": "5/1m"}]}`,
		"domain: d",
		"{domain: d, descriptors: []}",
		"{rules: [{name: a, limit: 5/1m}], domain: d, descriptors: [{key: a}]}",
		"rules: [{name: 404, limit: 5/1m}]",
		"rules: [{name: a, limit: unlimited}]",
		"rules: [{name: a, limit: 1000/day, time_zone: Europe/Berlin}]",
		"rules: [{name: a, limit: 5/1m30s}]", "rules: [{name: a, limit: 5/7d}]", "rules: [{name: a, limit: 5/1d12h}]", "rules: [{name: a, limit: 5/1.5s}]",
		"rules: [{name: a, limit: 1000000000/1ms}]",
		inRule("key: client_ip"), inRule("key: [client_ip, path]"), inRule("key: 'header:X-Api-Key'"), inRule("key: ['static:all']"), inRule("key: ['cookie:a']"),
		inRule("match: {methods: get}"), inRule("match: {methods: [GET, POST], hosts: '*.example.com', paths: /a, path_prefixes: [/v1, /v2]}"),
		inRule("match: {headers: {X-Plan: free, X-Version: 2, X-Beta: true, Authorization: '*'}}"),
		inRule("match: {except_ips: [10.0.0.0/8, '2001:db8::1', '2001:db8::/32']}"),
		inRule("tiers: {source: 'header:X-Plan', limits: {free: 100/1m, pro: unlimited}}"),
		"rules: [{name: a, tiers: {source: 'header:X-Plan', limits: {free: 100/1m, '*': 50/1m}}}]",
		inRule("enforcement: 10%"), inRule("enforcement: '99%', on_limit: delay, algorithm: token_bucket"),
		inRule("limit_from: {source: 'header:X-Limit'}"), inRule("limit_from: {source: 'header:X-Limit', max: 9/1m}"), inRule("limit_from: {source: 'cookie:a', max: 9}"), inRule("limit_from: {source: path, max: '9'}"),
		inRule("overrides: [{key: 192.0.2.1, limit: 1000/1m}]"), inRule("key: 'header:X-User', overrides: [{key: 5, limit: unlimited}]"), inRule("overrides: []"),
		inRule("key: [client_ip, path], overrides: [{key: [192.0.2.1, /search], limit: 1000/1m}]"),
		inRule("algorithm: token_bucket, burst: 20, refill: interval"), inRule("segments: 12"), inRule("algorithm: sliding_window_counter, segments: 60"), inRule("window_start: spread"), inRule("algorithm: fixed_window, window_start: first_request"), inRule("segments: 12, window_start: spread, consistency: strict"), inRule("consistency: eventual, regions: eventual"), inRule("regions: lease"), inRule("consistency: eventual 1s, regions: eventual 2s"), inRule("window_start: clock"), inRule("candidate: {limit: 5/1m, algorithm: fixed_window, window_start: first_request}"), "rules: [{name: a, limit: 5/month on 17}]", "rules: [{name: a, limit: 5/month on 31}]", "rules: [{name: a, limit: 5/week on sunday}]", "rules: [{name: a, limit: 5/day, window_start: clock}]", inRule("candidate: {limit: 5/1m, segments: 2}"), inRule("algorithm: token_bucket, burst: '20'"),
		inRule("algorithm: leaky_bucket, max_delay: 1m30s, burst: 4"), "rules: [{name: a, limit: 5/week, algorithm: fixed_window}]",
		inRule("cost: 5"), inRule("cost: '5'"), inRule("cost: 'header:X-Cost'"),
		inRule("ipv4_prefix: 24, ipv6_prefix: 48"), inRule("ipv4_prefix: '32', ipv6_prefix: '128'"),
		inRule("enforcement: shadow, on_limit: reject, on_error: closed, on_missing_key: skip, count_rejected: true"),
		inRule("enforcement: soft 20% 30s"), inRule("enforcement: ' soft  100 1d12h '"), inRule("algorithm: token_bucket, enforcement: soft 1000 366d"),
		inRule("algorithm: token_bucket, on_limit: delay, max_delay: 3s, max_waiting: 50, max_waiting_per_key: 5"), inRule("algorithm: leaky_bucket, on_limit: delay, max_waiting: '50'"),
		"rules: [{name: a, limit: 5/day, on_limit: delay, max_delay: 1h}]", "rules: [{name: a, on_limit: delay, tiers: {source: path, limits: {'*': 5/day}}}]",
		inRule("algorithm: sliding_window_log, on_limit: delay, enforcement: hard, count_rejected: false"), inRule("algorithm: token_bucket, on_limit: delay, enforcement: shadow"),
		inRule("count: 401"), inRule("count: [401, 4xx, '5XX', 101]"), inRule("count: '401, 403 5xx'"), inRule("count: [401], enforcement: shadow, count_rejected: false"),
		inRule("count_match: {methods: POST}"), inRule("count_match: {paths: /login, except_ips: 10.0.0.0/8}, count: 401, penalty: 1m"),
		inRule("penalty: 10m"), inRule("penalty: [1m, 1h, 1d12h]"), inRule("penalty: '1m 10m, 7d'"), inRule("penalty: 1m, enforcement: soft 20% 30s, count_rejected: true"),
		inRule("concurrency: 5"), inRule("concurrency: '5', tiers: {source: 'header:X-Plan', limits: {pro: unlimited}}"), "rules: [{name: a, concurrency: 5}]",
		"rules: [{name: a, concurrency: 5, key: host, match: {paths: /a}, enforcement: shadow, on_limit: reject, count_rejected: false, on_error: open, on_missing_key: reject, ipv4_prefix: 24, overrides: []}]",
		inRule("answer: {status: 403, close: true}"), inRule("answer: {status: '503', body: '<p>{limit}', type: text/html; charset=utf-8}"), inRule("answer: {file: /no/such/file}"), inRule("answer: {close: true}, message: No."),
		inRule("answer: {redirect: /slow}"), inRule("answer: {redirect: 'https://example.com/slow?by={rule}', status: 307}"), inRule("answer: {redirect: /}"), "rules: [{name: a, concurrency: 5, answer: {status: 503}}]",
		inRule("candidate: {limit: 4/1m}"), inRule("candidate: {limit: 4/day, algorithm: fixed_window, time_zone: Europe/Berlin}, overrides: []"),
		inRule("candidate: {limit: 5/1m, algorithm: token_bucket, burst: 9, refill: interval}, enforcement: shadow"),
		inDescriptor("key: message_type, value: marketing, rate_limit: {unit: day, requests_per_unit: 5}"),
		inDescriptor("key: a, value: 404"), inDescriptor("key: a, value: 1.5"), inDescriptor("key: a, value: true"), inDescriptor("key: a, value: ''"),
		inDescriptor("key: a, rate_limit: {unit: Minute, requests_per_unit: 0}"), inDescriptor("key: a, rate_limit: {unit: SECOND, requests_per_unit: '5'}"),
		inDescriptor("key: a, rate_limit: {unlimited: true}"), inDescriptor("key: a, rate_limit: {unlimited: false, unit: week, requests_per_unit: 1000000000}"),
		inDescriptor("key: a, rate_limit: {unit: year, requests_per_unit: 5, name: n, replaces: [{name: m}]}"), inDescriptor("key: a, rate_limit: {unlimited: true, replaces: []}"),
		inDescriptor("key: a, shadow_mode: true, detailed_metric: false, share_threshold: false, quota_mode: false, value_to_metric: false"),
		inDescriptor("key: a, shadow_mode: false, detailed_metric: true, quota_mode: true, value_to_metric: true"),
		inDescriptor("key: a, value: 'b*', share_threshold: true"), inDescriptor("key: a, value: '/api/*/action', share_threshold: true"), inDescriptor("key: a, value: '*b'"),
		inDescriptor("key: a, metadata: {name: x, of: {any: [1, null, {kind: true}]}}"), inDescriptor("key: a, metadata: {}"),
		inDescriptor("key: a, descriptors: [{key: b, value: c, descriptors: [{key: d}]}]"),
	} {
		must.Equal(t, loadRules("rules.yaml", file), "", "Weir refuses %s", file)
		must.Equal(t, validate(t, schema, file), "", "the schema refuses %s", file)
	}
}

func TestTheSchemaRefusesWhatWeirRefuses(t *testing.T) {
	schema, _ := readSchema(t)
	for _, file := range []string{
		"", "[]", "text", "{}", "rules:", "rules: []", "rules: {name: a, limit: 5/1m}", "rules: [a]", "{rule: [{name: a, limit: 5/1m}]}",
		"rules: [{limit: 5/1m}]", "rules: [{name: a}]", "rules: [{name: '', limit: 5/1m}]", "rules: [{name: a b, limit: 5/1m}]",
		"rules: [{name: " + strings.Repeat("a", 65) + ", limit: 5/1m}]",
		"rules: [{name: a, limit: 5}]", "rules: [{name: a, limit: 5/}]", "rules: [{name: a, limit: 0/1m}]", "rules: [{name: a, limit: -5/1m}]", "rules: [{name: a, limit: five/1m}]",
		"rules: [{name: a, limit: 5/m}]", "rules: [{name: a, limit: 5/1 minute}]", "rules: [{name: a, limit: 5/year}]", "rules: [{name: a, limit: 5/1}]", "rules: [{name: a, limit: Unlimited}]", "rules: [{name: a, limit: [5/1m]}]",
		inRule("limits: 5/1m"), inRule("Algorithm: token_bucket"), inRule("count-rejected: true"), inRule("store: memory"),
		inRule("key: []"), inRule("key: ''"), inRule("key: client-ip"), inRule("key: 'header:'"), inRule("key: 'header:a b'"), inRule("key: 'path:a'"), inRule("key: {source: path}"), inRule("key: ['{client_ip}']"),
		inRule("match: [/a]"), inRule("match: {path: /a}"), inRule("match: {paths: a}"), inRule("match: {path_prefixes: [v1]}"), inRule("match: {methods: []}"), inRule("match: {methods: ['']}"),
		inRule("match: {hosts: 'a*.example.com'}"), inRule("match: {hosts: ['*.']}"), inRule("match: {headers: [X-Plan]}"), inRule("match: {headers: {X-Plan: [free]}}"), inRule("match: {headers: {'': free}}"), inRule("match: {except_ips: localhost}"),
		inRule("enforcement: 0%"), inRule("enforcement: 100%"), inRule("enforcement: 1.5%"), inRule("enforcement: 10%, penalty: 1m"), inRule("enforcement: 10%, on_limit: delay, algorithm: token_bucket, max_waiting: 5"),
		inRule("enforcement: 10%, on_limit: delay, algorithm: sliding_window_log"),
		inRule("limit_from: 'header:X-Limit'"), inRule("limit_from: {}"), inRule("limit_from: {max: 9/1m}"), inRule("limit_from: {source: plan}"), inRule("limit_from: {source: path, max: unlimited}"),
		inRule("limit_from: {source: path, max: 0}"), inRule("limit_from: {source: path, max: '0/1m'}"), inRule("limit_from: {source: path, least: 9}"), "rules: [{name: a, limit: unlimited, limit_from: {source: path}}]",
		"rules: [{name: a, concurrency: 5, limit_from: {source: path}}]", inRule("limit_from: {source: path}, tiers: {source: path, limits: {/a: 9/1m}}"), inRule("limit_from: {source: path}, candidate: {limit: 4/1m}"),
		inRule("tiers: {limits: {free: 5/1m}}"), inRule("tiers: {source: 'header:X-Plan'}"), inRule("tiers: {source: 'header:X-Plan', limits: {}}"), inRule("tiers: {source: plan, limits: {free: 5/1m}}"),
		inRule("tiers: {source: 'header:X-Plan', limits: {free: 5}}"), inRule("tiers: {source: 'header:X-Plan', limits: {'*': 5/1m}}"), inRule("tiers: {source: 'header:X-Plan', limits: [5/1m]}"),
		"rules: [{name: a, tiers: {source: 'header:X-Plan', limits: {free: 5/1m}}}]",
		inRule("overrides: {key: a, limit: 5/1m}"), inRule("overrides: [{key: a}]"), inRule("overrides: [{limit: 5/1m}]"), inRule("overrides: [{key: a, limit: 5}]"), inRule("overrides: [{key: [], limit: 5/1m}]"), inRule("overrides: [a]"),
		inRule("algorithm: tokenbucket"), inRule("algorithm: token_bucket, burst: 0"), inRule("algorithm: token_bucket, burst: some"), inRule("algorithm: token_bucket, burst: 1.5"), inRule("algorithm: token_bucket, refill: never"),
		inRule("segments: 1"), inRule("segments: 61"), inRule("algorithm: token_bucket, segments: 12"), inRule("segments: some"), inRule("window_start: first_request"), inRule("consistency: eventual, regions: strict"), inRule("consistency: eventual, regions: eventual soon"), inRule("regions: eventual"), inRule("consistency: lease, regions: lease"), inRule("regions: lease, count: [401]"), inRule("regions: lease, cost_response: [bytes]"), inRule("regions: lease, algorithm: leaky_bucket"), inRule("regions: lease, algorithm: token_bucket, refill: interval"), inRule("regions: lease, penalty: [1h]"), "rules: [{name: a, limit: 5/day, regions: lease}]", inRule("window_start: now"), inRule("algorithm: token_bucket, window_start: spread"), inRule("algorithm: token_bucket, window_start: clock"), inRule("window_start: spread, consistency: eventual"), "rules: [{name: a, limit: 5/day, window_start: spread}]", "rules: [{name: a, limit: 5/month on 32}]", "rules: [{name: a, limit: 5/month on 0}]", "rules: [{name: a, limit: 5/week on 1}]", "rules: [{name: a, limit: 5/day on monday}]",
		inRule("burst: 5"), inRule("algorithm: fixed_window, burst: 5"), inRule("refill: interval"), inRule("algorithm: leaky_bucket, refill: interval"), inRule("max_delay: 5s"), inRule("algorithm: token_bucket, max_delay: 5s"),
		"rules: [{name: a, limit: 5/day, algorithm: token_bucket}]",
		inRule("cost: 0"), inRule("cost: -1"), inRule("cost: 'header:'"), inRule("cost: 'path'"), inRule("algorithm: leaky_bucket, max_delay: 10"), inRule("algorithm: leaky_bucket, max_delay: soon"),
		inRule("ipv4_prefix: 33"), inRule("ipv4_prefix: 0"), inRule("ipv6_prefix: 129"), inRule("ipv6_prefix: '129'"),
		inRule("enforcement: soft"), inRule("enforcement: soft 20%"), inRule("enforcement: soft 0% 30s"), inRule("enforcement: soft 1001 30s"), inRule("enforcement: soft 20% 30"), inRule("enforcement: Soft 20% 30s"),
		inRule("enforcement: soft 20% day"), inRule("algorithm: leaky_bucket, enforcement: soft 20% 30s"), "rules: [{name: a, limit: unlimited, enforcement: soft 20% 30s}]",
		inRule("on_limit: delay"), inRule("on_limit: defer"), inRule("algorithm: sliding_window_counter, on_limit: delay"), inRule("algorithm: token_bucket, on_limit: delay, count_rejected: true"),
		inRule("algorithm: sliding_window_log, on_limit: delay, enforcement: shadow"), inRule("algorithm: token_bucket, on_limit: delay, enforcement: shadow, max_waiting: 5"), inRule("algorithm: token_bucket, on_limit: delay, enforcement: soft 20% 30s"), inRule("algorithm: token_bucket, on_limit: delay, count: 401"),
		inRule("algorithm: token_bucket, on_limit: delay, candidate: {limit: 4/1m}"), "rules: [{name: a, limit: unlimited, algorithm: token_bucket, on_limit: delay}]",
		inRule("max_waiting: 5"), inRule("max_waiting_per_key: 5"), inRule("algorithm: token_bucket, on_limit: delay, max_waiting_per_key: 0"), inRule("algorithm: token_bucket, on_limit: delay, max_waiting: 0"), inRule("algorithm: token_bucket, on_limit: delay, max_waiting: 1000001"), inRule("algorithm: leaky_bucket, max_waiting: 5"),
		inRule("count: []"), inRule("count: ''"), inRule("count: 40"), inRule("count: [401, 600]"), inRule("count: 1xx"), inRule("count: '401; 403'"), inRule("count: {status: 401}"), inRule("count: 401, count_rejected: true"),
		inRule("respect_upstream: 1m, penalty: 1m"), inRule("count: 401, enforcement: soft 20% 30s"), inRule("algorithm: leaky_bucket, count: 401"), inRule("count: 401, candidate: {limit: 4/1m}"), "rules: [{name: a, limit: unlimited, count: 401}]",
		inRule("count_match: {}"), inRule("count_match: [POST]"), inRule("count_match: {path: /a}"), inRule("algorithm: leaky_bucket, count_match: {methods: POST}"), inRule("count_match: {methods: POST}, candidate: {limit: 4/1m}"),
		"rules: [{name: a, limit: unlimited, count_match: {methods: POST}}]", "rules: [{name: a, concurrency: 5, count_match: {methods: POST}}]",
		inRule("penalty: []"), inRule("penalty: ''"), inRule("penalty: 10"), inRule("penalty: [1m, soon]"), inRule("penalty: day"), inRule("penalty: 1m, enforcement: shadow"), "rules: [{name: a, limit: unlimited, penalty: 1m}]",
		inRule("penalty: [1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s, 1s]"),
		inRule("concurrency: 0"), inRule("concurrency: many"), inRule("concurrency: [5]"), "rules: [{name: a, limit: unlimited, concurrency: 5}]", "rules: [{name: a, concurrency: 5, tiers: {source: path, limits: {pro: 5/1m}}}]",
		"rules: [{name: a, concurrency: 5, algorithm: token_bucket}]", "rules: [{name: a, concurrency: 5, cost: 5}]", "rules: [{name: a, concurrency: 5, enforcement: soft 20% 30s}]", "rules: [{name: a, concurrency: 5, count: 401}]",
		"rules: [{name: a, concurrency: 5, overrides: [{key: 192.0.2.1, limit: 5/1m}]}]", "rules: [{name: a, concurrency: 5, count_rejected: true}]", "rules: [{name: a, concurrency: 5, candidate: {limit: 5/1m}}]",
		inRule("answer: {}"), inRule("answer: 403"), inRule("answer: {status: 200}"), inRule("answer: {status: 302}"), inRule("answer: {status: 600}"), inRule("answer: {status: teapot}"), inRule("answer: {body: a, file: b}"), inRule("answer: {body: a, redirect: /b}"),
		inRule("answer: {type: text/html}"), inRule("answer: {type: html, body: a}"), inRule("answer: {body: ''}"), inRule("answer: {redirect: slow}"), inRule("answer: {redirect: //example.com/slow}"), inRule("answer: {redirect: 'javascript:alert(1)'}"), inRule("answer: {redirect: '/a b'}"),
		inRule("answer: {redirect: 'https://{host}/slow'}"), inRule("answer: {redirect: /slow, status: 301}"), inRule("answer: {redirect: /slow, status: 403}"), inRule("answer: {close: perhaps}"), inRule("answer: {body: a}, message: b"), inRule("answer: {statuss: 403}"), "rules: [{name: a, limit: unlimited, answer: {status: 403}}]",
		inRule("candidate: {}"), inRule("candidate: 4/1m"), inRule("candidate: {limit: 4}"), inRule("candidate: {limit: unlimited}"), inRule("candidate: {limit: 4/1m, limits: 4/1m}"), inRule("candidate: {limit: 4/1m, algorithm: bucket}"),
		inRule("candidate: {limit: 4/day, algorithm: fixed_window, time_zone: Local}"), inRule("candidate: {limit: 4/1m, algorithm: token_bucket, burst: 0}"), inRule("candidate: {limit: 4/1m}, overrides: [{key: 192.0.2.1, limit: 5/1m}]"),
		inRule("candidate: {limit: 4/1m}, tiers: {source: path, limits: {pro: 9/1m}}"), "rules: [{name: a, limit: unlimited, candidate: {limit: 4/1m}}]",
		inRule("on_error: maybe"), inRule("on_missing_key: ignore"), inRule("count_rejected: perhaps"), inRule("time_zone: Local"),
		"{descriptors: [{key: a}]}", "{domain: '', descriptors: [{key: a}]}", "{domain: [d]}", "{domain: d, descriptors: {key: a}}", "{domain: d, descriptors: [a]}", "{domain: d, Descriptors: []}",
		inDescriptor("value: a"), inDescriptor("key: ''"), inDescriptor("key: a, Value: b"), inDescriptor("key: a, value: [b]"), inDescriptor("key: 'a*'"), inDescriptor("key: 'a*', value: b"), inDescriptor("key: 'a*b'"), inDescriptor("key: a, metadata: [b]"), inDescriptor("key: a, metadata: b"), inDescriptor("key: a, unit: day"),
		inDescriptor("key: a, quota_mode: perhaps"), inDescriptor("key: a, value_to_metric: 1"), inDescriptor("key: a, shadow_mode: perhaps"), inDescriptor("key: a, value: b, share_threshold: true"), inDescriptor("key: a, share_threshold: true"),
		inDescriptor("key: a, rate_limit: 5"), inDescriptor("key: a, rate_limit: {}"), inDescriptor("key: a, rate_limit: {unit: day}"), inDescriptor("key: a, rate_limit: {requests_per_unit: 5}"), inDescriptor("key: a, rate_limit: {unit: days, requests_per_unit: 5}"),
		inDescriptor("key: a, rate_limit: {unit: day, requests per_unit: 5}"), inDescriptor("key: a, rate_limit: {unit: day, requests_per_unit: -1}"), inDescriptor("key: a, rate_limit: {unit: day, requests_per_unit: 1000000001}"), inDescriptor("key: a, rate_limit: {unit: day, requests_per_unit: 1.5}"), inDescriptor("key: a, rate_limit: {unit: day, requests_per_unit: '010'}"),
		inDescriptor("key: a, rate_limit: {unlimited: true, unit: day}"), inDescriptor("key: a, rate_limit: {unlimited: false}"), inDescriptor("key: a, rate_limit: {unlimited: perhaps}"),
		inDescriptor("key: a, rate_limit: {unlimited: true, replaces: n}"), inDescriptor("key: a, rate_limit: {unlimited: true, replaces: [n]}"), inDescriptor("key: a, rate_limit: {unlimited: true, replaces: [{}]}"), inDescriptor("key: a, rate_limit: {unlimited: true, replaces: [{name: ''}]}"),
	} {
		if said := loadRules("rules.yaml", file); said == "" {
			t.Errorf("Weir takes %s", file)
		}
		if said := validate(t, schema, file); said == "" {
			t.Errorf("the schema takes %s", file)
		}
	}
}
