package ratelimit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/ruleset"
	"github.com/proxyweir/weir/ruleset/yaml"
	"github.com/spf13/cobra"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "rate-limit",
		Usage: "check <file>... | rules --config <path>",
		Short: "Checks rule files, and shows the rules of a configuration",
		Long: `
check reads rule files as rate_limit does and prints all that is wrong with them, with line and column. Nothing is started. Globs may
be in quotes: they are then read as in the option rules_file.

rules prints the rules of a configuration's rate_limit handlers as a table: those of zones, and those of the rule files that the
handlers go by. Nothing is started.`,
		CobraFunc: func(cmd *cobra.Command) {
			check := &cobra.Command{
				Use:     "check <file>...",
				Short:   "Says what is wrong with rule files",
				Example: "caddy rate-limit check /etc/caddy/rules/*.yaml",
				Args:    cobra.MinimumNArgs(1),
				RunE: func(cmd *cobra.Command, args []string) error {
					return checkFiles(args, cmd.OutOrStdout(), cmd.ErrOrStderr())
				},
			}
			rules := &cobra.Command{
				Use:     "rules [--config <path>] [--adapter <name>]",
				Short:   "Prints the rules of a configuration",
				Example: "caddy rate-limit rules --config Caddyfile",
				Args:    cobra.NoArgs,
			}
			config := rules.Flags().StringP("config", "c", "", "Configuration file; the default is the Caddyfile of this folder")
			adapter := rules.Flags().StringP("adapter", "a", "", "Name of the config adapter to apply, where the file is not a Caddyfile by its name")
			rules.RunE = func(cmd *cobra.Command, _ []string) error {
				loaded, _, _, err := caddycmd.LoadConfig(*config, *adapter)
				if err != nil {
					return err
				}
				if loaded == nil {
					return errors.New("there is no Caddyfile here; name a configuration with --config")
				}
				return printRules(loaded, cmd.OutOrStdout())
			}
			cmd.AddCommand(check, rules)
		},
	})
}

// checkFiles reads rule files and writes to problems all that is wrong with them, or to out what they have.
func checkFiles(patterns []string, out, problems io.Writer) error {
	files, wrong := readFiles(patterns)
	for _, p := range wrong {
		_, _ = fmt.Fprintln(problems, p)
	}
	if len(wrong) == 1 {
		return errors.New("1 problem")
	} else if len(wrong) > 0 {
		return fmt.Errorf("%d problems", len(wrong))
	}
	set, err := ruleset.NewSet(files, "")
	if err != nil {
		return err
	}
	for _, advice := range set.Advice() {
		_, _ = fmt.Fprintln(problems, "warning: "+advice)
	}
	for _, file := range files {
		_, _ = fmt.Fprintf(out, "%s: %s\n", file.Name, summary(file))
	}
	return nil
}

// readFiles reads rule files, and returns all that is wrong with them: where one cannot be read, with the others, too.
func readFiles(patterns []string) ([]*ruleset.File, ruleset.Problems) {
	contents, unread := ruleset.Read(patterns)
	if unread == nil {
		return ruleset.Parse(contents, yaml.Parse)
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
			file, wrong := ruleset.ParseFile(contents, i, yaml.Parse)
			problems = append(problems, wrong...)
			if file != nil {
				files = append(files, file)
			}
		}
	}
	if len(problems) == 0 { // each can be read, and they are too much together
		return nil, unread
	}
	return files, append(problems, ruleset.Conflicts(files)...)
}

