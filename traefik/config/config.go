// Package config is what a user of the plugin writes, and how it is read: Config, and what Read makes of it. It knows neither requests nor what there was
// before.
package config

// Config is the configuration of a middleware. It has rules; a middleware with one rule may have that rule's fields at
// the top instead, or the words of Traefik's own RateLimit.
//
// Fields for a number, a duration or a boolean are strings here, so that this package, and not the decoder, says
// which rule, field and value is wrong.
type Config struct {
	// The rule of a middleware without a list of rules.
	Rule `json:",inline" yaml:",inline" mapstructure:",squash"`

	// The rules. They are decided in one step: if one that is not a shadow rejects the request, none is charged.
	Rules []Rule `json:"rules,omitempty" yaml:"rules,omitempty"`

	// Files of rules in JSON, in addition to the configuration's: paths, or globs in which * matches a part of a name. They are
	// read again when they change.
	RulesFile []string `json:"rulesFile,omitempty" yaml:"rulesFile,omitempty"`

	// How often the files are checked for changes: from 1s to 1h. The default is 10s.
	RulesInterval string `json:"rulesInterval,omitempty" yaml:"rulesInterval,omitempty"`

	// The domain in the files whose descriptors limit requests. The default is the only one in the files.
	Domain string `json:"domain,omitempty" yaml:"domain,omitempty"`

	// How a request becomes descriptors for the domain: a list of them.
	Descriptors interface{} `json:"descriptors,omitempty" yaml:"descriptors,omitempty"`

	// Separates the rules of this middleware from rules of the same names elsewhere. Middlewares with the same namespace
	// share the counters of rules with the same name. The default is the middleware's name, with @ written as a dot.
	Namespace string `json:"namespace,omitempty" yaml:"namespace,omitempty"`

	// Where counters live: memory or redis. The default is memory.
	Store interface{} `json:"store,omitempty" yaml:"store,omitempty"`

	// Which address is the client's, in Traefik's own words. The default is that of the connection.
	IPStrategy interface{} `json:"ipStrategy,omitempty" yaml:"ipStrategy,omitempty"`

	// Which quota fields responses have: x_ratelimit (X-RateLimit-Limit, -Remaining, -Reset), ietf (RateLimit and
	// RateLimit-Policy), or none. The default is the first two. A rejection has Retry-After in any case.
	Headers []string `json:"headers,omitempty" yaml:"headers,omitempty"`

	// What the names of the X-RateLimit fields begin with, in place of X-RateLimit: X-Acme is for X-Acme-Limit and so on.
	HeaderPrefix string `json:"headerPrefix,omitempty" yaml:"headerPrefix,omitempty"`

	// What X-RateLimit-Reset is: seconds from now, the default, or epoch, a second of the Unix epoch.
	HeaderReset string `json:"headerReset,omitempty" yaml:"headerReset,omitempty"`

	// Lets pages of other origins read what the plugin answers in place of the service, and lets their preflights pass uncounted.
	CORS interface{} `json:"cors,omitempty" yaml:"cors,omitempty"`

	// The text of a rejected request's response. The default says what happened and when to try again.
	Message string `json:"message,omitempty" yaml:"message,omitempty"`

	// Lengthens each Retry-After by a random fraction of it, from 0 to this number, so that rejected clients do not all come
	// back at once: 0.2 adds up to 20 %. From 0, the default, to 10.
	Jitter string `json:"jitter,omitempty" yaml:"jitter,omitempty"`

	// Where rejections are logged: debug or error, the levels of Traefik's log that a plugin can write at, or off, the default.
	LogLevel string `json:"logLevel,omitempty" yaml:"logLevel,omitempty"`

	// How often the log sums up rejections: each rule has a line for the first of every key in that time, up to 50, and one for the number of the others. From
	// 1s to 1h. The default is 1m.
	LogInterval string `json:"logInterval,omitempty" yaml:"logInterval,omitempty"`

	// Writes the key of a rejected request to the log, too. The default is false.
	LogKey string `json:"logKey,omitempty" yaml:"logKey,omitempty"`

	// Counts requests by outcome, and says where Prometheus reads the counts. The default is neither.
	Metrics interface{} `json:"metrics,omitempty" yaml:"metrics,omitempty"`

	// Limits how many requests are under way to the service, by how long it takes to begin its answers. The default is no limit.
	Guard interface{} `json:"guard,omitempty" yaml:"guard,omitempty"`

	// Who gives advice on the limits of rules that have adapt. The default is nobody.
	Advisor interface{} `json:"advisor,omitempty" yaml:"advisor,omitempty"`

	// The path at which clients read their own quotas, at no cost. The default is none.
	StatusPath string `json:"statusPath,omitempty" yaml:"statusPath,omitempty"`

	// As in Traefik's RateLimit: the requests in a period that a client may make in the long run. 0 means no limit.
	Average string `json:"average,omitempty" yaml:"average,omitempty"`

	// As in Traefik's RateLimit: the period of average, a duration, or a number of seconds. The default is 1s.
	Period string `json:"period,omitempty" yaml:"period,omitempty"`

	// As in Traefik's RateLimit: what tells clients apart.
	SourceCriterion interface{} `json:"sourceCriterion,omitempty" yaml:"sourceCriterion,omitempty"`

	// As in Traefik's RateLimit: the Redis that counters live in.
	Redis interface{} `json:"redis,omitempty" yaml:"redis,omitempty"`
}

