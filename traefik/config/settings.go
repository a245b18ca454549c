package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/answer"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// Settings are a middleware's, checked; but for where its counters live, and who advises it: see StoreSettings and AdvisorSettings.
type Settings struct {
	Namespace string // of its rules
	Named     bool   // that is configured
	Fields    answer.Fields
	CORS      *front.CORS // nil: none
	Message   string
	Jitter    float64 // -1: it is left out
	Log       RejectionLog

	Strategy   IPStrategy
	StrategyIs string // its name in messages; "": it is not set

	Rules       []*ruleset.Rule // of the configuration
	Files       []string        // patterns of names; none: there are no files
	Interval    time.Duration   // how often these are checked for changes
	Domain      string          // the one in which descriptors are looked up; "": the only one
	Descriptors []front.Descriptor

	Guard      *GuardSettings // nil: there is no guard
	Counts     bool           // the rules have metrics
	Monitoring Monitoring

	Advice []string // what has no effect, or hardly the one intended
}

// How often files are checked for changes.
const (
	standardInterval = 10 * time.Second
	shortestInterval = time.Second
	longestInterval  = time.Hour
)

// Read checks and compiles a configuration. middleware is its name, with the provider.
func Read(c *Config, middleware string) (*Settings, error) { return ReadTexts(c, middleware, nil) }

// ReadTexts is Read, and calls a function with each rule of the configuration as it is written, and what it is compiled in; nil: none.
func ReadTexts(c *Config, middleware string, each func(t *ruleset.RuleText, in ruleset.Context)) (*Settings, error) {
	s := &Settings{Message: c.Message, Named: c.Namespace != "", Domain: c.Domain}
	var err error
	if s.Namespace, err = namespaceOf(c, middleware); err != nil {
		return nil, err
	}
	if s.Guard, err = newGuardSettings(c.Guard, s.Namespace); err != nil {
		return nil, err
	}
	if s.Fields, err = answer.ParseFields(trimmed(c.Headers)); err != nil {
		return nil, err
	}
	if err = answer.SetForm(&s.Fields, strings.TrimSpace(c.HeaderPrefix), strings.TrimSpace(c.HeaderReset)); err != nil {
		return nil, InWords(words.Of(err))
	}
	if s.CORS, err = newCORS(c.CORS, s.Fields); err != nil {
		return nil, err
	}
	if s.Jitter, err = parseJitter(c.Jitter); err != nil {
		return nil, err
	}
	if err = s.Log.set(c); err != nil {
		return nil, err
	}
	if s.Counts, err = setMonitoring(c, &s.Monitoring); err != nil {
		return nil, err
	}
	var criterion SourceCriterion
	if _, err = decodeObject("sourceCriterion", c.SourceCriterion, &criterion); err != nil {
		return nil, err
	}
	if err = s.setStrategy(c.IPStrategy, criterion.IPStrategy); err != nil {
		return nil, err
	}
	if err = s.setFiles(c); err != nil {
		return nil, err
	}
	if s.Rules, err = ownRules(c, &criterion, s.Namespace, middleware, each); err != nil {
		return nil, err
	}
	for _, r := range s.Rules {
		for _, one := range r.Advice {
			s.Advice = append(s.Advice, one.Within("rule", strconv.Quote(r.Name)).In(ourName))
		}
	}
	if isDialect(c) && strings.TrimSpace(c.Average) == "" && len(s.Rules) == 0 && len(s.Files) == 0 {
		s.Advice = append(s.Advice, "average is not set, so nothing is limited")
	}
	return s, nil
}

// setStrategy reads the ipStrategy from either of the two places where it can be.
func (s *Settings) setStrategy(own, criterions interface{}) error {
	field := "ipStrategy"
	if criterions != nil {
		if own != nil {
			return fmt.Errorf("ipStrategy and sourceCriterion.ipStrategy are mutually exclusive: remove one")
		}
		field = "sourceCriterion: ipStrategy"
		own = criterions
	}
	chosen, err := decodeObject(field, own, &s.Strategy)
	s.Strategy.ExcludedIPs = trimmed(s.Strategy.ExcludedIPs)
	if !chosen || err != nil {
		return err
	}
	s.StrategyIs = field
	depth, _, excluded, err := ReadStrategy(field, &s.Strategy)
	if depth > 0 && len(excluded) > 0 {
		s.Advice = append(s.Advice, field+": excludedIPs has no effect beside depth")
	}
	return err
}

// ReadStrategy returns the numbers and networks of an ipStrategy; field is its name in errors. 0 and nil are the defaults. It is no method: in Yaegi
// decodeObject cannot fill in what has one.
func ReadStrategy(field string, s *IPStrategy) (depth, subnet int, excluded []netip.Prefix, err error) {
	var in ruleset.Settings
	depth, subnet = int(in.Number("depth", s.Depth, 0, 1000, 0)), int(in.Number("ipv6Subnet", s.IPv6Subnet, 1, 128, 0))
	if in.Err != nil {
		return 0, 0, nil, fmt.Errorf("%s: %w", field, in.Err)
	}
	for _, text := range s.ExcludedIPs {
		network, err := match.ParseNetwork(text)
		if err != nil {
			return 0, 0, nil, fmt.Errorf("%s: excludedIPs: %w", field, err)
		}
		excluded = append(excluded, network)
	}
	return depth, subnet, excluded, nil
}

