package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/replay"
)

// standardShare is the default share of clients that a suggested limit may affect.
const standardShare = "0.1%"

func (p *Program) replayCommand() *cobra.Command {
	o := replayOptions{program: p}
	cmd := &cobra.Command{
		Use:   "replay --rules <file>|--traefik <file>|--config <path> [--candidate <file>] [--suggest[=<share>]] [--json] [--html <file>] <access log>...",
		Short: "Says what limits would have done to the requests of access logs",
		Long: `
Runs access logs through the limits of rule files, at the times that the logs have, and says for each rule how many requests and clients
it would have rejected, when, and whom. With --traefik the limits are those of a middleware in Traefik's dynamic configuration, with --config (of caddy
rate-limit) those of a Caddyfile's zones. Logs are Caddy's JSON, Traefik's JSON or common format, or the combined format of other servers;
plain or gzipped, several in any order. - is standard input.

With --candidate the rules of another file decide on the same requests, and the report says what they would change. With --suggest the
report has the lowest limits that would have touched no more than a share of clients, 0.1% unless it says another (--suggest=1%), and
which algorithm and burst would have rejected least of legitimate clients at the same protection.

Values of header fields, cookies and query parameters are shown shortened, with a digest, unless --plain-keys is given.`,
		Example: p.examples("replay --rules limits.yaml --suggest --html report.html /var/log/caddy/access*.log*"),
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return o.run(ctx, args, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	o.source.add(cmd)
	o.caddy.add(cmd, p)
	flags.StringArrayVar(&o.candidate, "candidate", nil, "Rule file whose limits are compared with those of --rules")
	flags.StringVar(&o.suggest, "suggest", "", "Find the least limits that touch only this share of clients")
	flags.Lookup("suggest").NoOptDefVal = standardShare
	flags.BoolVar(&o.json, "json", false, "Write JSON instead of tables")
	flags.StringVar(&o.html, "html", "", "Write a report with plots to this file, too")
	flags.BoolVar(&o.plainKeys, "plain-keys", false, "Show keys as they are, also where they are secrets of clients")
	sources := []string{"rules", "traefik"}
	if p.Caddy != nil {
		sources = append(sources, "config")
	}
	cmd.MarkFlagsOneRequired(sources...)
	cmd.MarkFlagsMutuallyExclusive(sources...)
	return cmd
}

// replayOptions are the command's flags.
type replayOptions struct {
	program   *Program
	source    source
	caddy     caddyFile
	candidate []string
	suggest   string
	json      bool
	html      string
	plainKeys bool
}

// run replays logs and writes the report.
func (o *replayOptions) run(ctx context.Context, logs []string, in io.Reader, out, messages io.Writer) error {
	c := replay.Config{Logs: logs, Input: in, PlainKeys: o.plainKeys}
	var err error
	switch {
	case o.source.traefik != "":
		c.Rules, err = o.source.replayed(messages)
	case len(o.source.rules) > 0:
		c.Rules, err = filesFor(o.source.rules, messages)
	default:
		c.Rules, c.Notes, err = o.program.Caddy.Logged(o.caddy.config, o.caddy.adapter)
	}
	if err != nil {
		return err
	}
	if len(o.candidate) > 0 {
		if c.Candidate, err = filesFor(o.candidate, messages); err != nil {
			return err
		}
	}
	if o.suggest != "" {
		c.Suggest = true
		if c.Share, err = parseShare(o.suggest); err != nil {
			return err
		}
		if err := strayShare(logs); err != nil {
			return err
		}
	}
	var page *reportFile
	if o.html != "" {
		if page, err = newReportFile("html", o.html, filesRead(&c, o.caddy.config, o.source.traefik)); err != nil {
			return err
		}
		defer page.discard()
	}
	if slices.Contains(logs, "-") && in != nil {
		c.Input = until(ctx, in)
	}
	bar := newReplayBar(messages)
	c.Progress = bar.show
	report, err := replay.Run(ctx, c)
	bar.end()
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if err != nil {
		return err
	}
	if page != nil {
		if err := page.write(report.WriteHTML); err != nil {
			return err
		}
	}
	if o.json {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(report)
	}
	return report.WriteText(out)
}

// until returns a reader that ends when a context ends, even while from delivers nothing.
func until(ctx context.Context, from io.Reader) io.Reader {
	out, in := io.Pipe()
	context.AfterFunc(ctx, func() { _ = in.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.CopyBuffer(in, struct{ io.Reader }{from}, make([]byte, 256<<10))
		_ = in.CloseWithError(err)
	}()
	return out
}

// strayShare finds a share that is separated from --suggest by a space, and would be taken for the name of a log.
func strayShare(logs []string) error {
	for _, name := range logs {
		if _, err := parseShare(name); err != nil {
			continue
		}
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: no such file; if it is the share of clients, write --suggest=%s", name, name)
		}
	}
	return nil
}

// filesRead returns the names of all files that a replay reads.
func filesRead(c *replay.Config, config ...string) []string {
	names := append(slices.Clone(c.Logs), config...)
	for _, f := range slices.Concat(c.Rules, c.Candidate) {
		names = append(names, f.Name)
	}
	return names
}

// replayed returns the rules of one middleware of Traefik's.
func (s *source) replayed(messages io.Writer) ([]*ruleset.File, error) {
	list, err := s.load(messages, messages)
	if err == nil && len(list) > 1 {
		err = fmt.Errorf("%s: has several middlewares; --middleware says which: %s, or another", s.traefik, list[0].middleware)
	}
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list[0].files, func(f *ruleset.File) bool { return len(f.Rules) == 0 && f.Domain == nil }), nil
}

// filesFor reads rule files, and writes their problems to messages.
func filesFor(patterns []string, messages io.Writer) ([]*ruleset.File, error) {
	files, problems := readFiles(patterns)
	for _, p := range problems {
		_, _ = fmt.Fprintln(messages, p)
	}
	if len(problems) > 0 {
		return nil, errors.New(describe.Count(len(problems), "problem") + " in the rule files")
	}
	return files, nil
}

// parseShare reads a share such as 0.1% or 0.001.
func parseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	share, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		share /= 100
	}
	if err != nil || !(share >= 0 && share < 1) {
		return 0, fmt.Errorf("suggest %q: must be a share of the clients from 0%% to below 100%%, such as 0.1%% or 0.001", text)
	}
	return share, nil
}

