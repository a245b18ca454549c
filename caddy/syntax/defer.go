package syntax

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"

	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
	"github.com/proxyweir/weir/deferral"
)

// Defer says how requests over a zone's limit are accepted with a 202, kept in Redis, and done when the limit admits them.
type Defer struct {
	// Which requests are deferred: `prefer`, the default, those whose client sends `Prefer: respond-async`; `always`, all that can
	// be.
	Accept string `json:"accept,omitempty"`

	// Where clients find their jobs: `<path>/<id>`, and `<path>/<id>/result`. The default is `/deferred/` and the zone's name.
	Path string `json:"path,omitempty"`

	// The longest that a new job may have to wait, as far as can be said when it is accepted. From 1s to 30d; the default is 1h.
	MaxWait caddy.Duration `json:"max_wait,omitempty"`

	// How many jobs may wait or run in all, over all nodes. From 1 to 10000000; the default is 10000.
	MaxJobs int64 `json:"max_jobs,omitempty"`

	// How many of them one key may have. From 1 to `max_jobs`; the default is 100, or `max_jobs` if that is less.
	MaxJobsPerKey int64 `json:"max_jobs_per_key,omitempty"`

	// The longest body of a request that is deferred, in bytes. From 1 to 16777216; the default is 65536.
	MaxBody int64 `json:"max_body,omitempty"`

	// The longest body of a response that is kept, in bytes. Of a longer one the result is gone (410). From 1 to 16777216; the default is
	// 1048576.
	MaxResult int64 `json:"max_result,omitempty"`

	// How many bytes jobs and results may have in Redis; each job counts for 1536 besides what it stores. Results are removed before their
	// time if a new job needs their room. From 1048576 to 1099511627776; the default is 268435456.
	MaxBytes int64 `json:"max_bytes,omitempty"`

	// How many jobs this Caddy does at a time. From 1 to 10000; the default is 16.
	MaxRunning int64 `json:"max_running,omitempty"`

	// How often a job is tried that may be repeated, before it counts as one that could not be done (dead). From 1 to 100; the default is 5.
	MaxAttempts int64 `json:"max_attempts,omitempty"`

	// How long a job is tried, from its first attempt on: then an attempt under way ends, none begins any more, and the job is dead. No job holds the
	// others of its key for longer. From 1s to 1d; the default is 2m.
	GiveUpAfter caddy.Duration `json:"give_up_after,omitempty"`

	// How long results are kept. From 1s to 366d; the default is 24h. What became of a job is known for twice as long.
	Keep caddy.Duration `json:"keep,omitempty"`

	// How long jobs are kept that could not be done. From 1s to 366d; the default is 7d.
	KeepDead caddy.Duration `json:"keep_dead,omitempty"`

	// The header fields of a request that are stored. The default is Accept, Accept-Language, Content-Encoding, Content-Language and
	// Content-Type. Fields with credentials need `encrypt`.
	Headers []string `json:"headers,omitempty"`

	// The header fields of a response that are kept, besides those that describe its body. Fields with credentials need `encrypt`.
	ResultHeaders []string `json:"result_headers,omitempty"`

	// Keys that encrypt what is stored: 32 bytes each, in base64 or hexadecimal. They may have global placeholders such as
	// `{env.WEIR_DEFER_KEY}`. The first encrypts, and all decrypt. The default is that nothing is encrypted.
	Encrypt []string `json:"encrypt,omitempty"`

	// `required`, the default, defers nothing while Redis may lose jobs, since it evicts keys or has no append-only file: requests over the
	// limit are rejected until it is safe. `best_effort` defers all the same.
	Durability string `json:"durability,omitempty"`

	// How many replicas of Redis must have a request before it is accepted, so that it survives a failover to one of them. From 0 to 10; the
	// default is 0.
	Replicas int64 `json:"replicas,omitempty"`
}

// Day is the unit of the longest durations.
const Day = 24 * time.Hour

// WithDefaults returns the settings with their defaults, for a zone of that name.
func (d *Defer) WithDefaults(zone string) *Defer {
	c := *d
	c.Accept = cmp.Or(c.Accept, "prefer")
	c.Path = cmp.Or(c.Path, "/deferred/"+zone)
	c.MaxWait = cmp.Or(c.MaxWait, caddy.Duration(time.Hour))
	c.MaxJobs = cmp.Or(c.MaxJobs, 10_000)
	c.MaxJobsPerKey = cmp.Or(c.MaxJobsPerKey, min(100, c.MaxJobs))
	c.MaxBody = cmp.Or(c.MaxBody, 64<<10)
	c.MaxResult = cmp.Or(c.MaxResult, 1<<20)
	c.MaxBytes = cmp.Or(c.MaxBytes, 256<<20)
	c.MaxRunning = cmp.Or(c.MaxRunning, 16)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 5)
	c.GiveUpAfter = cmp.Or(c.GiveUpAfter, caddy.Duration(2*time.Minute))
	c.Keep = cmp.Or(c.Keep, caddy.Duration(Day))
	c.KeepDead = cmp.Or(c.KeepDead, caddy.Duration(7*Day))
	c.Durability = cmp.Or(c.Durability, "required")
	if c.Headers == nil {
		c.Headers = deferral.DefaultHeaders
	}
	return &c
}

