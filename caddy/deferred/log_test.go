package deferred

import (
	"slices"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

func TestDeferredRequestsAreInTheAccessLogsOfTheirHost(t *testing.T) {
	logs := &caddyhttp.ServerLogConfig{
		DefaultLoggerName: "rest",
		LoggerNames:       map[string]caddyhttp.StringArray{"a.example.com": {"a", "all"}, "*.example.com": {"wild"}, "*.*.org": {"deep"}},
		SkipHosts:         []string{"quiet.test", "*.quiet.test", "b.example.com"},
	}
	for host, want := range map[string][]string{
		"a.example.com": {"a", "all"}, "A.Example.com:8443": {"a", "all"}, "b.example.com": {"wild"}, "example.com": {"rest"}, "a.b.example.com": {"rest"}, "a.b.org": {"deep"},
		"quiet.test": nil, "x.Quiet.test:80": nil, "[::1]:80": {"rest"}, "": {"rest"},
	} {
		if got := logNames(logs, host); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
	logs.SkipUnmappedHosts = true
	if got := logNames(logs, "example.com"); len(got) > 0 {
		t.Errorf("a host that no log has: %q", got)
	}
	if got := logNames(logs, "a.example.com"); len(got) != 2 {
		t.Errorf("a host that logs have: %q", got)
	}
}