// replayBar shows the progress of a replay that takes long, on a terminal.
type replayBar struct {
	on    bool
	begun time.Time
	out   io.Writer
	bar   *progressbar.ProgressBar
	pass  int
}

// barAfter is how long a replay runs before the bar appears.
const barAfter = time.Second

func newReplayBar(out io.Writer) *replayBar {
	b := &replayBar{begun: time.Now(), out: out}
	if file, ok := out.(*os.File); ok {
		b.on = term.IsTerminal(int(file.Fd())) //nolint:gosec // a descriptor is a small number
	}
	return b
}

// show shows how many bytes have been read.
func (b *replayBar) show(read, total int64, pass int) {
	if !b.on || time.Since(b.begun) < barAfter {
		return
	}
	if b.bar == nil || b.pass != pass {
		b.end()
		if total == 0 {
			total = -1
		}
		b.pass = pass
		title := "replaying"
		if pass > 1 {
			title = fmt.Sprintf("replaying, pass %d", pass)
		}
		b.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(b.out), progressbar.OptionSetDescription(title), progressbar.OptionShowBytes(true),
			progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish(), progressbar.OptionFullWidth())
	}
	_ = b.bar.Set64(read) // fails if a log has grown meanwhile
}

// end removes the bar.
func (b *replayBar) end() {
	if b.bar != nil {
		_ = b.bar.Finish()
		_ = b.bar.Clear()
		b.bar = nil
	}
}
