package command

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/ruleset"
)

func (p *Program) checkCommand() *cobra.Command {
	var s source
	cmd := &cobra.Command{
		Use:   "check <file>... | --traefik <file>",
		Short: "Says what is wrong with rule files, or with Traefik's configuration",
		Long: `
Reads rule files as a proxy does and prints all that is wrong with them, with line and column; globs may be in quotes. With --traefik it reads the middlewares of a
dynamic configuration and their rule files as the plugin does, and prints what Traefik's log would say. The exit status is 1 if anything is wrong.`,
		Example: p.examples("check '/etc/limits/*.yaml'", "check --traefik /etc/traefik/dynamic.yml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if s.traefik != "" && len(args) > 0 {
				return errors.New("rule files and --traefik are mutually exclusive: those that a middleware names are checked with it")
			}
			if s.traefik == "" {
				if err := cobra.MinimumNArgs(1)(cmd, args); err != nil {
					return err
				}
			}
			s.rules = args
			return s.check(cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	s.addTraefik(cmd)
	return cmd
}

// check writes all problems of the rules to problems, or if there are none, a summary of each file to out.
func (s *source) check(out, problems io.Writer) error {
	list, err := s.load(problems, problems)
	if err != nil {
		return err
	}
	for _, of := range list {
		for i, file := range of.files {
			name := file.Name
			if i == 0 && of.middleware != "" {
				name = fmt.Sprintf("%s: middleware %s", name, of.middleware)
			}
			_, _ = fmt.Fprintf(out, "%s: %s\n", name, summary(file))
		}
	}
	return nil
}

// summary says how many rules and descriptors a file has.
func summary(f *ruleset.File) string {
	var parts []string
	if len(f.Rules) > 0 || f.Domain == nil {
		parts = append(parts, describe.Count(len(f.Rules), "rule"))
	}
	if f.Domain != nil {
		parts = append(parts, fmt.Sprintf("%s, %d of them with a limit, in domain %s", describe.Count(f.Domain.Count, "descriptor"), f.Domain.Limits, f.Domain.Name))
	}
	return strings.Join(parts, "; ")
}
