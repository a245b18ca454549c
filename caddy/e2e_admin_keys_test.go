package ratelimit_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// rulesForKeys has the same rules as zones and in a file.
var rulesForKeys = map[string]string{
	"zones": `rate_limit {
		zone each {
			limit 2/366d
		}
		zone wide {
			key "{client_ip}"
			ipv4_prefix 16
			ipv6_prefix 64
			limit 100/366d
		}
		zone pair {
			key "{client_ip} {host}"
			limit 100/366d
		}
		zone place {
			key {path}
			limit 100/366d
		}
		zone way {
			key {method}
			limit 100/366d
		}
		zone partner {
			key {header.X-Api-Key}
			on_missing_key skip
			limit 100/366d
		}
		zone others {
			except 10.0.0.0/8 192.0.2.66
			limit 100/366d
		}
	}
	respond ok`,
	"files": `{name: each, limit: 2/366d}
		{name: wide, ipv4_prefix: 16, ipv6_prefix: 64, limit: 100/366d}
		{name: pair, key: [client_ip, host], limit: 100/366d}
		{name: place, key: path, limit: 100/366d}
		{name: way, key: method, limit: 100/366d}
		{name: partner, key: 'header:X-Api-Key', on_missing_key: skip, limit: 100/366d}
		{name: others, match: {except_ips: [10.0.0.0/8, 192.0.2.66]}, limit: 100/366d}`,
}

// startKeys runs Caddy with these rules and its admin endpoint.
func startKeys(t *testing.T, kind string) *admin {
	site := rulesForKeys[kind]
	if kind == "zones" {
		return startAdmin(t, behindProxy, ":PORT {\n"+site+"\n}")
	}
	s := newServer(t)
	s.put("a.yaml", rulesOf(strings.Split(strings.ReplaceAll(site, "\t", ""), "\n")...))
	a := &admin{s, freeAddr(t)}
	a.reloadWith(behindProxy, ":PORT {\nrate_limit {\nrules_file DIR/rules/*.yaml\n}\nrespond ok\n}")
	return a
}

// Defect found: block answered {} for a key that no client can have, and blocked nobody.
func TestAdminRefusesKeysThatNoClientCanHave(t *testing.T) {
	for kind := range rulesForKeys {
		t.Run(kind, func(t *testing.T) {
			a := startKeys(t, kind)
			for _, test := range []struct {
				rule string
				key  []string
				want string
			}{
				{"each", []string{"evil-host"}, `key: client_ip: must be an address, such as 192.0.2.7`},
				{"wide", []string{"evil-host"}, `key: client_ip: must be an address, such as 192.0.2.7, or a network such as 192.0.0.0/16 or 2001:db8::/64`},
				{"wide", []string{"198.0.0.0/8"}, `key: client_ip: "198.0.0.0/8": is no client: it is counted by smaller networks, such as 198.0.0.0/16 (ipv4_prefix 16)`},
				{"pair", []string{"192.0.2.7", "https://c.test/login"}, `: must be a host, and is a URL; write c.test`},
				{"place", []string{"login"}, `: must be a path, which begins with /`},
				{"way", []string{"P T"}, `: must be a method such as POST`},
			} {
				key, _ := json.Marshal(test.key)
				body := fmt.Sprintf(`{"rule": %q, "key": %s`, test.rule, key)
				for path, body := range map[string]string{"block": body + `, "for": "1h"}`, "unblock": body + "}", "reset": body + "}", "key": body + "}"} {
					status, answer := a.call(path, body)
					if text := fmt.Sprint(answer["error"]); status != http.StatusBadRequest || !strings.Contains(text, test.want) {
						t.Errorf("%s %s: status %d, %s; want 400, %s", path, body, status, text, test.want)
					}
				}
			}
			// The error in the log does not have the value: it may be a credential that was written for the wrong rule.
			if _, answer := a.call("block", `{"rule": "each", "key": ["sk-leaked"], "for": "1h"}`); strings.Contains(fmt.Sprint(answer), "sk-leaked") {
				t.Errorf("%v reveals the key", answer)
			}
			for _, test := range []struct{ rule, key, want string }{
				{"others", "10.1.2.3", `rule "others": 10.1.2.3 is among the addresses that the rule exempts, whose requests pass uncounted`},
				{"others", "192.0.2.66", `rule "others": 192.0.2.66 is among the addresses that the rule exempts`},
				{"partner", "", `pass uncounted (on_missing_key skip)`},
			} {
				status, answer := a.call("block", fmt.Sprintf(`{"rule": %q, "key": [%q], "for": "1h"}`, test.rule, test.key))
				if text := fmt.Sprint(answer["error"]); status != http.StatusConflict || !strings.Contains(text, test.want) {
					t.Errorf("block of %q: status %d, %s; want 409, %s", test.key, status, text, test.want)
				}
			}
			// Without a rule, the answer has only the rules that can have the key.
			for key, want := range map[string]string{"192.0.2.7": "each others partner way wide", "sk leaked": "partner", "/login": "partner place", "GET": "partner way"} {
				var reporting []string
				for _, one := range at(t, a.ask("key?key="+strings.ReplaceAll(key, " ", "%20"), ""), "rules").([]any) {
					reporting = append(reporting, fmt.Sprint(at(t, one, "rule")))
				}
				slices.Sort(reporting)
				if got := strings.Join(reporting, " "); got != want {
					t.Errorf("key %s: reported by %s, want %s", key, got, want)
				}
			}
			a.admit(2, "/", "X-Forwarded-For", "198.51.100.7")
		})
	}
}

