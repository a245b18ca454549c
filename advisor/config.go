package advisor

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/ruleset/yaml"
)

// Config is what advisor.yaml says. Read makes it, with the defaults.
type Config struct {
	Listen     string             // host:port; the default is 127.0.0.1:8787
	Fleet      string             // the fleet that it advises; proxies name it
	Token      string             // what proxies must send; "": nothing
	PrivateKey ed25519.PrivateKey // signs documents; nil: they have no signature
	TLS        *tls.Config        // nil: no TLS
	Prometheus Prometheus

	History  time.Duration // how far back it learns
	Step     time.Duration // between two values of a series
	Season   time.Duration // after which demand is similar
	Horizon  time.Duration // how far ahead it forecasts
	Interval time.Duration // how often it computes advice
	Expires  time.Duration // how long a document is valid

	// MinimumSkill is what a forecast's errors must be less than those of the last value, and of the mean of the season before, as a part of these. It abstains
	// with less.
	MinimumSkill float64

	PressureQuery string  // PromQL of how busy the service is; "": nobody is asked
	PressureHigh  float64 // from what value of it on no limit above the configured one is advised

	Rules []Rule
}

// Rule is an adaptable rule, with what it is advised for.
type Rule struct {
	Label      string // as the metrics have it
	Limit      *rate.Limit
	LimitText  string // requests and period, as it is written
	Calendar   string // the unit of the calendar that it follows, @ and the time zone; "": none
	Burst      int64  // 0: that of the requests, or none
	Floor      int64  // the least requests that may be advised
	Ceiling    int64  // the most
	Algorithms []string
	Demand     string  // DemandOfKey, DemandInAll or DemandOfQuery
	Query      string  // PromQL, of requests a second
	Quantile   float64 // of the keys, or of the band of all requests
	Headroom   float64 // what the limit is of the demand
	Abuse      bool    // thresholds may be advised
	Lower      bool    // less than the configured limit may be advised
}

// What a rule's demand may be.
const (
	DemandOfKey   = "key"   // of a key, at a quantile of the keys
	DemandInAll   = "total" // of all requests of the rule
	DemandOfQuery = "query" // what a query returns
)

// Period returns the limit's period; for a period of the calendar the longest that it can be.
func (r *Rule) Period() time.Duration { return time.Duration(r.Limit.Period) * time.Microsecond }

// Read reads advisor.yaml. Names of files in it are relative to its folder. The error has all problems, with lines and columns.
func Read(name string) (*Config, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return Parse(name, data)
}

// Parse is Read for the contents of a file.
func Parse(name string, data []byte) (*Config, error) {
	root, problems := yaml.Parse(name, data)
	if len(problems) > 0 {
		return nil, problems
	}
	c := &Config{
		Listen: "127.0.0.1:8787", History: 14 * day, Step: time.Minute, Season: day, Horizon: 10 * time.Minute, Interval: time.Minute, Expires: 10 * time.Minute,
		MinimumSkill: 0.05, PressureHigh: 0.9, Prometheus: Prometheus{Timeout: 10 * time.Second},
	}
	r := &reader{file: name}
	r.config(root, c)
	if len(r.problems) > 0 {
		return nil, r.problems
	}
	return c, nil
}

const (
	day        = 24 * time.Hour
	daySeconds = 24 * 60 * 60
)

