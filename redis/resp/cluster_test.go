package resp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis"
)

// The slots are those of CLUSTER KEYSLOT.
func TestSlotsOfKeys(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int{
		"": 0, "123456789": 12739, "a": 15495, "{a}b": 15495, "x{a}b": 15495, "x{a}{b}": 15495, "{}b": 6680, "{a": 10276,
		"a}b{c}": 7365, "{{a}}": 10276, "weir:{login}:1": 15850, "\xff\x00": 1023,
	} {
		if got := slotOf(key); got != want {
			t.Errorf("key %q: slot %d, want %d", key, got, want)
		}
	}
}

// A reply to CLUSTER SLOTS comes in many forms, and from servers that are no Redis.
func TestTablesOfSlots(t *testing.T) {
	t.Parallel()
	entry := func(first, last int, host string, port int) string {
		return fmt.Sprintf("*3\r\n:%d\r\n:%d\r\n*2\r\n%s\r\n:%d\r\n", first, last, host, port)
	}
	const local = "$9\r\n127.0.0.1"
	replica := "*4\r\n" + local + "\r\n:7\r\n$2\r\nid\r\n*2\r\n$8\r\nhostname\r\n$4\r\nhost\r\n"
	for _, c := range []struct{ name, reply, want string }{
		{"two masters", "*2\r\n" + entry(0, 100, local, 1) + entry(101, 16383, local, 2), "[{0 100 127.0.0.1:1} {101 16383 127.0.0.1:2}]"},
		{"of Redis 7, with a replica", "*2\r\n*4\r\n:0\r\n:5\r\n*4\r\n" + local + "\r\n:1\r\n$2\r\nid\r\n*0\r\n" + replica + entry(6, 6, local, 2), "[{0 5 127.0.0.1:1} {6 6 127.0.0.1:2}]"},
		{"an IPv6 address", "*1\r\n" + entry(0, 1, "$3\r\n::1", 1), "[{0 1 [::1]:1}]"},
		{"without a host", "*1\r\n" + entry(0, 1, "$0\r\n", 1), "[{0 1 asked:1}]"},
		{"with nil as the host", "*1\r\n" + entry(0, 1, "$-1", 1), "[{0 1 asked:1}]"},
		{"a host that is not known", "*2\r\n" + entry(0, 1, "$1\r\n?", 1) + entry(2, 3, local, 1), "[{2 3 127.0.0.1:1}]"},
		{"no slots", "*0\r\n", "no node has a slot"},
		{"nil", "*-1\r\n", "no Redis"},
		{"an error", "-ERR This instance has cluster support disabled\r\n", "ERR This instance has cluster support disabled"},
		{"a slot too high", "*1\r\n" + entry(0, 16384, local, 1), "no Redis"},
		{"a slot below 0", "*1\r\n" + entry(-1, 5, local, 1), "no Redis"},
		{"the wrong way round", "*1\r\n" + entry(5, 4, local, 1), "no Redis"},
		{"a number in place of a host", "*1\r\n" + entry(0, 1, ":1", 1), "no Redis"},
		{"too few parts", "*1\r\n*2\r\n:1\r\n:2\r\n", "no Redis"},
		{"fewer parts than it says", "*1\r\n*3\r\n:1\r\n:2\r\n*1\r\n" + local + "\r\n", "no Redis"},
		{"a line of text", "+OK\r\n", "no Redis"},
		{"more than one reply", "*0\r\n*0\r\n", "no Redis"},
		{"a type that nobody knows", "%1\r\n", "no Redis"},
		{"no end of line", "*1\n", "no Redis"},
		{"a line without an end", strings.Repeat("x", 2*longestLine), "no Redis"},
		{"a length that is none", "*x\r\n", "no Redis"},
		{"a text that is too long", "*1\r\n$99999\r\n", "too long"},
		{"too much", strings.Repeat("*400000\r\n", 2), "too long"},
		{"not all of it", "*1\r\n*3\r\n:1\r\n", "EOF"},
	} {
		nc := played([]string{c.reply})
		nc.(*hooked).write = func(b []byte) (int, error) { return len(b), nil }
		a, err := roundTrip(newLink(nc).stream, "CLUSTER", "SLOTS")
		got := ""
		if err == nil {
			var ranges []slotRange
			ranges, err = readSlots(a, "asked:9")
			got = fmt.Sprint(ranges)
		}
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != c.want || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// slotsOf returns the reply to CLUSTER SLOTS in which one server has all slots.
func slotsOf(f *fake) string {
	addr := f.listener.Addr().String()
	host, port, _ := strings.Cut(addr, ":")
	return fmt.Sprintf("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$%d\r\n%s\r\n:%s", len(host), host, port)
}

// newFakeCluster returns a client of a Cluster in which a fake has all slots.
func newFakeCluster(t *testing.T, f *fake, timeout time.Duration) *cluster {
	t.Helper()
	f.mu.Lock()
	f.always = map[string]string{"cluster": slotsOf(f)}
	f.mu.Unlock()
	config := Config{Addresses: []string{f.listener.Addr().String()}, Cluster: true, Timeout: timeout, DialTimeout: patience}
	if err := config.Complete(); err != nil {
		t.Fatal(err)
	}
	k := newCluster(config)
	t.Cleanup(func() { _ = k.Close() })
	until(t, "the slots are known", func() bool { _, err := k.Server("key"); return err == nil })
	return k
}

func askCluster(k *cluster, n int) (*redis.Call, error) {
	k.mu.Lock()
	c := k.slots[slotOf("key")].conn
	k.mu.Unlock()
	call := &redis.Call{Script: echo, Keys: []string{"key"}, Args: []string{fmt.Sprint(n)}}
	err := c.Run(call)
	if err == nil && (len(call.Reply) != 1 || call.Reply[0] != int64(n)) {
		return call, fmt.Errorf("call %d has the reply %v", n, call.Reply)
	}
	return call, err
}

func TestACallIsSentToTheNodeThatHasTheSlot(t *testing.T) {
	t.Parallel()
	const noScript = "-NOSCRIPT No matching script. Please use EVAL."
	for _, test := range []struct {
		name   string
		first  []string // replies of the node that has the slots; TO is the other's address
		second []string
		log1   string
		log2   string
		asked  bool
		fails  string
	}{
		{"the slot is there", nil, nil, "evalsha", "", false, ""},
		{"it has moved", []string{"-MOVED 12539 TO"}, nil, "evalsha", "evalsha", false, ""},
		{"it is migrating", []string{"-ASK 12539 TO"}, []string{"+OK"}, "evalsha", "asking, evalsha", true, ""},
		{"it is migrating, and the script is not there", []string{"-ASK 12539 TO"}, []string{"+OK", noScript, "+OK"}, "evalsha", "asking, evalsha, asking, eval", true, ""},
		{"the script is not known, and the slot is migrating", []string{noScript, "-ASK 12539 TO"}, []string{"+OK"}, "evalsha, eval", "asking, eval", true, ""},
		{"asking is refused", []string{"-ASK 12539 TO"}, []string{"-NOPERM no", "-MOVED 12539 FROM"}, "evalsha, evalsha", "asking, evalsha", false, ""},
		{"some keys are there", []string{"-ASK 12539 TO"}, []string{"+OK", "-TRYAGAIN Multiple keys request during rehashing of slot"}, "evalsha", "asking, evalsha", false, redis.ErrMoving.Error()},
		{"round and round", []string{"-MOVED 12539 TO", "-MOVED 12539 TO"}, []string{"-MOVED 12539 FROM", "-MOVED 12539 FROM"}, "evalsha, evalsha", "evalsha, evalsha", false, "MOVED 12539"},
		{"to nobody", []string{"-MOVED 12539 ?:1"}, nil, "evalsha", "", false, "MOVED 12539 ?:1"},
		{"to a slot that does not exist", []string{"-MOVED 16384 TO"}, nil, "evalsha", "", false, "MOVED 16384"},
		{"to no port", []string{"-ASK 12539 a:b"}, nil, "evalsha", "", false, "ASK 12539 a:b"},
		{"to nothing", []string{"-MOVED"}, nil, "evalsha", "", false, "MOVED"},
		{"the Cluster is down", []string{"-CLUSTERDOWN Hash slot not served"}, nil, "evalsha", "", false, "CLUSTERDOWN"},
	} {
		test := test // the interpreter has one variable for all rounds
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			first, second := newFake(t), newFake(t)
			names := strings.NewReplacer("TO", second.listener.Addr().String(), "FROM", first.listener.Addr().String())
			k := newFakeCluster(t, first, patience)
			for f, replies := range map[*fake][]string{first: test.first, second: test.second} {
				f.mu.Lock()
				f.log = nil
				for _, reply := range replies {
					f.replies = append(f.replies, names.Replace(reply))
				}
				f.mu.Unlock()
			}
			call, err := askCluster(k, 1)
			if test.fails == "" && err != nil || test.fails != "" && (err == nil || !strings.Contains(err.Error(), test.fails)) {
				t.Errorf("error %v, want %q", err, test.fails)
			}
			if call.Asked != test.asked && err == nil {
				t.Errorf("asked: %v", call.Asked)
			}
			if got := first.commands("cluster"); got != test.log1 {
				t.Errorf("the first node got %s, want %s", got, test.log1)
			}
			if got := second.commands("cluster"); got != test.log2 {
				t.Errorf("the second node got %s, want %s", got, test.log2)
			}
		})
	}
}

