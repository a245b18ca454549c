// Package convert implements `weir convert`: it makes rules of the limits of nginx, Traefik, caddy-ratelimit and Envoy, and says what it could not
// carry over. In between, all limits are texts of rules of package ruleset.
package convert

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// peer is a program whose limits can be converted.
type peer struct {
	targets []string       // what its limits can become; the first is the default
	alike   *regexp.Regexp // what its files have, and those of no other
	convert func(c *conversion, file string, text []byte) error
}

// peers are the programs by their names in --from.
var peers = map[string]peer{
	"nginx":           {[]string{"rules", "traefik"}, regexp.MustCompile(`(^|[\s;{])limit_(req|conn)(_zone)?\s[^;]*;`), nginx},
	"traefik":         {[]string{"traefik", "rules"}, regexp.MustCompile(`(?is)(middleware|traefik).*(ratelimit|inflightreq)\b`), traefik},
	"caddy-ratelimit": {[]string{"caddyfile"}, regexp.MustCompile(`(?ms)^\s*rate_limit\b[^:\n]*\{.*^\s*zone\s`), caddyRateLimit},
	"envoy":           {[]string{"rules", "caddyfile"}, regexp.MustCompile(`\b(local_ratelimit|rate_limits|static_resources|requests_per_unit)\b`), envoy},
}

// Command returns the command.
func Command() *cobra.Command {
	c := &conversion{}
	var strict bool
	cmd := &cobra.Command{
		Use:   "convert [--from nginx|traefik|caddy-ratelimit|envoy] [--to rules|caddyfile|traefik] [--strict] <file>...",
		Short: "Makes rules of the limits of nginx, Traefik, caddy-ratelimit or Envoy",
		Long: `
convert reads the configuration of another rate limiter, and prints what it is in Weir: a rule file (rules), a Caddyfile (caddyfile), or Traefik's
dynamic configuration (traefik). The file - is standard input.

nginx and Traefik become rules or traefik, Envoy becomes rules or caddyfile, caddy-ratelimit becomes caddyfile.

What cannot be carried over is written to standard error: the place, the reason, and what to do instead. Nothing is started or changed.
The exit status is 1 if the whole of a limit is lost ("is NOT limited here"), and with --strict if anything is.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, files []string) error {
			text, err := c.run(files, cmd.InOrStdin())
			for _, one := range c.left {
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), one)
			}
			if err == nil {
				_, err = io.WriteString(cmd.OutOrStdout(), text)
			}
			if err == nil && (c.lost || strict && len(c.left) > 0) {
				err = fmt.Errorf("not carried over: %d", len(c.left))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&c.from, "from", "", "Whose configuration it is; the default is what its contents look like")
	cmd.Flags().StringVar(&c.to, "to", "", "What to print; the default is a Caddyfile for caddy-ratelimit, for Traefik its dynamic configuration, and otherwise a rule file")
	cmd.Flags().BoolVar(&strict, "strict", false, "Exit with status 1 if anything is not carried over")
	return cmd
}

// run converts files, and returns the result.
func (c *conversion) run(files []string, in io.Reader) (string, error) {
	texts := make([][]byte, len(files))
	for i, file := range files {
		var err error
		if file == "-" {
			texts[i], err = io.ReadAll(in)
		} else {
			texts[i], err = os.ReadFile(file) //nolint:gosec // the user names it
		}
		if err != nil {
			return "", err
		}
	}
	var found []string
	for name, p := range peers {
		if c.from == "" && slices.ContainsFunc(texts, p.alike.Match) {
			found = append(found, name)
		}
	}
	if len(found) == 1 {
		c.from = found[0]
	}
	p, known := peers[c.from]
	if !known {
		if c.from == "" {
			return "", fmt.Errorf("the files look like %s of nginx, traefik, caddy-ratelimit and envoy: name one by --from", map[bool]string{true: "none", false: "several"}[len(found) == 0])
		}
		return "", fmt.Errorf("--from %q: must be nginx, traefik, caddy-ratelimit or envoy", c.from)
	}
	if c.to == "" {
		c.to = p.targets[0]
	}
	if !slices.Contains(p.targets, c.to) {
		return "", fmt.Errorf("--to %q: %s becomes %s", c.to, c.from, strings.Join(p.targets, " or "))
	}
	for i, file := range files {
		if err := p.convert(c, file, texts[i]); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
	}
	text := c.write()
	if text == "" && c.other != "" && c.other != c.to {
		return "", fmt.Errorf("%s has limits, but none that --to %s has; write --to %s", strings.Join(files, ", "), c.to, c.other)
	}
	if text == "" {
		return "", fmt.Errorf("no limits of %s that can be carried over are in %s", c.from, strings.Join(files, ", "))
	}
	return text, nil
}
