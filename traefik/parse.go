package traefik

import (
	"sort"
	"strings"

	"github.com/proxyweir/weir/core/ruleset"
)

// trimmed returns a list without the spaces around its members: lists are often written "a, b".
func trimmed(list []string) []string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, strings.TrimSpace(s))
	}
	return out
}

// ourWords rewrites a message of core or ruleset with the names that settings have in Traefik.
var ourWords = newWords()

func newWords() *strings.Replacer {
	var names []string
	for object := range ruleset.Schema {
		names = append(names, ruleset.Names(object)...)
	}
	sort.Sort(sort.Reverse(sort.StringSlice(names))) // the longer first, if one begins with the other
	pairs := []string{"have request_header set a field to it, and take header:NAME", "write header:NAME for a field", "key_secret", "keySecret", "plain_keys", "plainKeys",
		"?master_name=", "?master_name=", "db, master_name and addr", "db, master_name and addr", // in a URL
		"master_name", "masterName", "sentinel_username", "sentinelUsername", "sentinel_password", "sentinelPassword", "background_timeout", "backgroundTimeout", "dial_timeout", "dialTimeout", "read_timeout", "readTimeout"}
	for _, name := range names {
		if strings.IndexByte(name, '_') > 0 {
			pairs = append(pairs, name, ruleset.CamelCase(name))
		}
	}
	return strings.NewReplacer(pairs...)
}
