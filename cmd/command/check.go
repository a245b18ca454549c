package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/traefik/dynamic"
)

func (p *Program) checkCommand() *cobra.Command {
	var s source
	cmd := &cobra.Command{
		Use:   "check [--rules] <file>... | --traefik <file>",
		Short: "Says what is wrong with rule files, or with Traefik's configuration",
		Long: `
Reads rule files as a proxy does and prints all that is wrong with them, with line and column; globs may be in quotes. The exit status is 1 if anything is wrong.

With --traefik it reads the middlewares of a dynamic configuration, or of the labels of a compose file, and their rule files as the plugin does, and prints for what Traefik would refuse them. It also warns
of what the plugin would warn of when it loads a single middleware; of a middleware of Weir's that no router of the file names; of a router that names a middleware that is
not in the file; of a router without a limit that takes the requests of another one if Traefik refuses that; of keys that clients choose, with no authentication or limit by address; of variables that are not set here; and of a
plugin of another name whose settings are like Weir's. Warnings do not change the exit status, unless --strict is given. It does not see the static configuration, other files, or requests.`,
		Example: p.examples("check '/etc/limits/*.yaml'", "check --traefik /etc/traefik/dynamic.yml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.rules = append(s.rules, args...)
			return s.check(cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	s.add(cmd)
	cmd.Flags().BoolVar(&s.strict, "strict", false, "Exit with status 1 on warnings, too")
	return cmd
}

// variable is a text of a configuration, as JSON, that refers to the environment.
var variable = regexp.MustCompile(`"env:([^"\\]+)"`)

// unset returns warnings of the variables of a middleware that are not set, since a proxy may have them elsewhere, and sets them for this process.
func unset(m dynamic.Middleware) (warnings []string) {
	text, _ := json.Marshal(m.Config) // it was read from a file
	for _, name := range variable.FindAllStringSubmatch(string(text), -1) {
		if _, is := os.LookupEnv(name[1]); !is {
			warnings = append(warnings, fmt.Sprintf("\"env:%s\" is not set here, and so is not checked", name[1]))
			_ = os.Setenv(name[1], "not-set-here.invalid:6379")
		}
	}
	return warnings
}

// check writes all problems of the rules to problems, or if there are none, a summary of each file to out.
func (s *source) check(out, problems io.Writer) error {
	s.setMissing = true
	warnings := &counter{to: problems}
	list, err := s.load(problems, warnings)
	if s.middleware == "" {
		warn(s.doubts, warnings)
	}
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
	if s.strict && warnings.lines > 0 {
		return errors.New(describe.Count(warnings.lines, "warning"))
	}
	return nil
}

// counter counts the lines that it passes on.
type counter struct {
	to    io.Writer
	lines int
}

func (c *counter) Write(line []byte) (int, error) {
	c.lines++
	return c.to.Write(line)
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
