package blobstore

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/filestorage"

	"github.com/proxyweir/weir/core/usage"
	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// blobs is a storage in memory. It fails with the given probability.
type blobs struct {
	of     map[string][]byte
	fails  float64
	rand   *rand.Rand
	stores int
}

var errFault = errors.New("the storage fails")

func (b *blobs) failed() bool { return b.fails > 0 && b.rand.Float64() < b.fails }

func (b *blobs) Store(_ context.Context, name string, blob []byte) error {
	if b.failed() {
		return errFault
	}
	b.stores++
	b.of[name] = bytes.Clone(blob)
	return nil
}

func (b *blobs) Load(_ context.Context, name string) ([]byte, error) {
	if b.failed() {
		return nil, errFault
	}
	blob, has := b.of[name]
	if !has {
		return nil, fs.ErrNotExist
	}
	if b.failed() {
		return bytes.Clone(blob[:b.rand.IntN(len(blob))]), nil // read while it is being written, by a storage that does not replace it as a whole
	}
	return bytes.Clone(blob), nil
}

func (b *blobs) Delete(_ context.Context, name string) error {
	if b.failed() {
		return errFault
	}
	delete(b.of, name)
	return nil
}

func (b *blobs) List(_ context.Context, folder string, _ bool) ([]string, error) {
	if b.failed() {
		return nil, errFault
	}
	var names []string
	for name := range b.of {
		if strings.HasPrefix(name, folder+"/") {
			names = append(names, name)
		}
	}
	return names, nil
}

// onDisk returns Caddy's storage in a folder.
func onDisk(t *testing.T, root string) Storage {
	t.Helper()
	s, err := (&filestorage.FileStorage{Root: root}).CertMagicStorage()
	must.Succeed(t, err)
	return s
}

func exchangeOver(t *testing.T, s Storage) *exchange {
	t.Helper()
	e, err := newExchange(&usage.Ledger{}, &usage.Others{}, s, "weir/tally", time.Minute)
	must.Succeed(t, err)
	return e
}

func write(t *testing.T, e *exchange, now int64) {
	t.Helper()
	must.Succeed(t, e.Write(context.Background(), now, now))
}

// read reads, and wants no trouble but the given ones.
func read(t *testing.T, e *exchange, now int64, troubles ...string) map[cell]int64 {
	t.Helper()
	news := e.Read(context.Background(), now, now)
	if len(news.Troubles) != len(troubles) {
		t.Fatalf("troubles: %v; want %q", news.Troubles, troubles)
	}
	all := fmt.Sprint(news.Troubles)
	for _, want := range troubles {
		must.Contain(t, all, want, "troubles")
	}
	return sum(news.Counts)
}

func (e *exchange) add(c cell, units int64) { e.ledger.Add(c.slot, c.key, units) }

const second = int64(1_000_000)

// span returns the slot of a rule.
func span(start, end int64) usage.Slot { return usage.Slot{Start: start, End: end} }

// cell is a key in a slot.
type cell struct {
	slot usage.Slot
	key  uint64
}

func sum(counts []usage.Counts) map[cell]int64 {
	units := make(map[cell]int64)
	for _, c := range counts {
		for i, key := range c.Keys {
			units[cell{c.Slot, key}] += int64(c.Units[i])
		}
	}
	return units
}

var minute = cell{span(0, 60*second), 1}

func TestInstancesLearnWhatOthersHaveAdmittedOnce(t *testing.T) {
	s := onDisk(t, t.TempDir())
	a, b, c := exchangeOver(t, s), exchangeOver(t, s), exchangeOver(t, s)
	if got := read(t, a, 1); len(got) != 0 {
		t.Errorf("an absent folder: %v", got)
	}
	a.add(minute, 3)
	b.add(minute, 4)
	write(t, a, 1)
	write(t, b, 1)
	for _, want := range []int64{7, 0} {
		must.Equal(t, read(t, c, 2)[minute], want, "c learns")
	}
	a.add(minute, 2)
	write(t, a, 3)
	must.Equal(t, read(t, c, 3)[minute], 2, "c learns")
	must.Equal(t, read(t, b, 3)[minute], 5, "b learns")
	must.Equal(t, read(t, exchangeOver(t, s), 4)[minute], 9, "a new instance learns")
	must.Equal(t, read(t, exchangeOver(t, s), 60*second)[minute], 0, "when the slot is over, a new instance learns")
}

