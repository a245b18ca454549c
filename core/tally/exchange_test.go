package tally

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
	"github.com/proxyweir/weir/tools/underrace"
)

const second = int64(1_000_000)

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
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func newExchange(t *testing.T, s Storage) *Exchange {
	t.Helper()
	e, err := New(s, "weir/tally", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func write(t *testing.T, e *Exchange, now int64) {
	t.Helper()
	if err := e.Write(context.Background(), now, now); err != nil {
		t.Fatal(err)
	}
}

// read reads, and wants no trouble but the given ones.
func read(t *testing.T, e *Exchange, now int64, troubles ...string) map[Slot]int64 {
	t.Helper()
	news := e.Read(context.Background(), now, now)
	if len(news.Troubles) != len(troubles) {
		t.Fatalf("troubles: %v; want %q", news.Troubles, troubles)
	}
	all := fmt.Sprint(news.Troubles)
	for _, want := range troubles {
		if !strings.Contains(all, want) {
			t.Errorf("troubles: %s; want %q", all, want)
		}
	}
	return sum(news.Counts)
}

func sum(counts []Count) map[Slot]int64 {
	units := make(map[Slot]int64)
	for _, c := range counts {
		units[c.Slot] += c.Units
	}
	return units
}

var minute = Slot{Key{1}, 0, 60 * second}

func TestInstancesLearnWhatOthersHaveAdmittedOnce(t *testing.T) {
	s := onDisk(t, t.TempDir())
	a, b, c := newExchange(t, s), newExchange(t, s), newExchange(t, s)
	if got := read(t, a, 1); len(got) != 0 {
		t.Errorf("an absent folder: %v", got)
	}
	a.Ledger.Add(minute, 3)
	b.Ledger.Add(minute, 4)
	write(t, a, 1)
	write(t, b, 1)
	for _, want := range []int64{7, 0} {
		if got := read(t, c, 2)[minute]; got != want {
			t.Errorf("c learns %d; want %d", got, want)
		}
	}
	a.Ledger.Add(minute, 2)
	write(t, a, 3)
	if got := read(t, c, 3)[minute]; got != 2 {
		t.Errorf("c learns %d; want 2", got)
	}
	if got := read(t, b, 3)[minute]; got != 5 {
		t.Errorf("b learns %d; want 5", got)
	}
	if got := read(t, newExchange(t, s), 4)[minute]; got != 9 {
		t.Errorf("a new instance learns %d; want 9", got)
	}
	if got := read(t, newExchange(t, s), 60*second)[minute]; got != 0 {
		t.Errorf("when the slot is over, a new instance learns %d", got)
	}
}

func TestOnlyChangesAreWritten(t *testing.T) {
	s := &blobs{of: map[string][]byte{}}
	e := newExchange(t, s)
	wrote := func(now int64, want int) {
		t.Helper()
		before := s.stores
		write(t, e, now)
		if s.stores-before != want {
			t.Errorf("at %d: %d writes; want %d", now, s.stores-before, want)
		}
	}
	wrote(1, 0)
	e.Ledger.Add(minute, 1)
	wrote(2, 1)
	wrote(3, 0)
	e.Ledger.Add(minute, 1)
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
		nodes := make([]*Exchange, 2+r.IntN(5))
		own := make([]map[Slot]int64, len(nodes))
		known := make([]map[Slot]int64, len(nodes))
		for i := range nodes {
			nodes[i] = newExchange(t, s)
			own[i], known[i] = map[Slot]int64{}, map[Slot]int64{}
		}
		check := func(i int, exact bool) {
			for k := range 5 {
				slot := Slot{Key{byte(k)}, 0, 1000 * second}
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
				slot := Slot{Key{byte(r.IntN(5))}, 0, 1000 * second}
				units := 1 + r.Int64N(1000)
				nodes[i].Ledger.Add(slot, units)
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
		nodes := make([]*Exchange, 2+r.IntN(9))
		known := make([]int64, len(nodes))
		own := make([]int64, len(nodes))
		for i := range nodes {
			nodes[i] = newExchange(t, s)
		}
		const tick = second / 100
		writes, reads := tick*(1+r.Int64N(600)), tick*(1+r.Int64N(600))
		limit := 1 + r.Int64N(3000)
		bursty := r.IntN(2) == 0
		var admitted int64
		var asked []int64 // when
		offset := r.Int64N(writes)
		for now := int64(0); now < minute.End; now += tick {
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
				nodes[i].Ledger.Add(minute, 1)
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
	e, damaged, sound := newExchange(t, s), newExchange(t, s), newExchange(t, s)
	folder := filepath.Join(root, "weir", "tally")
	put := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	damaged.Ledger.Add(minute, 5)
	sound.Ledger.Add(minute, 1)
	write(t, damaged, 1)
	write(t, sound, 1)
	if got := read(t, e, 1)[minute]; got != 6 {
		t.Fatalf("%d; want 6", got)
	}
	name := path.Base(damaged.name(damaged.instance))
	whole, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Repeat("0f", 16) + suffix
	put("notes.txt", []byte("foreign"))
	put("abc"+suffix, []byte("foreign"))
	if err := os.MkdirAll(filepath.Join(folder, strings.Repeat("0e", 16)+suffix), 0o700); err != nil { // cannot be read as a file
		t.Fatal(err)
	}
	put(name, whole[:len(whole)/2])
	put(other, whole)
	sound.Ledger.Add(minute, 1)
	write(t, sound, 2)
	if got := read(t, e, 2, "it is cut off", "was copied or renamed", "is a directory")[minute]; got != 1 {
		t.Errorf("%d; want 1", got)
	}
	read(t, e, 3) // each trouble is reported once
	put(other, nil)
	read(t, e, 4, "it is no tally")
	damaged.Ledger.Add(minute, 2)
	write(t, damaged, 5)
	if got := read(t, e, 5)[minute]; got != 2 {
		t.Errorf("when it is whole again, %d; want 2", got)
	}
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
	a, b := newExchange(t, s), newExchange(t, s)
	a.Ledger.Add(minute, 1)
	write(t, a, 1)
	read(t, b, 1)
	b.storage = cutOff{s}
	a.Ledger.Add(minute, 2)
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
	a, b := newExchange(t, s), newExchange(t, s)
	a.Ledger.Add(minute, 1)
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
	gone, alive, e := newExchange(t, s), newExchange(t, s), newExchange(t, s)
	long := Slot{Key{1}, 0, 100 * second}
	gone.Ledger.Add(long, 1)
	alive.Ledger.Add(long, 2)
	write(t, gone, 0)
	for now := int64(0); now < 100*second; now += 5 * second {
		write(t, alive, now)
		read(t, e, now)
	}
	if len(s.of) != 2 {
		t.Fatalf("after the purge age, and before its counts are over, there are %d blobs; want 2", len(s.of))
	}
	if got := read(t, newExchange(t, s), 99*second)[long]; got != 3 {
		t.Errorf("an instance that starts after the purge age knows of %d; want 3", got)
	}
	news := e.Read(context.Background(), 100*second, 100*second)
	if len(news.Purged) != 1 || news.Purged[0] != gone.name(gone.instance) || len(s.of) != 1 {
		t.Errorf("purged: %v; %d blobs remain", news.Purged, len(s.of))
	}
	next := Slot{Key{1}, 100 * second, 200 * second}
	gone.Ledger.Add(next, 4) // it only stood still
	write(t, gone, 101*second)
	if got := read(t, e, 102*second); got[long] != 0 || got[next] != 4 {
		t.Errorf("of an instance that comes back %v is counted; want 4 of the new slot", got)
	}
	clear(s.of) // as another instance purges them
	read(t, e, next.End)
	if len(e.peers) != 0 {
		t.Errorf("%d instances are still known", len(e.peers))
	}
}

func TestUnreadableBlobsOfInstancesThatAreGoneArePurged(t *testing.T) {
	s := &blobs{of: map[string][]byte{}}
	e := newExchange(t, s)
	name := "weir/tally/" + strings.Repeat("0f", 16) + suffix
	s.of[name] = []byte("half")
	read(t, e, -2, "it is no tally")
	read(t, e, -1)
	s.of[name] = []byte("other") // the same trouble
	read(t, e, 0)
	read(t, e, 59*second)
	read(t, e, 60*second)
	if len(s.of) != 0 {
		t.Error("it is still there")
	}
}

func TestLedgerIsBounded(t *testing.T) {
	var l Ledger
	for i := range int64(MaxCounts) {
		if !l.Add(Slot{Key{}, i, i + 1 + second}, 1) {
			t.Fatalf("slot %d is refused", i)
		}
	}
	if l.Add(Slot{Key{1}, 0, 1}, 1) {
		t.Error("one more slot is accepted")
	}
	if !l.Add(Slot{Key{}, 0, 1 + second}, MaxUnits) {
		t.Error("a slot that is there is refused")
	}
	d := document{counts: l.living(0)}
	got, err := decode(d.encode())
	if err != nil || len(got.counts) != MaxCounts || got.counts[0].Units != MaxUnits {
		t.Errorf("the largest document: %v", err)
	}
	if len(l.living(1<<62)) != 0 || len(l.units) != 0 {
		t.Error("slots that are over are kept")
	}
}

func TestReadOnlyStorageIsReportedAndKeepsCounts(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "weir"), nil, 0o600); err != nil { // in the place of the folder, so that root cannot write, either
		t.Fatal(err)
	}
	s := onDisk(t, root)
	a, b := newExchange(t, s), newExchange(t, s)
	a.Ledger.Add(minute, 3)
	if err := a.Write(context.Background(), 1, 1); err == nil || !strings.Contains(err.Error(), "writing weir/tally/") {
		t.Errorf("the error is %v", err)
	}
	if err := os.Remove(filepath.Join(root, "weir")); err != nil {
		t.Fatal(err)
	}
	write(t, a, 2)
	if got := read(t, b, 3)[minute]; got != 3 {
		t.Errorf("%d; want 3", got)
	}
}

// A writer that is killed at any moment leaves a whole blob.
func TestWriterThatIsKilledLeavesAWholeBlob(t *testing.T) {
	const variable = "WEIR_TALLY_WRITER"
	if root := os.Getenv(variable); root != "" {
		e := newExchange(t, onDisk(t, root))
		for i := range int64(1000) {
			e.Ledger.Add(Slot{Key{byte(i)}, i, 1000 * second}, 1)
		}
		for {
			e.Ledger.Add(minute, 1)
			write(t, e, 1)
			fmt.Println("wrote")
		}
	}
	root := t.TempDir()
	for range 5 {
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		child.Env = append(os.Environ(), variable+"="+root)
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
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
	e := newExchange(t, onDisk(t, root))
	read(t, e, 1)
	if len(e.peers) != 5 {
		t.Errorf("%d writers; want 5", len(e.peers))
	}
}
