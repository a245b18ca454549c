package command

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/proxyweir/weir/core/metrics"
)

func (p *Program) watchCommand() *cobra.Command {
	e := Endpoint{Program: p}
	var pages []string
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "watch [--metrics <url>]... [--interval 1s] [--address <admin address>]",
		Short: "Shows live what each rule allows and rejects",
		Long: `
Reads the counts of a proxy again and again: at --metrics those of a page for Prometheus, of Traefik's metrics: address or of Caddy, several are added up; else those of a
Caddy's admin endpoint. On a terminal it redraws a table, else it prints a line each time. Rules that reject most come first. It ends with ^C.`,
		Example: p.examples("watch --metrics http://localhost:9180/metrics"),
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval < 100*time.Millisecond || interval > time.Hour {
				return fmt.Errorf("--interval %s: must be from 100ms to 1h", interval)
			}
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			w := &watch{read: e.counts, out: cmd.OutOrStdout()}
			if len(pages) > 0 {
				w.read = func() (counts, error) { return countsOf(pages) }
			}
			if file, isFile := w.out.(*os.File); isFile && term.IsTerminal(int(file.Fd())) { //nolint:gosec // a descriptor is a small number
				w.height = func() int { _, rows, _ := term.GetSize(int(file.Fd())); return rows } //nolint:gosec // the same
			}
			ticker := time.NewTicker(interval)
			defer ticker.Stop()
			return w.run(ctx, time.Now(), ticker.C)
		},
	}
	e.Add(cmd)
	cmd.Flags().StringArrayVar(&pages, "metrics", nil, "URL of metrics for Prometheus, once for each proxy")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "How often")
	return cmd
}

// counts are requests by the label of a rule, and by outcome.
type counts map[string]map[string]float64

// counts asks the admin endpoint.
func (e *Endpoint) counts() (counts, error) {
	var answer struct {
		Rules []struct {
			ID       string
			Outcomes map[string]float64
		}
	}
	err := e.Ask(http.MethodGet, "rules", nil, &answer)
	c := make(counts)
	for _, r := range answer.Rules {
		c[r.ID] = r.Outcomes
	}
	return c, err
}

var label = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)

// countsOf reads pages of metrics, and adds them up.
func countsOf(pages []string) (counts, error) {
	c := make(counts)
	for _, page := range pages {
		response, err := (&http.Client{Timeout: 5 * time.Second}).Get(page)
		if err != nil {
			return nil, fmt.Errorf("--metrics: %w", err)
		}
		if response.StatusCode != http.StatusOK {
			err = fmt.Errorf("--metrics %s: HTTP %d; the page is that of metrics: address in Traefik, and of Caddy's metrics", page, response.StatusCode)
		}
		lines := bufio.NewScanner(response.Body)
		for err == nil && lines.Scan() {
			family, rest, _ := strings.Cut(lines.Text(), "{")
			if family != metrics.Requests.Name {
				continue
			}
			is := make(map[string]string)
			for _, pair := range label.FindAllStringSubmatch(rest, -1) {
				is[pair[1]] = pair[2]
			}
			value, wrong := strconv.ParseFloat(strings.TrimSpace(rest[strings.LastIndexByte(rest, '}')+1:]), 64)
			if c[is["rule"]] == nil {
				c[is["rule"]] = make(map[string]float64)
			}
			c[is["rule"]][is["outcome"]] += value
			err = wrong
		}
		_ = response.Body.Close()
		if err = cmp.Or(err, lines.Err()); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// watch shows counts that change.
type watch struct {
	read   func() (counts, error)
	out    io.Writer
	height func() int // of the terminal; nil: it is none

	last  counts
	at    time.Time // of last
	rules map[string]*watched
}

// watched is how many requests a rule has allowed and rejected, and would have rejected as a shadow: in a second, and since the watch began.
type watched struct{ rate, all [3]float64 }

// columns has the outcomes of each column.
var columns = [3][]string{{"allowed", "allowed_soft", "delayed", "error_open", "fallback"}, {"rejected", "error_closed"}, {"shadow_rejected", "shadow_delayed"}}

// run shows the counts at each tick, until the context ends. The error is that of the first reading: later ones are shown.
func (w *watch) run(ctx context.Context, now time.Time, ticks <-chan time.Time) (err error) {
	if w.last, err = w.next(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	w.at, w.rules = now, make(map[string]*watched)
	for {
		select {
		case <-ctx.Done():
			return nil
		case now = <-ticks:
		}
		next, err := w.next(ctx)
		if ctx.Err() != nil && next == nil {
			return nil
		}
		if err == nil {
			w.take(next, now)
		}
		if err := w.show(now, err); err != nil {
			return err
		}
	}
}

// next reads the counts. It does not wait for a proxy that hangs when the context ends: then it returns nothing.
func (w *watch) next(ctx context.Context) (c counts, err error) {
	done := make(chan struct{})
	var read counts
	var failed error
	go func() {
		read, failed = w.read()
		close(done)
	}()
	select {
	case <-done:
		return read, failed
	case <-ctx.Done():
		return nil, nil
	}
}

// take adds what has come since the last time.
func (w *watch) take(next counts, now time.Time) {
	seconds := max(now.Sub(w.at).Seconds(), 1e-3)
	for rule, outcomes := range next {
		if w.rules[rule] == nil {
			w.rules[rule] = new(watched)
		}
		one := w.rules[rule]
		for i, names := range columns {
			came := 0.0
			for _, name := range names {
				before := w.last[rule][name]
				if before > outcomes[name] { // the proxy has begun anew
					before = 0
				}
				came += outcomes[name] - before
			}
			one.rate[i], one.all[i] = came/seconds, one.all[i]+came
		}
	}
	w.last, w.at = next, now
}

// show writes the table, or a line. failed is why the counts are those of before.
func (w *watch) show(now time.Time, failed error) error {
	names := slices.SortedFunc(maps.Keys(w.rules), func(a, b string) int {
		x, y := w.rules[a], w.rules[b]
		return cmp.Or(cmp.Compare(y.rate[1], x.rate[1]), cmp.Compare(y.all[1], x.all[1]), cmp.Compare(y.rate[0], x.rate[0]), strings.Compare(a, b))
	})
	if w.height == nil {
		text := now.UTC().Format("15:04:05")
		for _, name := range names {
			if one := w.rules[name]; one.all != [3]float64{} {
				text += fmt.Sprintf("  %s: %.1f allowed/s, %.1f rejected/s", name, one.rate[0], one.rate[1])
			}
		}
		if failed != nil {
			text += "  " + failed.Error()
		}
		_, err := fmt.Fprintln(w.out, text)
		return err
	}
	_, _ = io.WriteString(w.out, "\x1b[H\x1b[J") // the screen is empty
	t := tabwriter.NewWriter(w.out, 0, 8, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "ALLOWED/s\tREJECTED/s\tWOULD REJECT/s\tALLOWED\tREJECTED\tWOULD REJECT\t  RULE")
	for _, name := range names[:min(len(names), max(w.height()-3, 1))] {
		one := w.rules[name]
		_, _ = fmt.Fprintf(t, "%.1f\t%.1f\t%.1f\t%.0f\t%.0f\t%.0f\t  %s\n", one.rate[0], one.rate[1], one.rate[2], one.all[0], one.all[1], one.all[2], name)
	}
	err := t.Flush()
	if failed != nil {
		_, err = fmt.Fprintln(w.out, failed)
	}
	return err
}