func TestOnlyChangesAreWritten(t *testing.T) {
	s := &blobs{of: map[string][]byte{}}
	e := exchangeOver(t, s)
	wrote := func(now int64, want int) {
		t.Helper()
		before := s.stores
		write(t, e, now)
		if s.stores-before != want {
			t.Errorf("at %d: %d writes; want %d", now, s.stores-before, want)
		}
	}
	wrote(1, 0)
	e.add(minute, 1)
	wrote(2, 1)
	wrote(3, 0)
	e.add(minute, 1)
	wrote(4, 1)
	wrote(4+20*second, 1) // so that others do not take it to be gone
	wrote(60*second, 1)   // the slot is over
	wrote(61*second, 0)
}

// Whatever the storage does, nobody learns more than is true, and after one exchange without faults everybody knows all.
func TestStorageThatFailsLosesAndDoublesNothing(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := &blobs{of: map[string][]byte{}, fails: 0.3, rand: r}
		nodes := make([]*exchange, 2+r.IntN(5))
		own := make([]map[cell]int64, len(nodes))
		known := make([]map[cell]int64, len(nodes))
		for i := range nodes {
			nodes[i] = exchangeOver(t, s)
			own[i], known[i] = map[cell]int64{}, map[cell]int64{}
		}
		check := func(i int, exact bool) {
			for k := range 5 {
				slot := cell{span(0, 1000*second), uint64(k)}
				others := int64(0)
				for o := range nodes {
					if o != i {
						others += own[o][slot]
					}
				}
				if got := known[i][slot]; got > others || exact && got != others {
					t.Fatalf("seed %d: node %d knows %d of %d", seed, i, got, others)
				}
			}
		}
		learn := func(i int, now int64) {
			for slot, units := range sum(nodes[i].Read(context.Background(), now, now).Counts) {
				known[i][slot] += units
			}
		}
		for now := int64(1); now < 50*second; now += r.Int64N(second) {
			i := r.IntN(len(nodes))
			switch r.IntN(3) {
			case 0:
				slot := cell{span(0, 1000*second), r.Uint64N(5)}
				units := 1 + r.Int64N(1000)
				nodes[i].add(slot, units)
				own[i][slot] += units
			case 1:
				nodes[i].Write(context.Background(), now, now)
			case 2:
				learn(i, now)
				check(i, false)
			}
		}
		s.fails = 0
		for i := range nodes {
			write(t, nodes[i], 51*second)
		}
		for i := range nodes {
			learn(i, 52*second)
			check(i, true)
		}
	}
}

// The nodes of random fleets decide by their own counts and what they know of the others'. Beyond the limit they admit no more than all are asked for in
// the interval of writing and that of reading.
func TestExcessStaysUnderTheBound(t *testing.T) {
	underrace.OneGoroutine(t)
	over := 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := &blobs{of: map[string][]byte{}}
		nodes := make([]*exchange, 2+r.IntN(9))
		known := make([]int64, len(nodes))
		own := make([]int64, len(nodes))
		for i := range nodes {
			nodes[i] = exchangeOver(t, s)
		}
		const tick = second / 100
		writes, reads := tick*(1+r.Int64N(600)), tick*(1+r.Int64N(600))
		limit := 1 + r.Int64N(3000)
		bursty := r.IntN(2) == 0
		var admitted int64
		var asked []int64 // when
		offset := r.Int64N(writes)
		for now := int64(0); now < minute.slot.End; now += tick {
			for i, e := range nodes {
				if (now+offset*int64(i))/tick%(writes/tick) == 0 {
					write(t, e, now)
				}
			}
			for i, e := range nodes {
				if (now+offset*int64(i)*3)/tick%(reads/tick) == 0 {
					known[i] += read(t, e, now)[minute]
				}
			}
			demand := r.IntN(len(nodes) + 1)
			if bursty {
				demand = 0
				if r.IntN(300) == 0 {
					demand = r.IntN(500)
				}
			}
			before := admitted
			for range demand {
				i := r.IntN(len(nodes))
				asked = append(asked, now)
				if own[i]+known[i] >= limit {
					continue
				}
				own[i]++
				nodes[i].add(minute, 1)
				admitted++
			}
			for len(asked) > 0 && asked[0] < now-writes-reads {
				asked = asked[1:]
			}
			if excess := admitted - limit; admitted > before && excess > int64(len(asked)) {
				t.Fatalf("seed %d: %d beyond the limit of %d, while %d were asked for", seed, excess, limit, len(asked))
			}
		}
		if admitted > limit {
			over++
		}
	}
	if over < 20 {
		t.Errorf("only %d of 200 fleets admit anything beyond the limit: the test is too easy", over)
	}
}