// Rule is a named limit: the requests it covers, the key that tells their clients apart, and the limit of each key.
type Rule struct {
	// The rule's name: 1 to 64 of A-Z a-z 0-9 _ . -, unique in the middleware. Required in a list of rules; for the one rule
	// of a middleware the default is the middleware's name without its provider.
	Name string `json:"name,omitempty" yaml:"name,omitempty"`

	// Which requests the rule covers. The default is all.
	Match interface{} `json:"match,omitempty" yaml:"match,omitempty"`

	// What tells clients apart, one or more of client_ip, remote_ip, host, method, path, path_segment:N, path_regexp:REGEXP, header:NAME,
	// cookie:NAME, query:NAME, unverified_jwt_claim:NAME, client_cert:FIELD, static:TEXT and first(SOURCE, SOURCE). The default is client_ip.
	Key []string `json:"key,omitempty" yaml:"key,omitempty"`

	// The requests that a key may make in a period: 100/1m. The requests are 1 to 1000000000, with a sliding window log up to
	// 100000; the period is a duration from 1ms to 366d, or day, week or month for fixed windows that follow the calendar.
	// unlimited is no limit.
	Limit string `json:"limit,omitempty" yaml:"limit,omitempty"`

	// Limits that depend on a value of the request.
	Tiers interface{} `json:"tiers,omitempty" yaml:"tiers,omitempty"`

	// A limit that requests bring in place of the rule's own.
	LimitFrom interface{} `json:"limitFrom,omitempty" yaml:"limitFrom,omitempty"`

	// A list of limits of single keys. They take precedence over the tiers and limitFrom.
	Overrides interface{} `json:"overrides,omitempty" yaml:"overrides,omitempty"`

	// The time zone of a calendar period, such as Europe/Berlin. The default is UTC.
	TimeZone string `json:"timeZone,omitempty" yaml:"timeZone,omitempty"`

	// How requests are counted: token_bucket, leaky_bucket, fixed_window, sliding_window_log or sliding_window_counter. The
	// default is sliding_window_counter; for a calendar period it is fixed_window, and for average it is token_bucket.
	Algorithm string `json:"algorithm,omitempty" yaml:"algorithm,omitempty"`

	// How many requests a token bucket holds, or how many may wait in a leaky bucket. The default is the limit's requests;
	// beside average it is 1.
	Burst string `json:"burst,omitempty" yaml:"burst,omitempty"`

	// How a token bucket is refilled: continuous, the default, or interval: with all its requests at each whole period of the
	// Unix epoch.
	Refill string `json:"refill,omitempty" yaml:"refill,omitempty"`

	// In how many segments, 2 to 60, a sliding_window_counter counts a period, in place of two whole windows. The more there are, the nearer it is to a
	// sliding_window_log; each takes 4 bytes a key. The default is two windows.
	Segments string `json:"segments,omitempty" yaml:"segments,omitempty"`

	// When windows of a fixed_window or a sliding_window_counter begin: clock, the default, at whole periods of the Unix epoch, for all keys at once;
	// first_request, each with the first request in it, only for fixed_window; or spread, at a time of each key's own, so that not all quotas are renewed in
	// one second. Not for a calendar period, and not with consistency eventual.
	WindowStart string `json:"windowStart,omitempty" yaml:"windowStart,omitempty"`

	// What one request counts for: a whole number, or the header:NAME, query:NAME or cookie:NAME that has the number. A value
	// that is less than 1 or not a number counts as 1. The default is 1.
	Cost string `json:"cost,omitempty" yaml:"cost,omitempty"`

	// Masks the IPv4 addresses in a key to networks of so many bits, 1 to 32, so that each network shares one counter. The
	// default is 32: every address has its own.
	IPv4Prefix string `json:"ipv4Prefix,omitempty" yaml:"ipv4Prefix,omitempty"`

	// The same for IPv6, 1 to 128. The default is 64, since whole networks of 64 bits are given to single customers; beside
	// average it is 128.
	IPv6Prefix string `json:"ipv6Prefix,omitempty" yaml:"ipv6Prefix,omitempty"`

	// hard, the default, rejects requests over the limit. shadow counts, but lets every request pass and sends no quota fields.
	// 10% rejects the requests of so many keys, always the same, and is a shadow for the others.
	// soft 20% 30s allows 20 % more than the limit, for 30 s from the first request that exceeds it. Then the limit itself
	// applies until no request would have exceeded it for one whole period, and the count has come down to the limit. The
	// percentage is 1 to 1000, and such that it is at least one request; the duration is 1ms to 366d. Not with a leaky bucket.
	Enforcement string `json:"enforcement,omitempty" yaml:"enforcement,omitempty"`

	// What happens to a request over the limit: reject, the default, or delay: it waits until the limit admits it, first
	// come, first served. A sliding window counter cannot delay. With shadow nobody waits, and it is told who would.
	OnLimit string `json:"onLimit,omitempty" yaml:"onLimit,omitempty"`

	// The longest that a request waits, in a leaky bucket and with onLimit delay; one that would have to wait longer is rejected at
	// once. From 1ms to 1h; the default is 10s.
	MaxDelay string `json:"maxDelay,omitempty" yaml:"maxDelay,omitempty"`

	// How many requests of the rule may wait at a time in this process, with onLimit delay; more are rejected. From 1 to 1000000;
	// the default is 1000.
	MaxWaiting string `json:"maxWaiting,omitempty" yaml:"maxWaiting,omitempty"`

	// How many of the waiting requests may have the same key, from 1 to maxWaiting. The default is a quarter of the places
	// that are left, so that a single key has at most a fifth of all places; a key that is the same for all requests has all
	// of them.
	MaxWaitingPerKey string `json:"maxWaitingPerKey,omitempty" yaml:"maxWaitingPerKey,omitempty"`

	// The statuses and fields of responses by which requests count, such as ["401", "header:X-Login=failed"]. The default is all.
	Count []string `json:"count,omitempty" yaml:"count,omitempty"`

	// Which of the requests that the rule covers count, as match. All of them are checked against the limit; one that does not match is not charged, and
	// passes if anything is left. With count and costResponse, a request counts if it matches and its response says so. The default is all. Not with a leaky
	// bucket.
	CountMatch interface{} `json:"countMatch,omitempty" yaml:"countMatch,omitempty"`

	// Where a response says what its request has cost. Such as ["json", "usage.total_tokens"].
	CostResponse []string `json:"costResponse,omitempty" yaml:"costResponse,omitempty"`

	// The most that a request is charged by its response.
	CostMax string `json:"costMax,omitempty" yaml:"costMax,omitempty"`

	// The longest that a key is paused when the service asks for it, by answering with 429 or 503 and Retry-After: 1s to 24h.
	RespectUpstream string `json:"respectUpstream,omitempty" yaml:"respectUpstream,omitempty"`

	// How long a key is blocked that exceeds the limit: for the first time, the second and so on, the last for all further ones.
	// It starts over when it has not exceeded the limit for as long as the longest of them, since it was last unblocked. Up to 16
	// durations of 1ms to 366d, such as 1m, 10m and 1h. The default is none.
	Penalty []string `json:"penalty,omitempty" yaml:"penalty,omitempty"`

	// How many requests of a key may be under way at a time, in addition to the limit or in place of it: 1 to 1000000000. A
	// request is under way until its response has ended. The default is any number.
	Concurrency string `json:"concurrency,omitempty" yaml:"concurrency,omitempty"`

	// A limit to try out on the same requests. Its decisions are counted and compared with those of the rule's limit, and
	// change nothing.
	Candidate interface{} `json:"candidate,omitempty" yaml:"candidate,omitempty"`

	// How far advice may move the rule's own limit. Advice never touches a rule without it.
	Adapt interface{} `json:"adapt,omitempty" yaml:"adapt,omitempty"`

	// How the nodes of a fleet keep to the limit together: strict, the default, lets Redis decide on every request. With lease a node
	// takes units of the limit for up to a second, and spends them without asking; the limit is kept all the same, with far fewer calls.
	// With eventual 1s nodes decide by themselves, and tell each other by Redis once a second, or at another interval from 10ms to 1m: no
	// request of a busy key waits, and together they may exceed the limit. Both need a store in Redis. The limit must be whole again after
	// a second or more, or with eventual not before the interval has passed.
	Consistency string `json:"consistency,omitempty" yaml:"consistency,omitempty"`

	// How several regions, each with a Redis of its own, keep to the limit together. No request waits for another region. With lease each
	// always keeps to a share of the limit, and one region lends the rest, so that the limit is never exceeded; it needs a store in Redis with
	// region, peers, home and share. With eventual 1s each admits by what it knows, and they tell each other once a second, or at another
	// interval from 100ms to 1m; together they may exceed the limit; it needs consistency eventual. By default the limit holds in each region
	// by itself.
	Regions string `json:"regions,omitempty" yaml:"regions,omitempty"`

	// What happens when Redis fails: open lets requests pass, closed answers 503, local, the default, counts in memory.
	OnError string `json:"onError,omitempty" yaml:"onError,omitempty"`

	// What happens to a request for which a part of the key is empty: share, the default, treats the empty value like any
	// other, so that leaving a header out does not get round the limit; skip lets it pass uncounted; reject rejects it.
	OnMissingKey string `json:"onMissingKey,omitempty" yaml:"onMissingKey,omitempty"`

	// Whether rejected requests count against the limit too, so that a client that does not slow down stays rejected. The default
	// is false.
	CountRejected string `json:"countRejected,omitempty" yaml:"countRejected,omitempty"`

	// Over what part of the period clients are told to come back whose quotas are renewed all at once: a fraction from 0 to 1. It moves Retry-After, t and
	// Reset. The default is the middleware's jitter.
	Jitter string `json:"jitter,omitempty" yaml:"jitter,omitempty"`

	// The text of the body when this rule rejects a request. If several rules reject it, the one with the longest wait counts.
	// The default is the middleware's message.
	Message string `json:"message,omitempty" yaml:"message,omitempty"`

	// What requests are answered with that this rule rejects, in place of a 429 with the message.
	Answer interface{} `json:"answer,omitempty" yaml:"answer,omitempty"`

	// Unknown keys of the rule, or of a middleware without a list of rules.
	Unknown map[string]interface{} `json:"-" yaml:"-" mapstructure:",remain"`
}

