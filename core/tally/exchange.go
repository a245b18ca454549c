// Package tally lets instances of a proxy tell each other what they have admitted, over a storage that keeps blobs and has no atomic increment, such as
// a folder. It is the transport of eventual consistency without Redis. It knows no proxy, no rule and no algorithm.
//
// Each instance has one blob, and nobody else writes it. It has the instance's own counts, as absolute numbers that only grow while their slots last.
// So it makes no difference whether a blob is read once, several times, late, or never again: what is new is the difference from the largest number
// that was read before. A blob that cannot be read takes nothing back, and what it would have said comes with the next one that can.
//
//	Ledger          what this instance has admitted
//	Exchange.Write  writes that, if it has changed
//	Exchange.Read   returns what the others have admitted since the last Read, and deletes blobs of instances that are gone, when nothing in them counts
//
// What an instance admits is known to another after at most W + R + d: W is the interval of writing, R that of reading, and d the longest that a write
// and a read take together.
//
// Slots are times by the instances' wall clocks. A clock that differs from the others' makes a count end earlier or later by so much.
package tally

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sort"
	"strings"
	"time"
)

// Storage keeps blobs by names with slashes. Caddy's storage modules are such storages. Store must replace a blob as a whole: a reader finds the one
// before or the new one. Load and List return an error that is fs.ErrNotExist if there is no such blob or folder.
type Storage interface {
	Store(ctx context.Context, name string, blob []byte) error
	Load(ctx context.Context, name string) ([]byte, error)
	Delete(ctx context.Context, name string) error
	List(ctx context.Context, folder string, recursive bool) ([]string, error)
}

// MaxInstances is how many other instances are read.
const MaxInstances = 256

// suffix is how the names of blobs end. What has another name in the folder is left alone.
const suffix = ".tally"

// Exchange is the part of one instance. A process has only one for a folder. Its methods must not be called concurrently, except those of the Ledger.
type Exchange struct {
	Ledger Ledger

	storage  Storage
	folder   string
	instance Instance
	purge    int64

	sequence uint64
	written  [sha256.Size]byte // digest of the counts
	at       int64             // when, by mono
	peers    map[string]*peer
	trouble  string // of listing
	crowded  bool   // there were more than MaxInstances
}

// peer is another instance.
type peer struct {
	units   map[Slot]int64    // the largest numbers that were read
	blob    [sha256.Size]byte // digest of the last blob, readable or not
	changed int64             // when that was first seen, by mono
	damage  error             // why that is no document of this instance
	trouble string            // why the last Read could not read it
	gone    bool
}

// New returns the exchange of a new instance. A blob that has not changed for the purge age, from a second, belongs to an instance that is gone. It is deleted
// when all its slots are over: until then an instance that starts has to know of them.
func New(storage Storage, folder string, purge time.Duration) (*Exchange, error) {
	if purge < time.Second {
		return nil, fmt.Errorf("purge age %s: must be at least 1s", purge)
	}
	e := &Exchange{storage: storage, folder: folder, purge: purge.Microseconds(), peers: make(map[string]*peer)}
	rand.Read(e.instance[:])
	return e, nil
}

func (e *Exchange) name(i Instance) string {
	return path.Join(e.folder, hex.EncodeToString(i[:])+suffix)
}

// Write writes this instance's counts, if they have changed, or if a third of the purge age has passed. After an error the blob is as it was, and the
// next Write tries again. now is the wall clock; mono is of a clock that never steps back. Both are in microseconds.
func (e *Exchange) Write(ctx context.Context, now, mono int64) error {
	d := document{instance: e.instance, sequence: e.sequence + 1, counts: e.Ledger.living(now)}
	blob := d.encode()
	digest := sha256.Sum256(blob[head : len(blob)-4]) // of the counts alone
	if e.sequence == 0 && len(d.counts) == 0 || e.sequence > 0 && digest == e.written && mono-e.at < e.purge/3 {
		return nil
	}
	if err := e.storage.Store(ctx, e.name(e.instance), blob); err != nil {
		return fmt.Errorf("writing %s: %w", e.name(e.instance), err)
	}
	e.sequence = d.sequence
	e.written = digest
	e.at = mono
	return nil
}

// News is the result of Exchange.Read.
type News struct {
	Counts   []Count  // what others have admitted that was not known before; a slot may occur several times
	Troubles []error  // blobs that cannot be read, each once until its trouble ends or changes
	Purged   []string // names of the blobs that were deleted
}

