// Package logs is how those who share a Redis tell each other what they have admitted: scripts/eventual.lua does Redis's part, and package usage has what they tell.
//
// Each writes a log, to which it appends, and reads what others have appended to theirs. Logs are of documents with absolute numbers, and begin with one that
// has everything. So whoever starts reads the logs from their beginning, and a log that Redis has lost, or an answer that was lost, costs nothing but the whole
// to be told again. An index says which logs there are.
package logs

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/usage"
)

// Config configures New.
type Config struct {
	Index      string // the key of the index; logs have names that begin with it
	Name       string // of the own log, 16 bytes that no other log in the index has
	Generation int64  // of the own log: larger than any that a log of this name has had

	// Reads says which logs are read, by their names; nil: none is.
	Reads func(name string) bool

	Ledger *usage.Ledger // what is told
	Others *usage.Others // what others have told

	Now  func() int64            // the time by which slots end
	Wall func() int64            // the node's wall clock
	Sets func(least, most int64) // is told by how much Redis's clock is ahead of that, at least and at most

	Invalid error // for a reply that is not the script's
}

// Run makes one call of the script. Its error says whether Redis may have executed it.
type Run func(keys, args []string) (texts []string, executed bool, err error)

// Logs is one that writes a log and reads others'. New makes it. Only one goroutine at a time may use it.
type Logs struct {
	c     Config
	own   ownLog
	peers map[string]*peerLog // by name
}

// ownLog is what is known of the log that is written here.
type ownLog struct {
	key        string
	generation int64
	length     int64
	whole      int64 // the length of the document that it begins with
	afresh     bool  // it is to be written again, under the next generation
	ends       int64 // when the last slot in it is over
}

// peerLog is what is known of another log.
type peerLog struct {
	name       string
	key        string
	generation int64
	read       int64 // how much of it was read
	length     int64
	rest       []byte // the beginning of a document
	broken     bool   // it has something else in it: no more of this generation is read
	silent     int    // rounds in which it had nothing new, in a row
}

const (
	mostOfReply     = 512 << 10 // bytes of others' logs
	mostPeersAtOnce = 64
	mostCalls       = 100 // of a round
	silentPeer      = 5   // rounds after which a log is only read when the index says that it has something new
	ofRecord        = 40  // bytes of a record in the index
	keepLonger      = 60_000_000
)

// New returns what writes the log of that name.
func New(c Config) *Logs {
	key := c.Index + ":" + hex.EncodeToString([]byte(c.Name))
	return &Logs{c: c, own: ownLog{key: key, generation: c.Generation, afresh: true}, peers: make(map[string]*peerLog)}
}

// Round tells what there is to tell, and reads what the others have told, which it adds to the news.
func (l *Logs) Round(run Run, news *usage.News) error {
	now := l.c.Now()
	l.c.Others.Drop(now)
	list := l.lively()
	for n := 0; n < mostCalls; n++ {
		counts, marks := l.c.Ledger.Begin(l.c.Now(), l.own.afresh)
		told, err := l.call(run, counts, marks, list, news)
		l.c.Ledger.End(told)
		if err != nil {
			return err
		}
		list = l.behind()
		if told && len(list) == 0 {
			break
		}
	}
	return nil
}

// lively returns the logs that had something new of late.
func (l *Logs) lively() []*peerLog {
	var list []*peerLog
	for _, p := range l.peers {
		if p.silent < silentPeer && !p.broken && len(list) < mostPeersAtOnce {
			p.silent++
			list = append(list, p)
		}
	}
	return list
}

// behind returns the logs of which the index says that there is more.
func (l *Logs) behind() []*peerLog {
	var list []*peerLog
	for _, p := range l.peers {
		if p.read < p.length && !p.broken && len(list) < mostPeersAtOnce {
			list = append(list, p)
		}
	}
	return list
}

