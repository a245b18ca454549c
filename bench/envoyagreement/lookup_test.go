package envoyagreement

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"testing"

	envoy "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/envoyproxy/ratelimit/src/config"
	"github.com/envoyproxy/ratelimit/src/limiter"
	"github.com/envoyproxy/ratelimit/src/utils"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/tools/must"
)

// How much a test compares: files with two domains each, and requests to them.
const (
	rounds  = 520
	singles = 200 // requests with one descriptor, in each round
	several = 50  // requests with one to four descriptors, in each round
)

// now is the time for which all keys are made.
const now = 1_700_000_000

// counter identifies a counter in Weir.
type counter struct {
	rule *core.Rule
	key  string
}

// comparison is one round: the same files on both sides, and what the test has learned about them.
type comparison struct {
	r     *rand.Rand
	trees []*tree
	texts []string               // of the trees
	envoy config.RateLimitConfig // the service; or the model, if the service does not know a * anywhere in a value
	model *model
	weir  *ruleset.Set
	limit *ruleset.Set // of the marked texts, which have a limit in place of unlimited
	seen  map[string]int

	lookup    ruleset.Lookup
	generator limiter.CacheKeyGenerator
	counters  map[string]counter // by the service's cache keys
	cacheKeys map[counter]string
	rules     map[string]*core.Rule // by the service's paths
	paths     map[*core.Rule]string
	asked     map[string]string // the last request for each cache key
}

func newComparison(t *testing.T, r *rand.Rand, seen map[string]int, newTree func(*rand.Rand, string) *tree) *comparison {
	t.Helper()
	trees := []*tree{newTree(r, "shop"), newTree(r, "till.eu")}
	c := &comparison{
		r:         r,
		trees:     trees,
		model:     &model{trees: trees},
		seen:      seen,
		generator: newGenerator(),
		counters:  make(map[string]counter),
		cacheKeys: make(map[counter]string),
		rules:     make(map[string]*core.Rule),
		paths:     make(map[*core.Rule]string),
		asked:     make(map[string]string),
	}
	style := r.Int63()
	var markedTexts []string
	for _, one := range c.trees {
		c.texts = append(c.texts, one.text(t, rand.New(rand.NewSource(style)), true))
		markedTexts = append(markedTexts, one.text(t, rand.New(rand.NewSource(style)), false))
	}
	var err error
	c.envoy = c.model
	if knowsStars() || !trees[0].stars {
		if c.envoy, err = loadEnvoy(c.texts...); err != nil {
			t.Fatalf("the test makes a file that Envoy's service refuses: %v\n%s", err, c.texts)
		}
	}
	if c.weir, err = loadWeir(c.texts...); err != nil {
		t.Fatalf("Envoy's service takes what Weir refuses: %v\n%s", err, c.texts)
	}
	if c.limit, err = loadWeir(markedTexts...); err != nil {
		t.Fatalf("the test makes a file that Weir refuses: %v\n%s", err, markedTexts)
	}
	return c
}

func newGenerator() limiter.CacheKeyGenerator { return limiter.NewCacheKeyGenerator("") }

