package redis

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

func mustNaming(t *testing.T, prefix, secret string, plain bool) *naming {
	n, err := newNaming(prefix, secret, plain)
	must.Succeed(t, err)
	return n
}

// mustRule returns a rule with the given limit. Without Requests that is 10 a minute.
func mustRule(t *testing.T, c core.RuleConfig, l rate.LimitConfig) *core.Rule {
	if l.Requests == 0 {
		l.Requests = 10
	}
	if l.Period == 0 && l.Calendar == rate.Epoch {
		l.Period = time.Minute
	}
	limit, err := rate.NewLimit(l)
	must.Succeed(t, err)
	c.Limit = limit
	r, err := core.NewRule(c)
	must.Succeed(t, err)
	return r
}

// hostileKeys are clients' keys that an attacker may send, all of them different.
func hostileKeys() []string {
	keys := []string{
		"", " ", "%", "%%", "%25", "%25%25", "a", "A", "a%", "a%2", "a%20", "a ", "{a}", "{", "}", "{}", "}{", "}:", "}:r:AAAAAAAA",
		"a}:r", "\x00", "\x00\x00", "a\r\nFLUSHALL\r\n", "\n", "\t", "\x7f", "\xff", "\xfe\xff", "ä", "a\xcc\x88", "192.0.2.1", "2001:db8::1", "user:1", "*", "?",
		"%%" + strings.Repeat("A", 22),
	}
	for _, n := range []int{255, 256, 257, 258, 1 << 20, 1<<20 + 1} {
		keys = append(keys, strings.Repeat("k", n), strings.Repeat("{", n))
	}
	sum := sha256.Sum256([]byte(strings.Repeat("k", 257)))
	return append(keys, "%%"+base64.RawURLEncoding.EncodeToString(sum[:16]))
}

// For any client's key, the name differs from all others, and has the client's part alone in braces.
func TestDifferentKeysHaveDifferentNames(t *testing.T) {
	suffix := ruleSuffix(mustRule(t, core.RuleConfig{Name: "r"}, rate.LimitConfig{}))
	for _, c := range []struct {
		name   string
		naming *naming
	}{
		{"hash", mustNaming(t, "", "", false)},
		{"HMAC", mustNaming(t, "", "secret", false)},
		{"plain", mustNaming(t, "", "", true)},
	} {
		seen := make(map[string]string)
		for _, key := range hostileKeys() {
			name := c.naming.key(key, suffix)
			if other, ok := seen[name]; ok {
				t.Errorf("%s: %.40q and %.40q are both called %q", c.name, key, other, name)
			}
			seen[name] = key
			if !strings.HasPrefix(name, "weir:{") || !strings.HasSuffix(name, suffix) ||
				strings.Count(name, "{") != 1 || strings.Count(name, "}") != 1 || strings.Contains(name, "{}") {
				t.Errorf("%s: %.40q is called %q", c.name, key, name)
			}
			if len(name) > 3*longestPlain+100 {
				t.Errorf("%s: %.40q has a name of %d bytes", c.name, key, len(name))
			}
			for i := 0; i < len(name); i++ {
				if name[i] <= ' ' || name[i] > '~' {
					t.Errorf("%s: %.40q is called %q, which does not print", c.name, key, name)
					break
				}
			}
			must.Equal(t, c.naming.key(key, suffix), name, "%s: %.40q is called %q, and then", c.name, key, name)
		}
	}
}

func TestKeysAreTheFirst128BitsOfAHash(t *testing.T) {
	sum := sha256.Sum256([]byte("192.0.2.1"))
	mac := hmac.New(sha256.New, []byte("secret"))
	mac.Write([]byte("192.0.2.1"))
	for _, c := range []struct {
		naming *naming
		want   string
	}{
		{mustNaming(t, "", "", false), "weir:{" + base64.RawURLEncoding.EncodeToString(sum[:16]) + "}:r"},
		{mustNaming(t, "mine/", "", false), "mine/{" + base64.RawURLEncoding.EncodeToString(sum[:16]) + "}:r"},
		{mustNaming(t, "", "secret", false), "weir:{" + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16]) + "}:r"},
		{mustNaming(t, "", "", true), "weir:{192.0.2.1}:r"},
	} {
		must.Equal(t, c.naming.key("192.0.2.1", "}:r"), c.want)
	}
	if mustNaming(t, "", "a", false).key("k", "}:r") == mustNaming(t, "", "b", false).key("k", "}:r") {
		t.Error("two secrets make the same name")
	}
}

