package command

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
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
		Long: `
Tells a running Caddy, by its admin endpoint, what is to become of a key of a rule. A key of several parts takes --key once for each. If the rule counts in
Redis, all Caddys and Traefiks that share it obey.

Until when it holds is a time (2026-12-24T18:00:00Z), a date, a weekday, today, tomorrow, week or month, to its end in the time zone of the rule; or with
--for a duration.`,
	}
	cmd.AddCommand(
		p.actOnKey("limit <limit>", "Gives a key another limit until a time", "caddy rate-limit key limit +1000 --rule api --key acme --until today --note 'their launch'", true,
			func(body map[string]any, args []string) error { body["limit"] = args[0]; return nil }),
		p.actOnKey("credit <units>", "Gives units back to a key, at once", "caddy rate-limit key credit 100 --rule api --key acme", false,
			func(body map[string]any, args []string) error {
				units, err := strconv.ParseInt(args[0], 10, 64)
				if err != nil {
					return fmt.Errorf("credit %q: a whole number of units is wanted", args[0])
				}
				body["units"] = units
				return nil
			}),
		p.actOnKey("block", "Blocks a key until a time", "caddy rate-limit key block --rule login --key 192.0.2.7 --for 1d --note 'ticket 4711'", true, nil),
		p.actOnKey("unblock", "Ends a block or a penalty", "caddy rate-limit key unblock --rule login --key 192.0.2.7", false, nil),
		p.actOnKey("reset", "Forgets what was counted of a key, and ends a block", "caddy rate-limit key reset --rule login --key 192.0.2.7", false, nil),
		p.actOnKey("end", "Ends the limit that a key was given", "caddy rate-limit key end --rule api --key acme", false, nil),
		p.listKeysCommand())
	return cmd
}

// actOnKey returns a command that does something to a key. lasts says whether it holds until a time; more adds what its arguments say.
func (p *Program) actOnKey(use, short, example string, lasts bool, more func(body map[string]any, args []string) error) *cobra.Command {
	o := Endpoint{Program: p}
	var rule, until, lasting, note, by string
	var key []string
	endpoint, arguments, _ := strings.Cut(use, " ")
	cmd := &cobra.Command{
		Use:     strings.TrimSpace(endpoint+" "+arguments) + " --rule <rule> --key <part>... [--note <text>]",
		Short:   short,
		Example: example,
		Args:    cobra.ExactArgs(len(strings.Fields(arguments))),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{"rule": rule, "key": append([]string{}, key...), "note": note, "by": by}
			for name, value := range map[string]string{"until": until, "for": lasting} {
				if value != "" {
					body[name] = value
				}
			}
			if more != nil {
				if err := more(body, args); err != nil {
					return err
				}
			}
			var answer struct {
				Until *time.Time `json:"until"`
				Keys  *int       `json:"keys"`
				Given *int64     `json:"given"`
			}
			if err := o.Ask(http.MethodPost, endpoint, body, &answer); err != nil {
				return err
			}
			said := "done"
			switch {
			case answer.Until != nil:
				said = "until " + answer.Until.Format(time.RFC3339)
			case answer.Keys != nil:
				said = describe.Count(*answer.Keys, "key")
			case answer.Given != nil:
				said = describe.Count(int(*answer.Given), "unit") + " given back"
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), said)
			return err
		},
	}
	o.Add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&rule, "rule", "", "Name of the rule, with its namespace")
	flags.StringArrayVar(&key, "key", nil, "Part of the key, in the order of the rule's key")
	flags.StringVar(&note, "note", "", "Why, for the list and the log")
	flags.StringVar(&by, "by", whoAmI(), "Who has decided it")
	if lasts {
		flags.StringVar(&until, "until", "", "Until when it holds")
		flags.StringVar(&lasting, "for", "", "How long it holds")
	}
	_ = cmd.MarkFlagRequired("rule") // the flag exists
	return cmd
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
	o := Endpoint{Program: p}
	var rule string
	cmd := &cobra.Command{
		Use:     "list [--rule <rule>]",
		Short:   "Lists the limits and blocks of single keys that are in force",
		Example: "caddy rate-limit key list",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.listKeys(rule, cmd.OutOrStdout()) },
	}
	o.Add(cmd)
	cmd.Flags().StringVar(&rule, "rule", "", "Name of the rule; the default is all")
	return cmd
}

// listKeys writes the exceptions as a table.
func (e *Endpoint) listKeys(rule string, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "RULE\tKEY\tWHAT\tUNTIL\tBY\tNOTE") // Flush has the error
	for from, total := 0, 1; from < total; {
		query := url.Values{"from": {strconv.Itoa(from)}, "n": {"1000"}}
		if rule != "" {
			query.Set("rule", rule)
		}
		var answer struct {
			Total      int
			Exceptions []struct {
				Rule, Kind, Limit, Note, By string
				Key                         []string
				Until                       time.Time
			}
		}
		if err := e.Ask(http.MethodGet, "exceptions?"+query.Encode(), nil, &answer); err != nil {
			return err
		}
		for _, x := range answer.Exceptions {
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", x.Rule, strings.Join(x.Key, " "), strings.TrimSpace(x.Kind+" "+x.Limit), x.Until.Format(time.RFC3339), cmp.Or(x.By, "-"), cmp.Or(x.Note, "-"))
		}
		from += max(len(answer.Exceptions), 1)
		total = answer.Total
	}
	return w.Flush()
}