// After MOVED the next call goes to the right node at once, even if nobody answers look-ups.
func TestAMoveIsRemembered(t *testing.T) {
	t.Parallel()
	first, second := newFake(t), newFake(t)
	k := newFakeCluster(t, first, patience)
	first.mu.Lock()
	first.always["cluster"] = "-ERR not now"
	first.replies = []string{"-MOVED " + fmt.Sprint(slotOf("key")) + " " + second.listener.Addr().String()}
	first.log = nil
	first.mu.Unlock()
	second.mu.Lock()
	second.always = map[string]string{"cluster": "-ERR not now"}
	second.mu.Unlock()
	for n := 0; n < 3; n++ {
		if _, err := askCluster(k, n); err != nil {
			t.Error(err)
		}
	}
	if got := first.commands("cluster"); got != "evalsha" {
		t.Errorf("the first node got %s", got)
	}
	server, err := k.Server("key")
	if err != nil || server.Name() != second.listener.Addr().String() {
		t.Errorf("the slot is at %v, %v", server, err)
	}
	if other, err := k.Server("another key"); err != nil || other.Name() != first.listener.Addr().String() {
		t.Errorf("another slot is at %v, %v", other, err)
	}
}

// A node that has no slots any more is closed, but not while others refer to it.
func TestANodeWithoutSlotsIsClosed(t *testing.T) {
	t.Parallel()
	first, second := newFake(t), newFake(t)
	k := newFakeCluster(t, first, 500*time.Millisecond)
	if _, err := askCluster(k, 1); err != nil {
		t.Fatal(err)
	}
	old, err := k.Server("key")
	if err != nil {
		t.Fatal(err)
	}
	k.mu.Lock()
	gone := k.nodes[old.Name()]
	k.mu.Unlock()
	first.mu.Lock()
	first.always["cluster"] = slotsOf(second)
	first.mu.Unlock()
	second.mu.Lock()
	second.always = map[string]string{"cluster": slotsOf(second)}
	second.mu.Unlock()
	look(k)
	until(t, "the slots are at the other node", func() bool {
		server, err := k.Server("key")
		return err == nil && server != old
	})
	if list := k.Servers(); len(list) != 1 || list[0].Name() != second.listener.Addr().String() {
		t.Errorf("the known servers: %v", list)
	}
	until(t, "the node is closed", func() bool {
		gone.conn.mu.Lock()
		defer gone.conn.mu.Unlock()
		return gone.conn.closed
	})
	if _, err := askCluster(k, 2); err != nil {
		t.Error(err)
	}
}

