package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/proxyweir/weir/experiment/origin"
)

// record is what a cell has come to: the first line of its file. Counts are of the event, not of the calm before it.
type record struct {
	cell
	Begun  time.Time     `json:"begun"`
	Origin origin.Origin `json:"origin"`
	Calm   float64       `json:"calm"`           // seconds
	Event  float64       `json:"event"`          // seconds
	Over   float64       `json:"over,omitempty"` // the second of the event from which on all is as usual again; 0: it always is, or never
	Limits *limits       `json:"limits,omitempty"`

	summary
	ServiceLag float64        `json:"service_lag"` // by how much the service was late with an answer at most, in milliseconds
	Failed     map[string]int `json:"failed,omitempty"`
	Advice     map[string]int `json:"advice,omitempty"` // documents that the proxies took, and those that were refused

	Used map[string]used `json:"used,omitempty"` // by the name of a program: in the event; of windows, in the last one

	windows []window // lines of the file, of a run that has them
	effects []effect // the file's table, of a cell that has one in place of all else
}

// summary is what has become of requests. Counts are of those in the event, or in a window after its washout.
type summary struct {
	Legitimate int            `json:"legitimate"` // requests of legitimate clients, without second tries
	Good       int            `json:"good"`       // those of them that were answered within a second of the first try, or of the second
	Own        map[string]int `json:"own"`        // attempts of legitimate clients, by outcome
	Others     map[string]int `json:"others"`     // those of the others

	Lateness float64 `json:"lateness"` // the 99.9th percentile of how late attempts were written, in milliseconds; all of the run, or of the window
	Latest   float64 `json:"latest"`   // the greatest
	Thrown   bool    `json:"thrown"`   // it does not count

	TimesOfOwn histograms `json:"times_of_own"` // of attempts of legitimate clients, by outcome
}

// limits are those that a cell begins with.
type limits struct {
	Client int64 `json:"client"`        // requests in ten seconds
	Burst  int64 `json:"burst"`         // of a bucket
	All    int64 `json:"all,omitempty"` // requests in two seconds
}

// second is a second of a cell.
type second struct {
	Second int            `json:"second"` // since the beginning of the event
	Own    [outcomes]int  `json:"own"`    // attempts of legitimate clients that were to be sent in it, in the order of outcomeNames
	Others [outcomes]int  `json:"others"` // those of the others
	First  int            `json:"first"`  // how many of Own are no second tries
	Seen   map[string]any `json:"seen,omitempty"`
}

// histograms has times by the name of an outcome.
type histograms map[string]*histogram

// histogram counts times in buckets: number n begins at 0.1 ms × 1.02ⁿ. What is shorter is in number 0.
type histogram struct {
	Sum    float64     `json:"sum"` // seconds
	Counts map[int]int `json:"counts"`
}

const (
	shortest = 100 * time.Microsecond
	growth   = 1.02
)

func bucketOf(t time.Duration) int {
	return max(0, int(math.Floor(math.Log(float64(t)/float64(shortest))/math.Log(growth))))
}

func (h histograms) add(name string, t time.Duration) {
	of := h[name]
	if of == nil {
		of = &histogram{Counts: map[int]int{}}
		h[name] = of
	}
	of.Sum += t.Seconds()
	of.Counts[bucketOf(t)]++
}

// mostLateness is the 99.9th percentile of lateness at which a cell is thrown away.
const mostLateness = 5 * time.Millisecond

// summarize counts what has become of the requests.
func (r *summary) summarize(attempts []attempt) {
	r.Own, r.Others, r.TimesOfOwn = map[string]int{}, map[string]int{}, histograms{}
	var late []time.Duration
	for _, a := range attempts {
		if a.late >= 0 {
			late = append(late, a.late)
		}
		if !a.of.counted {
			continue
		}
		name := outcomeNames[a.what]
		if !a.of.legitimate {
			r.Others[name]++
			continue
		}
		r.Own[name]++
		r.TimesOfOwn.add(name, a.took)
		if !a.again {
			r.Legitimate++
		}
		if a.what == answered {
			r.Good++
		}
	}
	slices.Sort(late)
	if n := len(late); n > 0 {
		p999 := late[n*999/1000]
		r.Lateness, r.Latest = milliseconds(p999), milliseconds(late[n-1])
		r.Thrown = p999 >= mostLateness
	}
}

func milliseconds(t time.Duration) float64 { return math.Round(float64(t)/1e3) / 1e3 }

// secondsOf counts by the seconds in which attempts were to be sent, beside what was seen then.
func secondsOf(attempts []attempt, calm float64, seen map[int]map[string]any) []second {
	bySecond := map[int]*second{}
	for _, a := range attempts {
		n := int(math.Floor(a.at.Seconds() - calm))
		s := bySecond[n]
		if s == nil {
			s = &second{Second: n, Seen: seen[n]}
			bySecond[n] = s
		}
		if !a.of.legitimate {
			s.Others[a.what]++
			continue
		}
		s.Own[a.what]++
		if !a.again {
			s.First++
		}
	}
	var list []second
	for _, s := range bySecond {
		list = append(list, *s)
	}
	slices.SortFunc(list, func(a, b second) int { return cmp.Compare(a.Second, b.Second) })
	return list
}

// write writes a cell's file. It has its name only when it is whole.
func write(name string, r *record, of []second) error {
	if r.effects != nil {
		return writeWhole(name, tableOfEffects(r.Origin, r.cell, r.effects))
	}
	var text bytes.Buffer
	compressed, err := gzip.NewWriterLevel(&text, gzip.BestCompression)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(compressed)
	if err := lines.Encode(r); err != nil {
		return err
	}
	for _, s := range of {
		if err := lines.Encode(s); err != nil {
			return err
		}
	}
	for _, w := range r.windows {
		if err := lines.Encode(w); err != nil {
			return err
		}
	}
	if err := compressed.Close(); err != nil {
		return err
	}
	return writeWhole(name, text.Bytes())
}

func writeWhole(name string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", text, 0o644); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}
