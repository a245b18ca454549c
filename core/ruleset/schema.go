package ruleset

import (
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
)

// Field is a row of the Schema: one field of a rule, or of an object in one.
type Field struct {
	Name    string // in rule files and in Caddy: max_delay. In Traefik it is the CamelCase of it.
	Kind    FieldKind
	Least   int64    // of a number; of a duration in nanoseconds
	Most    int64    // the same
	Words   []string // of a word
	Zones   string   // a word that only zones of Caddy have; "": none
	Of      string   // of an object: its name in the Schema
	Example string   // of what is neither a value nor a list of values
	Needed  bool     // an object without it says nothing
	Empty   bool     // named values may be the empty text
	Needs   need
	When    string // the first words of the values that Needs applies to; "": any
	Doc     string // the meaning of the field, for the manual and for editors
}

// FieldKind is the kind of a field's value.
type FieldKind int

// The kinds of fields.
const (
	_           FieldKind = iota
	OneText               // a value that Compile checks
	OneWord               // one of Words
	OneNumber             // a whole number from Least to Most
	OneDuration           // a duration from Least to Most
	OneTruth              // true or false
	ManyTexts             // a list of values; one may be written without the list
	NamedTexts            // named values
	OneObject             // an object that the Schema has under Of
	ManyObjects           // a list of such
)

// need says which limit a rule must have for a field to have an effect.
type need int

const (
	_         need = iota
	withAny        // a limit that is not unlimited for all, or a concurrency
	withLimit      // a limit besides concurrency
)

