package ruleset

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// watched is a folder with its Watch, and the time of the next look.
type watched struct {
	*folder
	watch *Watch
	now   time.Duration
}

func newMetered(t *testing.T, patterns []string, files ...string) *watched {
	t.Helper()
	w := &watched{folder: newFolder(t, files...), now: time.Hour}
	patterns = w.patterns(patterns...)
	contents, problems := Read(patterns)
	if problems != nil {
		t.Fatal(problems)
	}
	w.watch = NewWatch(patterns, contents)
	return w
}

// look looks after a while, and returns what is found in a word, and what it has: of a change the files' texts.
func (w *watched) look(after time.Duration) string {
	w.now += after
	c := w.watch.look(w.now)
	switch {
	case c.contents != nil:
		text := "changed:"
		for _, data := range c.contents.data {
			text += " " + string(data)
		}
		if c.again != 0 || c.problems != nil || c.restored {
			text += " and more"
		}
		return text
	case c.problems != nil:
		return "problems: " + w.said(c.problems.Error())
	case c.restored:
		return "restored"
	case c.again != 0:
		return "again in " + c.again.String()
	}
	return ""
}

// expect looks, and says what should have been found.
func (w *watched) expect(after time.Duration, want string) {
	w.t.Helper()
	if got := w.look(after); got != want {
		w.t.Fatalf("after %s: %q, want %q", after, got, want)
	}
}

// take takes what is there now, as it were after a change was found.
func (w *watched) take() {
	w.t.Helper()
	contents, problems := Read(w.watch.patterns)
	if problems != nil {
		w.t.Fatal(problems)
	}
	w.watch.take(contents)
}

// refuse says that what is there now is wrong.
func (w *watched) refuse() {
	w.t.Helper()
	contents, problems := Read(w.watch.patterns)
	if problems != nil {
		w.t.Fatal(problems)
	}
	w.watch.refuse(contents)
}

const ms = time.Millisecond

func TestAChangeIsTakenWhenItHasSettled(t *testing.T) {
	w := newMetered(t, []string{"a.yaml"}, "a.yaml")
	w.expect(0, "")
	w.expect(time.Hour, "")
	w.write("a.yaml", "new")
	w.expect(time.Second, "again in 100ms")
	w.expect(30*ms, "again in 70ms")
	w.expect(70*ms, "changed: new")
	w.take()
	w.expect(0, "")
	w.expect(time.Hour, "")
	w.write("a.yaml", "newer")
	w.expect(0, "again in 100ms")
	w.expect(time.Hour, "changed: newer")
}

func TestAFileIsNotReadWhileItIsWritten(t *testing.T) {
	w := newMetered(t, []string{"a.yaml"}, "a.yaml")
	w.write("a.yaml", "")
	w.expect(0, "again in 100ms")
	w.write("a.yaml", "ha")
	w.expect(90*ms, "again in 100ms")
	w.write("a.yaml", "half")
	w.expect(200*ms, "again in 100ms") // however late the look was
	w.expect(100*ms, "changed: half")
}

// What there is of a file while it is slowly written may end with a whole rule.
func TestAFileThatIsMuchShorterIsWaitedFor(t *testing.T) {
	w := newMetered(t, []string{"a.yaml"}, "a.yaml")
	whole := "two rules, each of which is a line\nand this is the other of them\n"
	w.write("a.yaml", whole)
	w.expect(0, "again in 100ms")
	w.expect(100*ms, "changed: "+whole)
	w.take()
	w.write("a.yaml", whole[:35])
	w.expect(0, "again in 1s")
	w.expect(300*ms, "again in 700ms")
	w.write("a.yaml", whole)
	w.expect(300*ms, "")
	w.write("a.yaml", whole[:35])
	w.expect(0, "again in 1s")
	w.expect(time.Second, "changed: "+whole[:35])
}

// One file that changes all the time does not keep the others from coming into force.
func TestFilesThatNeverSettleAreTakenAfterAWhile(t *testing.T) {
	w := newMetered(t, []string{"a.yaml"}, "a.yaml")
	w.write("a.yaml", "version 0")
	w.expect(0, "again in 100ms")
	for i := 1; i < 50; i++ {
		w.write("a.yaml", fmt.Sprintf("version %d", i))
		w.expect(100*ms, "again in 100ms")
	}
	w.write("a.yaml", "version 50")
	w.expect(100*ms, "changed: version 50")
	w.take()
	w.write("a.yaml", "version 51")
	w.expect(100*ms, "again in 100ms")
}

