// Package command implements `caddy rate-limit`: check, rules, replay, page, deferred and advisor. It knows Caddy, but not the handler: who registers
// the command passes a function that lists the rules of a configuration.
package command

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/ruleset/yaml"
	"github.com/spf13/cobra"
)

// Register adds the command to Caddy's. rules returns the table of the rules of a configuration, which is JSON.
func Register(rules func(config []byte) (Table, error)) {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "rate-limit",
		Usage: "check <file>... | rules --config <path> | replay --rules <file> <access log>... | page | deferred export | advisor --config <file>",
		Short: "Checks rule files, shows rules and what they do, replays access logs, and advises on limits",
		Long: `
check reads rule files as rate_limit does and prints all that is wrong with them, with line and column. Nothing is started. Globs may
be in quotes: they are then read as in the option rules_file.

rules prints the rules of a configuration's rate_limit handlers as a table: those of zones, and those of the rule files that the
handlers go by. Nothing is started.

replay runs access logs through the limits of rule files, at the times that the logs have, and says what the limits would have done.
Nothing is started.

page serves a page that shows what the rules of a running Caddy do, by its admin endpoint.

deferred writes out or removes the requests that a running Caddy has deferred.

advisor serves advice on the limits of adaptable rules, from forecasts of their demand. It needs no Caddy, and Prometheus.`,
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
			list := &cobra.Command{
				Use:     "rules [--config <path>] [--adapter <name>]",
				Short:   "Prints the rules of a configuration",
				Example: "caddy rate-limit rules --config Caddyfile",
				Args:    cobra.NoArgs,
			}
			config := list.Flags().StringP("config", "c", "", "Configuration file; the default is the Caddyfile of this folder")
			adapter := list.Flags().StringP("adapter", "a", "", "Name of the config adapter to apply, where the file is not a Caddyfile by its name")
			list.RunE = func(cmd *cobra.Command, _ []string) error {
				loaded, _, _, err := caddycmd.LoadConfig(*config, *adapter)
				if err != nil {
					return err
				}
				if loaded == nil {
					return errors.New("there is no Caddyfile here; name a configuration with --config")
				}
				table, err := rules(loaded)
				if err != nil {
					return err
				}
				return table.write(cmd.OutOrStdout())
			}
			cmd.AddCommand(check, list, replayCommand(), pageCommand(), deferredCommand(), advisorCommand())
		},
	})
}

// checkFiles reads rule files. It writes all their problems to problems, or if there are none, a summary of each file to out.
func checkFiles(patterns []string, out, problems io.Writer) error {
	files, wrong := readFiles(patterns)
	for _, p := range wrong {
		_, _ = fmt.Fprintln(problems, p)
	}
	if len(wrong) > 0 {
		return errors.New(count(len(wrong), "problem"))
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

// readFiles reads rule files, and returns all their problems, also those of the other files if one cannot be read.
func readFiles(patterns []string) ([]*ruleset.File, ruleset.Problems) {
	contents, unread := ruleset.Read(patterns)
	if unread == nil {
		return ruleset.Parse(contents, yaml.Parse, ruleset.Context{})
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
			file, wrong := ruleset.ParseFile(contents, i, yaml.Parse, ruleset.Context{})
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
