package blobstore

import (
	"context"
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

	"github.com/proxyweir/weir/core/usage"
)

// Storage keeps blobs by names with slashes. Caddy's storage modules are such storages. Store must replace a blob as a whole: a reader finds the one
// before or the new one. Load and List return an error that is fs.ErrNotExist if there is no such blob or folder.
type Storage interface {
	Store(ctx context.Context, name string, blob []byte) error
	Load(ctx context.Context, name string) ([]byte, error)
	Delete(ctx context.Context, name string) error
	List(ctx context.Context, folder string, recursive bool) ([]string, error)
}

// suffix is how the names of blobs end. What has another name in the folder is left alone.
const suffix = ".tally"

// exchange carries what one instance and the others tell over a Storage. A process has only one for a folder. Its methods must not be called concurrently.
type exchange struct {
	ledger *usage.Ledger
	others *usage.Others

	storage  Storage
	folder   string
	instance string
	purge    int64

	sequence uint64
	empty    bool  // the blob has no counts
	at       int64 // when it was written, by mono
	peers    map[string]*peer
	trouble  string // of listing
	crowded  bool   // there were more than usage.MaxInstances
}

// peer is another instance.
type peer struct {
	blob    [sha256.Size]byte // digest of the last blob, readable or not
	changed int64             // when that was first seen, by mono
	damage  error             // why that is no document of this instance
	trouble string            // why the last Read could not read it
	gone    bool
}

// newExchange returns the exchange of a new instance: it tells what is in the ledger, and has others learn. A blob that has not changed for the purge age, from a
// second, belongs to an instance that is gone. It is deleted when all its slots are over: until then an instance that starts has to know of them.
func newExchange(ledger *usage.Ledger, others *usage.Others, storage Storage, folder string, purge time.Duration) (*exchange, error) {
	if purge < time.Second {
		return nil, fmt.Errorf("purge age %s: must be at least 1s", purge)
	}
	return &exchange{ledger: ledger, others: others, storage: storage, folder: folder, instance: usage.NewInstance(), purge: purge.Microseconds(), peers: make(map[string]*peer)}, nil
}

func (e *exchange) name(instance string) string { return path.Join(e.folder, instance+suffix) }

// Write writes this instance's counts, if they have changed, or if a third of the purge age has passed. After an error the blob is as it was, and the
// next Write tries again. now is the wall clock; mono is of a clock that never steps back. Both are in microseconds.
func (e *exchange) Write(ctx context.Context, now, mono int64) error {
	changed := e.ledger.Changed()
	counts, marks := e.ledger.Begin(now, true)
	none := len(counts)+len(marks) == 0
	if !changed && (e.sequence == 0 || none == e.empty && mono-e.at < e.purge/3) {
		e.ledger.End(true)
		return nil
	}
	d := &usage.Document{Instance: e.instance, Sequence: e.sequence + 1, Counts: counts, Marks: marks}
	err := e.storage.Store(ctx, e.name(e.instance), usage.Encode(d))
	e.ledger.End(err == nil)
	if err != nil {
		return fmt.Errorf("writing %s: %w", e.name(e.instance), err)
	}
	e.sequence = d.Sequence
	e.empty = none
	e.at = mono
	return nil
}

// Read reads the blobs of all other instances. What cannot be read keeps nothing else from being read. The times are those of Write.
func (e *exchange) Read(ctx context.Context, now, mono int64) usage.News {
	var news usage.News
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
			if len(e.peers) >= usage.MaxInstances {
				crowded = true
				continue
			}
			p = &peer{changed: mono}
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
		news.Troubles = append(news.Troubles, fmt.Errorf("%s has blobs of more than %d other instances: the others are not read", e.folder, usage.MaxInstances))
	}
	e.crowded = crowded
	e.others.Drop(now)
	for name, p := range e.peers {
		if !present[name] {
			p.gone = true
		}
		if p.gone && !e.others.Knows(name) {
			delete(e.peers, name)
		}
	}
	return news
}

// isBlob reports whether a name may be that of an instance's blob.
func isBlob(name string) bool {
	id, is := strings.CutSuffix(path.Base(name), suffix)
	b, err := hex.DecodeString(id)
	return is && err == nil && len(b) == 16 && id == strings.ToLower(id)
}

// readPeer reads the blob of one instance, or deletes it.
func (e *exchange) readPeer(ctx context.Context, name string, p *peer, now, mono int64, news *usage.News) error {
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
		if e.others.Drop(now); !e.others.Knows(name) && mono-p.changed >= e.purge {
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
	d, err := usage.Decode(blob)
	if err == nil && e.name(d.Instance) != name {
		err = errors.New("it is the tally of another instance: it was copied or renamed")
	}
	p.damage = err
	if err != nil {
		return err
	}
	e.others.Learn(name, d, now, news)
	return nil
}

// Written returns how often the blob was written.
func (e *exchange) Written() uint64 { return e.sequence }

// Lists reports whether the folder could be listed at the last Read.
func (e *exchange) Lists() bool { return e.trouble == "" }

// Others returns of how many other instances there were blobs at the last Read.
func (e *exchange) Others() int {
	n := 0
	for _, p := range e.peers {
		if !p.gone {
			n++
		}
	}
	return n
}

// Damaged returns how many of these could not be read.
func (e *exchange) Damaged() int {
	n := 0
	for _, p := range e.peers {
		if !p.gone && p.trouble != "" {
			n++
		}
	}
	return n
}