// summary says how many rules and descriptors a file has.
func summary(f *ruleset.File) string {
	var parts []string
	if len(f.Rules) > 0 || f.Domain == nil {
		parts = append(parts, count(len(f.Rules), "rule"))
	}
	if f.Domain != nil {
		parts = append(parts, fmt.Sprintf("%s, %d of them with a limit, in domain %s", count(f.Domain.Count, "descriptor"), f.Domain.Limits, f.Domain.Name))
	}
	return strings.Join(parts, "; ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// printRules writes the rules of a configuration as a table.
func printRules(config []byte, out io.Writer) error {
	var c struct {
		Apps map[string]json.RawMessage `json:"apps"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return err
	}
	var app App
	if raw := c.Apps["rate_limit"]; raw != nil {
		if err := json.Unmarshal(raw, &app); err != nil {
			return fmt.Errorf("app rate_limit: %w", err)
		}
	}
	table := &ruleTable{app: &app}
	if raw := c.Apps["http"]; raw != nil {
		if err := table.servers(raw); err != nil {
			return err
		}
	}
	return table.write(out)
}

// ruleTable gathers the lines of `caddy rate-limit rules`.
type ruleTable struct {
	app  *App
	rows [][]string
}

// servers looks for handlers in the HTTP app.
func (t *ruleTable) servers(raw []byte) error {
	var http struct {
		Servers map[string]json.RawMessage `json:"servers"`
	}
	if err := json.Unmarshal(raw, &http); err != nil {
		return fmt.Errorf("app http: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(http.Servers)) {
		var server any
		if err := json.Unmarshal(http.Servers[name], &server); err != nil {
			return fmt.Errorf("server %s: %w", name, err)
		}
		if err := t.look(server, nil); err != nil {
			return err
		}
	}
	return nil
}

// look looks for handlers in a part of the configuration. hosts are those of the routes around it.
func (t *ruleTable) look(part any, hosts []string) error {
	switch part := part.(type) {
	case []any:
		for _, item := range part {
			if err := t.look(item, hosts); err != nil {
				return err
			}
		}
	case map[string]any:
		if part["handler"] == "rate_limit" {
			return t.handler(part, hosts)
		}
		if own := hostsOf(part); own != nil {
			hosts = own
		}
		for _, name := range slices.Sorted(maps.Keys(part)) {
			if err := t.look(part[name], hosts); err != nil {
				return err
			}
		}
	}
	return nil
}

// hostsOf returns the hosts that a route is for, nil where it does not say.
func hostsOf(route map[string]any) []string {
	var hosts []string
	sets, _ := route["match"].([]any)
	for _, set := range sets {
		matchers, _ := set.(map[string]any)
		list, _ := matchers["host"].([]any)
		for _, host := range list {
			if name, ok := host.(string); ok {
				hosts = append(hosts, name)
			}
		}
	}
	return hosts
}

// handler adds the rules of a handler.
func (t *ruleTable) handler(part map[string]any, hosts []string) error {
	delete(part, "handler")
	raw, err := json.Marshal(part)
	if err != nil {
		return err
	}
	h := &Handler{app: t.app}
	if err := json.Unmarshal(raw, h); err != nil {
		return err
	}
	site := strings.Join(hosts, " ")
	for _, name := range sortedNames(h.RateLimits) {
		if err := t.zone(site, name, h.Namespace, h.RateLimits[name]); err != nil {
			return err
		}
	}
	patterns := h.patterns()
	if len(patterns) == 0 {
		return nil
	}
	contents, problems := ruleset.Read(patterns)
	if problems != nil {
		return problems
	}
	files, problems := ruleset.Parse(contents, yaml.Parse)
	if problems != nil {
		return problems
	}
	set, err := ruleset.NewSet(files, h.Namespace)
	if err != nil {
		return err
	}
	t.set(site, set)
	if len(h.Descriptors) == 0 {
		return nil
	}
	domain, err := set.Domain(h.Domain)
	if err != nil {
		return err
	}
	for _, file := range files {
		if file.Domain != nil && file.Domain.Name == domain.Name() {
			t.descriptors(site, file, domain)
		}
	}
	return nil
}

// zone adds a zone.
func (t *ruleTable) zone(site, name, namespace string, z *Zone) error {
	if err := z.compile(name, namespace); err != nil {
		return err
	}
	covers := "all"
	if len(z.MatcherSetsRaw) > 0 {
		text, err := json.Marshal(z.MatcherSetsRaw)
		if err != nil {
			return err
		}
		covers = string(text)
	}
	if len(z.Except) > 0 {
		covers += " except " + strings.Join(z.Except, " ")
	}
	var notes []string
	if z.Tiers != nil {
		notes = append(notes, fmt.Sprintf("%s by %s", count(len(z.Tiers.Limits), "tier"), z.Tiers.Source))
	}
	if len(z.Overrides) > 0 {
		notes = append(notes, count(len(z.Overrides), "override"))
	}
	if z.shadow {
		notes = append(notes, "shadow")
	}
	t.add(site, name, covers, z.key.template, z.limits.Own(), notes, "")
	return nil
}

// set adds the rules of files.
func (t *ruleTable) set(site string, set *ruleset.Set) {
	at := 0
	for _, file := range set.Files {
		for i := range file.Rules {
			r, rule := &file.Rules[i], set.Rules[at]
			at++
			var notes []string
			if r.Tiers != nil {
				notes = append(notes, fmt.Sprintf("%s by %s", count(len(r.Tiers.Limits), "tier"), r.Tiers.Source))
			}
			if len(r.Overrides) > 0 {
				notes = append(notes, count(len(r.Overrides), "override"))
			}
			if rule.Shadow {
				notes = append(notes, "shadow")
			}
			key := "client_ip"
			if len(r.Key) > 0 {
				key = strings.Join(r.Key, " ")
			}
			t.add(site, r.Name, coverage(r.Match), key, rule.Limits.Own(), notes, fmt.Sprintf("%s:%d", file.Name, r.Line))
		}
	}
}

// coverage says in words which requests a rule covers.
func coverage(m *core.Match) string {
	if m == nil {
		return "all"
	}
	var parts []string
	add := func(word string, values []string) {
		if len(values) > 0 {
			parts = append(parts, word+" "+strings.Join(values, ","))
		}
	}
	add("method", m.Methods)
	add("host", m.Hosts)
	add("path", m.Paths)
	add("path prefix", m.PathPrefixes)
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		parts = append(parts, "header "+name+"="+m.Headers[name])
	}
	add("except", m.ExceptIPs)
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, "; ")
}

// descriptors adds the limits of a domain.
func (t *ruleTable) descriptors(site string, file *ruleset.File, domain *ruleset.Domain) {
	rules := domain.Rules()
	var walk func(list []*ruleset.Descriptor, path []string)
	walk = func(list []*ruleset.Descriptor, path []string) {
		for _, d := range list {
			here := append(slices.Clone(path), d.Key+"="+d.Value)
			if d.Value == "" {
				here[len(here)-1] = d.Key
			}
			where := fmt.Sprintf("%s:%d", file.Name, d.Line)
			if d.Unlimited {
				t.add(site, "", "descriptor "+strings.Join(here, ", "), "", nil, nil, where)
			} else if d.Limit != nil {
				rule := rules[0]
				rules = rules[1:]
				var notes []string
				if rule.Shadow() {
					notes = append(notes, "shadow")
				}
				t.add(site, rule.Name(), "descriptor "+strings.Join(here, ", "), "", rule, notes, where)
			}
			walk(d.Descriptors, here)
		}
	}
	walk(file.Domain.Descriptors, nil)
}

func (t *ruleTable) add(site, name, covers, key string, own *core.Rule, notes []string, where string) {
	limit, algorithm := ruleset.Unlimited, ""
	if own != nil {
		limit, algorithm, _ = strings.Cut(own.Limit().String(), " ")
		if own.Blocks() {
			limit = "0" + strings.TrimPrefix(limit, "1")
		}
	}
	if site == "" {
		site = "any"
	}
	t.rows = append(t.rows, []string{site, name, covers, key, limit, algorithm, strings.Join(notes, ", "), where})
}

// write writes the table.
func (t *ruleTable) write(out io.Writer) error {
	if len(t.rows) == 0 {
		_, err := fmt.Fprintln(out, "the configuration has no rate_limit handler")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, row := range append([][]string{{"SITE", "RULE", "COVERS", "KEY", "LIMIT", "ALGORITHM", "NOTES", "FILE"}}, t.rows...) {
		for i := range row {
			if row[i] == "" {
				row[i] = "-"
			}
		}
		if _, err := fmt.Fprintln(w, strings.Join(row, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// Interface guard
var _ caddy.Module = (*Handler)(nil)