// config reads the whole file.
func (r *reader) config(root *ruleset.Node, c *Config) {
	var key, tokenFile string
	var pair struct{ certificate, key, clientCA string }
	set := r.fields(root, "advisor.yaml",
		field{name: "listen", to: &c.Listen},
		field{name: "fleet", to: &c.Fleet},
		field{name: "token", to: &c.Token},
		field{name: "token_file", to: &tokenFile},
		field{name: "private_key", to: &key},
		field{name: "tls", to: func(n *ruleset.Node) error {
			set := r.fields(n, "tls", field{name: "certificate", to: &pair.certificate}, field{name: "key", to: &pair.key}, field{name: "client_ca", to: &pair.clientCA})
			r.needs(n, set, "certificate", "the file of the certificate, in PEM")
			r.needs(n, set, "key", "the file of its private key, in PEM")
			return nil
		}},
		field{name: "prometheus", to: func(n *ruleset.Node) error {
			p := &c.Prometheus
			set := r.fields(n, "prometheus", field{name: "url", to: &p.URL}, field{name: "token", to: &p.Token}, field{name: "selector", to: &p.Selector},
				field{name: "timeout", to: &p.Timeout, least: 0.001, most: 3600})
			r.needs(n, set, "url", "the address of a Prometheus, such as http://127.0.0.1:9090")
			return p.check()
		}},
		field{name: "history", to: &c.History, least: 60, most: 366 * daySeconds},
		field{name: "step", to: &c.Step, least: 1, most: daySeconds},
		field{name: "season", to: &c.Season, least: 4, most: 31 * daySeconds},
		field{name: "horizon", to: &c.Horizon, least: 1, most: 7 * daySeconds},
		field{name: "interval", to: &c.Interval, least: 1, most: daySeconds},
		field{name: "expires", to: &c.Expires, least: 1, most: daySeconds},
		field{name: "minimum_skill", to: &c.MinimumSkill, least: 0, most: 1},
		field{name: "pressure", to: func(n *ruleset.Node) error {
			set := r.fields(n, "pressure", field{name: "query", to: &c.PressureQuery}, field{name: "high", to: &c.PressureHigh, least: 1e-6, most: 1e12})
			r.needs(n, set, "query", "PromQL that returns one series, such as max(instance:cpu_busy:ratio)")
			r.check(set, "query", set["query"] == nil || c.PressureQuery != "", "query: is empty; write PromQL that returns one series")
			return nil
		}},
		field{name: "model", to: new(string), words: []string{"prophet", "ets"}}, field{name: "prophet", to: func(*ruleset.Node) error { return nil }}, // of another advisor
		field{name: "rules", to: func(n *ruleset.Node) error { return r.rules(n, c) }},
	)
	r.needs(root, set, "prometheus", "a map with the url of a Prometheus")
	r.needs(root, set, "rules", "a list of the adaptable rules")
	r.check(set, "fleet", len(c.Fleet) <= 128, "fleet: has %d bytes, and may have 128", len(c.Fleet))
	r.check(set, "step", c.Step%time.Second == 0, "step %s: must be whole seconds", ruleset.Shortly(c.Step))
	r.check(set, "season", c.Season%c.Step == 0 && c.Season >= 4*c.Step, "season %s: must be a multiple of step (%s), and at least four of it", ruleset.Shortly(c.Season), ruleset.Shortly(c.Step))
	r.check(set, "horizon", c.Horizon%c.Step == 0 && c.Horizon <= c.Season, "horizon %s: must be a multiple of step (%s), and not longer than season (%s)", ruleset.Shortly(c.Horizon), ruleset.Shortly(c.Step), ruleset.Shortly(c.Season))
	r.check(set, "history", c.History/c.Step <= mostValues, "history %s: has more than %d values, one each step (%s); take a longer step", ruleset.Shortly(c.History), mostValues, ruleset.Shortly(c.Step))
	r.check(set, "expires", c.Expires >= c.Interval, "expires %s: must not be shorter than interval (%s), or nothing is valid in between", ruleset.Shortly(c.Expires), ruleset.Shortly(c.Interval))
	r.check(set, "token_file", tokenFile == "" || c.Token == "", "token_file and token are mutually exclusive")
	r.files(set, c, tokenFile, key, pair.certificate, pair.key, pair.clientCA)
}

// mostValues is the most values of a series: of 347 days at a step of a minute.
const mostValues = 500_000

// files reads the files that the configuration names.
func (r *reader) files(set map[string]*ruleset.Node, c *Config, tokenFile, key, certificate, certificateKey, clientCA string) {
	if tokenFile != "" {
		text, err := os.ReadFile(r.path(tokenFile))
		c.Token = strings.TrimSpace(string(text))
		r.check(set, "token_file", err == nil, "token_file: %v", err)
		r.check(set, "token_file", err != nil || c.Token != "", "token_file %q: is empty", tokenFile)
	}
	if key != "" {
		text, err := os.ReadFile(r.path(key))
		if err == nil {
			c.PrivateKey, err = advice.ParsePrivateKey(text)
		}
		r.check(set, "private_key", err == nil, "private_key %q: must be an Ed25519 key as openssl genpkey -algorithm ed25519 writes it: %v", key, err)
	}
	if certificate == "" || certificateKey == "" {
		return
	}
	pair, err := tls.LoadX509KeyPair(r.path(certificate), r.path(certificateKey))
	r.check(set, "tls", err == nil, "tls: %v", err)
	c.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if clientCA != "" {
		text, err := os.ReadFile(r.path(clientCA))
		c.TLS.ClientCAs, c.TLS.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		r.check(set, "tls", err == nil, "tls: client_ca: %v", err)
		r.check(set, "tls", err != nil || c.TLS.ClientCAs.AppendCertsFromPEM(text), "tls: client_ca %q: has no certificate in PEM", clientCA)
	}
}

