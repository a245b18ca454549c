package command

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/ruleset/yaml"
	"github.com/proxyweir/weir/traefik/config"
	"github.com/proxyweir/weir/traefik/dynamic"
)

// source says where rules come from: rule files, or Traefik's configuration. Its fields are flags.
type source struct {
	rules                       []string // files or globs
	traefik, middleware, plugin string
	namespace                   string   // of the rules of files
	strict                      bool     // of check
	setMissing                  bool     // no flag: load warns of variables that are not set, and sets them
	doubts                      []string // no flag: what load has found in Traefik's configuration beside the middlewares' settings
}

// add adds the flags.
func (s *source) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&s.rules, "rules", "r", nil, "Rule file, or a glob of several; may be given several times")
	s.addTraefik(cmd)
}

func (s *source) addTraefik(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&s.traefik, "traefik", "", "File of Traefik's dynamic configuration, in YAML, TOML or JSON, or a compose file with labels")
	flags.StringVar(&s.middleware, "middleware", "", "Name of the middleware in it, with its provider if that is neither file nor, of labels, docker; the default is all that Weir makes")
	flags.StringVar(&s.plugin, "plugin", "weir", "Name that Weir has in experimental.plugins or localPlugins of Traefik's static configuration")
}

// rulesOf are the rules of one middleware, or of rule files.
type rulesOf struct {
	middleware string // with its provider; "": they are of files
	namespace  string
	settings   *config.Settings     // nil: they are of files
	store      config.StoreSettings // of the middleware
	set        *ruleset.Set         // of the middleware's own rules, which are as in a file of the configuration's name, and those of its files
	domain     *ruleset.Domain      // of its descriptors; nil: it has none
	files      []*ruleset.File      // those of the set
}

// load returns the rules. It writes what is wrong with them to problems, and what is most likely not intended to warnings.
func (s *source) load(problems, warnings io.Writer) ([]*rulesOf, error) {
	if len(s.rules) > 0 && s.traefik != "" {
		return nil, errors.New("--rules and --traefik are mutually exclusive: remove one")
	}
	if s.traefik != "" {
		return s.loadTraefik(problems, warnings)
	}
	if len(s.rules) == 0 {
		return nil, errors.New("which rules? name rule files by --rules, or Traefik's dynamic configuration by --traefik")
	}
	files, wrong := readFiles(s.rules)
	if err := tell(wrong, problems); err != nil {
		return nil, err
	}
	set, err := ruleset.NewSet(files, s.namespace)
	if err != nil {
		return nil, err
	}
	warn(set.Advice(), warnings)
	return []*rulesOf{{namespace: s.namespace, set: set, files: files}}, nil
}

