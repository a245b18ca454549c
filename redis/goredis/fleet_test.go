package goredis_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
)

// member is a node of a fleet, with the client of compiled or of interpreted programs.
type member struct {
	t     *testing.T
	fleet *redis.Fleet
	known int64
}

func newMember(t *testing.T, addr, node string, interpreted bool) *member {
	t.Helper()
	store := newStore(t, redis.Config{Prefix: "fleet:", Lines: interpreted}, goredis.Config{Addresses: []string{addr}})
	return &member{t: t, fleet: redis.NewFleet(store, "shop", node)}
}

// agrees calls Agree, and remembers what document the node has.
func (m *member) agrees(p *advice.Proposal) *advice.Agreement {
	m.t.Helper()
	a, err := redis.Agree(m.fleet, m.known, p)
	if err != nil {
		m.t.Fatal(err)
	}
	m.known = a.Serial
	return a
}

// Nodes with the clients of both proxies agree on who leads, on the document, and on when it takes effect. Redis's clock is stepped.
func TestAFleetAgreesOnOneDocument(t *testing.T) {
	const start = 1_800_000_000_000_000
	server := redistest.Start(t, redistest.WithClock())
	server.SetTime(start)
	a := newMember(t, server.Addr(), "a", false)
	b := newMember(t, server.Addr(), "b", true)
	c := newMember(t, server.Addr(), "c", false)
	if first := a.agrees(nil); !first.Leads || first.Serial != 0 || first.Now != start || first.Document != nil {
		t.Fatalf("the first node got %+v", first)
	}
	if second := b.agrees(nil); second.Leads {
		t.Fatal("two nodes lead")
	}
	if got := b.agrees(&advice.Proposal{Serial: 9, Document: []byte("of another"), After: time.Second, Keep: time.Minute}); got.Serial != 0 {
		t.Errorf("a document was taken from a node that does not lead: %+v", got)
	}

	// A document of more parts than one, of all bytes.
	document := bytes.Repeat([]byte("\x00\xff\r\n{}abc"), 2500)
	proposed := a.agrees(&advice.Proposal{Serial: 7, Document: document, After: 2 * time.Second, Keep: time.Minute})
	for name, got := range map[string]*advice.Agreement{"the one that proposed it": proposed, "b": b.agrees(nil), "c": c.agrees(nil)} {
		if got.Serial != 7 || got.Effective != start+2_000_000 || !bytes.Equal(got.Document, document) {
			t.Errorf("%s got serial %d, effective %d, a document of %d bytes, not %d", name, got.Serial, got.Effective, len(got.Document), len(document))
		}
	}
	if again := b.agrees(nil); again.Document != nil || again.Serial != 7 {
		t.Errorf("a node got a document twice: %+v", again)
	}
	if old := a.agrees(&advice.Proposal{Serial: 7, Document: []byte("old"), Keep: time.Minute}); old.Serial != 7 || old.Effective != start+2_000_000 {
		t.Errorf("a serial that did not rise was taken: %+v", old)
	}

	// The node that leads is gone: the next takes over when its lease has ended, and not before.
	server.SetTime(start + 3_000_000 - 1)
	if b.agrees(nil).Leads {
		t.Error("a lease ended too early")
	}
	server.SetTime(start + 3_000_000)
	if !b.agrees(nil).Leads || a.agrees(nil).Leads {
		t.Error("a lease did not end")
	}
	// A clock that is set back does not prolong it.
	server.SetTime(start - 60_000_000)
	if !c.agrees(nil).Leads {
		t.Error("the lease of a later time holds")
	}
	if next := c.agrees(&advice.Proposal{Serial: 8, Document: []byte("next"), After: time.Second, Keep: time.Minute}); string(next.Document) != "next" {
		t.Errorf("%q", next.Document)
	}
	if got := b.agrees(nil); string(got.Document) != "next" || got.Effective != start-59_000_000 {
		t.Errorf("%q at %d", got.Document, got.Effective)
	}
}