// Exempted warns of a rule that exempts private addresses, since without an ipStrategy it may limit nobody; "": there is nothing to warn of.
func Exempted(r *ruleset.Rule) string {
	if r.Matcher == nil || !r.Matcher.ExceptsPrivate() {
		return ""
	}
	return fmt.Sprintf("rule %q: match: exceptIPs has private addresses, and ipStrategy is not set: behind a load balancer, or in a container's network, "+
		"all requests come from a private address, and the rule limits nobody; set ipStrategy.depth to the number of proxies in front of Traefik, or ipStrategy: {} if there is none", r.Name)
}

// setFiles reads the settings of files and of descriptors.
func (s *Settings) setFiles(c *Config) error {
	var in ruleset.Settings
	s.Interval = in.Duration("rulesInterval", c.RulesInterval, shortestInterval, longestInterval, standardInterval)
	if in.Err != nil {
		return in.Err
	}
	var err error
	if s.Descriptors, err = newDescriptors(c.Descriptors); err != nil {
		return err
	}
	if len(c.RulesFile) == 0 {
		if len(s.Descriptors) > 0 {
			return errors.New("descriptors: are looked up in rule files; write rulesFile beside them")
		}
		if c.Domain != "" {
			return errors.New("domain: is one of rule files; write rulesFile beside it")
		}
		if c.RulesInterval != "" {
			return errors.New("rulesInterval: says how often rule files are looked at; write rulesFile beside it")
		}
		return nil
	}
	if c.Domain != "" && len(s.Descriptors) == 0 {
		return errors.New("domain: says which descriptors limit requests; write descriptors beside it, or leave it out")
	}
	s.Files = trimmed(c.RulesFile)
	for _, pattern := range s.Files {
		if pattern == "" {
			return errors.New("rulesFile: the name of a file is empty")
		}
	}
	return nil
}

// newCORS reads which pages may read answers; nil: no setting says so.
func newCORS(value interface{}, fields answer.Fields) (*front.CORS, error) {
	var (
		none  *front.CORS
		given CORS
		in    ruleset.Settings
	)
	present, err := decodeObject("cors", value, &given)
	if err != nil || !present {
		return none, err
	}
	credentials := in.Truth("credentials", given.Credentials)
	if in.Err != nil {
		return none, fmt.Errorf("cors: %w", in.Err)
	}
	return front.NewCORS(trimmed(given.Origins), credentials, answer.Names(fields))
}

// parseJitter reads the fraction by which waits are lengthened at most; -1: there is none.
func parseJitter(text string) (float64, error) {
	if strings.TrimSpace(text) == "" {
		return -1, nil
	}
	jitter, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(jitter >= 0 && jitter <= 10) {
		return 0, fmt.Errorf("jitter %q: must be a fraction from 0 to 10, such as 0.2 for up to 20 %%", text)
	}
	return jitter, nil
}

// RejectionLog says how rejections are logged.
type RejectionLog struct {
	Level    string        // "debug" or "error"; "": they are not
	Interval time.Duration // in which each key has one line
	Key      bool          // lines have the key, too
}

// set reads how rejections are logged.
func (l *RejectionLog) set(c *Config) error {
	var s ruleset.Settings
	level := strings.TrimSpace(c.LogLevel)
	l.Interval = s.Duration("logInterval", strings.TrimSpace(c.LogInterval), time.Second, time.Hour, time.Minute)
	l.Key = s.Truth("logKey", strings.TrimSpace(c.LogKey))
	if s.Err != nil {
		return InWords(words.Of(s.Err))
	}
	if err := words.CheckWord("logLevel", level, []string{"debug", "error", "off"}); err != nil {
		return InWords(words.Of(err))
	}
	if level == "" || level == "off" {
		if c.LogInterval != "" || l.Key {
			return fmt.Errorf("logInterval and logKey have no effect without logLevel: write logLevel: debug or error, too, or leave them out")
		}
		return nil
	}
	l.Level = level
	return nil
}

// namespaceOf returns the namespace of a middleware's rules: the configured one, or one made from its name.
func namespaceOf(c *Config, middleware string) (string, error) {
	if c.Namespace == "" {
		return validName(strings.Replace(middleware, "@", ".", -1)), nil
	}
	if err := words.CheckName(c.Namespace); err != nil {
		return "", fmt.Errorf("namespace %q: must be 1 to 64 of A-Z a-z 0-9 _ . -", c.Namespace)
	}
	return c.Namespace, nil
}

// withoutProvider returns a middleware's name without "@file" or whichever provider it comes from.
func withoutProvider(middleware string) string {
	if at := strings.LastIndex(middleware, "@"); at >= 0 {
		return middleware[:at]
	}
	return middleware
}

// validName returns a valid name of a rule or namespace: the text itself if it is valid, else the valid part of it and eight characters of
// its hash.
func validName(text string) string {
	if words.CheckName(text) == nil {
		return text
	}
	return words.NameFor(text, text)
}
