package replay

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
)

// request is one request of a log, ready to be decided: the part of its line that is kept.
type request struct {
	start, end int64 // microseconds
	status     int32
	file, line int32
	coarse     bool
	byRule     bool       // the log names the rule that rejected it
	checks     [2][]check // by the rules in force, and by the candidate's
	sees       []int32    // places of the fields that the line has and others may lack
}

// batch has the requests of a block.
type batch struct {
	file     *logFile
	block    block
	ready    chan struct{} // closed when the fields below are set
	requests []request
	lines    int
	others   int // valid lines that are not requests
	why      reason
	wrong    int // lines that could not be read
	examples []BadLine
	formats  [formats]int
	strange  int    // requests whose client is not an address
	example  string // of such a client
	end      error  // why the file ends after this batch; nil: it does not
	next     int    // index of the next request
}

// BadLine is a line that could not be read.
type BadLine struct {
	File string `json:"file"`
	Line int    `json:"line"`
	Why  string `json:"why"`
}

// mostExamples is the most unreadable lines that the report has.
const mostExamples = 5

// pool parses blocks of all files that are being read.
type pool struct {
	jobs chan *batch
	done sync.WaitGroup
}

func newPool(sets []*Rules, fields *fieldTable) *pool {
	p := &pool{jobs: make(chan *batch)}
	for range runtime.GOMAXPROCS(0) {
		p.done.Go(func() {
			w := &worker{sets: sets, parser: newLineParser(fields.headers()), sorter: newSorter(fields)}
			for b := range p.jobs {
				w.parse(b)
				close(b.ready)
			}
		})
	}
	return p
}

// close ends the pool. No file may be read any more.
func (p *pool) close() {
	close(p.jobs)
	p.done.Wait()
}

// worker makes requests of lines.
type worker struct {
	sets   []*Rules
	parser *lineParser
	sorter *sorter
	entry  entry
	checks []check
	keys   []byte
}

// parse makes the requests of a batch.
func (w *worker) parse(b *batch) {
	w.checks, w.keys = w.checks[:0], w.keys[:0]
	b.requests = make([]request, 0, len(b.block.data)/400+1)
	counts := make([][2]int, 0, cap(b.requests)) // of the checks of each request
	for n, line := range b.block.lines() {
		b.lines++
		err := w.parser.parse(line, &w.entry)
		if err == nil {
			err = w.sorter.take(&w.entry)
		}
		if err != nil {
			b.note(n, err)
			continue
		}
		e := &w.entry
		b.formats[e.format]++
		if e.strange {
			if b.strange == 0 {
				b.example = e.client
			}
			b.strange++
		}
		r := request{start: e.start / 1000, end: e.end / 1000, status: int32(e.status), file: int32(b.file.number), line: int32(n), coarse: e.coarse, byRule: e.byRule}
		var count [2]int
		for i, set := range w.sets {
			before := len(w.checks)
			w.checks, w.keys = w.sorter.sort(set, e, w.checks, w.keys)
			count[i] = len(w.checks) - before
		}
		r.sees = w.sorter.seen(e)
		b.requests = append(b.requests, r)
		counts = append(counts, count)
	}
	if b.block.tooLong > 0 {
		b.lines++
		b.note(b.block.tooLong, fmt.Errorf("is longer than %d MB", longestRow>>20))
	}
	b.block.free()
	keys := string(w.keys)
	checks := slices.Clone(w.checks)
	for i := range checks {
		checks[i].key = keys[checks[i].begin:checks[i].end]
	}
	for i, count := range counts {
		for side, n := range count {
			b.requests[i].checks[side], checks = checks[:n], checks[n:]
		}
	}
}

// note counts a line that is not a request.
func (b *batch) note(line int, err error) {
	b.why.add(line, err)
	if isOther(err) {
		b.others++
		return
	}
	b.wrong++
	if len(b.examples) < mostExamples {
		b.examples = append(b.examples, BadLine{File: shown(b.file.name, 200), Line: line, Why: err.Error()})
	}
}

// seen returns which header fields the line has.
func (s *sorter) seen(e *entry) (places []int32) {
	for i := range s.fields {
		if _, there := e.find(s.fields[i].header); there {
			places = append(places, int32(i))
		}
	}
	return places
}

// stream reads one file from its beginning to its end.
type stream struct {
	file    *logFile
	batches chan *batch
	batch   *batch // has the next requests; nil: the file is over
}

// readAhead is how many blocks of a file are parsed in advance.
const readAhead = 4

// start starts reading a file. Its last batch has the error, if any.
func (p *pool) start(ctx context.Context, f *logFile, reading *sync.WaitGroup) *stream {
	s := &stream{file: f, batches: make(chan *batch, readAhead)}
	reading.Go(func() {
		defer close(s.batches)
		from, err := f.open()
		if err != nil {
			p.hand(ctx, s, block{}, err)
			return
		}
		defer func() { _ = from.Close() }()
		reader := &blockReader{from: from}
		for {
			b, err := reader.next()
			if !p.hand(ctx, s, b, err) || err != nil {
				return
			}
		}
	})
	return s
}

// hand passes a block to the parsers; its requests come after those of earlier blocks. It returns false if nobody needs them any more.
func (p *pool) hand(ctx context.Context, s *stream, b block, end error) bool {
	one := &batch{file: s.file, block: b, ready: make(chan struct{}), end: end}
	select {
	case s.batches <- one:
	case <-ctx.Done():
		return false
	}
	if end != nil {
		close(one.ready)
		return true
	}
	select {
	case p.jobs <- one:
		return true
	case <-ctx.Done():
		close(one.ready)
		return false
	}
}

// head returns the next request of the file; nil: it is over. take is called with each batch that was begun.
func (s *stream) head(take func(*batch)) *request {
	for s.batch == nil || s.batch.next == len(s.batch.requests) {
		s.batch = nil
		one, more := <-s.batches
		if !more {
			return nil
		}
		<-one.ready
		s.batch = one
		take(one)
	}
	return &s.batch.requests[s.batch.next]
}
