package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mutated are the good configurations that mutants are made of. Each limits the requests of a client to three or so, in a period that outlasts every test.
// $NAME is the middleware's name, and $FILE a rule file of its own, which has what stands under file. $REDIS is the address of a Redis.
var mutated = []string{
	`{limit: 3/366d}`,
	`{limit: 3/366d, algorithm: token_bucket, burst: 4, refill: continuous, cost: 1}`,
	`{limit: 3/366d, algorithm: leaky_bucket, burst: 4, maxDelay: 1s}`,
	`{limit: 3/366d, algorithm: fixed_window, cost: 'header:X-Cost', countRejected: true}`,
	`{limit: 3/300d, algorithm: sliding_window_log, key: ['header:X-User', client_ip], onMissingKey: share}`,
	`{limit: 3/366d, algorithm: sliding_window_counter, segments: 12, message: 'Not now.', jitter: 0.2}`,
	`{limit: 3/month, timeZone: Europe/Berlin, key: [path]}`,
	`{limit: 3/366d, tiers: {source: 'header:X-Plan', limits: {free: 2/366d, pro: 5/366d, '*': 4/366d}}}`,
	`{limit: 3/366d, key: 'header:X-User', overrides: [{key: bob, limit: 5/366d}, {key: ann, limit: unlimited}], onMissingKey: reject}`,
	`{limit: 3/366d, key: [client_ip, 'cookie:a'], ipv4Prefix: 24, ipv6Prefix: 48}`,
	`{limit: 3/366d, enforcement: soft 100% 1h}`,
	`{limit: 3/366d, algorithm: token_bucket, penalty: [1h, 2h, 7d]}`,
	`{limit: 4/366d, concurrency: 20}`,
	`{limit: 3/366d, algorithm: fixed_window, candidate: {limit: 2/366d, algorithm: token_bucket, burst: 3, refill: interval}}`,
	`{limit: 3/366d, algorithm: token_bucket, onLimit: delay, maxDelay: 2s, maxWaiting: 50, maxWaitingPerKey: 20}`,
	`{limit: 3/366d, match: {methods: [GET], hosts: ['!example.com'], pathPrefixes: ['/'], headers: {X-User: '!eve'}, exceptIPs: [10.0.0.0/8, '2001:db8::/32']}}`,
	`{limit: 3/366d, ipStrategy: {depth: 1, ipv6Subnet: 64}, headers: [ietf]}`,
	`{limit: 3/366d, ipStrategy: {excludedIPs: [127.0.0.1/32]}, headers: [x_ratelimit]}`,
	`{limit: 3/366d, metrics: {path: /$NAME/metrics}, statusPath: /$NAME/quotas, namespace: $NAME}`,
	`{limit: 3/366d, guard: {name: $NAME, max: 1000, min: 20, priority: {source: 'header:X-Plan', values: [pro]}, tighten: on, warmUp: 1h, shadow: false}, metrics: {address: '127.0.0.1:0'}}`,
	`{limit: 3/366d, adapt: {floor: 2/366d, ceiling: 6/366d, step: 25% 30s, algorithms: [token_bucket]}, advisor: {url: 'http://127.0.0.1:1/v1/advice', mode: observe, interval: 10s, timeout: 1s, fleet: a, gates: bounds}}`,
	`{average: 0.0000001, burst: 3, period: 1s, sourceCriterion: {requestHeaderName: X-User}}`,
	`{rules: [{name: a, limit: 3/366d}, {name: b, limit: 4/366d, key: 'header:X-User', algorithm: token_bucket}, {name: c, limit: 2/366d, enforcement: shadow}]}`,
	`{rules: [{name: a, limit: 4/366d, penalty: 1h, match: {methods: GET}}, {name: b, concurrency: 20}, {name: c, limit: 3/300d, algorithm: sliding_window_log, tiers: {source: 'header:X-Plan', limits: {pro: 5/300d}}}]}`,
	`{rules: [{name: a, limit: 3/366d, algorithm: fixed_window}, {name: b, limit: 3/366d, algorithm: leaky_bucket}, {name: c, limit: 3/366d, candidate: {limit: 4/366d}}, {name: d, limit: 3/day}], statusPath: /$NAME/quotas}`,
	`{rulesFile: $FILE, ruleInterval: 1h, file: {rules: [{name: a, limit: 3/366d, on_error: open}, {name: b, limit: 4/366d, key: 'header:X-User', penalty: [1h], tiers: {source: 'header:X-Plan', limits: {pro: 5/366d}}}]}}`,
	`{rulesFile: [$FILE], domain: d, descriptors: [{entries: [{key: user, source: 'header:X-User'}]}, {entries: [{key: all, source: 'static:x'}, {key: path, source: path}]}], file: {domain: d, descriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 3}}, {key: all, value: x, descriptors: [{key: path, shadow_mode: false, rate_limit: {unit: year, requests_per_unit: 4, name: n}}]}]}}`,
	`{limit: 3/366d, onError: closed, store: {memory: {maxKeys: 1000000}}}`,
	`{limit: 3/366d, store: {redis: {address: $REDIS, timeout: 2s, readTimeout: 2s, dialTimeout: 2s, prefix: 'a:', nodes: 1, database: 0, keySecret: hush-hush-hush-hush}}}`,
	`{rules: [{name: a, limit: 3/366d, consistency: lease}, {name: b, limit: 4/366d, algorithm: token_bucket, key: 'header:X-User'}], store: {redis: {address: [$REDIS], timeout: 2s, readTimeout: 2s, dialTimeout: 2s}}}`,
}

// mutant is a configuration with faults, or with parts of others.
type mutant struct {
	Config map[string]any
	File   any `json:",omitempty"` // of rules; nil: there is none
}

