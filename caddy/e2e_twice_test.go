package ratelimit_test

import (
	"fmt"
	"strings"
	"testing"
)

// Defects found: a line that a site has twice counted each request twice, and a zone of one name in two stores admitted its limit in each.
func TestACounterThatIsNotOneIsRefused(t *testing.T) {
	for _, c := range []struct{ global, sites, want string }{
		{"", ":PORT {\nrate_limit /login 3/1m\nrate_limit /login 3/1m\nrespond ok\n}", "is written twice, first at Caddyfile:"},
	} {
		s := newServer(t)
		if got := s.refused(s.caddyfile(c.global, c.sites)); !strings.Contains(got, c.want) {
			t.Errorf("%s\nrefused with %s; want %s", c.sites, got, c.want)
		}
	}
}

func TestAZoneInTwoStoresIsToldAtLoad(t *testing.T) {
	for sites, want := range map[string]string{
		":PORT {\nrate_limit {\nzone login {\nlimit 3/1h\n}\n}\nrespond ok\n}\nhttp://b.test:PORT {\nrate_limit {\ndistributed\nzone login {\nlimit 3/1h\n}\n}\nrespond ok\n}":                                                          `[memory storage]`,
		":PORT {\nrate_limit {\nstore redis 127.0.0.1:1\nzone login {\nlimit 3/1h\n}\n}\nrespond ok\n}\nhttp://b.test:PORT {\nrate_limit {\nstore redis 127.0.0.1:1 {\nprefix other:\n}\nzone login {\nlimit 3/1h\n}\n}\nrespond ok\n}": `[redis 127.0.0.1:1, database 0, prefix "other:" redis 127.0.0.1:1, database 0, prefix "weir:"]`,
		":PORT {\nrate_limit {\nstore redis 127.0.0.1:1\nzone login {\nlimit 3/1h\n}\n}\nrespond ok\n}\nhttp://b.test:PORT {\nrate_limit {\nstore redis 127.0.0.1:1 {\ntimeout 90ms\n}\nzone login {\nlimit 3/1h\n}\n}\nrespond ok\n}":  "",
		":PORT {\nrate_limit {\nzone login {\nlimit 3/1h\n}\n}\nrespond ok\n}\nhttp://b.test:PORT {\nrate_limit {\ndistributed\nnamespace b\nzone login {\nlimit 3/1h\n}\n}\nrespond ok\n}":                                             "",
		"(s) {\nrate_limit 30/1h\n}\n:PORT {\nimport s\nimport s\nrespond ok\n}": "",
	} {
		told := start(t, "", sites).logs("a zone is in two stores, and each of them counts for itself and admits the limit; have its handlers use one store, or rename one")
		switch {
		case want == "" && len(told) > 0, want != "" && (len(told) != 1 || told[0]["zone"] != "login" || !sameStores(told[0]["stores"], want)):
			t.Errorf("%s\ntold %v, want %s", sites, told, want)
		}
	}
}

// sameStores compares a list of two stores with one in the order of their names.
func sameStores(list any, want string) bool {
	stores, _ := list.([]any)
	return len(stores) == 2 && (fmt.Sprint(stores) == want || fmt.Sprint([]any{stores[1], stores[0]}) == want)
}