// Descriptor says how to make one descriptor from a request.
type Descriptor struct {
	// Its entries, from the outermost level of the files to the innermost.
	Entries interface{} `json:"entries,omitempty" yaml:"entries,omitempty"`
}

// DescriptorEntry is one entry of a descriptor.
type DescriptorEntry struct {
	// Its key in the files.
	Key string `json:"key,omitempty" yaml:"key,omitempty"`

	// The source of its value, as in a rule's key. If a request has no value, the descriptor is left out.
	Source string `json:"source,omitempty" yaml:"source,omitempty"`
}

// Store says where counters live: one of its fields.
type Store struct {
	// In the memory of this process.
	Memory interface{} `json:"memory,omitempty" yaml:"memory,omitempty"`

	// In Redis, shared with all proxies that use the same server and prefix.
	Redis interface{} `json:"redis,omitempty" yaml:"redis,omitempty"`
}

// Memory has the settings of the memory. A process has one memory for all middlewares.
type Memory struct {
	// How many keys the memory holds: from 1 to 100000000, by default 1000000. When it is full, it evicts the key that costs
	// least to lose. The largest number of all middlewares applies to all; a middleware that sets none counts as the default.
	MaxKeys string `json:"maxKeys,omitempty" yaml:"maxKeys,omitempty"`
}

