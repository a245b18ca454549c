package command

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/proxyweir/weir/core/describe"
)

func (p *Program) rulesCommand() *cobra.Command {
	var s source
	var c caddyFile
	cmd := &cobra.Command{
		Use:     "rules --rules <file>... | --traefik <file>" + p.orConfig(),
		Short:   "Prints the rules of files, or of a configuration, as a table",
		Long:    "\nPrints a row for each limit: that of all requests, and those of tiers and single keys. Nothing is started.",
		Example: p.examples("rules --traefik /etc/traefik/dynamic.yml"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			table, err := s.table(p, &c, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if len(table) == 0 {
				none := "the configuration has no rate_limit handler"
				if s.traefik != "" {
					none = "the middlewares have no rules"
				}
				_, err := fmt.Fprintln(cmd.OutOrStdout(), none)
				return err
			}
			return table.Write(cmd.OutOrStdout())
		},
	}
	s.add(cmd)
	c.add(cmd, p)
	return cmd
}

// caddyFile is a configuration of Caddy's whose rules are meant. Its fields are flags.
type caddyFile struct{ config, adapter string }

func (c *caddyFile) add(cmd *cobra.Command, p *Program) {
	if p.Caddy == nil {
		return
	}
	cmd.Flags().StringVarP(&c.config, "config", "c", "", "Configuration file of Caddy; the default is the Caddyfile of this folder")
	cmd.Flags().StringVarP(&c.adapter, "adapter", "a", "", "Name of the config adapter to apply, where the file is not a Caddyfile by its name")
}

// orConfig is what the usage of a command says in a program with Caddy.
func (p *Program) orConfig() string {
	if p.Caddy == nil {
		return ""
	}
	return " | [--config <path>] [--adapter <name>]"
}

// table returns the table of the rules.
func (s *source) table(p *Program, c *caddyFile, messages io.Writer) (describe.Table, error) {
	if len(s.rules) == 0 && s.traefik == "" && p.Caddy != nil {
		return p.Caddy.Rules(c.config, c.adapter)
	}
	if c.config != "" {
		return nil, errors.New("--config, --rules and --traefik are mutually exclusive: keep one")
	}
	list, err := s.load(messages, messages)
	if err != nil {
		return nil, err
	}
	var table describe.Table
	for _, of := range list {
		at := describe.Place{Site: of.middleware}
		table.AddSet(at, of.namespace, of.set)
		domains := of.set.Domains // in the order of the files
		for _, file := range of.files {
			if file.Domain == nil {
				continue
			}
			if of.middleware == "" || of.domain == domains[0] { // another is looked up by nobody
				table.AddDescriptors(at, of.namespace, file, domains[0])
			}
			domains = domains[1:]
		}
	}
	return table, nil
}