// Schema has the fields of a rule, and of the objects in it, in the order in which they are shown. All code that reads, checks, compares or
// describes rules is a loop over it: a field that is added here is read from the configurations of all proxies. (Its effect is written in
// Compile. Caddy's Zone and Traefik's Rule need a field for it, too, since the users' documentation is printed from them.)
var Schema = map[string][]Field{
	"rule": {
		{Name: "name", Kind: OneText, Needed: true,
			Doc: "The rule's name, in metrics, logs and header fields: 1 to 64 of A-Z a-z 0-9 _ . -, unique in all rule files. A rule that is renamed starts counting afresh."},
		{Name: "match", Kind: OneObject, Of: "match",
			Doc: "Which requests the rule covers. A request must match every field that is set, and one of the values in each field. The default is all requests."},
		{Name: "key", Kind: ManyTexts,
			Doc: "What tells clients apart: one source or a list of them. Each combination of their values has a counter of its own. The default is client_ip, the client's address. static:TEXT is one counter for all clients. first(header:X-User, client_ip) is the first source that has a value."},
		{Name: "limit", Kind: OneText,
			Doc: "The requests that a key may make in a period: 100/1m, 5/10s or 1000/day. The period is a duration from 1ms to 366d, or day, week or month for fixed windows that follow the calendar, such as 1000/month on 17 or 500/week on sunday. unlimited lets every request pass uncounted. Leave it out if the tiers have a limit for *."},
		{Name: "tiers", Kind: OneObject, Of: "tiers",
			Doc: "Limits that depend on a value of the request, such as the client's plan."},
		{Name: "limit_from", Kind: OneObject, Needs: withLimit, Of: "limit_from",
			Doc: "A limit that requests bring, such as a claim of a token or a header field that an authenticating proxy sets: 500/1m, or 500 in the period of the rule's limit. 0 rejects every request, unlimited lets each pass uncounted. A request that brings none, or no valid one, has the rule's limit."},
		{Name: "overrides", Kind: ManyObjects, Needs: withLimit, Of: "override", Example: "- {key: 192.0.2.1, limit: 1000/1m}",
			Doc: "Limits of single keys. They take precedence over the rule's limit and over tiers."},
		{Name: "time_zone", Kind: OneText, Needs: withLimit,
			Doc: "The time zone of a calendar period: a name of the time zone database. The default is UTC."},
		{Name: "algorithm", Kind: OneWord, Words: rate.AlgorithmNames, Needs: withLimit,
			Doc: "How requests are counted. token_bucket: bursts up to a size, refilled steadily. leaky_bucket: requests wait and leave one at a time. fixed_window: a count that starts afresh with each period. sliding_window_log: exact, with the time of every request. sliding_window_counter: nearly exact, with two counts. The default is sliding_window_counter; for a calendar period it is fixed_window."},
		{Name: "burst", Kind: OneNumber, Least: 1, Most: rate.MaxRequests, Needs: withLimit,
			Doc: "How many tokens a token bucket has, or how many requests may wait in a leaky bucket. The default is the limit's requests."},
		{Name: "refill", Kind: OneWord, Words: []string{"continuous", "interval"}, Needs: withLimit,
			Doc: "How a token bucket is refilled: continuous, the default, or interval, which adds all of the limit's requests at each whole period of the Unix epoch."},
		{Name: "segments", Kind: OneNumber, Least: rate.LeastSegments, Most: rate.MostSegments, Needs: withLimit,
			Doc: "In how many segments, 2 to 60, a sliding window counter counts a period, in place of two whole windows. The more there are, the nearer it is to a sliding window log; each takes 4 bytes a key. The default is two windows."},
		{Name: "window_start", Kind: OneWord, Words: rate.WindowStarts, Needs: withLimit,
			Doc: "When windows of a fixed window or a sliding window counter begin: clock, the default, at whole periods of the Unix epoch, for all keys at once; first_request, each with the first request in it, only for fixed_window; or spread, at a time of each key's own, so that not all quotas are renewed in one second. Not for a calendar period, and not with consistency eventual."},
		{Name: "jitter", Kind: OneText, Needs: withLimit,
			Doc: "Over what part of the period clients are told to come back, so that not all come in the second in which their quotas are renewed: a fraction from 0 to 1, such as 0.1. Each key is told a time of its own, and no time is too early. It moves Retry-After, t and Reset; without it, Retry-After alone is moved by a tenth of the period, by a minute at most, where the period is a minute or longer. 0: all times are exact. For quotas that are renewed for all keys at once: those of a fixed_window by the clock or the calendar, and of a token_bucket with refill interval."},
		{Name: "cost", Kind: OneText, Needs: withLimit,
			Doc: "What one request counts for: a whole number from 1, or the header:NAME, query:NAME or cookie:NAME that has the number. A value that is below 1 or not a number counts as 1. With cost_response it may be 0: a request passes if anything is left. The default is 1."},
		{Name: "ipv4_prefix", Kind: OneNumber, Least: 1, Most: 32,
			Doc: "Masks IPv4 addresses in the key to networks of so many bits, 1 to 32. Each network has one counter. The default is 32: each address has its own."},
		{Name: "ipv6_prefix", Kind: OneNumber, Least: 1, Most: 128,
			Doc: "Masks IPv6 addresses in the key to networks of so many bits, 1 to 128. The default is 64, since a customer usually has such a network."},
		{Name: "enforcement", Kind: OneText, Needs: withLimit, When: "soft",
			Doc: "hard, the default, rejects requests over the limit. shadow counts, lets every request pass, and sends no quota fields. 10% rejects the requests of so many keys, always the same, and is a shadow for the others. soft 20% 30s allows 20 % more, for 30 s from the first request that exceeds the limit. Then the limit itself applies until no request would have exceeded it for one whole period, and the count has come down to the limit. The percentage is a whole number from 1 to 1000, the duration from 1ms to 366d."},
		{Name: "on_limit", Kind: OneWord, Words: []string{"reject", "delay"}, Zones: "defer", Needs: withLimit, When: "delay",
			Doc: "What happens to a request over the limit: reject, the default, or delay: it waits until the limit admits it, first come, first served. A sliding_window_counter cannot delay."},
		{Name: "max_delay", Kind: OneDuration, Least: int64(time.Millisecond), Most: int64(time.Hour), Needs: withLimit,
			Doc: "The longest that a request waits, in a leaky bucket and with on_limit delay, from 1ms to 1h. A request that would wait longer is rejected at once. The default is 10s."},
		{Name: "max_waiting", Kind: OneNumber, Least: 1, Most: core.MaxMaxWaiting, Needs: withLimit,
			Doc: "How many requests of the rule may wait at a time in one process, with on_limit delay. Any more are rejected. From 1 to 1000000; the default is 1000."},
		{Name: "max_waiting_per_key", Kind: OneNumber, Least: 1, Most: core.MaxMaxWaiting, Needs: withLimit,
			Doc: "How many of the waiting requests may have the same key, from 1 to max_waiting. The default is a quarter of the places that are left, so a key that is alone has a fifth of all places; a key that is the same for all requests has all of them."},
		{Name: "count", Kind: ManyTexts, Needs: withLimit,
			Doc: "The responses whose requests count: codes and classes of statuses, such as 401 and 4xx, and fields of the response, such as header:X-Login=failed, header:X-Login (with any value) and trailer:Grpc-Status=16. A request reserves its cost until its response has ended. Then it is charged if the response has one of them, or else the reservation is released. By default all requests count."},
		{Name: "count_match", Kind: OneObject, Needs: withLimit, Of: "match",
			Doc: "Which of the requests that the rule covers count, in the fields of match. All of them are checked against the limit; one that does not match is not charged, and passes if anything is left. With count and cost_response, a request counts if it matches and its response says so. The default is all requests."},
		{Name: "cost_response", Kind: ManyTexts, Needs: withLimit,
			Doc: "Where a response says what its request has cost: header NAME, trailer NAME, json PATH (such as json usage.total_tokens; of a stream of events, the last that has it), or bytes, the length of the body. A request that passes reserves its cost, and is charged what the response says when that has ended. What goes beyond the limit is owed, and paid before the next request passes."},
		{Name: "cost_max", Kind: OneNumber, Least: 1, Most: rate.MaxRequests, Needs: withLimit,
			Doc: "The most that a request is charged by its response. The default is 1000000000."},
		{Name: "respect_upstream", Kind: OneDuration, Least: int64(time.Second), Most: int64(24 * time.Hour), Needs: withLimit,
			Doc: "Pauses a key when the service answers its request with 429 or 503 and Retry-After: all its requests are rejected for as long, but at most for this duration, 1s to 24h. Only with limits whose period is at most 1h."},
		{Name: "penalty", Kind: ManyTexts, Needs: withLimit,
			Doc: "How long a key that exceeds the limit is blocked: the first time, the second and so on. The last duration is for all further times. The durations start over when the key has not exceeded the limit for as long as the longest of them, since it was last unblocked. Up to 16 durations from 1ms to 366d. The default is none."},
		{Name: "concurrency", Kind: OneNumber, Least: 1, Most: rate.MaxRequests,
			Doc: "How many requests of a key may be under way at a time, in addition to the limit or in place of it. A request is under way until its response has ended. The default is any number."},
		{Name: "candidate", Kind: OneObject, Needs: withLimit, Of: "candidate",
			Doc: "A limit to try out on the same requests. Its decisions are counted and compared with those of the rule's limit, and change nothing."},
		{Name: "adapt", Kind: OneObject, Needs: withLimit, Of: "adapt",
			Doc: "How far advice may move the rule's own limit. A rule without it is never touched by advice."},
		{Name: "consistency", Kind: OneText, Needs: withLimit, When: "lease eventual",
			Doc: "How the nodes of a fleet keep to the limit together. strict, the default: Redis decides on every request. lease: nodes take units of the limit for up to a second, and spend them without asking. The limit is kept all the same, with far fewer calls. eventual 1s: nodes decide by themselves, and tell each other by Redis once a second, or at another interval from 10ms to 1m. No request of a busy key waits, and together nodes may exceed the limit. Both need a store in Redis, lease a limit that is whole again after a second or more, and eventual one that takes at least the interval."},
		{Name: "regions", Kind: OneText, Needs: withLimit, When: "lease eventual",
			Doc: "How several regions, each with a Redis of its own, keep to the limit together. No request waits for another region. lease: each always keeps to a share of the limit, and one region lends the rest, so that the limit is never exceeded; it needs a store with region, peers, home and share. eventual 1s: each admits by what it knows, and they tell each other once a second, or at another interval from 100ms to 1m; together they may exceed the limit; it needs consistency eventual, and a store with region and peers. By default the limit holds in each region by itself."},
		{Name: "on_error", Kind: OneWord, Words: core.OnErrorNames, Needs: withAny,
			Doc: "What happens when the store fails: local, the default, counts in memory; open lets requests pass; closed answers 503. Memory itself does not fail."},
		{Name: "on_missing_key", Kind: OneWord, Words: []string{"share", "skip", "reject"},
			Doc: "What happens to a request for which a source of the key is empty. share, the default: the empty value is a value like any other, so leaving a header out does not get round the limit. skip: it passes uncounted. reject: it is rejected."},
		{Name: "count_rejected", Kind: OneTruth, Needs: withLimit,
			Doc: "Whether rejected requests count against the limit too, so that a client that does not slow down stays rejected. The default is false."},
		{Name: "message", Kind: OneText, Needs: withLimit,
			Doc: "The text of the body when this rule rejects a request. If several rules reject it, the client gets the text of the one with the longest wait. Caddy replaces placeholders in it. The default is the proxy's own message; without one, the body says what happened and when to try again."},
		{Name: "answer", Kind: OneObject, Needs: withAny, Of: "answer",
			Doc: "What requests are answered with that this rule rejects, in place of a 429 with the message. If several rules reject one, it is that of the rule with the longest wait. gRPC calls get their own answer, and clients that ask for JSON problem details with the status."},
	},
	"answer": {
		{Name: "status", Kind: OneNumber, Least: 100, Most: 599,
			Doc: "The status, from 400 to 599; of a redirect 302, 303 or 307. The default is 429; of a redirect it is 302."},
		{Name: "type", Kind: OneText,
			Doc: "The media type of body or file. The default is text/html if it begins with a <, and otherwise text/plain. If it is one of JSON, clients that ask for JSON get the body, too."},
		{Name: "body", Kind: OneText,
			Doc: "The body. {limit}, {remaining}, {reset}, {retry_after} and {rule} stand for the values of the rejection, and in Caddy its own placeholders for theirs, which are escaped in HTML and JSON."},
		{Name: "file", Kind: OneText,
			Doc: "A file with the body, up to 256 KB. It is read when the configuration is loaded, and not when it changes."},
		{Name: "redirect", Kind: OneText,
			Doc: "Where the client is redirected to: a path, or a URL with http or https. The same stands for values as in body, escaped. The rule must not cover that place, or browsers go round in circles."},
		{Name: "close", Kind: OneTruth,
			Doc: "Whether the client's connection is closed after the answer. The default is false."},
	},
	"match": {
		{Name: "methods", Kind: ManyTexts,
			Doc: "The request's method is one of these, in upper or lower case: GET, POST. With a ! in front it is none of these: !OPTIONS."},
		{Name: "hosts", Kind: ManyTexts,
			Doc: "The request's host, without port, is one of these. *.example.com is every name one level below example.com. With a ! in front it is none of these."},
		{Name: "paths", Kind: ManyTexts,
			Doc: "The request's path is one of these, or begins with one of path_prefixes. A * at the beginning or end stands for any text: *.php, /api/*, *wp-*. With a ! in front the path is none of these."},
		{Name: "path_prefixes", Kind: ManyTexts,
			Doc: "The request's path begins with one of these, in whole segments: /v1 covers /v1 and /v1/users, and not /v10. With a ! in front it begins with none of these."},
		{Name: "headers", Kind: NamedTexts, Empty: true, Example: "X-Plan: free",
			Doc: "Header fields and the value that each must have. A * at the beginning or end stands for any text: *bot*. * is any value, !* is none, and a ! in front of a value is all others. An = in front compares the rest as it is."},
		{Name: "query", Kind: NamedTexts, Empty: true, Example: "format: csv",
			Doc: "Parameters of the URL and the value that each must have, as in headers."},
		{Name: "cookies", Kind: NamedTexts, Empty: true, Example: "plan: free",
			Doc: "Cookies and the value that each must have, as in headers."},
		{Name: "except_ips", Kind: ManyTexts,
			Doc: "Addresses and networks of clients that the rule exempts: it does not count them. 10.0.0.0/8, 2001:db8::1."},
	},
	"tiers": {
		{Name: "source", Kind: OneText, Needed: true,
			Doc: "The source of the tier, as in a key. A client that can set it chooses its own limit, and a warning says so: have the proxy set it."},
		{Name: "limits", Kind: NamedTexts, Needed: true, Example: "pro: 1000/1m",
			Doc: "The limit of each value. \"*\", in quotes, is for all values that have no limit of their own. Without \"*\" these values have the rule's limit."},
	},
	"limit_from": {
		{Name: "source", Kind: OneText, Needed: true,
			Doc: "The source of the limit, as in a key. A client that can set it chooses its own limit, and a warning says so: have the proxy set it."},
		{Name: "max", Kind: OneText,
			Doc: "The most that a request may bring: 1000/1m, or 1000 in the period of the rule's limit. A limit that could allow more than these requests in this period is lowered until it cannot. The default is any limit."},
	},
	"override": {
		{Name: "key", Kind: ManyTexts, Needed: true,
			Doc: "The key: its value, or if the rule's key has several sources the list of their values, in that order. Where the rule masks addresses, it names a network."},
		{Name: "limit", Kind: OneText, Needed: true,
			Doc: "The key's limit, as in a rule: 1000/1m, or unlimited."},
	},
	"adapt": {
		{Name: "floor", Kind: OneText,
			Doc: "The least that advice may make of the limit, in the limit's period: 50/1m. The default is the limit itself. Only an advisor with gates bounds goes below the limit."},
		{Name: "ceiling", Kind: OneText,
			Doc: "The most that advice may make of the limit, in the limit's period: 200/1m. The default is the limit itself."},
		{Name: "step", Kind: OneText,
			Doc: "How far the limit moves at once, and how long it stays then: a percentage of what it is, from 1 to 100, and a duration from 1s to 1h. The default is 25% 30s."},
		{Name: "algorithms", Kind: ManyTexts,
			Doc: "The algorithms that advice may choose, besides the rule's own. The default is none."},
	},
	"candidate": {
		{Name: "limit", Kind: OneText, Needed: true,
			Doc: "The requests that a key may make in a period, as in a rule: 100/1m."},
		{Name: "algorithm", Kind: OneWord, Words: rate.AlgorithmNames,
			Doc: "How requests are counted. The default is the rule's algorithm, if the rule sets one, and otherwise the default of rules."},
		{Name: "burst", Kind: OneNumber, Least: 1, Most: rate.MaxRequests,
			Doc: "How many tokens a token bucket has, or how many requests may wait in a leaky bucket. The default is the candidate's requests, whatever the rule's burst is."},
		{Name: "refill", Kind: OneWord, Words: []string{"continuous", "interval"},
			Doc: "How a token bucket is refilled: continuous, the default, or interval."},
		{Name: "segments", Kind: OneNumber, Least: rate.LeastSegments, Most: rate.MostSegments,
			Doc: "In how many segments, 2 to 60, a sliding window counter counts a period. The default is two windows, whatever the rule has."},
		{Name: "window_start", Kind: OneWord, Words: rate.WindowStarts,
			Doc: "When windows of a fixed window or a sliding window counter begin: clock, first_request or spread. The default is clock, whatever the rule has."},
		{Name: "time_zone", Kind: OneText,
			Doc: "The time zone of a calendar period: a name of the time zone database. The default is UTC."},
	},
}

