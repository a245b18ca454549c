// Package command is what `caddy rate-limit` has of Caddy's own: package cmd/command has the commands, and this one registers them, reads configurations for them,
// and adds page and deferred. It knows Caddy, but not the handler: who registers the command passes functions that list the rules of a configuration.
package command

import (
	"errors"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/proxyweir/weir/cmd/command"
	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/ruleset"
)

// program is `caddy rate-limit`.
var program = &command.Program{Name: "caddy rate-limit", Caddy: &command.Caddy{
	Admin: func(config, adapter string) (string, error) {
		return caddycmd.DetermineAdminAPIAddress("", nil, config, adapter)
	},
}}

// Register adds the command to Caddy's. rules returns the table of the rules of a configuration, which is JSON. logged returns those that a log can be
// replayed with, and says which it leaves out; name is the configuration's.
func Register(rules func(config []byte) (describe.Table, error), logged func(config []byte, name string) ([]*ruleset.File, []string, error)) {
	program.Caddy.Rules = func(config, adapter string) (describe.Table, error) {
		loaded, _, err := load(config, adapter)
		if err != nil {
			return nil, err
		}
		return rules(loaded)
	}
	program.Caddy.Logged = func(config, adapter string) ([]*ruleset.File, []string, error) {
		loaded, name, err := load(config, adapter)
		if err != nil {
			return nil, nil, err
		}
		return logged(loaded, name)
	}
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "rate-limit",
		Usage: "check | rules | replay | page | key limit|block|list… | firewall | deferred export | advisor | convert",
		Short: "Checks rate limits, shows what they do, replays access logs, and changes what is counted",
		Long: `
Checks rule files, shows rules and what they do, runs access logs through them, and changes what is counted of single keys. The program weir has the same commands,
but for page, deferred and --config, without a Caddy.`,
		CobraFunc: func(cmd *cobra.Command) {
			cmd.AddCommand(commands()...)
		},
	})
}

// commands returns all commands of `caddy rate-limit`.
func commands() []*cobra.Command {
	return append(program.Commands(), program.KeyCommand(), pageCommand(), deferredCommand())
}

// load returns a configuration as JSON, and the name of its file. The default is the Caddyfile of this folder.
func load(config, adapter string) (loaded []byte, name string, err error) {
	loaded, name, _, err = caddycmd.LoadConfig(config, adapter)
	if err == nil && loaded == nil {
		err = errors.New("there is no Caddyfile here; name a configuration with --config")
	}
	return loaded, name, err
}
