package envoyagreement

import (
	"fmt"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/envoyproxy/ratelimit/src/config"
	"go.yaml.in/yaml/v3"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/tools/must"
)

// oddFiles is how many files with odd parts a test makes.
const oddFiles = 2_000

// odd has scalars that YAML readers interpret differently.
var odd = []string{
	"yes", "no", "on", "Off", "y", "true", "TRUE", "False", "\"true\"", "~", "null", "\"\"", "0", "5", "\"5\"", "-1", "+5", "010", "0o17", "0x1F", "0b11", "5_000",
	"4294967295", "4294967296", "1000000001", "99999999999999999999", "1.5", "5.0", "1e3", ".inf", ".nan", "1:30", "190:20:30", "2001-01-01", "2001-12-14t21:59:43.10-05:00",
	"second", "HOUR", "fortnight", "\"a*\"", "\"*\"", "\"x*y\"", "'[x'", "\"é\"", "\"a b\"", "\"\\t\"", "\"\\x41\"", "\"\\u00e9\"", "<<", "=", "!!str 5", "[]", "{}", "[5]", "{a: b}", "[{name: n1}]", "[{key: a}]", "&a 5", "*a",
}

// fieldsOfTheirs are the field names that the service knows.
var fieldsOfTheirs = []string{
	"domain", "key", "value", "descriptors", "rate_limit", "unit", "requests_per_unit", "unlimited", "shadow_mode", "quota_mode", "name", "replaces",
	"detailed_metric", "value_to_metric", "share_threshold", "metadata",
}

// oddFile makes a file from a tree, with one or two parts that may be invalid.
func oddFile(t *testing.T, r *rand.Rand) string {
	t.Helper()
	tree := newTree(r, "d")
	if chance(r, 50) {
		tree = newStarTree(r, "d")
	}
	root := tree.node(r, true)
	holes := make(map[string]string)
	hole := func() *yaml.Node { // is replaced by an odd scalar in the text: as a node that would be quoted
		name := fmt.Sprintf("hole%dend", len(holes))
		holes[name] = oneOf(r, odd)
		return text(name)
	}
	for range 1 + r.Intn(2) {
		maps := mapsIn(root)
		m := oneOf(r, maps)
		if len(m.Content) == 0 {
			continue
		}
		at := 2 * r.Intn(len(m.Content)/2)
		switch r.Intn(11) {
		case 0, 1, 2:
			m.Content[at+1] = hole()
		case 3:
			field := m.Content[at].Value
			if field == "key" || field == "value" || field == "name" || field == "domain" {
				m.Content[at+1] = hole()
			}
		case 4: // one of the service's fields, anywhere
			field := oneOf(r, fieldsOfTheirs)
			if get(m, field) == nil {
				add(m, field, hole())
			}
		case 5:
			if get(m, "key") != nil {
				set(m, oneOf(r, []string{"value", "metadata", "quota_mode", "value_to_metric", "share_threshold", "shadow_mode", "key"}), hole())
			}
		case 6:
			if get(m, "key") != nil && knowsMetadata() {
				set(m, "metadata", newMap("route", newMap("name", text("x"), "weights", &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{number(5), hole()}})))
			}
		case 7: // a duplicate field
			m.Content = append(m.Content, m.Content[at], m.Content[at+1])
		case 8: // the key a_b, next to a with the value b
			if k := get(m, "key"); k != nil {
				set(m, "key", text(oneOf(r, []string{"a_x", "a", "b_xy", "a_x_y", "a*", "a*_x"})))
			}
		case 9:
			all := lists(root)
			if len(all) == 0 { // an earlier change has removed it
				continue
			}
			list := oneOf(r, all)
			for _, d := range list.Content {
				if k, v := get(d, "key"), get(d, "value"); k != nil && v != nil && v.Value != "" && chance(r, 30) {
					list.Content = append(list.Content, newMap("key", text(k.Value+"_"+v.Value)))
					break
				}
			}
		default:
			m.Content[at] = hole()
		}
	}
	file := marshal(t, root)
	for name, value := range holes {
		file = strings.ReplaceAll(file, name, value)
	}
	switch r.Intn(60) {
	case 0:
		file += "---\ndomain: e\n"
	case 1:
		file = "\ufeff" + file
	case 2:
		file = strings.ReplaceAll(file, "\n", "\r\n")
	case 3:
		file = "%YAML 1.1\n---\n" + file
	case 4:
		file += "...\n"
	}
	return file
}

// If only one side accepts a random file, a difference in the list explains that; otherwise the list is not complete. If both accept it, they
// find the same limits.
func TestOddFiles(t *testing.T) {
	r, seed := newRandom(t)
	seen := make(map[string]int)
	for i := range oddFiles {
		file := oddFile(t, r)
		_, roots, theirs := loadService(false, file)
		_, ours := loadWeir(file)
		switch {
		case theirs != nil && ours != nil:
			seen["refused by both"]++
		case theirs == nil && ours == nil:
			seen["taken by both"]++
			if err := compareRoots(r, []string{file}, roots, false); err != nil {
				t.Fatalf("seed %d, file %d: %v, in\n%s", seed, i, err, file)
			}
		default:
			if newer(theirs) {
				seen["newer than the module"]++
				continue
			}
			names, unlisted := differencesOf(theirs, ours)
			if unlisted != nil {
				t.Errorf("seed %d, file %d: of a file that the other side takes is said %q, which is no difference that is listed:\n%s", seed, i, unlisted, file)
			}
			for _, name := range names {
				seen[name]++
			}
		}
	}
	t.Logf("%d files: %v", oddFiles, seen)
	for _, kind := range []string{"refused by both", "taken by both", "A field in the wrong place", "A duplicate key in a map", "A `*` in a key", "No confusion"} {
		if seen[kind] == 0 {
			t.Errorf("%s: not met", kind)
		}
	}
}