func TestWhatCannotBeReadLosesNothingElse(t *testing.T) {
	root := t.TempDir()
	s := onDisk(t, root)
	e, damaged, sound := exchangeOver(t, s), exchangeOver(t, s), exchangeOver(t, s)
	folder := filepath.Join(root, "weir", "tally")
	put := func(name string, b []byte) {
		t.Helper()
		must.Succeed(t, os.WriteFile(filepath.Join(folder, name), b, 0o600))
	}
	damaged.add(minute, 5)
	sound.add(minute, 1)
	write(t, damaged, 1)
	write(t, sound, 1)
	if got := read(t, e, 1)[minute]; got != 6 {
		t.Fatalf("%d; want 6", got)
	}
	name := path.Base(damaged.name(damaged.instance))
	whole, err := os.ReadFile(filepath.Join(folder, name))
	must.Succeed(t, err)
	other := strings.Repeat("0f", 16) + suffix
	put("notes.txt", []byte("foreign"))
	put("abc"+suffix, []byte("foreign"))
	if err := os.MkdirAll(filepath.Join(folder, strings.Repeat("0e", 16)+suffix), 0o700); err != nil { // cannot be read as a file
		t.Fatal(err)
	}
	put(name, whole[:len(whole)/2])
	put(other, whole)
	sound.add(minute, 1)
	write(t, sound, 2)
	must.Equal(t, read(t, e, 2, "it is cut off", "was copied or renamed", "is a directory")[minute], 1)
	read(t, e, 3) // each trouble is reported once
	put(other, nil)
	read(t, e, 4, "it is no tally")
	damaged.add(minute, 2)
	write(t, damaged, 5)
	must.Equal(t, read(t, e, 5)[minute], 2, "when it is whole again")
	put(name, nil)
	read(t, e, 6, "it is no tally")
	for _, name := range []string{"notes.txt", "abc" + suffix} {
		e.Read(context.Background(), 7, 1000*second)
		if _, err := os.Stat(filepath.Join(folder, name)); err != nil {
			t.Errorf("a foreign file: %v", err)
		}
	}
}

// cutOff is a storage whose lists are cut off, as those of a folder in which a file goes while it is listed.
type cutOff struct{ *blobs }

func (c cutOff) List(context.Context, string, bool) ([]string, error) {
	return nil, fmt.Errorf("lstat: %w", fs.ErrNotExist)
}

func TestAListThatIsCutOffKeepsNoKnownInstanceFromBeingRead(t *testing.T) {
	s := &blobs{of: map[string][]byte{}}
	a, b := exchangeOver(t, s), exchangeOver(t, s)
	a.add(minute, 1)
	write(t, a, 1)
	read(t, b, 1)
	b.storage = cutOff{s}
	a.add(minute, 2)
	write(t, a, 2)
	if got := read(t, b, 2)[minute]; got != 2 || b.Others() != 1 {
		t.Errorf("%d units are read, of %d instances; want 2, of 1", got, b.Others())
	}
	clear(s.of)
	if read(t, b, 3); b.Others() != 0 {
		t.Error("a blob that is gone is not known to be")
	}
}

func TestTroubleThatPassesIsNotReportedAgain(t *testing.T) {
	s := &blobs{of: map[string][]byte{}, rand: rand.New(rand.NewPCG(1, 1))}
	a, b := exchangeOver(t, s), exchangeOver(t, s)
	a.add(minute, 1)
	write(t, a, 1)
	read(t, b, 1)
	s.fails = 1
	read(t, b, 2, "listing weir/tally: the storage fails")
	read(t, b, 3)
	if err := a.Write(context.Background(), 30*second, 30*second); !errors.Is(err, errFault) {
		t.Errorf("writing: %v", err)
	}
	s.fails = 0
	read(t, b, 4)
	s.fails = 1
	read(t, b, 5, "listing")
}

