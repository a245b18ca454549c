package excepted

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/proxyweir/weir/core/exception"
)

// ErrFull says that a table holds as many exceptions as it may.
var ErrFull = fmt.Errorf("there are %d exceptions already; end some", exception.Most)

// Table has the exceptions of one store. NewTable makes it; Tick keeps it as the store has it. While the store fails, those that are known hold. It is
// safe for concurrent use.
type Table struct {
	AtOnce bool // the rules' stores answer at once, so that Attach may ask them; it is set before anything else

	exchange exception.Exchange
	clock    func() int64
	report   func(err error)

	turn   sync.Mutex // held while the store is asked, and what follows is put in force
	failed bool       // the last time; with turn

	mu      sync.Mutex // guards what follows
	version string
	list    []exception.Exception // that are not over, as far as was looked
	ahead   int64                 // of the store's clock before clock
	groups  map[*Group]bool
}

// NewTable returns a table that is kept by an exchange. clock is this node's, in microseconds since the Unix epoch. report gets why the store, or what is in
// it, could not be used: the first time of several in a row; and nil when it can be used again.
func NewTable(exchange exception.Exchange, clock func() int64, report func(err error)) *Table {
	return &Table{exchange: exchange, clock: clock, report: report, groups: make(map[*Group]bool)}
}

// Now returns the time by the store's clock, as far as it is known.
func (t *Table) Now() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.clock() + t.ahead
}

// List returns the exceptions that are in force, without those of the kind Forget.
func (t *Table) List() []exception.Exception {
	var list []exception.Exception
	for _, e := range t.All() {
		if e.Kind != exception.Forget {
			list = append(list, e)
		}
	}
	return list
}

// All is List with those of the kind Forget.
func (t *Table) All() []exception.Exception {
	now := t.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	return exception.Lasting(t.list, now)
}

// Tick reads what is new, and puts it in force. It is to be called each second.
func (t *Table) Tick() {
	t.turn.Lock()
	defer t.turn.Unlock()
	err := t.fetch()
	if (err != nil) != t.failed {
		t.failed = err != nil
		t.report(err)
	}
	_ = t.enforce() // which the next time does again
}

// Change changes the exceptions: how gets those that are there, and returns those that are to be. It may be called several times, since others may change
// them at the same time. An error is how's, or the store's: then nothing has changed, unless it is about putting them in force.
func (t *Table) Change(how func(list []exception.Exception, now int64) ([]exception.Exception, error)) error {
	t.turn.Lock()
	defer t.turn.Unlock()
	const most = 100 // others that come first
	for i := 0; i < most; i++ {
		if err := t.fetch(); err != nil {
			return err
		}
		now := t.Now()
		next, err := how(exception.Lasting(t.list, now), now)
		if err != nil {
			return err
		}
		if len(next) > exception.Most {
			return ErrFull
		}
		text, err := exception.Write(next)
		if err != nil {
			return err
		}
		a, err := t.exchange(&exception.Ask{Known: t.version, Document: text, Over: t.version})
		if err != nil {
			return err
		}
		if a.Taken {
			t.learn(a, next)
			return t.enforce()
		}
	}
	return errors.New("others change exceptions at the same time, again and again; try once more")
}

// fetch reads what is new. What the store has lost it gives back. The caller holds turn.
func (t *Table) fetch() error {
	a, err := t.exchange(&exception.Ask{Known: t.version})
	if err != nil {
		return err
	}
	if a.Version == t.version {
		t.learn(a, t.list)
		return nil
	}
	kept := exception.Lasting(t.list, a.Now)
	if a.Version < t.version && len(kept) > 0 {
		for i := range kept {
			kept[i].Until++ // so that all nodes block the keys again: what blocked them is lost, too
		}
		text, err := exception.Write(kept)
		if err != nil {
			return err
		}
		if a, err = t.exchange(&exception.Ask{Known: t.version, Document: text, Lost: true}); err != nil {
			return err
		}
		if a.Taken {
			t.learn(a, kept)
			return nil
		}
	}
	list, err := exception.Read(a.Document)
	if err != nil {
		return fmt.Errorf("the exceptions in the store cannot be read: %w", err)
	}
	t.learn(a, list)
	return nil
}

func (t *Table) learn(a *exception.Answer, list []exception.Exception) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ahead = a.Now - t.clock()
	t.version = a.Version
	t.list = exception.Lasting(list, a.Now)
}

// enforce puts in all groups in force what the table has. The caller holds turn.
func (t *Table) enforce() error {
	now := t.Now()
	t.mu.Lock()
	t.list = exception.Lasting(t.list, now)
	list := t.list
	groups := make([]*Group, 0, len(t.groups))
	for g := range t.groups {
		groups = append(groups, g)
	}
	t.mu.Unlock()
	var failure error
	for _, g := range groups {
		if err := g.enforce(list, now, true); failure == nil {
			failure = err
		}
	}
	return failure
}

// Attach has the rules of a group obey from now on. Limits are in force when it returns; blocks with the next Tick, since
// that asks the store, unless AtOnce is set.
func (t *Table) Attach(g *Group) {
	now := t.Now()
	t.mu.Lock()
	t.groups[g] = true
	list := exception.Lasting(t.list, now)
	t.mu.Unlock()
	_ = g.enforce(list, now, t.AtOnce) // which the next Tick does again
}

// Detach ends what Attach began. It is called before the rules are closed.
func (t *Table) Detach(g *Group) {
	t.mu.Lock()
	delete(t.groups, g)
	t.mu.Unlock()
	g.end()
}

// Every is how often Tick is to be called.
const Every = time.Second
