package command

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/proxyweir/weir/core/byhand"
)

// question is a request of which somebody wants to know what would become. Its JSON is that of the admin API.
type question struct {
	Method   string            `json:"method,omitempty"`
	URL      string            `json:"url"`
	Headers  map[string]string `json:"headers,omitempty"`
	ClientIP string            `json:"client_ip"`
}

// explained is the answer.
type explained struct {
	Handlers []explainedHandler `json:"handlers"`
	Notes    []string           `json:"notes"`
}

type explainedHandler struct {
	Name    string            // the middleware's; "": a handler of Caddy's, or rules of files
	Rules   []byhand.Coverage `json:"rules"`
	Verdict string            `json:"verdict"`
	Delay   float64           `json:"delay_seconds"`
}

func (p *Program) explainCommand() *cobra.Command {
	var q question
	var headers []string
	cmd := &cobra.Command{
		Use:   "explain --url <url> --ip <address> [--method <method>] [--header <name: value>]... [--address <admin address> | --traefik <file> | --rules <file> --redis <address>]",
		Short: "Says which rules cover a request, and what they would do to it",
		Long: `
Asks a running Caddy, or Redis, what would become of a request now: which rules cover it, by which key, what is left, and the verdict. Nothing is charged. The address is
the client's, as the proxy determines it.`,
		Example: p.examples("explain --traefik /etc/traefik/dynamic.yml --method POST --url https://example.com/login --ip 192.0.2.7"),
		Args:    cobra.NoArgs,
	}
	s := p.addState(cmd)
	flags := cmd.Flags()
	flags.StringVar(&q.Method, "method", "GET", "The request's method")
	flags.StringVar(&q.URL, "url", "", "Its whole URL")
	flags.StringVar(&q.ClientIP, "ip", "", "The client's address")
	flags.StringArrayVarP(&headers, "header", "H", nil, "A header field, such as 'X-Plan: gold'; once for each")
	_, _ = cmd.MarkFlagRequired("url"), cmd.MarkFlagRequired("ip") // they exist
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q.Headers = make(map[string]string)
		for _, text := range headers {
			name, value, found := strings.Cut(text, ":")
			if !found {
				return errors.New("--header: must be a name and a value with a colon between them, such as 'X-Plan: gold'") // it may be a secret
			}
			q.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
		from, closing, err := s.open(cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer closing()
		answer, err := from.explain(&q)
		if err != nil {
			return err
		}
		return answer.write(cmd.OutOrStdout())
	}
	return cmd
}

// write writes the answer: a table for each handler, with its verdict.
func (e *explained) write(out io.Writer) error {
	for _, h := range e.Handlers {
		if h.Name != "" {
			_, _ = fmt.Fprintf(out, "middleware %s\n", h.Name)
		}
		w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		covering := slices.DeleteFunc(h.Rules, func(r byhand.Coverage) bool { return !r.Covers })
		switch {
		case len(h.Rules) == 0:
			_, _ = fmt.Fprintln(w, "no rule covers the request: there are none")
		case len(covering) == 0:
			_, _ = fmt.Fprintln(w, "no rule covers the request: match leaves it out, or except has it")
		default:
			_, _ = fmt.Fprintln(w, "RULE\tKEY\tLIMIT\tREMAINING\tDECISION")
		}
		for _, r := range covering {
			decision := "allows"
			switch {
			case !r.Allowed && r.RetryAfter < 0:
				decision = "rejects, for ever"
			case !r.Allowed:
				decision = "rejects for " + (time.Duration(r.RetryAfter*1000) * time.Millisecond).String()
			case r.Soft:
				decision = "allows, beyond the limit"
			}
			for _, kind := range []struct {
				is   bool
				name string
			}{{r.Blocked, "block or penalty"}, {r.Candidate, "candidate"}, {r.Former, "former limit"}, {r.Shadow, "shadow"}} {
				if kind.is {
					decision += " (" + kind.name + ")"
				}
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", r.Rule, strings.Join(r.Key, " "), r.Limit, r.Remaining, decision)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(out, "verdict:", h.Verdict)
	}
	for _, note := range e.Notes {
		_, _ = fmt.Fprintln(out, "note:", note)
	}
	return nil
}