func TestTheSameLimits(t *testing.T) {
	r, seed := newRandom(t)
	seen := make(map[string]int)
	for round := range rounds {
		newTree := newTree
		if round%2 == 1 {
			newTree = newStarTree
		}
		c := newComparison(t, r, seen, newTree)
		fail := func(request any, err error) {
			t.Fatalf("seed %d, round %d: %q: %v, in\n%s", seed, round, request, err, strings.Join(c.texts, "---\n"))
		}
		for range singles {
			tree := oneOf(r, c.trees)
			entries := newEntries(r, tree)
			if err := c.compare(tree.domain, entries); err != nil {
				fail(entries, err)
			}
		}
		for range several {
			tree := oneOf(r, c.trees)
			request := make([][][2]string, 1+r.Intn(4))
			for i := range request {
				request[i] = newEntries(r, tree)
			}
			if i := r.Intn(len(request)); i > 0 && chance(r, 20) {
				request[i] = request[0] // a duplicate
			}
			if err := c.compareSeveral(tree.domain, request); err != nil {
				fail(request, err)
			}
		}
	}
	total := rounds * singles
	asked := "the service's own code was asked of all"
	if !knowsStars() {
		asked = "the service's own code was asked where a * is at the end of values, and the model elsewhere"
	}
	t.Logf("%d look-ups of one descriptor, %d of several: %v; %s", total, rounds*several, seen, asked)
	// Cases that hardly ever occurred were not compared.
	for kind, least := range map[string]int{
		"none": total / 10, "unlimited": total / 50, "limit": total / 5, "blocked": total / 50, "shadow": total / 50,
		"exact": total / 50, "wildcard": total / 50, "bare": total / 50, "depth 1": total / 50, "depth 2": total / 50, "depth 3": total / 100, "depth 4": total / 200,
		"deeper than the tree": total / 100, "not as deep": total / 100, "shared by several values": total / 100,
		"* anywhere": total / 30, "* anywhere, shared": total / 100, "* anywhere, nested": total / 100, "* anywhere, of several that fit": total / 500,
		"replaced": rounds, "replaced by unlimited": rounds / 10, "twice": rounds,
	} {
		if seen[kind] < least {
			t.Errorf("%s: seen only %d times, not %d: the trees or the requests are too plain", kind, seen[kind], least)
		}
	}
	for _, seconds := range []int{1, 60, 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400} {
		if kind := fmt.Sprintf("%ds", seconds); seen[kind] < total/100 {
			t.Errorf("%s: seen only %d times", kind, seen[kind])
		}
	}
}

// compare finds the limit of one descriptor on both sides, and returns an error if they differ.
func (c *comparison) compare(domain string, entries [][2]string) error {
	theirs, want := askEnvoy(c.envoy, domain, entries)
	found, err := askWeir(&c.lookup, c.weir, domain, entries)
	if err != nil {
		return err
	}
	found = append([]ruleset.Found(nil), found...)
	instead, err := askWeir(&c.lookup, c.limit, domain, entries)
	if err != nil {
		return err
	}
	got := answer{kind: "none"}
	switch {
	case len(found) > 1 || len(instead) > 1:
		return fmt.Errorf("Weir finds %d limits for one descriptor", len(found))
	case len(found) == 1:
		got = answerOf(found[0].Rule)
	case len(instead) == 1 && instead[0].Rule.Limit.Requests == marked:
		got = answer{kind: "unlimited"}
	case len(instead) == 1:
		return fmt.Errorf("Weir finds a limit only where others are unlimited: %q", instead[0].Rule.Name())
	}
	if got != want {
		return fmt.Errorf("Weir finds %+v, Envoy's service %+v", got, want)
	}
	if err := c.compareModel(domain, entries, theirs, want); err != nil {
		return err
	}
	c.note(domain, entries, want)
	if want.kind != "limit" {
		return nil
	}
	if found[0].Cost != 1 {
		return fmt.Errorf("Weir charges %d for one descriptor", found[0].Cost)
	}
	return c.comparePlaces(domain, entries, theirs, found[0])
}

// compareModel checks that the model finds what the service finds.
func (c *comparison) compareModel(domain string, entries [][2]string, theirs *config.RateLimit, want answer) error {
	modelled, got := askEnvoy(c.model, domain, entries)
	if got != want {
		return fmt.Errorf("the model finds %+v, Envoy's service %+v", got, want)
	}
	if theirs == nil {
		return nil
	}
	if theirs.Name != modelled.Name || !slices.Equal(theirs.Replaces, modelled.Replaces) || !slices.Equal(theirs.ShareThresholdKeyPattern, modelled.ShareThresholdKeyPattern) {
		return fmt.Errorf("the model has %+v, Envoy's service %+v", modelled, theirs)
	}
	for _, one := range c.trees {
		if one.domain == domain && !one.metric && !theirs.DetailedMetric && theirs.FullKey != modelled.FullKey {
			return fmt.Errorf("the model has it from %s, Envoy's service from %s", modelled.FullKey, theirs.FullKey)
		}
	}
	return nil
}