func TestWhatIsAsItWasIsNoChange(t *testing.T) {
	w := newMetered(t, []string{"a.yaml"}, "a.yaml")
	w.write("a.yaml", "new")
	w.expect(0, "again in 100ms")
	w.write("a.yaml", "in a.yaml")
	w.expect(50*ms, "")
	w.write("a.yaml", "new")
	w.expect(60*ms, "again in 100ms") // it has not been there all the time
	w.expect(100*ms, "changed: new")
	// Look returns it until it is taken or refused.
	w.expect(0, "again in 100ms")
	w.expect(100*ms, "changed: new")
}

func TestARenamedFileIsAChange(t *testing.T) {
	w := newMetered(t, []string{"a.yaml"}, "a.yaml")
	w.write(".a.yaml.tmp", "new")
	w.expect(0, "")
	w.must(os.Rename(w.in(".a.yaml.tmp"), w.in("a.yaml")))
	w.expect(0, "again in 100ms")
	w.expect(100*ms, "changed: new")
}

// As Kubernetes mounts a ConfigMap: the files are links into ..data, which is a link itself, and is what is swapped.
func TestASwappedLinkIsAChange(t *testing.T) {
	f := newFolder(t, "..2026_01/a.yaml", "..2026_01/b.yaml", "..2026_02/a.yaml", "..2026_02/b.yaml")
	f.must(os.Symlink("..2026_01", f.in("..data")))
	f.must(os.Symlink("..data/a.yaml", f.in("a.yaml")))
	f.must(os.Symlink("..data/b.yaml", f.in("b.yaml")))
	patterns := f.patterns("*.yaml")
	contents, problems := Read(patterns)
	if problems != nil {
		t.Fatal(problems)
	}
	if len(contents.Names) != 2 {
		t.Fatalf("%q", contents.Names)
	}
	w := &watched{folder: f, watch: NewWatch(patterns, contents), now: time.Hour}
	w.expect(0, "")
	w.must(os.Symlink("..2026_02", w.in("..data_tmp")))
	w.expect(0, "")
	w.must(os.Rename(w.in("..data_tmp"), w.in("..data")))
	w.expect(0, "again in 100ms")
	w.must(os.RemoveAll(w.in("..2026_01")))
	w.expect(100*ms, "changed: in ..2026_02/a.yaml in ..2026_02/b.yaml")
	w.take()
	w.expect(0, "")
}

func TestANamedFileThatVanishesIsReportedOnce(t *testing.T) {
	w := newMetered(t, []string{"a.yaml", "b.yaml"}, "a.yaml", "b.yaml")
	w.must(os.Remove(w.in("a.yaml")))
	w.expect(0, "again in 1s")
	w.expect(900*ms, "again in 100ms")
	w.expect(100*ms, "problems: a.yaml: no such file or directory")
	w.expect(0, "")
	w.expect(time.Hour, "")
	w.must(os.Remove(w.in("b.yaml"))) // another problem is reported
	w.expect(0, "again in 1s")
	w.expect(time.Second, "problems: a.yaml: no such file or directory\nb.yaml: no such file or directory")
	w.expect(time.Hour, "")
	w.write("a.yaml", "in a.yaml")
	w.write("b.yaml", "in b.yaml")
	w.expect(0, "restored")
	w.expect(0, "")
	w.must(os.Remove(w.in("a.yaml"))) // and again, since it was back
	w.expect(0, "again in 1s")
	w.expect(time.Second, "problems: a.yaml: no such file or directory")
	w.write("a.yaml", "new")
	w.expect(0, "again in 100ms")
	w.expect(100*ms, "changed: new in b.yaml")
	w.take()
	w.expect(0, "")
}

// Editors put a file away and another in its place.
func TestAFileThatIsAwayForAMomentIsNotMissed(t *testing.T) {
	w := newMetered(t, []string{"a.yaml"}, "a.yaml")
	w.must(os.Remove(w.in("a.yaml")))
	w.expect(0, "again in 1s")
	w.write("a.yaml", "in a.yaml")
	w.expect(999*ms, "")
	w.must(os.Remove(w.in("a.yaml")))
	w.expect(0, "again in 1s")
	w.write("a.yaml", "new")
	w.expect(500*ms, "again in 100ms")
	w.expect(100*ms, "changed: new")
}