// Counting are the fields of a rule that say how its requests are counted, besides limit and burst.
var Counting = []string{"algorithm", "refill", "segments", "window_start", "max_delay", "count", "count_match"}

// byName has the fields of each object, by their names.
var byName = fieldsByName(Schema)

func fieldsByName(schema map[string][]Field) map[string]map[string]*Field {
	all := make(map[string]map[string]*Field)
	for object, fields := range schema {
		all[object] = make(map[string]*Field)
		for i := range fields {
			all[object][fields[i].Name] = &fields[i]
		}
	}
	return all
}

// fieldOf returns the field of a rule with that name; nil: there is none.
func fieldOf(name string) *Field { return byName["rule"][name] }

// FieldOf returns the field with that name of an object in the Schema; nil: there is none.
func FieldOf(object, name string) *Field { return byName[object][name] }

// fieldNames has the names of the fields of each object, in the order of the Schema.
var fieldNames = namesOf(Schema)

func namesOf(schema map[string][]Field) map[string][]string {
	all := make(map[string][]string)
	for object, fields := range schema {
		for i := range fields {
			all[object] = append(all[object], fields[i].Name)
		}
	}
	return all
}

// Names returns the names of the fields of an object in the Schema.
func Names(object string) []string { return append([]string(nil), fieldNames[object]...) }

