package envoyagreement

import (
	"context"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/envoyproxy/ratelimit/src/config"
	"github.com/envoyproxy/ratelimit/src/settings"
	"github.com/envoyproxy/ratelimit/src/stats"
	"github.com/envoyproxy/ratelimit/src/utils"
	gostats "github.com/lyft/gostats"
	"github.com/sirupsen/logrus"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/ruleset/yaml"
)

func TestMain(m *testing.M) {
	logrus.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// newRandom returns the random numbers of a test, and their seed. WEIR_ENVOY_SEED sets another seed.
func newRandom(t *testing.T) (r *rand.Rand, seed int64) {
	t.Helper()
	seed = 1
	if s := os.Getenv("WEIR_ENVOY_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseInt(s, 10, 64); err != nil {
			t.Fatalf("WEIR_ENVOY_SEED: %v", err)
		}
	}
	return rand.New(rand.NewSource(seed)), seed
}

// answer is the limit that a side finds for one descriptor of a request.
type answer struct {
	kind     string // none, unlimited, limit
	requests int64
	seconds  int64
	shadow   bool
}

// loadEnvoy loads files as the service does.
func loadEnvoy(texts ...string) (config.RateLimitConfig, error) {
	c, _, err := loadService(false, texts...)
	return c, err
}

// loadService loads files as the service does, with or without MERGE_DOMAIN_CONFIG. It also returns what the service has read.
func loadService(merge bool, texts ...string) (c config.RateLimitConfig, roots []*config.YamlRoot, err error) {
	defer func() {
		if refused := recover(); refused != nil {
			said, ok := refused.(config.RateLimitConfigError)
			if !ok {
				panic(refused)
			}
			err = said
		}
	}()
	manager := stats.NewStatManager(gostats.NewStore(gostats.NewNullSink(), false), settings.Settings{})
	var files []config.RateLimitConfigToLoad
	for i, text := range texts {
		name := fileName(i)
		root := config.ConfigFileContentToYaml(name, text)
		roots = append(roots, root)
		files = append(files, config.RateLimitConfigToLoad{Name: name, ConfigYaml: root})
	}
	return config.NewRateLimitConfigImpl(files, manager, merge), roots, nil
}

// knowsStars reports whether the service's code takes a * in the middle of a value for a wildcard, as it does since March 2026. For older
// modules, model has the newer behaviour.
var knowsStars = sync.OnceValue(func() bool {
	c, err := loadEnvoy("{domain: d, descriptors: [{key: a, value: x*y, rate_limit: {unit: day, requests_per_unit: 5}}]}")
	if err != nil {
		panic(err)
	}
	l, _ := askEnvoy(c, "d", [][2]string{{"a", "x1y"}})
	return l != nil
})

func fileName(i int) string { return fmt.Sprintf("%d.yaml", i) }

// loadWeir loads the same files as Weir does.
func loadWeir(texts ...string) (*ruleset.Set, error) {
	var files []*ruleset.File
	for i, text := range texts {
		root, problems := yaml.Parse(fileName(i), []byte(text))
		if len(problems) > 0 {
			return nil, problems
		}
		f, problems := ruleset.Decode(fileName(i), root)
		if len(problems) > 0 {
			return nil, problems
		}
		files = append(files, f)
	}
	if problems := ruleset.Conflicts(files); len(problems) > 0 {
		return nil, problems
	}
	return ruleset.NewSet(files, "")
}

// descriptorOf returns the service's form of a request's descriptor.
func descriptorOf(entries [][2]string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for _, e := range entries {
		d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: e[0], Value: e[1]})
	}
	return d
}

// askEnvoy finds the limit of one descriptor.
func askEnvoy(c config.RateLimitConfig, domain string, entries [][2]string) (*config.RateLimit, answer) {
	l := c.GetLimit(context.Background(), domain, descriptorOf(entries))
	switch {
	case l == nil:
		return nil, answer{kind: "none"}
	case l.Unlimited:
		return l, answer{kind: "unlimited"}
	}
	return l, answer{"limit", int64(l.Limit.RequestsPerUnit), utils.UnitToDivider(l.Limit.Unit), l.ShadowMode}
}

// askWeir finds the limits of a request. The result belongs to the Lookup, and is valid until its next call.
func askWeir(l *ruleset.Lookup, s *ruleset.Set, domain string, request ...[][2]string) ([]ruleset.Found, error) {
	d, err := s.Domain(domain)
	if err != nil {
		return nil, err
	}
	l.Begin()
	for _, entries := range request {
		list := make([]ruleset.Entry, 0, len(entries))
		for _, e := range entries {
			list = append(list, ruleset.Entry{Key: e[0], Value: e[1]})
		}
		l.Add(d, list)
	}
	l.Finish()
	return l.Found, nil
}

// answerOf returns the answer for a rule of Weir.
func answerOf(r *core.Rule) answer {
	a := answer{"limit", r.Limit.Requests, r.Limit.Period / 1e6, r.Shadow}
	if r.Blocks() {
		a.requests = 0
	}
	return a
}