// Metrics says where the metrics of the process are served. A middleware with it has its rules counted; if it sets neither
// field, another middleware must serve them.
type Metrics struct {
	// Serves the metrics at /metrics on an address of their own: host:port. All middlewares that name the same address share it.
	Address string `json:"address,omitempty" yaml:"address,omitempty"`

	// Serves the metrics at exactly this path, in place of what the middleware's routers have there.
	Path string `json:"path,omitempty" yaml:"path,omitempty"`
}

// Guard limits how many requests are under way to the service behind the middleware. A request over that limit gets a 503. Requests are
// turned away first whose keys ask for more than their fair share.
type Guard struct {
	// What the guard has learnt stays under its name. Middlewares with guards of one name share it: they stand before the same
	// service, and should define it alike. The default is the namespace of the middleware.
	Name string `json:"name,omitempty" yaml:"name,omitempty"`

	// How many requests may be under way at most, whatever the service does. From 1 to 100000; the default is 100000.
	Max string `json:"max,omitempty" yaml:"max,omitempty"`

	// How many requests may be under way at least, however slow the service is. From 1 to max; the default is 8, or max if that is
	// less.
	Min string `json:"min,omitempty" yaml:"min,omitempty"`

	// Which requests are turned away last.
	Priority interface{} `json:"priority,omitempty" yaml:"priority,omitempty"`

	// Whether the guard limits keys that ask for more than ever, while it has to turn requests away: on, the default, or off.
	Tighten string `json:"tighten,omitempty" yaml:"tighten,omitempty"`

	// How much traffic the guard learns from before it does that. From 10s to 720h; the default is 24h.
	WarmUp string `json:"warmUp,omitempty" yaml:"warmUp,omitempty"`

	// How busy the service is by another sign, which has the guard find a queue sooner. Alone it turns nobody away.
	Pressure interface{} `json:"pressure,omitempty" yaml:"pressure,omitempty"`

	// Whether the guard turns nobody away, and only says in the log and in metrics whom it would.
	Shadow string `json:"shadow,omitempty" yaml:"shadow,omitempty"`
}