// newer reports whether later versions of the service accept what this one refuses.
func newer(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "share_threshold can only be used with wildcard") && !knowsStars() || strings.Contains(err.Error(), "unknown key 'metadata'") && !knowsMetadata())
}

// treeOf returns the tree that the service has read.
func treeOf(root *config.YamlRoot) *tree {
	t := &tree{domain: root.Domain}
	t.top = t.nodesOf(root.Descriptors)
	return t
}

func (t *tree) nodesOf(list []config.YamlDescriptor) []*node {
	var nodes []*node
	for _, d := range list {
		n := &node{key: d.Key, value: d.Value, shadow: d.ShadowMode, detailed: d.DetailedMetric, share: d.ShareThreshold, metric: d.ValueToMetric, quota: d.QuotaMode}
		if l := d.RateLimit; l != nil {
			n.limit = &limit{unit: l.Unit, requests: int(l.RequestsPerUnit), unlimited: l.Unlimited, name: l.Name}
			for _, r := range l.Replaces {
				n.limit.replaces = append(n.limit.replaces, r.Name)
			}
		}
		t.stars = t.stars || strings.Contains(strings.TrimSuffix(d.Value, "*"), "*")
		t.metric = t.metric || d.ValueToMetric
		n.below = t.nodesOf(d.Descriptors)
		nodes = append(nodes, n)
	}
	return nodes
}

// confusing reports whether the service may take one pair of a tree's keys and values for another.
func confusing(list []*node) bool {
	for _, n := range list {
		if strings.Contains(n.key, "_") || confusing(n.below) {
			return true
		}
	}
	return false
}

// compareRoots compares both sides on some requests, with files that both have accepted.
func compareRoots(r *rand.Rand, texts []string, roots []*config.YamlRoot, often bool) error {
	c := &comparison{
		r: r, seen: make(map[string]int), model: &model{}, counters: make(map[string]counter), cacheKeys: make(map[counter]string), asked: make(map[string]string),
		rules: make(map[string]*core.Rule), paths: make(map[*core.Rule]string), generator: newGenerator(),
	}
	stars := false
	for _, root := range roots {
		one := treeOf(root)
		if confusing(one.top) {
			return nil
		}
		stars = stars || one.stars
		c.trees = append(c.trees, one)
	}
	c.model.trees = c.trees
	c.envoy = c.model
	var err error
	if knowsStars() || !stars {
		if c.envoy, err = loadEnvoy(texts...); err != nil {
			return err
		}
	}
	if c.weir, err = loadWeir(texts...); err != nil {
		return err
	}
	requests := 10
	if often {
		requests = 2000
	}
	for range requests {
		tree := oneOf(r, c.trees)
		if len(tree.top) == 0 {
			continue
		}
		entries := newEntries(r, tree)
		if err := c.compareLimits(tree.domain, entries); err != nil {
			return fmt.Errorf("%q: %w", entries, err)
		}
	}
	return nil
}

// The files of the service's own tests and examples: both sides accept the same ones, except for the listed differences, and find the same
// limits.
func TestTheServicesOwnFiles(t *testing.T) {
	found, err := exec.Command("go", "list", "-f", "{{.Module.Dir}}", "github.com/envoyproxy/ratelimit/src/config").Output()
	must.Succeed(t, err)
	dir := strings.TrimSpace(string(found))
	r, _ := newRandom(t)
	taken, refused := 0, 0
	for _, pattern := range []string{"test/config/*.yaml", "examples/ratelimit/config/*.yaml", "test/integration/runtime/current/ratelimit/config/*.yaml"} {
		names, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
		must.Succeed(t, err)
		for _, name := range names {
			text, err := os.ReadFile(name)
			must.Succeed(t, err)
			file := string(text)
			_, roots, theirs := loadService(false, file)
			_, ours := loadWeir(file)
			short := strings.TrimPrefix(name, dir)
			switch {
			case theirs != nil && ours != nil:
				refused++
			case theirs == nil && ours == nil:
				taken++
				if err := compareRoots(r, []string{file}, roots, true); err != nil {
					t.Errorf("%s: %v", short, err)
				}
			default:
				t.Logf("%s: Envoy's service says %v, and Weir %v", short, theirs, ours)
				if _, unlisted := differencesOf(theirs, ours); unlisted != nil && !newer(theirs) {
					t.Errorf("%s: %q, which is no difference that is listed", short, unlisted)
				}
			}
		}
	}
	t.Logf("%d files are taken by both, and %d refused", taken, refused)
	if taken < 5 || refused < 8 {
		t.Errorf("only %d files were taken, and %d refused", taken, refused)
	}
}
