// Package replay runs access logs through the limits of rule files, at the times that the logs have, and says what the limits would
// have done. It decides by package core and finds rules and keys by package ruleset, as the proxies do. It adds reading logs,
// sorting their requests by their beginnings, and counting.
//
// It is for compiled programs, and not part of the plugin.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/ruleset"
)

// Config says what to replay.
type Config struct {
	Rules     []*ruleset.File // in which ruleset.Parse has found no problems
	Candidate []*ruleset.File // whose verdicts are compared with those of Rules; nil: none
	Notes     []string        // warnings about Rules, for the report
	Logs      []string        // names of files; "-" is Input
	Input     io.Reader       // nil: there is none

	Suggest bool    // find limits that would have touched at most Share of the clients
	Share   float64 // 0.001 is 0.1 %

	PlainKeys bool // keys are shown as they are, even where they are clients' secrets

	// Progress is called at intervals with the bytes that have been read, and their total, 0 if it is not known. pass counts from 1 how often
	// the files are read: for suggestions several times.
	Progress func(read, total int64, pass int)

	// OnDecided is called with the outcome of each request, in the order of the decisions; may be nil.
	OnDecided func(Decided)
}

// Decided is the outcome of one request under the rules.
type Decided struct {
	File    int // place in Config.Logs
	Line    int
	At      time.Time
	Outcome core.Outcome
	Rule    string // of a rejected request: the reported rule
	Logged  int    // the status that the log has
}

// replay is one pass over the logs.
type replay struct {
	config  *Config
	files   []*logFile
	fields  *fieldTable
	sides   []*side
	pairing *pairing
	probes  *probes // nil: no suggestions are wanted
	order   order
	seen    []bool // which of fields the log has
	read    atomic.Int64
	total   int64
	pass    int

	report  *Report
	coarse  int64
	untimed int64 // lines of formats without durations
	first   int64
	last    int64
	strange int64  // requests whose client is not an address
	example string // of such a client
	why     reason // of standard input: other files without a request are refused earlier
	notes   []string
}

// Run replays logs. The error says what is wrong with the rules or the logs; the report has the problems of single lines.
func Run(ctx context.Context, c Config) (*Report, error) {
	if len(c.Logs) == 0 {
		return nil, errors.New("no access log is named")
	}
	if c.Suggest && !(c.Share >= 0 && c.Share < 1) {
		return nil, fmt.Errorf("suggest %v: must be a share from 0 to below 1, such as 0.001 or 0.1%%", c.Share)
	}
	p := &replay{config: &c, pass: 1, report: &Report{Examples: []BadLine{}, Warnings: []string{}}}
	if err := p.prepare(); err != nil {
		return nil, err
	}
	if err := p.findFiles(); err != nil {
		return nil, err
	}
	if err := p.readAll(ctx); err != nil {
		return nil, err
	}
	if p.report.Requests == 0 {
		return nil, fmt.Errorf("%s: %w", shown(c.Logs[0], 200), p.why.noLine())
	}
	p.conclude()
	if c.Suggest {
		if err := p.suggest(ctx); err != nil {
			return nil, err
		}
	}
	return p.report, nil
}

// prepare compiles the rules.
func (p *replay) prepare() error {
	p.fields = &fieldTable{}
	p.notes = slices.Clone(p.config.Notes)
	all := [][]*ruleset.File{p.config.Rules}
	if p.config.Candidate != nil {
		all = append(all, p.config.Candidate)
	}
	for i, files := range all {
		rules, err := newRules(files, p.fields)
		if err != nil {
			return err
		}
		s, err := newSide(rules)
		if err != nil {
			return err
		}
		p.sides = append(p.sides, s)
		for _, f := range files {
			if f.Domain != nil {
				p.notes = append(p.notes, fmt.Sprintf("%s: domain %q: %s", shown(f.Name, 200), shown(f.Domain.Name, 80), noDescriptors))
			}
		}
		if i == 1 {
			p.pairing = newPairing(p.sides[0].rules, rules)
		}
	}
	p.seen = make([]bool, len(p.fields.list))
	if p.config.Suggest {
		var err error
		if p.probes, err = newProbes(p.sides[0].rules, p.config.Share); err != nil {
			return err
		}
		if p.probes.again() && slices.Contains(p.config.Logs, standardInput) {
			return errors.New("suggest: limits of buckets are found by reading the logs several times, and standard input can be read once; name files")
		}
	}
	p.order.leave = p.leave
	p.order.step = p.step
	return nil
}

// findFiles reads the beginning of each file.
func (p *replay) findFiles() error {
	for i, name := range p.config.Logs {
		if slices.Contains(p.config.Logs[:i], name) {
			return fmt.Errorf("%s: is named twice; each request is replayed once", shown(name, 200))
		}
		f := &logFile{name: name, number: i, read: &p.read}
		p.report.Files = append(p.report.Files, FileReport{Name: shown(name, 200), Formats: []string{}})
		if name == standardInput {
			if p.config.Input == nil {
				return errors.New("-: there is no standard input")
			}
			f.input = p.config.Input
			p.files = append(p.files, f)
			continue
		}
		empty, err := f.look()
		if err != nil {
			return fmt.Errorf("%s: %w", shown(name, 200), err)
		}
		for _, other := range p.files {
			if other.info != nil && os.SameFile(f.info, other.info) {
				return fmt.Errorf("%s: is %s, which is named, too; each request is replayed once", shown(name, 200), shown(other.name, 200))
			}
		}
		if empty {
			p.notes = append(p.notes, fmt.Sprintf("%s: is empty", shown(name, 200)))
			continue
		}
		p.total += f.info.Size()
		p.files = append(p.files, f)
	}
	if slices.Contains(p.config.Logs, standardInput) {
		p.total = 0
	}
	slices.SortStableFunc(p.files, func(a, b *logFile) int { return cmp.Compare(a.first, b.first) })
	return nil
}