// A defect: a document with the highest serial kept all others from the fleet, since the node that led kept its key from expiring.
func TestADocumentIsTheFleetsForAsLongAsItIsKept(t *testing.T) {
	const start = 1_800_000_000_000_000
	server := redistest.Start(t, redistest.WithClock())
	server.SetTime(start)
	a := newMember(t, server.Addr(), "a", false)
	b := newMember(t, server.Addr(), "b", true)
	a.agrees(&advice.Proposal{Serial: 1<<53 - 1, Document: []byte("highest"), Keep: time.Minute})
	for second := int64(1); second < 60; second++ {
		server.SetTime(start + second*1_000_000)
		if got := a.agrees(&advice.Proposal{Serial: 5, Document: []byte("next"), Keep: time.Minute}); got.Serial != 1<<53-1 {
			t.Fatalf("after %d s there is serial %d", second, got.Serial)
		}
	}
	server.SetTime(start + 60_000_000)
	if got := a.agrees(nil); got.Serial != 0 || got.Document != nil {
		t.Errorf("it is kept for longer: %+v", got)
	}
	a.agrees(&advice.Proposal{Serial: 5, Document: []byte("next"), Keep: time.Minute})
	if got := b.agrees(nil); got.Serial != 5 || string(got.Document) != "next" {
		t.Errorf("%+v", got)
	}
}

// Whoever else can write into Redis ends no proxy, and silences no fleet for longer than a day.
func TestAFleetGetsOverWhatOthersHaveWrittenIntoItsKey(t *testing.T) {
	server := redistest.Start(t)
	a := newMember(t, server.Addr(), "a", false)
	a.agrees(nil)
	key := server.MustDo(t, "KEYS", "*").List[0].Text
	for _, fields := range [][]string{
		{"serial", "x", "until", "y", "effective", "z", "expires", "{}"},
		{"serial", "9007199254740991", "document", "garbage", "expires", "9007199254740991"},
	} {
		server.MustDo(t, append([]string{"HSET", key}, fields...)...)
		a.known = 0
		a.agrees(nil)
		if got := a.agrees(&advice.Proposal{Serial: 5, Document: []byte("good"), Keep: time.Minute}); got.Serial != 5 || string(got.Document) != "good" {
			t.Errorf("after %q: %+v", fields, got)
		}
		server.MustDo(t, "HDEL", key, "document")
		a.known = 0
		if got := a.agrees(nil); got.Document != nil {
			t.Errorf("%+v", got)
		}
	}
	server.MustDo(t, "HSET", key, "document", strings.Repeat("x", 3<<20))
	a.known = 0
	if _, err := redis.Agree(a.fleet, 0, nil); err == nil {
		t.Error("a document was read that no node can have proposed")
	}
}

func TestFleetsOfOtherNamesAreApart(t *testing.T) {
	server := redistest.Start(t)
	store := newStore(t, redis.Config{}, goredis.Config{Addresses: []string{server.Addr()}})
	for _, name := range []string{"shop", "shop2", ""} {
		a, err := redis.Agree(redis.NewFleet(store, name, "a"), 0, &advice.Proposal{Serial: 5, Document: []byte("of " + name), Keep: time.Minute})
		if err != nil || string(a.Document) != "of "+name {
			t.Errorf("%q: %+v, %v", name, a, err)
		}
	}
}

func TestAFleetWithoutRedisSaysSo(t *testing.T) {
	store := newStore(t, redis.Config{}, goredis.Config{Addresses: []string{"127.0.0.1:1"}, Timeout: 10 * time.Millisecond})
	if a, err := redis.Agree(redis.NewFleet(store, "shop", "a"), 0, nil); err == nil || a != nil || !strings.Contains(err.Error(), "redis") {
		t.Errorf("%+v, %v", a, err)
	}
}