func TestInstancesThatAreGoneArePurged(t *testing.T) {
	s := &blobs{of: map[string][]byte{}}
	gone, alive, e := exchangeOver(t, s), exchangeOver(t, s), exchangeOver(t, s)
	long := cell{span(0, 100*second), 1}
	gone.add(long, 1)
	alive.add(long, 2)
	write(t, gone, 0)
	for now := int64(0); now < 100*second; now += 5 * second {
		write(t, alive, now)
		read(t, e, now)
	}
	if len(s.of) != 2 {
		t.Fatalf("after the purge age, and before its counts are over, there are %d blobs; want 2", len(s.of))
	}
	must.Equal(t, read(t, exchangeOver(t, s), 99*second)[long], 3, "an instance that starts after the purge age knows of")
	news := e.Read(context.Background(), 100*second, 100*second)
	if len(news.Purged) != 1 || news.Purged[0] != gone.name(gone.instance) || len(s.of) != 1 {
		t.Errorf("purged: %v; %d blobs remain", news.Purged, len(s.of))
	}
	next := cell{span(100*second, 200*second), 1}
	gone.add(next, 4) // it only stood still
	write(t, gone, 101*second)
	if got := read(t, e, 102*second); got[long] != 0 || got[next] != 4 {
		t.Errorf("of an instance that comes back %v is counted; want 4 of the new slot", got)
	}
	clear(s.of) // as another instance purges them
	read(t, e, next.slot.End)
	must.Equal(t, len(e.peers), 0, "%d instances are still known", len(e.peers))
}

func TestUnreadableBlobsOfInstancesThatAreGoneArePurged(t *testing.T) {
	s := &blobs{of: map[string][]byte{}}
	e := exchangeOver(t, s)
	name := "weir/tally/" + strings.Repeat("0f", 16) + suffix
	s.of[name] = []byte("half")
	read(t, e, -2, "it is no tally")
	read(t, e, -1)
	s.of[name] = []byte("other") // the same trouble
	read(t, e, 0)
	read(t, e, 59*second)
	read(t, e, 60*second)
	must.Equal(t, len(s.of), 0, "it is still there")
}

func TestReadOnlyStorageIsReportedAndKeepsCounts(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "weir"), nil, 0o600); err != nil { // in the place of the folder, so that root cannot write, either
		t.Fatal(err)
	}
	s := onDisk(t, root)
	a, b := exchangeOver(t, s), exchangeOver(t, s)
	a.add(minute, 3)
	if err := a.Write(context.Background(), 1, 1); err == nil || !strings.Contains(err.Error(), "writing weir/tally/") {
		t.Errorf("the error is %v", err)
	}
	must.Succeed(t, os.Remove(filepath.Join(root, "weir")))
	write(t, a, 2)
	must.Equal(t, read(t, b, 3)[minute], 3)
}

// A writer that is killed at any moment leaves a whole blob.
func TestWriterThatIsKilledLeavesAWholeBlob(t *testing.T) {
	const variable = "WEIR_TALLY_WRITER"
	if root := os.Getenv(variable); root != "" {
		e := exchangeOver(t, onDisk(t, root))
		for i := range int64(1000) {
			e.add(cell{span(i, 1000*second), uint64(i)}, 1)
		}
		for {
			e.add(minute, 1)
			write(t, e, 1)
			fmt.Println("wrote")
		}
	}
	root := t.TempDir()
	for range 5 {
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		child.Env = append(os.Environ(), variable+"="+root)
		out, err := child.StdoutPipe()
		must.Succeed(t, err)
		must.Succeed(t, child.Start())
		lines := bufio.NewScanner(out)
		for range 1 + rand.IntN(20) {
			if !lines.Scan() {
				t.Fatal("the writer has ended")
			}
		}
		child.Process.Kill()
		for lines.Scan() {
		}
		child.Wait()
	}
	e := exchangeOver(t, onDisk(t, root))
	read(t, e, 1)
	must.Equal(t, len(e.peers), 5, "%d writers; want 5", len(e.peers))
}