func TestPlainKeysAreEscapedSoThatTheyPrint(t *testing.T) {
	for _, c := range []struct{ key, want string }{
		{"192.0.2.1", "192.0.2.1"},
		{"user:1|host", "user:1|host"},
		{"", "%"},
		{"%", "%25"},
		{"{a} b", "%7ba%7d%20b"},
		{"\x00\n\x7f\xff", "%00%0a%7f%ff"},
		{"ä", "%c3%a4"},
	} {
		must.Equal(t, plainKey(c.key), c.want, "%q", c.key)
	}
	must.Equal(t, plainKey(strings.Repeat("a", 256)), strings.Repeat("a", 256), "256 bytes")
	if got := plainKey(strings.Repeat("a", 257)); len(got) != 24 || got[:2] != "%%" {
		t.Errorf("257 bytes are %q, want a hash", got)
	}
}

// The part after the braces depends on all of the rule's identity, and on no number of its limit.
func TestTheNameOfARuleStandsForItsIdentity(t *testing.T) {
	same := []string{
		ruleSuffix(mustRule(t, core.RuleConfig{Name: "r"}, rate.LimitConfig{})),
		ruleSuffix(mustRule(t, core.RuleConfig{Name: "r", Shadow: true, CountRejected: true, OnError: core.RejectAll}, rate.LimitConfig{Requests: 20})),
	}
	must.Equal(t, same[0], same[1], "%q is %q after its numbers have changed", same[0], same[1])
	seen := make(map[string]int)
	for i, r := range []*core.Rule{
		mustRule(t, core.RuleConfig{Name: "r"}, rate.LimitConfig{}),
		mustRule(t, core.RuleConfig{Name: "R"}, rate.LimitConfig{}),
		mustRule(t, core.RuleConfig{Name: "r", Namespace: "n"}, rate.LimitConfig{}),
		mustRule(t, core.RuleConfig{Name: "n", Namespace: "r"}, rate.LimitConfig{}),
		mustRule(t, core.RuleConfig{Name: "r", KeySpec: "client_ip"}, rate.LimitConfig{}),
		mustRule(t, core.RuleConfig{Name: "r", KeySpec: "host"}, rate.LimitConfig{}),
		mustRule(t, core.RuleConfig{Name: "r"}, rate.LimitConfig{Period: time.Second}),
		mustRule(t, core.RuleConfig{Name: "r"}, rate.LimitConfig{Algorithm: rate.TokenBucket}),
		mustRule(t, core.RuleConfig{Name: "r"}, rate.LimitConfig{Algorithm: rate.TokenBucket, Interval: true}),
		mustRule(t, core.RuleConfig{Name: "r"}, rate.LimitConfig{Algorithm: rate.LeakyBucket}),
		mustRule(t, core.RuleConfig{Name: "r"}, rate.LimitConfig{Algorithm: rate.FixedWindow}),
		mustRule(t, core.RuleConfig{Name: "r"}, rate.LimitConfig{Algorithm: rate.SlidingWindowLog}),
		mustRule(t, core.RuleConfig{Name: "r"}, rate.LimitConfig{Calendar: rate.Day}),
		mustRule(t, core.RuleConfig{Name: "r"}, rate.LimitConfig{Calendar: rate.Month}),
		mustRule(t, core.RuleConfig{Name: "r"}, rate.LimitConfig{Calendar: rate.Day, Location: time.FixedZone("CET", 3600)}),
	} {
		suffix := ruleSuffix(r)
		if other, ok := seen[suffix]; ok {
			t.Errorf("rules %d and %d are both called %q", i, other, suffix)
		}
		seen[suffix] = i
		name := "}:" + r.Name() + ":"
		if r.Namespace != "" {
			name = "}:" + r.Namespace + "/" + r.Name() + ":"
		}
		if !strings.HasPrefix(suffix, name) || len(suffix) != len(name)+8 {
			t.Errorf("rule %d is called %q, want %q and eight characters", i, suffix, name)
		}
	}
}

func TestInvalidNamesAreRefused(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Prefix: "a{"}, `prefix "a{": must not have braces, which a Redis Cluster finds slots by`},
		{Config{Prefix: "}a"}, `prefix "}a": must not have braces, which a Redis Cluster finds slots by`},
		{Config{Prefix: "a{b}c"}, `prefix "a{b}c": must not have braces, which a Redis Cluster finds slots by`},
		{Config{Prefix: strings.Repeat("a", 65)}, `prefix "` + strings.Repeat("a", 65) + `": must be at most 64 bytes`},
		{Config{PlainKeys: true, KeySecret: "hidden"}, `key_secret and plain_keys are mutually exclusive: remove one`},
	} {
		s, err := NewStore(c.config)
		if err == nil || err.Error() != c.want || s != nil {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	for _, c := range []Config{{}, {Prefix: strings.Repeat("a", 64)}, {Prefix: ":"}, {KeySecret: "s"}, {PlainKeys: true}} {
		if _, err := NewStore(c); err != nil {
			t.Error(err)
		}
	}
}