// CORS says which pages of other origins may read what the plugin answers in place of the service.
type CORS struct {
	// The origins of the pages: scheme, host and port, such as https://app.example.com. https://*.example.com is every name one level
	// below, and * is every origin. Required.
	Origins []string `json:"origins,omitempty" yaml:"origins,omitempty"`

	// Whether pages may read answers to requests that they send with cookies or other credentials. Not with the origin *.
	Credentials string `json:"credentials,omitempty" yaml:"credentials,omitempty"`
}

// GuardPriority says which requests have priority: those whose value of the source is one of the values.
type GuardPriority struct {
	// Where the value comes from, as in a rule's key. Required.
	Source string `json:"source,omitempty" yaml:"source,omitempty"`

	// The values that have priority. Required.
	Values []string `json:"values,omitempty" yaml:"values,omitempty"`
}

// GuardPressure says whom to ask how busy the service is, and from what value on that is high.
type GuardPressure struct {
	// The address of the number: of a health endpoint, or with a query that of a Prometheus. Required.
	URL string `json:"url,omitempty" yaml:"url,omitempty"`

	// Where the number is in an answer in JSON: names of fields and places in lists, with dots between them. Without it the whole
	// answer is the number.
	Field string `json:"field,omitempty" yaml:"field,omitempty"`

	// PromQL that returns one series.
	Query string `json:"query,omitempty" yaml:"query,omitempty"`

	// From what value on the pressure is high. Above 0; the default is 0.9.
	High string `json:"high,omitempty" yaml:"high,omitempty"`

	// How often it is asked. From 100ms to 1m; the default is 1s.
	Interval string `json:"interval,omitempty" yaml:"interval,omitempty"`
}