// Settings returns the lines that the block of a deferring zone may have. Errors of lines with several values begin with where.
func (d *Defer) Settings(where string) []Setting {
	return []Setting{
		WordTo("accept", &d.Accept, "prefer", "always"),
		{Word: "path", To: &d.Path, Check: checkDeferPath},
		DurationTo("max_wait", &d.MaxWait, "1s", "30d"),
		{Word: "max_jobs", To: func(t *caddyfile.Dispenser) error { return d.maxJobs(t, where) }},
		sizeTo("max_body", &d.MaxBody, 1, mostBody),
		sizeTo("max_result", &d.MaxResult, 1, mostBody),
		sizeTo("max_bytes", &d.MaxBytes, 1<<20, 1<<40),
		{Word: "max_running", To: &d.MaxRunning, least: 1, Most: 10_000, Must: "from 1 to 10000"},
		{Word: "max_attempts", To: &d.MaxAttempts, least: 1, Most: 100, Must: "from 1 to 100"},
		DurationTo("give_up_after", &d.GiveUpAfter, "1s", "1d"),
		DurationTo("keep", &d.Keep, "1s", "366d"),
		DurationTo("keep_dead", &d.KeepDead, "1s", "366d"),
		{Word: "headers", To: &d.Headers},
		{Word: "result_headers", To: &d.ResultHeaders},
		{Word: "encrypt", To: &d.Encrypt},
		WordTo("durability", &d.Durability, "required", "best_effort"),
		{Word: "replicas", To: &d.Replicas, least: 0, Most: 10, Must: "from 0 to 10"},
	}
}

// Bounds of Defer.
const (
	mostBody = 16 << 20
	mostJobs = 10_000_000
)

// sizeTo returns a setting of a size in bytes, which may be written with a unit.
func sizeTo(word string, to *int64, least, most int64) Setting {
	must := fmt.Sprintf("a size from %s to %s, such as %s", shortSize(least), shortSize(most), shortSize(max(least, 64<<10)))
	return Setting{Word: word, To: to, size: true, least: float64(least), Most: float64(most), Must: must}
}

// shortSize returns a size as it would be written: 64KiB.
func shortSize(size int64) string { return strings.ReplaceAll(humanize.IBytes(uint64(size)), " ", "") }

// maxJobs reads how many jobs there may be in all, and of one key.
func (d *Defer) maxJobs(t *caddyfile.Dispenser, where string) error {
	args := t.RemainingArgs()
	if len(args) == 0 || len(args) > 2 {
		return t.Errf("%smax_jobs: takes how many jobs there may be in all, and of one key, such as 10000 100, not %d values", where, len(args))
	}
	for i, to := range []*int64{&d.MaxJobs, &d.MaxJobsPerKey}[:len(args)] {
		n, err := strconv.ParseInt(args[i], 10, 64)
		if err != nil || n < 1 || n > mostJobs {
			return t.Errf("%smax_jobs %q: must be a whole number from 1 to %d", where, args[i], mostJobs)
		}
		*to = n
	}
	return NoBlock(t, where, "max_jobs")
}

// checkDeferPath says what is wrong with a path of jobs.
func checkDeferPath(p string) error {
	if len(p) < 2 || path.Clean(p) != p || p[0] != '/' || strings.ContainsAny(p, "%?#{} *\\") {
		return fmt.Errorf("path %q: must be a path such as /jobs, without a slash at its end, placeholders or escapes", p)
	}
	return nil
}

// check says what is wrong with the settings by themselves. The path of the error is the field.
func (d *Defer) check(zone string) error {
	jobs := []Setting{ // a line of the Caddyfile has both
		{Word: "max_jobs", To: &d.MaxJobs, least: 1, Most: mostJobs, Must: fmt.Sprintf("from 1 to %d", mostJobs)},
		{Word: "max_jobs_per_key", To: &d.MaxJobsPerKey, least: 1, Most: mostJobs, Must: fmt.Sprintf("from 1 to %d", mostJobs)},
	}
	for _, s := range append(d.Settings(""), jobs...) {
		if err := CheckFields([]Setting{s}); err != nil {
			return wrongDefer(s.Word, err)
		}
	}
	c := d.WithDefaults(zone)
	if c.MaxJobsPerKey > c.MaxJobs {
		return wrongDefer("max_jobs", words.Wrong("max_jobs", "", "one key may have %d jobs, and all keys together %d; write the larger number first, as in 10000 100", c.MaxJobsPerKey, c.MaxJobs))
	}
	if needs := c.MaxBody + 32<<10; c.MaxBytes < needs { // and what is stored besides
		return wrongDefer("max_bytes", words.Wrong("max_bytes", fmt.Sprint(c.MaxBytes), "has no room for one request with a body of max_body %d; write at least %d", c.MaxBody, needs))
	}
	for _, list := range []struct {
		word  string
		names []string
	}{{"headers", c.Headers}, {"result_headers", c.ResultHeaders}} {
		if _, err := deferral.CheckHeaders(list.names, len(d.Encrypt) > 0); err != nil {
			return wrongDefer(list.word, words.Of(err).Named(list.word))
		}
	}
	for _, key := range d.Encrypt {
		if strings.Contains(key, "{") {
			return nil // its value is known when the configuration is loaded
		}
	}
	if _, err := deferral.ParseKeys(d.Encrypt); err != nil {
		return wrongDefer("encrypt", err)
	}
	return nil
}

