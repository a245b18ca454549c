// Package command implements `caddy rate-limit`: check, rules, replay, page, key, firewall, deferred and advisor. It knows Caddy, but not the handler: who registers
// the command passes a function that lists the rules of a configuration.
package command

import (
	"errors"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/proxyweir/weir/core/ruleset"
)

// Register adds the command to Caddy's. rules returns the table of the rules of a configuration, which is JSON. logged returns those that a log can be
// replayed with, and says which it leaves out; name is the configuration's.
func Register(rules func(config []byte) (Table, error), logged func(config []byte, name string) ([]*ruleset.File, []string, error)) {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "rate-limit",
		Usage: "check <file>... | rules --config <path> | replay --rules <file>|--config <path> <access log>... | page | key limit|block|list… | firewall | deferred export | advisor --config <file>",
		Short: "Checks rule files, shows rules and what they do, replays access logs, and advises on limits",
		Long: `
check reads rule files as rate_limit does and prints all that is wrong with them, with line and column. Nothing is started. Globs may
be in quotes: they are then read as in the option rules_file.

rules prints the rules of a configuration's rate_limit handlers as a table: those of zones, and those of the rule files that the
handlers go by. Nothing is started.

replay runs access logs through the limits of rule files or of a configuration, at the times that the logs have, and says what the limits
would have done.
Nothing is started.

page serves a page that shows what the rules of a running Caddy do, by its admin endpoint.

key gives single keys of a running Caddy other limits until a time, or units back, blocks and unblocks them, and lists what is in force.

firewall has the kernel drop the packets of addresses that a running Caddy blocks.

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
				loaded, _, err := load(*config, *adapter)
				if err != nil {
					return err
				}
				table, err := rules(loaded)
				if err != nil {
					return err
				}
				return table.write(cmd.OutOrStdout())
			}
			cmd.AddCommand(check, list, replayCommand(logged), pageCommand(), keyCommand(), firewallCommand(), deferredCommand(), advisorCommand())
		},
	})
}

// load returns a configuration as JSON, and the name of its file. The default is the Caddyfile of this folder.
func load(config, adapter string) (loaded []byte, name string, err error) {
	loaded, name, _, err = caddycmd.LoadConfig(config, adapter)
	if err == nil && loaded == nil {
		err = errors.New("there is no Caddyfile here; name a configuration with --config")
	}
	return loaded, name, err
}