// readAll reads the files, merged by time, and decides their requests.
func (p *replay) readAll(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var sets []*Rules
	for _, s := range p.sides {
		sets = append(sets, s.rules)
	}
	workers := newPool(sets, p.fields)
	var reading sync.WaitGroup
	defer workers.close()
	defer reading.Wait()
	defer cancel()
	waiting := p.files
	var open []*stream
	var failure error
	take := func(b *batch) {
		p.take(b)
		if b.end != nil && !errors.Is(b.end, io.EOF) {
			failure = p.cutOff(b, failure)
		}
		if p.config.Progress != nil {
			p.config.Progress(p.read.Load(), p.total, p.pass)
		}
	}
	for ctx.Err() == nil && failure == nil {
		var next *stream
		var r *request
		for i := 0; i < len(open); i++ {
			head := open[i].head(take)
			if head == nil {
				open = slices.Delete(open, i, i+1)
				i--
				continue
			}
			if r == nil || head.end < r.end {
				next, r = open[i], head
			}
		}
		if len(waiting) > 0 && (r == nil || waiting[0].first/1000 <= r.end) {
			open = append(open, workers.start(ctx, waiting[0], &reading))
			waiting = waiting[1:]
			continue
		}
		if r == nil {
			break
		}
		next.batch.next++
		p.order.add(r)
	}
	if failure != nil {
		return failure
	}
	p.order.flush()
	for _, s := range p.sides {
		s.player.finish()
	}
	return ctx.Err()
}

// cutOff notes that a file could be read only in part, such as a truncated gzip file, or returns an error if nothing of it could be read.
func (p *replay) cutOff(b *batch, failure error) error {
	name := shown(b.file.name, 200)
	if p.report.Files[b.file.number].Requests == 0 && failure == nil {
		return fmt.Errorf("%s: %w", name, tooEarly(b.end))
	}
	if note := fmt.Sprintf("%s: could be read only in part: %v", name, b.end); !slices.Contains(p.notes, note) { // by an earlier pass
		p.notes = append(p.notes, note)
	}
	return failure
}

// take counts the lines of a batch.
func (p *replay) take(b *batch) {
	if p.pass > 1 {
		return
	}
	r := p.report
	f := &r.Files[b.file.number]
	f.Lines += int64(b.lines)
	f.Requests += int64(len(b.requests))
	f.Unreadable += int64(b.wrong)
	f.Other += int64(b.others)
	for format, n := range b.formats {
		if n > 0 && !slices.Contains(f.Formats, logFormat(format).String()) {
			f.Formats = append(f.Formats, logFormat(format).String())
		}
	}
	p.untimed += int64(b.formats[combined] + b.formats[common])
	if p.strange == 0 {
		p.example = b.example
	}
	p.strange += int64(b.strange)
	r.Unreadable += int64(b.wrong)
	r.Other += int64(b.others)
	if b.why.err != nil {
		p.why.add(b.why.line, b.why.err)
	}
	r.Examples = append(r.Examples, b.examples[:min(mostExamples-len(r.Examples), len(b.examples))]...)
}

// leave decides a request that leaves the window.
func (p *replay) leave(r *request, at int64) {
	for _, place := range r.sees {
		p.seen[place] = true
	}
	if p.pass > 1 {
		p.probes.decide(p.pass, at, r, p.seen)
		return
	}
	if p.report.Requests == 0 {
		p.first, p.last = at, at
	}
	p.first, p.last = min(p.first, at), max(p.last, at)
	p.report.Requests++
	switch {
	case r.status == 429:
		p.report.Logged429++
	case r.byRule:
		p.report.LoggedByRule++
	}
	if r.coarse {
		p.coarse++
	}
	for i, s := range p.sides {
		s.decide(at, r, r.checks[i], p.seen)
	}
	if p.pairing != nil {
		p.pairing.compare(r, p.sides)
	}
	if p.probes != nil {
		p.probes.decide(p.pass, at, r, p.seen)
	}
	if p.config.OnDecided != nil {
		p.announce(r, at)
	}
}

// announce calls OnDecided with the outcome of a request.
func (p *replay) announce(r *request, at int64) {
	s := p.sides[0]
	d := Decided{File: int(r.file), Line: int(r.line), At: time.UnixMicro(at), Outcome: s.verdict.Outcome, Logged: int(r.status)}
	if s.verdict.Outcome == core.Reject {
		d.Rule = core.Reported(s.checks, &s.verdict).Rule.Name()
	}
	p.config.OnDecided(d)
}

// step ends all requests under way, since the log's clock goes back.
func (p *replay) step() {
	for _, s := range p.sides {
		s.player.finish()
	}
	if p.probes != nil {
		p.probes.finish()
	}
}
