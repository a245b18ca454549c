package command

import (
	"cmp"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/proxyweir/weir/core/describe"
)

// KeyCommand returns the command key, of `caddy rate-limit`: those about single keys under a name of their own, as they were first.
func (p *Program) KeyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key limit <limit> | credit <units> | block | unblock | reset | end | list",
		Short: "Gives single keys other limits until a time, or units back, and blocks them",
		Long:  "\nHas the commands of the same names, about single keys.",
	}
	cmd.AddCommand((&Program{Name: p.Name + " key", Caddy: p.Caddy}).keyCommands()...)
	return cmd
}

// keyCommands returns the commands about single keys.
func (p *Program) keyCommands() []*cobra.Command {
	return []*cobra.Command{
		p.actOnKey("limit <limit>", "Gives a key another limit until a time", "limit +1000 --rule api --key acme --until today --note 'their launch'", true),
		p.actOnKey("credit <units>", "Gives units back to a key, at once", "credit 100 --rule api --key acme", false),
		p.actOnKey("block", "Blocks a key until a time", "block --rule login --key 192.0.2.7 --for 1d --note 'ticket 4711'", true),
		p.actOnKey("unblock", "Ends a block or a penalty", "unblock --rule login --key 192.0.2.7", false),
		p.actOnKey("reset", "Forgets what was counted of a key, and ends a block", "reset --rule login --key 192.0.2.7", false),
		p.actOnKey("end", "Ends the limit that a key was given", "end --rule api --key acme", false),
		p.listKeysCommand(),
	}
}

// actOnKey returns a command that does something to a key. lasts says whether it holds until a time.
func (p *Program) actOnKey(use, short, example string, lasts bool) *cobra.Command {
	var a action
	do, arguments, _ := strings.Cut(use, " ")
	cmd := &cobra.Command{
		Use:   strings.TrimSpace(do+" "+arguments) + " --rule <rule> --key <part>... [--note <text>]",
		Short: short,
		Long: "\n" + short + `, in a running Caddy, by its admin endpoint, or in Redis, whose proxies all obey. A key of several parts takes --key once for each.

Until when it holds is a time (2026-12-24T18:00:00Z), a date, a weekday, today, tomorrow, week or month, to its end in the time zone of the rule; or with
--for a duration. Without a time zone of the rule that is UTC.`,
		Example: p.examples(example),
		Args:    cobra.ExactArgs(len(strings.Fields(arguments))),
	}
	if !lasts {
		cmd.Long, _, _ = strings.Cut(cmd.Long, "\n\nUntil")
	}
	s := p.addState(cmd)
	flags := cmd.Flags()
	flags.StringVar(&a.Rule, "rule", "", "Name of the rule, with its namespace")
	flags.StringArrayVar(&a.Key, "key", []string{}, "Part of the key, in the order of the rule's key")
	flags.StringVar(&a.ID, "id", "", "Of a Caddy: the key's id, as top shows it, in place of --key")
	flags.StringVar(&a.Note, "note", "", "Why, for the list and the log")
	flags.StringVar(&a.By, "by", whoAmI(), "Who has decided it")
	if lasts {
		flags.StringVar(&a.Until, "until", "", "Until when it holds")
		flags.StringVar(&a.For, "for", "", "How long it holds")
	}
	_ = cmd.MarkFlagRequired("rule") // the flag exists
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		switch do {
		case "limit":
			a.Limit = args[0]
		case "credit":
			if a.Units, err = strconv.ParseInt(args[0], 10, 64); err != nil || a.Units == 0 {
				return fmt.Errorf("credit %q: a whole number of units is wanted", args[0])
			}
		}
		to, closing, err := s.open(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer closing()
		done, err := to.act(do, &a)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), done)
		return err
	}
	return cmd
}

// String says what was done.
func (a *acted) String() string {
	until := ""
	if a.Passing {
		until = "; kept in this process alone: a restart forgets it, unless the global option has an exceptions_file"
	}
	switch {
	case a.Until != nil:
		return "until " + a.Until.Format(time.RFC3339) + until
	case a.Keys != nil && *a.Keys == 0:
		return "0 keys: nothing has changed. Is the key spelt in full? Of a Caddy, --id takes what top shows"
	case a.Keys != nil:
		return describe.Count(*a.Keys, "key")
	case a.Given != nil:
		return describe.Count(int(*a.Given), "unit") + " given back"
	}
	return "done" + until
}

// whoAmI returns the user and the machine.
func whoAmI() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = cmp.Or(u.Username, name)
	}
	host, _ := os.Hostname()
	return strings.Trim(name+"@"+host, "@")
}

func (p *Program) listKeysCommand() *cobra.Command {
	var rule string
	cmd := &cobra.Command{
		Use:     "list [--rule <rule>]",
		Short:   "Lists the limits and blocks of single keys that are in force",
		Example: p.examples("list"),
		Args:    cobra.NoArgs,
	}
	s := p.addState(cmd)
	cmd.Flags().StringVar(&rule, "rule", "", "Name of the rule; the default is all")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		from, closing, err := s.open(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer closing()
		list, err := from.exceptions(rule)
		if err != nil {
			return err
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
		_, _ = fmt.Fprintln(w, "RULE\tKEY\tWHAT\tUNTIL\tBY\tNOTE") // Flush has the error
		for _, e := range list {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", e.Rule, strings.Join(e.Key, " "), strings.TrimSpace(e.Kind+" "+e.Limit), e.Until.Format(time.RFC3339), cmp.Or(e.By, "-"), cmp.Or(e.Note, "-"))
		}
		return w.Flush()
	}
	return cmd
}