// Who asks before the slots are known, or when they cannot be found, gets the reason at once.
func TestWhySlotsAreNotKnown(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.always = map[string]string{"cluster": "-ERR This instance has cluster support disabled"}
	k := newCluster(Config{Addresses: []string{f.listener.Addr().String()}, Cluster: true, DialTimeout: patience})
	until(t, "the reason is known", func() bool {
		_, err := k.Server("key")
		return err != nil && strings.Contains(err.Error(), "cluster support disabled") && redis.ErrorKind(err) == "reply"
	})
	f.mu.Lock()
	f.always["cluster"] = slotsOf(f)
	f.mu.Unlock()
	until(t, "the slots are known, though nobody asks", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.slots) > 0
	})
	k.mu.Lock()
	k.slots[slotOf("key")] = nil
	k.mu.Unlock()
	_, err := k.Server("key")
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("no node has the slot %d", slotOf("key"))) {
		t.Errorf("error %v", err)
	}
	until(t, "it is looked up again", func() bool { _, err := k.Server("key"); return err == nil })
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	until(t, "nobody looks any more", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return !k.looking
	})
	server := nodeAt(k, "late.example:1")
	if err := server.conn.Run(&redis.Call{Script: echo, Keys: []string{"key"}, Deadline: time.Now().Add(patience)}); err == nil {
		t.Error("a node that is found after Close is called")
	}
}
