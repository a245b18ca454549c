package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/proxyweir/weir/cmd/command"
	"github.com/proxyweir/weir/core/describe"
)

// deferredCommand returns the command `caddy rate-limit deferred`.
func deferredCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deferred export | purge",
		Short: "Writes out or removes the deferred requests of a running Caddy",
		Long: `
Asks the admin endpoint of a running Caddy for the requests that its on_limit defer has accepted. A status is open (they wait or run), dead (they could
not be done, and are kept), or done (there is a response).`,
	}
	cmd.AddCommand(exportCommand(), purgeCommand())
	return cmd
}

// deferredOptions are the flags that both commands have.
type deferredOptions struct {
	command.Endpoint
	rule, status string
}

func (o *deferredOptions) add(cmd *cobra.Command, status string, statuses string) {
	o.Endpoint.Program = program
	o.Endpoint.Add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.rule, "rule", "", "Name of the zone, if several defer")
	flags.StringVar(&o.status, "status", status, "Which: "+statuses)
}

// ask makes a request of the admin endpoint.
func (o *deferredOptions) ask(endpoint string, body map[string]any, answer any) error {
	body["rule"], body["status"] = o.rule, o.status
	return o.Ask(http.MethodPost, "deferred/"+endpoint, body, answer)
}

func exportCommand() *cobra.Command {
	var o deferredOptions
	var contents bool
	cmd := &cobra.Command{
		Use:   "export [--status open|dead|done] [--contents] [--rule <zone>] [--address <admin address>]",
		Short: "Writes deferred requests to standard output, as JSON, one a line",
		Long: `
Writes a line of JSON for each request: what the admin API says of a job, and with --contents all that is stored of it: header fields, query, body
and response, decrypted. Bodies are in base64. Handle that as the secrets that may be in it.

Requests that come or go meanwhile may be missing. The exit status is not 0 if the list is incomplete.`,
		Example: "caddy rate-limit deferred export --status dead --contents > dead.jsonl",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.export(contents, cmd.OutOrStdout()) },
	}
	o.add(cmd, "dead", "open, dead or done")
	cmd.Flags().BoolVar(&contents, "contents", false, "Write what is stored of requests and responses, too")
	return cmd
}

// export writes jobs to out, one a line.
func (o *deferredOptions) export(contents bool, out io.Writer) error {
	for after := ""; ; {
		var page struct {
			Jobs []json.RawMessage `json:"jobs"`
			Next string            `json:"next"`
		}
		if err := o.ask("export", map[string]any{"after": after, "contents": contents}, &page); err != nil {
			return err
		}
		for _, job := range page.Jobs {
			if _, err := out.Write(append(slices.Clip(job), '\n')); err != nil {
				return err
			}
		}
		if after = page.Next; after == "" {
			return nil
		}
	}
}

func purgeCommand() *cobra.Command {
	var o deferredOptions
	var olderThan string
	var yes bool
	cmd := &cobra.Command{
		Use:   "purge --status dead|done --older-than <duration> [--yes] [--rule <zone>] [--address <admin address>]",
		Short: "Removes deferred requests that have ended",
		Long: `
Says how many deferred requests of that status ended at least so long ago. With --yes it removes them, with their responses. Requests that wait or run
stay: the admin API cancels those.`,
		Example: "caddy rate-limit deferred purge --status dead --older-than 24h --yes",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.purge(olderThan, yes, cmd.OutOrStdout()) },
	}
	o.add(cmd, "", "dead or done")
	cmd.Flags().StringVar(&olderThan, "older-than", "", "How long ago they ended at least, such as 24h; 0s for all")
	cmd.Flags().BoolVar(&yes, "yes", false, "Remove them; without it nothing is removed")
	_ = cmd.MarkFlagRequired("status") // the flag exists
	_ = cmd.MarkFlagRequired("older-than")
	return cmd
}

// purge removes jobs, or says how many it would remove.
func (o *deferredOptions) purge(olderThan string, yes bool, out io.Writer) error {
	if age, err := caddy.ParseDuration(olderThan); err != nil || age < 0 {
		return fmt.Errorf("--older-than %q: a duration is wanted, such as %v", olderThan, 24*time.Hour)
	}
	if !slices.Contains([]string{"dead", "done"}, o.status) {
		return errors.New("--status " + strings.TrimSpace(o.status) + ": dead or done is wanted")
	}
	removed := 0
	for {
		var answer struct {
			Purged int `json:"purged"`
			Left   int `json:"left"`
		}
		if err := o.ask("purge", map[string]any{"older_than": olderThan, "dry_run": !yes}, &answer); err != nil {
			return fmt.Errorf("%s removed; then: %w", describe.Count(removed, "request"), err)
		}
		if !yes {
			_, err := fmt.Fprintf(out, "%s would be removed; write --yes to remove them\n", describe.Count(answer.Left, "request"))
			return err
		}
		removed += answer.Purged
		if answer.Left == 0 || answer.Purged == 0 {
			_, err := fmt.Fprintf(out, "%s removed\n", describe.Count(removed, "request"))
			return err
		}
	}
}