// Read reads the blobs of all other instances. What cannot be read keeps nothing else from being read. The times are those of Write.
func (e *Exchange) Read(ctx context.Context, now, mono int64) News {
	var news News
	names, err := e.storage.List(ctx, e.folder, false)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if e.trouble != err.Error() {
			e.trouble = err.Error()
			news.Troubles = append(news.Troubles, fmt.Errorf("listing %s: %w", e.folder, err))
		}
		return news
	}
	e.trouble = ""
	if err != nil { // the folder, or something in it, has gone while it was listed: the list may be cut off
		for name, p := range e.peers {
			if !p.gone && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	sort.Strings(names)
	present := make(map[string]bool)
	crowded := false
	for _, name := range names {
		if name == e.name(e.instance) || !isBlob(name) {
			continue
		}
		p := e.peers[name]
		if p == nil {
			if len(e.peers) >= MaxInstances {
				crowded = true
				continue
			}
			p = &peer{units: make(map[Slot]int64), changed: mono}
			e.peers[name] = p
		}
		present[name] = true
		p.gone = false
		if err := e.readPeer(ctx, name, p, now, mono, &news); err == nil {
			p.trouble = ""
		} else if p.trouble != err.Error() {
			p.trouble = err.Error()
			news.Troubles = append(news.Troubles, fmt.Errorf("reading %s: %w", name, err))
		}
	}
	if crowded && !e.crowded {
		news.Troubles = append(news.Troubles, fmt.Errorf("%s has blobs of more than %d other instances: the others are not read", e.folder, MaxInstances))
	}
	e.crowded = crowded
	for name, p := range e.peers {
		p.forget(now)
		if !present[name] {
			p.gone = true
		}
		if p.gone && len(p.units) == 0 {
			delete(e.peers, name)
		}
	}
	return news
}

// isBlob reports whether a name may be that of an instance's blob.
func isBlob(name string) bool {
	id, is := strings.CutSuffix(path.Base(name), suffix)
	b, err := hex.DecodeString(id)
	return is && err == nil && len(b) == len(Instance{}) && id == strings.ToLower(id)
}

// readPeer reads the blob of one instance, or deletes it.
func (e *Exchange) readPeer(ctx context.Context, name string, p *peer, now, mono int64, news *News) error {
	blob, err := e.storage.Load(ctx, name)
	if errors.Is(err, fs.ErrNotExist) { // purged by another instance since it was listed
		p.gone = true
		return nil
	}
	if err != nil {
		return err
	}
	digest := sha256.Sum256(blob)
	if digest == p.blob {
		if p.forget(now); len(p.units) == 0 && mono-p.changed >= e.purge {
			if err := e.storage.Delete(ctx, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("it has not changed for the purge age, and cannot be deleted: %w", err)
			}
			news.Purged = append(news.Purged, name)
			p.gone = true
			return nil
		}
		return p.damage
	}
	p.blob = digest
	p.changed = mono
	d, err := decode(blob)
	if err == nil && e.name(d.instance) != name {
		err = errors.New("it is the tally of another instance: it was copied or renamed")
	}
	p.damage = err
	if err != nil {
		return err
	}
	for _, c := range d.counts {
		if more := c.Units - p.units[c.Slot]; c.End > now && more > 0 {
			p.units[c.Slot] = c.Units
			news.Counts = append(news.Counts, Count{c.Slot, more})
		}
	}
	return nil
}

// forget forgets slots that are over.
func (p *peer) forget(now int64) {
	for s := range p.units {
		if s.End <= now {
			delete(p.units, s)
		}
	}
}

// Written returns how often the blob was written.
func (e *Exchange) Written() uint64 { return e.sequence }

// Lists reports whether the folder could be listed at the last Read.
func (e *Exchange) Lists() bool { return e.trouble == "" }

// Others returns of how many other instances there were blobs at the last Read.
func (e *Exchange) Others() int {
	n := 0
	for _, p := range e.peers {
		if !p.gone {
			n++
		}
	}
	return n
}

// Damaged returns how many of these could not be read.
func (e *Exchange) Damaged() int {
	n := 0
	for _, p := range e.peers {
		if !p.gone && p.trouble != "" {
			n++
		}
	}
	return n
}