// path returns where a file is that the configuration names.
func (r *reader) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(r.file), name)
}

// rules reads the list of rules.
func (r *reader) rules(n *ruleset.Node, c *Config) error {
	if n.Kind != ruleset.List {
		return fmt.Errorf("must be a list of rules, not %s", n.Kind)
	}
	first := make(map[string]int)
	for _, item := range n.Items {
		rule := r.rule(item)
		if line := first[rule.Label]; line > 0 {
			r.fail(item, fmt.Sprintf("duplicate rule %q, first in line %d; keep one", rule.Label, line))
		}
		first[rule.Label] = item.Line
		c.Rules = append(c.Rules, rule)
	}
	return nil
}

// rule reads one rule.
func (r *reader) rule(n *ruleset.Node) Rule {
	rule := Rule{Demand: DemandOfKey, Quantile: 0.99, Headroom: 1.2}
	var algorithm, zone, floor, ceiling string
	set := r.fields(n, "a rule",
		field{name: "rule", to: &rule.Label},
		field{name: "limit", to: &rule.LimitText},
		field{name: "algorithm", to: &algorithm, words: rate.AlgorithmNames},
		field{name: "time_zone", to: &zone},
		field{name: "burst", to: &rule.Burst, most: rate.MaxRequests},
		field{name: "floor", to: &floor},
		field{name: "ceiling", to: &ceiling},
		field{name: "algorithms", to: &rule.Algorithms, words: rate.AlgorithmNames},
		field{name: "demand", to: &rule.Demand, words: []string{DemandOfKey, DemandInAll, DemandOfQuery}},
		field{name: "query", to: &rule.Query},
		field{name: "quantile", to: &rule.Quantile, least: 0.5, most: 0.9999},
		field{name: "headroom", to: &rule.Headroom, least: 1, most: 10},
		field{name: "abuse", to: &rule.Abuse},
		field{name: "lower", to: &rule.Lower},
	)
	r.needs(n, set, "rule", "the rule's label in the metrics, such as api")
	r.needs(n, set, "limit", "the configured limit, such as 100/1m")
	r.needs(n, set, "ceiling", "the most that may be advised, such as 200/1m")
	r.check(set, "rule", len(rule.Label) <= 256 && !strings.ContainsFunc(rule.Label, unicode.IsControl), "rule %q: must be at most 256 bytes without control characters", rule.Label)
	r.check(set, "rule", set["rule"] == nil || rule.Label != "", "rule \"\": must be the rule's label in the metrics, such as api")
	if rule.Query != "" && set["demand"] == nil {
		rule.Demand = DemandOfQuery
	}
	r.check(set, "demand", (rule.Demand == DemandOfQuery) == (rule.Query != ""), "demand query needs query, a PromQL text, and no other has it")
	if set["limit"] == nil {
		return rule
	}
	limit := rate.LimitConfig{Burst: rule.Burst}
	err := rate.ParseLimit(rule.LimitText, &limit)
	if err == nil && algorithm != "" {
		limit.Algorithm, err = rate.ParseAlgorithm(algorithm)
	}
	if err == nil && zone != "" {
		if limit.Location, err = time.LoadLocation(zone); err != nil {
			err = fmt.Errorf("time_zone %q: must be a name of the time zone database, such as Europe/Berlin", zone)
		}
	}
	if err == nil {
		rule.Limit, err = rate.NewLimit(limit)
	}
	if err != nil {
		r.fail(set["limit"], err.Error())
		return rule
	}
	if limit.Calendar != rate.Epoch {
		rule.Calendar = rule.Limit.CalendarText()
	}
	rule.Floor, rule.Ceiling = limit.Requests, limit.Requests
	for _, bound := range []struct {
		name, text string
		to         *int64
	}{{"floor", floor, &rule.Floor}, {"ceiling", ceiling, &rule.Ceiling}} {
		if bound.text == "" {
			continue
		}
		var b rate.LimitConfig
		err := rate.ParseLimit(bound.text, &b)
		r.check(set, bound.name, err == nil, "%s: %v", bound.name, err)
		r.check(set, bound.name, err != nil || b.Period == limit.Period && b.Calendar == limit.Calendar && b.On == limit.On, "%s %q: must have the period of limit, %s", bound.name, bound.text, rule.LimitText)
		*bound.to = b.Requests
	}
	r.check(set, "floor", rule.Floor <= limit.Requests, "floor %q: must not be above limit, %s", floor, rule.LimitText)
	r.check(set, "ceiling", ceiling == "" || rule.Ceiling >= limit.Requests, "ceiling %q: must not be below limit, %s", ceiling, rule.LimitText)
	return rule
}