// call makes one call. It returns false if Redis has lost what was told before.
func (l *Logs) call(run Run, counts []usage.Counts, marks []usage.Mark, list []*peerLog, news *usage.News) (bool, error) {
	own := &l.own
	document := ""
	if len(counts)+len(marks) > 0 {
		document = string(usage.Encode(&usage.Document{Instance: hex.EncodeToString([]byte(l.c.Name)), Counts: counts, Marks: marks}))
	}
	afresh := own.afresh && document != ""
	if own.afresh {
		own.ends = 0
		own.length = 0
	}
	for i := range counts {
		own.ends = rate.AtLeast(own.ends, counts[i].Slot.End)
	}
	for i := range marks {
		own.ends = rate.AtLeast(own.ends, marks[i].End)
	}
	if afresh {
		own.generation++
	}
	keep := rate.AtLeast(own.ends-l.c.Now(), 0) + keepLonger
	keys := []string{l.c.Index, own.key}
	args := []string{l.c.Name, strconv.FormatInt(own.generation, 10), strconv.FormatInt(own.length, 10), "0", document, strconv.FormatInt(keep/1000, 10), strconv.Itoa(mostOfReply)}
	if afresh {
		args[3] = "1"
	}
	var generations []int64
	for _, p := range list {
		keys = append(keys, p.key)
		args = append(args, p.name, strconv.FormatInt(p.generation, 10), strconv.FormatInt(p.read, 10))
		generations = append(generations, p.generation)
	}
	sent := l.c.Wall()
	texts, executed, err := run(keys, args)
	if err != nil {
		own.afresh = own.afresh || document != "" && executed // nobody knows what is in the log
		return false, err
	}
	received := l.c.Wall()
	if len(texts) != 2+len(list) || len(texts[1])%ofRecord != 0 {
		return false, l.c.Invalid
	}
	state, at, _ := strings.Cut(texts[0], " ")
	now, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return false, l.c.Invalid
	}
	l.c.Sets(now-received, now-sent)
	told := state == "1"
	own.afresh = !told
	if told {
		own.length += int64(len(document))
		if afresh {
			own.length = int64(len(document))
			own.whole = own.length
		}
		own.afresh = own.length == 0 || own.length > 4*own.whole+(64<<10) // it has much that is not true any more
	}
	if l.c.Reads != nil {
		l.readIndex(texts[1])
	}
	for i, p := range list {
		l.readLog(p, generations[i], texts[2+i], news)
	}
	return told, nil
}

// readIndex learns which logs there are.
func (l *Logs) readIndex(index string) {
	there := make(map[string]bool)
	for at := 0; at < len(index); at += ofRecord {
		name := index[at : at+16]
		if name == l.c.Name || !l.c.Reads(name) {
			continue
		}
		there[name] = true
		p := l.peers[name]
		if p == nil {
			if len(l.peers) >= usage.MaxInstances {
				continue
			}
			p = &peerLog{name: name, key: l.c.Index + ":" + hex.EncodeToString([]byte(name))}
			l.peers[name] = p
		}
		if generation := double(index[at+16:]); generation != p.generation {
			p.begin(generation)
		}
		p.length = double(index[at+24:])
	}
	for name, p := range l.peers {
		if !there[name] && !l.c.Others.Knows(p.key) {
			delete(l.peers, name)
		}
	}
}

// double returns a number that a script has packed.
func double(b string) int64 {
	return int64(math.Float64frombits(binary.LittleEndian.Uint64([]byte(b[:8]))))
}

func (p *peerLog) begin(generation int64) {
	p.generation = generation
	p.read = 0
	p.rest = nil
	p.broken = false
}

// readLog reads a part of a log, which follows what was read before, or begins the log if it was written afresh since.
func (l *Logs) readLog(p *peerLog, generation int64, part string, news *usage.News) {
	if part == "" {
		if p.read < p.length && generation == p.generation { // it is gone
			p.broken = p.broken || p.silent > silentPeer
			p.silent++
		}
		return
	}
	p.silent = 0
	p.read += int64(len(part))
	p.rest = append(p.rest, part...)
	for {
		n, err := usage.Length(p.rest)
		if err == nil && (n == 0 || n > len(p.rest)) {
			return
		}
		var d *usage.Document
		if err == nil {
			d, err = usage.Decode(p.rest[:n])
		}
		if err != nil {
			p.broken = true
			p.rest = nil
			return
		}
		p.rest = p.rest[n:]
		l.c.Others.Learn(p.key, d, l.c.Now(), news)
	}
}
