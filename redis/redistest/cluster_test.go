package redistest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

func TestSlotIsRedis(t *testing.T) {
	t.Parallel()
	s := Start(t, func(o *options) { o.cluster = true })
	for _, key := range []string{"", "123456789", "{a}b", "x{a}b", "{}b", "{a", "a}b{c}", "{{a}}", "{a}{b}", "weir:{login}:1", "\xff\x00"} {
		if got, want := Slot(key), s.MustDo(t, "CLUSTER", "KEYSLOT", key).Int; int64(got) != want {
			t.Errorf("key %q: slot %d, Redis says %d", key, got, want)
		}
	}
}

func TestReplicaTakesOver(t *testing.T) {
	t.Parallel()
	c := StartCluster(t)
	slot := Slot("key")
	old := c.Master(slot)
	replicas := c.Replicas(slot)
	if len(c.Nodes()) != 6 || len(replicas) != 1 || replicas[0] == old {
		t.Fatalf("nodes %v, master %s, replicas %v", c.Addrs(), old.Addr(), addrs(replicas))
	}
	old.MustDo(t, "SET", "key", "value")
	old.MustDo(t, "WAIT", "1", "0")
	got := c.KillMaster(slot)
	if got != replicas[0] || c.Master(slot) != got || len(c.Replicas(slot)) != 0 {
		t.Errorf("master %s after the death of %s, its replica %s was expected", got.Addr(), old.Addr(), replicas[0].Addr())
	}
	if v := got.MustDo(t, "GET", "key"); v.Text != "value" {
		t.Errorf("GET: %v", v)
	}
	old.Restart()
	c.Settle()
	if c.Master(slot) != got || !slices.Equal(c.Replicas(slot), []*Server{old}) {
		t.Errorf("master %s, replicas %v when %s is back", c.Master(slot).Addr(), addrs(c.Replicas(slot)), old.Addr())
	}
}

func TestMigrationAsksAndMoves(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, WithPassword("secret"), WithTLS(NewCertificates(t), "yes"))
	slot := Slot("{tag}")
	first, second := "{tag}first", "{tag}second"
	from := c.Master(slot)
	from.MustDo(t, "SET", first, "1")
	from.MustDo(t, "SET", second, "2")
	fails := func(n *Server, reply string, command ...string) {
		t.Helper()
		if _, err := n.Do(command...); err == nil || !strings.HasPrefix(err.Error(), reply+" ") {
			t.Errorf("%s: %v, %s expected", strings.Join(command, " "), err, reply)
		}
	}

	m := c.Migrate(slot)
	if m.From != from || m.To == from {
		t.Fatalf("from %s to %s, the master is %s", m.From.Addr(), m.To.Addr(), from.Addr())
	}
	m.Move(first)
	ask := fmt.Sprintf("ASK %d %s", slot, m.To.Addr())
	if _, err := m.From.Do("GET", first); err == nil || err.Error() != ask {
		t.Errorf("a key that was moved: %v, %s expected", err, ask)
	}
	if got := m.From.MustDo(t, "GET", second); got.Text != "2" {
		t.Errorf("a key that was not: %v", got)
	}
	fails(m.From, "TRYAGAIN", "MGET", first, second)
	fails(m.To, "MOVED", "GET", first)
	conn, err := m.To.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err = conn.Do("ASKING"); err != nil {
		t.Fatal(err)
	}
	if got, err := conn.Do("GET", first); err != nil || got.Text != "1" {
		t.Errorf("after ASKING: %v, %v", got, err)
	}

	m.Finish()
	if c.Master(slot) != m.To {
		t.Errorf("master %s, %s expected", c.Master(slot).Addr(), m.To.Addr())
	}
	moved := fmt.Sprintf("MOVED %d %s", slot, m.To.Addr())
	if _, err := m.From.Do("GET", first); err == nil || err.Error() != moved {
		t.Errorf("when it is finished: %v, %s expected", err, moved)
	}
	if got := m.To.MustDo(t, "MGET", first, second); got.String() != "[1 2]" {
		t.Errorf("the keys: %v", got)
	}
}

func TestClusterGoesByTheClock(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, WithClock())
	const start, year = int64(1_772_452_800_000_000), int64(366 * 24 * 3600 * 1_000_000)
	for _, micros := range []int64{start, start + 1, start + 50*year, start - 20*year} {
		c.SetTime(micros)
		for _, n := range c.Nodes() {
			if got, want := n.MustDo(t, "TIME").String(), fmt.Sprintf("[%d %d]", micros/1_000_000, micros%1_000_000); got != want {
				t.Errorf("TIME %s, %s was set", got, want)
			}
		}
		for _, key := range []string{"a", "b", "c"} {
			c.Master(Slot(key)).MustDo(t, "SET", key, "value", "PX", "1000")
		}
		c.SetTime(micros + 1_000_000)
		for _, key := range []string{"a", "b", "c"} {
			must.Equal(t, c.Master(Slot(key)).MustDo(t, "EXISTS", key).Int, 1, "key %s is gone before its end", key)
		}
		c.SetTime(micros + 1_001_000)
		for _, key := range []string{"a", "b", "c"} {
			must.Equal(t, c.Master(Slot(key)).MustDo(t, "EXISTS", key).Int, 0, "key %s is there after its end", key)
		}
	}
	c.Settle()
}