// A network that is counted as one key is blocked and unblocked by any of its addresses, and by any of its own notations.
func TestAdminBlocksANetworkThatIsOneKey(t *testing.T) {
	for kind := range rulesForKeys {
		t.Run(kind, func(t *testing.T) {
			a := startKeys(t, kind)
			for named, clients := range map[string][2]string{ // clients that are blocked, and clients that are not
				"198.51.0.0/16":   {"198.51.100.7", "198.52.0.1"},
				"198.51.200.9":    {"198.51.100.8", "198.52.0.2"},
				"198.51.3.4/16":   {"198.51.0.1", "198.50.255.255"},
				"2001:DB8::/64":   {"2001:db8::1:2", "2001:db8:0:1::"},
				"2001:db8:0::0:9": {"2001:db8::ffff", "2001:db8:1::"},
			} {
				a.ask("block", `{"rule": "wide", "key": ["`+named+`"], "for": "1h"}`)
				wantAt(t, a.ask("key?rule=wide&key="+named, ""), "false", "rules", 0, "allowed")
				a.reject("/", "X-Forwarded-For", clients[0])
				a.admit(1, "/", "X-Forwarded-For", clients[1])
				a.ask("unblock", `{"rule": "wide", "key": ["`+named+`"]}`)
				a.admit(1, "/", "X-Forwarded-For", clients[0])
			}
		})
	}
}

// An operator may name a key in any spelling; the API finds the one that requests have.
func TestAdminNamesKeysInAnySpelling(t *testing.T) {
	for kind := range rulesForKeys {
		t.Run(kind, func(t *testing.T) {
			a := startKeys(t, kind)
			from := []string{"X-Forwarded-For", "198.51.100.7"}
			for rule, c := range map[string]struct{ key, request string }{
				"place": {`["//Login"]`, "http://a.test/x/../LoGin"},
				"way":   {`["post"]`, "Post /"},
				"pair":  {`["::ffff:198.51.100.7", "Shop.TEST.:80"]`, "http://sHop.test:81/"},
			} {
				a.ask("block", fmt.Sprintf(`{"rule": %q, "key": %s, "for": "1h"}`, rule, c.key))
				a.reject(c.request, from...)
				a.ask("reset", fmt.Sprintf(`{"rule": %q, "key": %s}`, rule, c.key))
				a.ask("reset", `{"rule": "each", "key": ["198.51.100.7"]}`)
				a.admit(1, c.request, from...)
				method, url, found := strings.Cut(c.request, " ")
				if !found {
					method, url = "GET", c.request
				}
				if strings.HasPrefix(url, "/") {
					url = "http://a.test" + url
				}
				explained := a.ask("explain", fmt.Sprintf(`{"method": %q, "url": %q, "client_ip": "198.51.100.7", "server": "srv0"}`, method, url))
				standing := a.ask("key", fmt.Sprintf(`{"rule": %q, "key": %s}`, rule, c.key))
				for _, one := range at(t, explained, "handlers", 0, "rules").([]any) {
					if at(t, one, "rule") == rule {
						wantAt(t, standing, fmt.Sprint(at(t, one, "key")), "key")
						wantAt(t, standing, fmt.Sprint(at(t, one, "remaining")), "rules", 0, "remaining")
						wantAt(t, one, "99", "remaining")
					}
				}
			}
		})
	}
}