// IPStrategy says which address is the client's. It has the words and the meaning of Traefik's own ipStrategy.
type IPStrategy struct {
	// The client's address is the one at this place of X-Forwarded-For, counted from the right, from 1.
	Depth string `json:"depth,omitempty" yaml:"depth,omitempty"`

	// The client's address is the rightmost of X-Forwarded-For that is not in these addresses and networks. It has no effect
	// with depth.
	ExcludedIPs []string `json:"excludedIPs,omitempty" yaml:"excludedIPs,omitempty"`

	// Masks IPv6 addresses to networks of so many bits: from 1 to 128. It has no effect with excludedIPs.
	IPv6Subnet string `json:"ipv6Subnet,omitempty" yaml:"ipv6Subnet,omitempty"`
}

// Redis says where Redis is, and how to use it. Texts may refer to other places: env:NAME is the environment variable of
// that name, file:PATH is the contents of the file without the last line break.
type Redis struct {
	// Where Redis is: host:port (6379 if the port is left out), the path of a Unix socket, or a URL: redis://, rediss:// for
	// TLS, or unix://. Several are the Sentinels of masterName, or nodes of a cluster.
	Address []string `json:"address,omitempty" yaml:"address,omitempty"`

	// The name of the master that the Sentinels at the addresses monitor.
	MasterName string `json:"masterName,omitempty" yaml:"masterName,omitempty"`

	// Whether the addresses are nodes of a Redis Cluster. The default is false.
	Cluster string `json:"cluster,omitempty" yaml:"cluster,omitempty"`

	// The ACL user. The default is Redis's default user.
	Username string `json:"username,omitempty" yaml:"username,omitempty"`

	// The password.
	Password string `json:"password,omitempty" yaml:"password,omitempty"`

	// The user and password for the Sentinels, if they require any.
	SentinelUsername string `json:"sentinelUsername,omitempty" yaml:"sentinelUsername,omitempty"`
	SentinelPassword string `json:"sentinelPassword,omitempty" yaml:"sentinelPassword,omitempty"`

	// The number of the database. The default is 0, the only one in a Cluster.
	Database string `json:"database,omitempty" yaml:"database,omitempty"`

	// Connects over TLS. An empty object is enough if the system trusts the server's CA.
	TLS interface{} `json:"tls,omitempty" yaml:"tls,omitempty"`

	// The longest that a request waits for a decision: from 1ms to 1m. The default is 50ms.
	Timeout string `json:"timeout,omitempty" yaml:"timeout,omitempty"`

	// The longest that a call of consistency lease or eventual may take, or any that no request waits for: from 1ms to 1m, and not
	// shorter than the timeout. The default is 2s, or the timeout if that is longer.
	BackgroundTimeout string `json:"backgroundTimeout,omitempty" yaml:"backgroundTimeout,omitempty"`

	// How long connecting may take, in the background: from 1ms to 1m. The default is 1s.
	DialTimeout string `json:"dialTimeout,omitempty" yaml:"dialTimeout,omitempty"`

	// After how long without a reply a connection is closed, in the background: from 1ms to 1m, and not shorter than the
	// timeout. The default is 500ms, or the timeout if that is longer.
	ReadTimeout string `json:"readTimeout,omitempty" yaml:"readTimeout,omitempty"`

	// The prefix of the keys in Redis. The default is weir:. All proxies with the same prefix on one Redis share counters.
	Prefix string `json:"prefix,omitempty" yaml:"prefix,omitempty"`

	// Makes the clients' keys in Redis an HMAC, so that nobody who reads Redis can find out addresses by trying all. All nodes
	// must have the same secret.
	KeySecret string `json:"keySecret,omitempty" yaml:"keySecret,omitempty"`

	// Whether the clients' keys in Redis stay readable, instead of being hashed. The default is false.
	PlainKeys string `json:"plainKeys,omitempty" yaml:"plainKeys,omitempty"`

	// How many nodes share the Redis. While it cannot be reached, each allows its share of a limit, with onError local.
	// The default is 1: each allows all of it.
	Nodes string `json:"nodes,omitempty" yaml:"nodes,omitempty"`

	// The name of the region that this Redis is for, such as eu.
	Region string `json:"region,omitempty" yaml:"region,omitempty"`

	// The addresses of the other regions' Redis, by the names of the regions. Where an address says no more, all other settings are those
	// of this store.
	Peers interface{} `json:"peers,omitempty" yaml:"peers,omitempty"`

	// The part of a limit that this region keeps to while it does not hear from others: above 0 and at most 1, such as 0.4. Those of all
	// regions should be 1 together. The default is an equal part for each.
	Share string `json:"share,omitempty" yaml:"share,omitempty"`

	// The region whose Redis lends units of limits with regions lease: this one or a peer, the same in all regions. It needs a share, which is then
	// the part of such limits that each region always keeps to by itself, also the same in all regions.
	Home string `json:"home,omitempty" yaml:"home,omitempty"`
}