// Fields returns the names of the fields of each kind of map in a rule file, in the order in which they are shown: those of the Schema, and of
// "file", "descriptor", "rate_limit" and "replaces", an item of that list. The maps match: headers and tiers: limits are not among them,
// since their keys are not fields.
func Fields() map[string][]string {
	all := map[string][]string{
		"file":       append([]string(nil), fileFields...),
		"descriptor": append([]string(nil), descriptorFields...),
		"rate_limit": append([]string(nil), rateLimitFields...),
		"replaces":   {"name"},
	}
	for object := range Schema {
		all[object] = Names(object)
	}
	return all
}

// CamelCase returns the name that a field of the Schema has in Traefik: maxDelay, exceptIPs.
func CamelCase(name string) string {
	words := strings.Split(name, "_")
	for i, word := range words {
		if word == "ips" {
			words[i] = "IPs"
		} else if i > 0 {
			words[i] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}

// hasValue reports whether a rule sets a field; if the field's Needs applies to one value, whether it sets that value.
func hasValue(t *RuleText, f *Field) bool {
	switch f.Kind {
	case ManyTexts:
		_, said := t.Lists[f.Name]
		return said
	case OneObject, ManyObjects:
		return len(t.Objects[f.Name]) > 0
	case OneTruth:
		var s Settings
		return s.Truth(f.Name, t.Texts[f.Name])
	}
	text := t.Texts[f.Name]
	if f.When == "" {
		return text != ""
	}
	for _, word := range strings.Fields(f.When) {
		if firstWord(text) == word {
			return true
		}
	}
	return false
}

func firstWord(text string) string {
	words := strings.Fields(text)
	if len(words) == 0 {
		return ""
	}
	return words[0]
}

// CheckWord says why a word is not a value of a field. The error begins with the field.
func CheckWord(f *Field, word string) error {
	if word == f.Zones && word != "" {
		return words.Wrong(f.Name, strconv.Quote(word), "is only for zones of Caddy; use %s", strings.Join(f.Words, " or "))
	}
	return words.CheckWord(f.Name, word, f.Words)
}