// comparePlaces checks that both sides count the same requests together, and have the limit from the same descriptor.
func (c *comparison) comparePlaces(domain string, entries [][2]string, theirs *config.RateLimit, found ruleset.Found) error {
	cacheKey := c.generator.GenerateCacheKey(domain, descriptorOf(entries), theirs, now).Key
	ours := counter{found.Rule, found.Key}
	if was, known := c.counters[cacheKey]; known && was != ours {
		return fmt.Errorf("Envoy's service counts it by %s, as another for which Weir has the rule %q with key %q; for this it has %q with key %q", cacheKey, was.rule.Name(), was.key, ours.rule.Name(), ours.key)
	}
	if was, known := c.cacheKeys[ours]; known && was != cacheKey {
		return fmt.Errorf("Weir has rule %q with key %q, as for another that Envoy's service counts by %s; this by %s", ours.rule.Name(), ours.key, was, cacheKey)
	}
	c.counters[cacheKey] = ours
	c.cacheKeys[ours] = cacheKey
	request := fmt.Sprintf("%q", entries)
	if was, known := c.asked[cacheKey]; known && was != request {
		c.seen["shared by several values"]++
	}
	c.asked[cacheKey] = request
	path := c.model.path // that of the service has values of requests in it, for metrics with values
	if was, known := c.rules[path]; known && was != found.Rule {
		return fmt.Errorf("Envoy's service has it from %s, as another; Weir has it from %q, and that from %q", path, found.Rule.Name(), was.Name())
	}
	if was, known := c.paths[found.Rule]; known && was != path {
		return fmt.Errorf("Weir has it from %q, as another; Envoy's service has it from %s, and that from %s", found.Rule.Name(), path, was)
	}
	c.rules[path] = found.Rule
	c.paths[found.Rule] = path
	return nil
}

// compareLimits is compare for files without a marked text, which both sides have read. For an unlimited descriptor it only checks that Weir
// has no limit.
func (c *comparison) compareLimits(domain string, entries [][2]string) error {
	theirs, want := askEnvoy(c.envoy, domain, entries)
	found, err := askWeir(&c.lookup, c.weir, domain, entries)
	if err != nil {
		return err
	}
	got := answer{kind: "none"}
	if len(found) == 1 {
		got = answerOf(found[0].Rule)
	}
	if err := c.compareModel(domain, entries, theirs, want); err != nil {
		return err
	}
	if want.kind == "unlimited" {
		want.kind = "none"
	}
	if got != want || len(found) > 1 {
		return fmt.Errorf("Weir finds %+v, Envoy's service %+v", got, want)
	}
	if want.kind != "limit" {
		return nil
	}
	return c.comparePlaces(domain, entries, theirs, found[0])
}

// note counts the cases that have occurred.
func (c *comparison) note(domain string, entries [][2]string, a answer) {
	c.seen[a.kind]++
	for _, one := range c.trees {
		if one.domain == domain && a.kind == "none" {
			c.noteWhy(one.top, entries)
		}
	}
	if a.kind != "limit" {
		return
	}
	c.seen[fmt.Sprintf("depth %d", len(entries))]++
	c.seen[fmt.Sprintf("%ds", a.seconds)]++
	if a.requests == 0 {
		c.seen["blocked"]++
	}
	for i, n := range c.model.met {
		if !strings.Contains(strings.TrimRight(n.value, "*"), "*") || n.value == entries[i][1] {
			continue
		}
		c.seen["* anywhere"]++
		if n.share {
			c.seen["* anywhere, shared"]++
		}
		if i > 0 {
			c.seen["* anywhere, nested"]++
		}
		if c.model.fitting > 1 {
			c.seen["* anywhere, of several that fit"]++
		}
	}
	if a.shadow {
		c.seen["shadow"]++
	}
	for _, one := range c.trees {
		if one.domain != domain {
			continue
		}
		kind := "" // of the last entry, by the descriptors with its key: a rough count
		for _, n := range at(one.top, entries) {
			switch {
			case n.value == entries[len(entries)-1][1]:
				kind = "exact"
			case n.value == "" && kind == "":
				kind = "bare"
			case n.value != "" && kind == "":
				kind = "wildcard"
			}
		}
		c.seen[kind]++
	}
}

// noteWhy counts the requests that find no limit because of their depth.
func (c *comparison) noteWhy(list []*node, entries [][2]string) {
	for i := range entries {
		var below []*node
		for _, n := range list {
			if n.key == entries[i][0] && n.value == entries[i][1] {
				below = n.below
				if n.limit != nil && i < len(entries)-1 {
					c.seen["deeper than the tree"]++
				}
				if n.limit == nil && i == len(entries)-1 && len(below) > 0 {
					c.seen["not as deep"]++
				}
			}
		}
		list = below
	}
}