// text returns the configuration in JSON, for the middleware of a name.
func (m mutant) text(name, file, redis string) string {
	return strings.NewReplacer("$NAME", name, "$FILE", file, "$REDIS", redis).Replace(asJSON(m.Config))
}

func asJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// newMutant returns the mutant of a seed and a number, which is the same whenever it is made: a good configuration with settings of up to three others, or with
// one or two mutations.
func newMutant(seed, number int) mutant {
	r := rand.New(rand.NewPCG(uint64(seed), uint64(number)))
	config := parsed(mutated[r.IntN(len(mutated))])
	if r.IntN(2) == 0 {
		for range 1 + r.IntN(3) {
			graft(r, config)
		}
	} else {
		for range 1 + r.IntN(2) {
			mutate(r, config)
		}
	}
	file := config["file"]
	delete(config, "file")
	return mutant{readable(config).(map[string]any), file}
}

func parsed(text string) map[string]any {
	var config map[string]any
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		panic(err)
	}
	return config
}

// place is where a value stands in a configuration: under a key of an object, or at an index of a list.
type place struct {
	object map[string]any
	key    string
	list   []any
	index  int
}

func (p place) get() any {
	if p.object != nil {
		return p.object[p.key]
	}
	return p.list[p.index]
}

func (p place) set(value any) {
	if p.object != nil {
		p.object[p.key] = value
		return
	}
	p.list[p.index] = value
}

// placesIn returns all places in a value, in an order that does not change.
func placesIn(value any) []place {
	var all []place
	switch v := value.(type) {
	case map[string]any:
		for _, key := range sortedKeys(v) {
			all = append(append(all, place{object: v, key: key}), placesIn(v[key])...)
		}
	case []any:
		for i := range v {
			all = append(append(all, place{list: v, index: i}), placesIn(v[i])...)
		}
	}
	return all
}

func sortedKeys(m map[string]any) []string {
	var keys []string
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// oddities are values of wrong types, and out of every range. No number is so small that requests under way could reach it.
var oddities = []any{
	"", "0", -1, 20, 33, 129, 3.5, "1e3", "1000000001", "99999999999999999999", true, false, "true", "soon", "a b", "ü", "*", "!", ",", "{client_ip}", "header:", "env:NO_SUCH",
	"0/1d", "-1/366d", "5/367d", "5/0s", "5", "/366d", "5/1d/1d", "1000000000/366d", "100001/366d", "5/year", "0s", "1ns", "400d", "10.0.0.0/33",
	map[string]any{}, map[string]any{"a": "b"}, map[string]any{"limit": "3/366d"}, []any{"a"}, []any{map[string]any{"name": "a"}}, []any{"client_ip", "client_ip"},
}

// mutate changes one thing in a configuration.
func mutate(r *rand.Rand, config map[string]any) {
	places := placesIn(config)
	if len(places) == 0 {
		return
	}
	p := places[r.IntN(len(places))]
	switch r.IntN(10) {
	case 0: // dropped
		if p.object != nil {
			delete(p.object, p.key)
		} else {
			p.set("")
		}
	case 1: // doubled: a field in another case, an element of a list beside itself
		if p.object != nil {
			p.object[strings.ToUpper(p.key[:1])+p.key[1:]] = clone(p.get())
		} else {
			p.list[r.IntN(len(p.list))] = clone(p.get())
		}
	case 2, 3:
		p.set(clone(oddities[r.IntN(len(oddities))]))
	case 4: // unknown
		if p.object != nil {
			p.object[strings.TrimSuffix(p.key, p.key[len(p.key)-1:])+"x"] = p.get()
			if r.IntN(2) == 0 {
				delete(p.object, p.key)
			}
		}
	case 5: // nested wrongly
		if value := p.get(); p.object != nil && r.IntN(2) == 0 {
			p.set(map[string]any{p.key: value})
		} else {
			p.set([]any{value})
		}
	case 6: // moved to another object
		if to := places[r.IntN(len(places))]; p.object != nil && to.object != nil {
			to.object[p.key] = clone(p.get())
		}
	case 7: // a value of another configuration
		others := placesIn(parsed(mutated[r.IntN(len(mutated))]))
		p.set(others[r.IntN(len(others))].get())
	default:
		graft(r, config)
	}
}

// graft sets a setting of another configuration in a rule, or in what is beside the rules.
func graft(r *rand.Rand, config map[string]any) {
	from, to := ruleIn(r, parsed(mutated[r.IntN(len(mutated))])), ruleIn(r, config)
	keys := sortedKeys(from)
	if key := keys[r.IntN(len(keys))]; key != "name" && key != "limit" || r.IntN(9) == 0 {
		to[key] = from[key]
	}
}

// ruleIn returns one of the rules of a configuration, or the configuration itself.
func ruleIn(r *rand.Rand, config map[string]any) map[string]any {
	if rules, ok := config["rules"].([]any); ok && len(rules) > 0 && r.IntN(4) > 0 {
		if rule, ok := rules[r.IntN(len(rules))].(map[string]any); ok && len(rule) > 0 {
			return rule
		}
	}
	return config
}

// readable makes of a configuration one that Traefik reads from a file: it refuses a file with a list in a list, or with objects beside numbers in one.
func readable(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key := range v {
			v[key] = readable(v[key])
		}
	case []any:
		for i := range v {
			if _, object := v[i].(map[string]any); object {
				v[i] = readable(v[i])
			} else {
				v[i] = strings.Trim(fmt.Sprint(v[i]), "[]")
			}
		}
	}
	return value
}

func clone(value any) any {
	var copied any
	if err := json.Unmarshal([]byte(asJSON(value)), &copied); err != nil {
		panic(fmt.Sprint(value, err))
	}
	return copied
}