// Keys returns the encryption keys, with the values of placeholders.
func (d *Defer) Keys() (deferral.Keys, error) {
	var list []string
	repl := caddy.NewReplacer()
	for _, key := range d.Encrypt {
		if err := ResolvePlaceholders(repl, "encrypt", &key); err != nil {
			return deferral.Keys{}, err
		}
		list = append(list, key)
	}
	return deferral.ParseKeys(list)
}

// wrongDefer returns an error about a setting of defer.
func wrongDefer(word string, err error) error {
	m := words.Of(err).Within("on_limit", "defer")
	m.Path = []string{"defer", word}
	return m
}

// checkDefer says what is wrong with how a compiled zone defers.
func (z *CompiledZone) checkDefer() error {
	if z.Defer == nil {
		return nil
	}
	if err := z.Defer.check(z.Rule.Name); err != nil {
		return err
	}
	for _, other := range []struct {
		field, value string
		set          bool
	}{
		{"on_limit", " " + z.OnLimit, z.OnLimit != "" && z.OnLimit != "reject"},
		{"enforcement", " " + z.Enforcement, z.Enforcement != "" && z.Enforcement != "hard"},
		{"penalty", "", len(z.Penalty) > 0},
		{"count_rejected", "", z.CountRejected},
		{"respect_upstream", "", z.RespectUpstream != 0},
		{"count_match", "", len(z.CountMatcherSetsRaw) > 0},
		{"algorithm", " leaky_bucket", z.Algorithm == rate.LeakyBucket.String()},
		{"consistency", " " + z.Consistency, z.Consistency != "" && z.Consistency != "strict"},
		{"regions", " " + z.Regions, z.Regions != ""},
		{"concurrency", "", z.Concurrency != 0},
		{"candidate", "", z.Candidate != nil},
	} {
		if other.set {
			m := words.Wrong("on_limit", "defer", " and %s%s are mutually exclusive; remove one, or write %[1]s into another zone", other.field, other.value)
			m.Path = []string{other.field}
			return m
		}
	}
	if len(z.Rule.Limits.Rules()) == 0 {
		return wrongDefer("", words.Wrong("", "", "has no effect on a zone without any limit; write a limit, or leave it out"))
	}
	return CheckStoredKey(z.Rule, z.Defer)
}

// CheckStoredKey refuses a zone whose key has credentials, if keys are stored by d and d does not encrypt.
func CheckStoredKey(r *ruleset.Rule, d *Defer) error {
	if len(d.Encrypt) > 0 {
		return nil
	}
	for _, part := range r.Parts {
		if name := credentialsIn(part.Source); name != "" {
			return words.Wrong("key", name, "is a secret, and a deferred request stores its keys; write encrypt with a key into on_limit defer, or take another key")
		}
	}
	return nil
}

// credentialsIn returns the source if its values are, by its name, credentials; "": they are not.
func credentialsIn(source match.Source) string {
	text := source.String()
	kind, name, _ := strings.Cut(text, ":")
	if kind == "cookie" || deferral.IsSecret(name) || IsCaddys(source) && deferral.IsSecret(text) {
		return text
	}
	return ""
}

// DeferringZone returns the zone of a handler that defers; nil: none does. The error says that there are several.
func DeferringZone(zones map[string]*Zone) (zone *Zone, name string, err error) {
	for other, z := range zones {
		if z == nil || z.Defer == nil {
			continue
		}
		if zone != nil {
			names := []string{name, other}
			slices.Sort(names)
			return nil, names[1], fmt.Errorf("zone %q: on_limit defer: zone %q of this handler defers, too; a request can be in one queue only: write them into two rate_limit handlers, or let one reject", names[1], names[0])
		}
		zone, name = z, other
	}
	return zone, name, nil
}

// UnmarshalJSON reads how a zone defers as strictly as a zone.
func (d *Defer) UnmarshalJSON(data []byte) error {
	type plain Defer
	return UnmarshalPart("defer", data, (*plain)(d))
}

// Interface guard
var _ json.Unmarshaler = (*Defer)(nil)