// tell writes problems, and returns how many there are as an error; nil: there are none.
func tell(problems ruleset.Problems, messages io.Writer) error {
	for _, p := range problems {
		if strings.HasPrefix(p.Text, `"http" is not a field of the file`) {
			p.Text += "; for a dynamic configuration of Traefik's write --traefik in front of it"
		}
		_, _ = fmt.Fprintln(messages, p)
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New(describe.Count(len(problems), "problem"))
}

func warn(advice []string, messages io.Writer) {
	for _, text := range advice {
		_, _ = fmt.Fprintln(messages, "warning: "+text)
	}
}

// loadTraefik returns the rules of each middleware of Traefik's configuration, as load does.
func (s *source) loadTraefik(out, warnings io.Writer) (list []*rulesOf, err error) {
	name, provider, _ := strings.Cut(s.middleware, "@")
	all, doubts, err := dynamic.Read(s.traefik, s.plugin)
	s.doubts = doubts
	if err != nil {
		return nil, err
	}
	var problems ruleset.Problems
	var names []string
	for _, m := range all {
		own, _, _ := strings.Cut(m.Name, "@")
		names = append(names, own)
		if name != "" && name != own {
			continue
		}
		if provider != "" {
			m.Name = own + "@" + provider
		}
		if s.setMissing {
			for _, text := range unset(m) {
				warn([]string{s.traefik + ": " + text}, warnings)
			}
		}
		of, wrong := middlewareOf(s.traefik, m)
		for i := range wrong {
			if wrong[i].File == "" || wrong[i].File == s.traefik && wrong[i].Line == 0 {
				wrong[i].File, wrong[i].Text = s.traefik, fmt.Sprintf("middleware %q: %s", own, wrong[i].Text)
			}
		}
		problems = append(problems, wrong...)
		if of == nil {
			continue
		}
		var advice []string
		for _, text := range append(slices.Clone(of.settings.Advice), of.set.Advice()...) {
			advice = append(advice, fmt.Sprintf("%s: middleware %q: %s", s.traefik, own, strings.TrimPrefix(text, s.traefik+": ")))
		}
		warn(advice, warnings)
		if doubt := chosenKeys(of.set.Rules); doubt != "" && m.Open != "" {
			s.doubts = append(s.doubts, fmt.Sprintf("%s: middleware %q: %s, and in the router %q neither authentication nor a limit by address is beside it: each invented value has a counter of its own", s.traefik, own, doubt, m.Open))
		}
		list = append(list, of)
	}
	if len(list) == 0 && len(problems) == 0 {
		return nil, fmt.Errorf("--middleware %q: %s has none of that name; it has %s", s.middleware, s.traefik, strings.Join(names, ", "))
	}
	return list, tell(problems, out)
}

// chosenKeys says which keys clients choose if all rules have such; "": a rule has another, and limits them.
func chosenKeys(rules []*ruleset.Rule) (says string) {
	for i := len(rules) - 1; i >= 0; i-- {
		at := slices.IndexFunc(rules[i].Parts, func(part ruleset.Part) bool { return part.Source.ClientChooses() })
		if at < 0 {
			return ""
		}
		says = fmt.Sprintf("rule %q: clients choose the key %s", rules[i].Name, rules[i].Parts[at].Source)
	}
	return says
}

// middlewareOf checks and compiles a middleware as the plugin does. A problem without a file is the configuration's.
func middlewareOf(file string, m dynamic.Middleware) (*rulesOf, ruleset.Problems) {
	of := &rulesOf{middleware: m.Name}
	fail := func(err error) (*rulesOf, ruleset.Problems) { return nil, ruleset.Problems{{Text: err.Error()}} }
	if err := config.CheckFields(m.Config); err != nil {
		return fail(err)
	}
	var err error
	if of.store, err = config.ReadStore(m.Config); err != nil {
		return fail(err)
	}
	advisor, err := config.ReadAdvisor(m.Config.Advisor)
	if err != nil {
		return fail(err)
	}
	own := &ruleset.File{Name: file}
	of.settings, err = config.ReadTexts(m.Config, m.Name, func(text *ruleset.RuleText, in ruleset.Context) {
		if text.Name == "" {
			text.Name = in.Name
		}
		if text.Texts["ipv6_prefix"] == "" && in.Prefixes != ruleset.Standard { // a file's default is another
			ruleset.SetText(&text.Object, "ipv6_prefix", strconv.Itoa(in.Prefixes.IPv6))
		}
		own.Rules = append(own.Rules, ruleset.FileRule{RuleText: *text})
	})
	if err != nil {
		return fail(err)
	}
	if len(of.settings.Rules) == 0 { // such as one without any limit
		own.Rules = nil
	}
	of.namespace = of.settings.Namespace
	of.settings.Advice = slices.DeleteFunc(of.settings.Advice, func(text string) bool { return strings.HasPrefix(text, "rule ") }) // which the set has
	of.files = []*ruleset.File{own}
	if len(of.settings.Files) > 0 {
		files, wrong := parsePatterns(of.settings.Files, config.ParseFile)
		if len(wrong) > 0 {
			return nil, wrong
		}
		of.files = append(of.files, files...)
		if wrong := ruleset.Conflicts(of.files); len(wrong) > 0 {
			return nil, wrong
		}
	}
	if of.set, err = ruleset.NewSet(of.files, of.namespace); err != nil {
		return fail(err)
	}
	if len(of.settings.Descriptors) > 0 {
		if of.domain, err = of.set.Domain(of.settings.Domain); err != nil {
			return fail(err)
		}
	}
	adaptable := len(of.settings.Files) > 0
	for _, r := range of.set.Rules {
		adaptable = adaptable || r.Adapt != nil
		if text := config.Exempted(r); text != "" && of.settings.StrategyIs == "" {
			of.settings.Advice = append(of.settings.Advice, text)
		}
	}
	if advisor != nil {
		of.settings.Advice = append(of.settings.Advice, advisor.Advice(adaptable)...)
	}
	if of.store.Redis != nil {
		of.settings.Advice = append(of.settings.Advice, of.store.Redis.Advice()...)
	} else {
		if wrong := of.set.FitsMemory(); len(wrong) > 0 {
			return nil, wrong
		}
	}
	return of, of.set.ReadAnswers()
}

// readFiles reads rule files, and returns all their problems, also those of the other files if one cannot be read.
func readFiles(patterns []string) ([]*ruleset.File, ruleset.Problems) {
	return parsePatterns(patterns, yaml.Parse)
}

// parsePatterns is readFiles for files that a function parses.
func parsePatterns(patterns []string, parse func(file string, data []byte) (*ruleset.Node, ruleset.Problems)) ([]*ruleset.File, ruleset.Problems) {
	contents, unread := ruleset.Read(patterns)
	if unread == nil {
		return ruleset.Parse(contents, parse)
	}
	var files []*ruleset.File
	var problems ruleset.Problems
	seen := make(map[string]bool)
	for _, pattern := range patterns {
		contents, wrong := ruleset.Read([]string{pattern})
		problems = append(problems, wrong...)
		if wrong != nil {
			continue
		}
		for i, name := range contents.Names {
			if seen[name] {
				continue
			}
			seen[name] = true
			file, wrong := ruleset.ParseFile(contents, i, parse)
			problems = append(problems, wrong...)
			if file != nil {
				files = append(files, file)
			}
		}
	}
	if len(problems) == 0 { // each file is readable, but together they are too large
		return nil, unread
	}
	return files, append(problems, ruleset.Conflicts(files)...)
}