// ClientTLS configures TLS to Redis, or to an advisor.
type ClientTLS struct {
	// A file with the CA's certificates in PEM. The default is the system's.
	CA string `json:"ca,omitempty" yaml:"ca,omitempty"`

	// Files with the client's certificate and its key in PEM, if the server asks for one.
	ClientCertificate string `json:"clientCertificate,omitempty" yaml:"clientCertificate,omitempty"`
	ClientKey         string `json:"clientKey,omitempty" yaml:"clientKey,omitempty"`

	// The name that the server's certificate must be for. The default is the address's host.
	ServerName string `json:"serverName,omitempty" yaml:"serverName,omitempty"`
}

// Advisor is who gives advice on the limits of rules that have adapt: a service that forecasts their demand. Advice is checked by what Traefik
// itself sees of the traffic, moves a limit within its bounds only, and expires. No request waits for it. Texts may refer to other places, as
// those of Redis.
type Advisor struct {
	// The address that advice is fetched from, such as https://advisor.internal:8787/v1/advice. Required.
	URL string `json:"url,omitempty" yaml:"url,omitempty"`

	// observe, the default: what would change is logged and counted, and nothing changes. apply: limits change.
	Mode string `json:"mode,omitempty" yaml:"mode,omitempty"`

	// How often advice is fetched: from 1s to 1h. The default is 10s.
	Interval string `json:"interval,omitempty" yaml:"interval,omitempty"`

	// How long fetching may take: from 10ms to 1m. The default is 2s.
	Timeout string `json:"timeout,omitempty" yaml:"timeout,omitempty"`

	// The name by which the advisor knows the proxies that this middleware is one of. The default is none.
	Fleet string `json:"fleet,omitempty" yaml:"fleet,omitempty"`

	// What is sent as Authorization: Bearer. The default is nothing.
	Token string `json:"token,omitempty" yaml:"token,omitempty"`

	// A file with the advisor's Ed25519 public key in PEM. Advice without its signature is refused. The default is that advice needs none.
	PublicKey string `json:"publicKey,omitempty" yaml:"publicKey,omitempty"`

	// How Traefik connects to an address of https. An empty object is enough if the system trusts the advisor's CA.
	TLS interface{} `json:"tls,omitempty" yaml:"tls,omitempty"`

	// How much traffic of a rule the guard must have seen before advice on it is followed: from 10s to 720h. The default is 24h.
	WarmUp string `json:"warmUp,omitempty" yaml:"warmUp,omitempty"`

	// What Traefik checks before it follows advice. full, the default: a limit never falls below the configured one, and only rises while the
	// guard sees a healthy service and no few keys make much of the demand. bounds: floor, ceiling, step and expiry alone.
	Gates string `json:"gates,omitempty" yaml:"gates,omitempty"`

	// A file that gets a line of JSON for each change of a limit. The default is none.
	Audit string `json:"audit,omitempty" yaml:"audit,omitempty"`
}