func TestAFileOfAGlobIsMissedAfterASecond(t *testing.T) {
	w := newMetered(t, []string{"*.yaml"}, "a.yaml", "b.yaml")
	w.must(os.Remove(w.in("b.yaml")))
	w.expect(0, "again in 1s")
	w.expect(500*ms, "again in 500ms")
	w.expect(500*ms, "changed: in a.yaml")
	w.take()
	w.write("c.yaml", "in c.yaml")
	w.expect(0, "again in 100ms") // what is new need not wait
	w.expect(100*ms, "changed: in a.yaml in c.yaml")
	w.take()
	w.write(".d.yaml", "in d.yaml")
	w.expect(time.Hour, "")
	w.must(os.Remove(w.in("a.yaml")))
	w.must(os.Remove(w.in("c.yaml")))
	w.expect(0, "again in 1s")
	w.expect(time.Second, "problems: *.yaml: no file matches") // the previous rules stay in force
	w.expect(time.Hour, "")
}

func TestARefusalIsReportedOnceAChange(t *testing.T) {
	w := newMetered(t, []string{"a.yaml"}, "a.yaml")
	w.write("a.yaml", "wrong")
	w.expect(0, "again in 100ms")
	w.expect(100*ms, "changed: wrong")
	w.refuse()
	w.expect(0, "")
	w.expect(time.Hour, "")
	w.write("a.yaml", "wrong, too")
	w.expect(0, "again in 100ms")
	w.write("a.yaml", "wrong")
	w.expect(50*ms, "") // as it was refused
	w.write("a.yaml", "wrong, too")
	w.expect(60*ms, "again in 100ms")
	w.expect(100*ms, "changed: wrong, too")
	w.refuse()
	w.expect(0, "")
	w.write("a.yaml", "in a.yaml")
	w.expect(0, "restored")
	w.expect(time.Hour, "")
	w.write("a.yaml", "wrong")
	w.expect(0, "again in 100ms")
	w.expect(100*ms, "changed: wrong")
	w.refuse()
	w.write("a.yaml", "right")
	w.expect(0, "again in 100ms")
	w.expect(100*ms, "changed: right")
	w.take()
	w.expect(0, "")
	w.write("a.yaml", "wrong")
	w.expect(0, "again in 100ms")
	w.expect(100*ms, "changed: wrong")
}

// What a user of Follow logs, in a row: a refusal, and what ends it, once each.
func TestFollowSaysWhatHasBecomeOfTheFiles(t *testing.T) {
	w := newMetered(t, []string{"a.yaml"}, "a.yaml")
	replaced, right, same := 0, true, false
	follow := func(text string) Event {
		if text != "" {
			w.write("a.yaml", text)
		}
		var e Event
		for i := 0; i < 3; i++ {
			e = w.watch.Follow(w.now, func(c *Contents) (bool, Problems) {
				replaced++
				if !right {
					return false, Problems{{Text: "wrong"}}
				}
				return same, nil
			})
			w.now += e.Again
			if e.Again == 0 {
				break
			}
		}
		return e
	}
	begin := "a: 1"
	if e := follow(begin); !e.Taken || e.Before {
		t.Errorf("the first: %+v", e)
	}
	right = false
	for _, text := range []string{"a: 2", ""} {
		e := follow(text)
		if text != "" && (len(e.Refused) != 1 || e.Taken || e.Refused[0].Text != "wrong") || text == "" && (e.Refused != nil || e.Restored) {
			t.Errorf("wrong files %q: %+v", text, e)
		}
	}
	if e := follow(begin); !e.Restored || !e.Before {
		t.Errorf("restored: %+v", e)
	}
	if e := follow(""); e.Restored || e.Before {
		t.Errorf("restored twice: %+v", e)
	}
	follow("a: 3")
	right = true
	if e := follow("a: 4"); !e.Taken || !e.Before {
		t.Errorf("put right: %+v", e)
	}
	same = true
	if e := follow("a: 5"); e.Taken || e.Restored || e.Refused != nil {
		t.Errorf("in force already: %+v", e)
	}
	if replaced != 5 {
		t.Errorf("replace was called %d times", replaced)
	}
}
