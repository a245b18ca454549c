package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/proxyweir/weir/advisor"
)

func (p *Program) advisorCommand() *cobra.Command {
	var o advisorOptions
	cmd := &cobra.Command{
		Use:   "advisor [--config <file>] [--from <time> --to <time> [--json <file>] [--html <file>]]",
		Short: "Forecasts demand, and serves advice on the limits of adaptable rules",
		Long: `
Reads the demand of rules from Prometheus, forecasts it, and serves advice at /v1/advice, which proxies with adapt follow within their bounds.
It abstains where its forecasts were no better than the last value. /healthz says how it is, /metrics what it does.

With --from and --to nothing is served: it says what it would have advised in that time, with what was known at each moment. --json and --html
write every moment of it to files; - is standard output.`,
		Example: p.examples("advisor --config advisor.yaml", "advisor --from 2026-11-01T00:00:00Z --to 2026-11-02T00:00:00Z --html advice.html"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return o.run(ctx, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.config, "config", "c", "advisor.yaml", "The advisor's configuration")
	flags.StringVar(&o.from, "from", "", "Begin of the time in question, such as 2026-11-01T00:00:00Z")
	flags.StringVar(&o.to, "to", "", "Its end")
	flags.StringVar(&o.json, "json", "", "Write what would have been advised to this file, as JSON")
	flags.StringVar(&o.html, "html", "", "Write a page with plots of it to this file")
	cmd.MarkFlagsRequiredTogether("from", "to")
	return cmd
}

// advisorOptions are the command's flags.
type advisorOptions struct {
	config, from, to, json, html string
}

// run serves advice until the context ends, or says what would have been advised.
func (o *advisorOptions) run(ctx context.Context, out, messages io.Writer) error {
	c, err := advisor.Read(o.config)
	if err != nil {
		return err
	}
	a := advisor.New(c, &c.Prometheus)
	if o.from != "" {
		return o.dryRun(ctx, a, out)
	}
	if o.json != "" || o.html != "" {
		return errors.New("--json and --html are of a time that is over: write --from and --to, too")
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen %q: %w", c.Listen, err)
	}
	scheme := "http"
	if c.TLS != nil {
		scheme = "https"
	}
	_, _ = fmt.Fprintf(out, "%s://%s/v1/advice\n", scheme, l.Addr())
	return a.Serve(ctx, l, func(text string) {
		_, _ = fmt.Fprintf(messages, "%s %s\n", time.Now().UTC().Format(time.RFC3339), text)
	})
}

// dryRun writes what would have been advised.
func (o *advisorOptions) dryRun(ctx context.Context, a *advisor.Advisor, out io.Writer) error {
	from, err := moment("from", o.from)
	if err != nil {
		return err
	}
	to, err := moment("to", o.to)
	if err != nil {
		return err
	}
	if !from.Before(to) {
		return fmt.Errorf("--to %s: must be after --from %s", o.to, o.from)
	}
	var report *advisor.Report
	asJSON := func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(report)
	}
	asHTML := func(w io.Writer) error { return report.WriteHTML(w) }
	type written struct {
		file  *reportFile // nil: standard output
		write func(w io.Writer) error
	}
	var files []written
	for _, f := range []struct {
		flag, name string
		write      func(w io.Writer) error
	}{{"json", o.json, asJSON}, {"html", o.html, asHTML}} {
		switch f.name {
		case "":
		case "-":
			files = append(files, written{nil, f.write})
		default:
			file, err := newReportFile(f.flag, f.name, []string{o.config})
			if err != nil {
				return err
			}
			defer file.discard()
			files = append(files, written{file, f.write})
		}
	}
	report, err = a.DryRun(ctx, from, to)
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err != nil {
		return err
	}
	toOut := false
	for _, f := range files {
		if f.file == nil {
			toOut, err = true, f.write(out)
		} else {
			err = f.file.write(f.write)
		}
		if err != nil {
			return err
		}
	}
	if toOut {
		return nil
	}
	return report.WriteText(out)
}

// moment reads the time of a flag.
func moment(flag, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, fmt.Errorf("--%s %q: must be a time such as 2026-11-01T00:00:00Z", flag, text)
	}
	return t, nil
}