// at returns the descriptors of the tree that the last entry may match, if all entries above it match exactly.
func at(list []*node, entries [][2]string) []*node {
	for _, e := range entries[:len(entries)-1] {
		var below []*node
		for _, n := range list {
			if n.key == e[0] {
				below = append(below, n.below...)
			}
		}
		list = below
	}
	var last []*node
	for _, n := range list {
		if n.key == entries[len(entries)-1][0] {
			last = append(last, n)
		}
	}
	return last
}

// compareSeveral compares which counters both sides charge for a request with several descriptors, and how often.
func (c *comparison) compareSeveral(domain string, request [][][2]string) error {
	limits := limitsToCheck(c.envoy, domain, request, c.seen)
	want := make(map[string]int64)
	for i, l := range limits {
		if l != nil {
			want[c.generator.GenerateCacheKey(domain, descriptorOf(request[i]), l, now).Key]++
		}
	}
	for _, n := range want {
		if n > 1 {
			c.seen["twice"]++
		}
	}
	// Learns the names of the counters on the other side one by one.
	for _, entries := range request {
		if err := c.compare(domain, entries); err != nil {
			return err
		}
	}
	found, err := askWeir(&c.lookup, c.weir, domain, request...)
	if err != nil {
		return err
	}
	got := make(map[string]int64)
	for _, f := range found {
		cacheKey := c.cacheKeys[counter{f.Rule, f.Key}]
		if got[cacheKey] > 0 {
			return fmt.Errorf("Weir finds the rule %q with key %q twice", f.Rule.Name(), f.Key)
		}
		got[cacheKey] = f.Cost
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("Weir charges %v, Envoy's service %v", got, want)
	}
	return nil
}

// limitsToCheck has the logic of the service's constructLimitsToCheck, which is private to package service. Every limit that was found, also an
// unlimited one, replaces those whose names it lists, wherever they are in the request. A limit that is replaced itself still replaces others.
func limitsToCheck(c config.RateLimitConfig, domain string, request [][][2]string, seen map[string]int) []*config.RateLimit {
	limits := make([]*config.RateLimit, len(request))
	replaced := make(map[string]bool)
	byUnlimited := make(map[string]bool)
	for i, entries := range request {
		l, _ := askEnvoy(c, domain, entries)
		if l == nil {
			continue
		}
		for _, name := range l.Replaces {
			replaced[name] = true
			byUnlimited[name] = byUnlimited[name] || l.Unlimited
		}
		if !l.Unlimited {
			limits[i] = l
		}
	}
	for i, l := range limits {
		if l == nil || l.Name == "" || !replaced[l.Name] {
			continue
		}
		limits[i] = nil
		seen["replaced"]++
		if byUnlimited[l.Name] {
			seen["replaced by unlimited"]++
		}
	}
	return limits
}

// clock is a fixed time, in seconds since the Unix epoch.
type clock int64

func (c clock) UnixNow() int64 { return int64(c) }

// In the service a week begins on Thursday, a month has 30 days and a year 365, all counted from the Unix epoch.
func TestWindowsEndAtTheSameTime(t *testing.T) {
	r, seed := newRandom(t)
	for number, unit := range envoy.RateLimitResponse_RateLimit_Unit_name {
		unit := strings.ToLower(unit)
		if unit == "unknown" {
			continue
		}
		file := fmt.Sprintf("{domain: d, descriptors: [{key: a, rate_limit: {unit: %s, requests_per_unit: 5}}]}", unit)
		weir, err := loadWeir(file)
		must.Succeed(t, err)
		rule := weir.Domains[0].Rules()[0]
		var at clock
		memory := memory.New(memory.Config{Clock: func() int64 { return int64(at) * 1e6 }})
		must.Succeed(t, memory.Open(rule))
		for i := range 1000 {
			at = clock(r.Int63n(4_000_000_000))
			check := []core.Check{{Rule: rule, Key: fmt.Sprint(i), Cost: 1}}
			must.Succeed(t, memory.Decide(check, false))
			of := envoy.RateLimitResponse_RateLimit_Unit(number)
			theirs := utils.CalculateReset(&of, at).Seconds
			if ours := check[0].Decision.ResetAfter / 1e6; ours != theirs {
				t.Fatalf("seed %d: at %d a %s ends after %d s, in Envoy's service after %d s", seed, at, unit, ours, theirs)
			}
		}
	}
}