// SourceCriterion says what tells clients apart, in the words of Traefik's RateLimit: one of its fields. The default is an
// empty ipStrategy.
type SourceCriterion struct {
	// The client's address.
	IPStrategy interface{} `json:"ipStrategy,omitempty" yaml:"ipStrategy,omitempty"`

	// The value of this header field.
	RequestHeaderName string `json:"requestHeaderName,omitempty" yaml:"requestHeaderName,omitempty"`

	// Whether it is the host that the request is for.
	RequestHost string `json:"requestHost,omitempty" yaml:"requestHost,omitempty"`
}

// RateLimitRedis says where Redis is, in the words of Traefik's RateLimit.
type RateLimitRedis struct {
	// The server's host:port. The default is localhost:6379. Several are nodes of a Redis Cluster.
	Endpoints []string `json:"endpoints,omitempty" yaml:"endpoints,omitempty"`

	// Connects over TLS.
	TLS interface{} `json:"tls,omitempty" yaml:"tls,omitempty"`

	// The ACL user.
	Username string `json:"username,omitempty" yaml:"username,omitempty"`

	// The password.
	Password string `json:"password,omitempty" yaml:"password,omitempty"`

	// The number of the database. The default is 0.
	DB string `json:"db,omitempty" yaml:"db,omitempty"`

	// These have no effect: all requests travel over one connection.
	PoolSize       string `json:"poolSize,omitempty" yaml:"poolSize,omitempty"`
	MinIdleConns   string `json:"minIdleConns,omitempty" yaml:"minIdleConns,omitempty"`
	MaxActiveConns string `json:"maxActiveConns,omitempty" yaml:"maxActiveConns,omitempty"`

	// How long a request waits for a decision: the longer of the two. The default is 50ms.
	ReadTimeout  string `json:"readTimeout,omitempty" yaml:"readTimeout,omitempty"`
	WriteTimeout string `json:"writeTimeout,omitempty" yaml:"writeTimeout,omitempty"`

	// How long connecting may take, in the background. The default is 1s.
	DialTimeout string `json:"dialTimeout,omitempty" yaml:"dialTimeout,omitempty"`
}

// RateLimitTLS configures TLS to Redis, in the words of Traefik's RateLimit. Certificates and key are files, or
// their contents.
type RateLimitTLS struct {
	// The CA's certificates. The default is the system's.
	CA string `json:"ca,omitempty" yaml:"ca,omitempty"`

	// The client's certificate and its key.
	Cert string `json:"cert,omitempty" yaml:"cert,omitempty"`
	Key  string `json:"key,omitempty" yaml:"key,omitempty"`

	// Whether the server's certificate is not verified.
	InsecureSkipVerify string `json:"insecureSkipVerify,omitempty" yaml:"insecureSkipVerify,omitempty"`
}
