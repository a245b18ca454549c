package resp

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis"
)

// knows returns the reply of a Sentinel that names a server.
func knows(f *fake) string {
	host, port, _ := strings.Cut(f.listener.Addr().String(), ":")
	return fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s", len(host), host, len(port), port)
}

const (
	isMaster  = "*3\r\n$6\r\nmaster\r\n:0\r\n*1\r\n*3\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\n0"
	isReplica = "*5\r\n$5\r\nslave\r\n$1\r\na\r\n:1\r\n$9\r\nconnected\r\n:0"
)

// answers makes a fake give the same reply to each command of a name.
func answers(f *fake, command, reply string) {
	f.mu.Lock()
	if f.always == nil {
		f.always = make(map[string]string)
	}
	f.always[command] = reply
	f.mu.Unlock()
}

// newMonitored returns a client of the master that the Sentinels know.
func newMonitored(t *testing.T, list ...*fake) *single {
	t.Helper()
	c := Config{MasterName: "m", DialTimeout: patience}
	for _, f := range list {
		c.Addresses = append(c.Addresses, f.listener.Addr().String())
	}
	return newClient(t, c)
}

func TestSentinelsAreAskedInTurn(t *testing.T) {
	t.Parallel()
	master, dead, ignorant, knowing := newFake(t), newFake(t), newFake(t), newFake(t)
	_ = dead.listener.Close()
	answers(master, "role", isMaster)
	answers(ignorant, "sentinel", "*-1")
	answers(knowing, "sentinel", knows(master))
	c := newMonitored(t, dead, ignorant, knowing)
	if c.Name() != "the master m" {
		t.Errorf("it is called %s", c.Name())
	}
	for n := 0; n < 3; n++ {
		if err := ask(c, n, time.Time{}); err != nil {
			t.Fatal(err)
		}
		c.conn.mu.Lock()
		before := c.conn.link
		hangUp(before)
		c.conn.mu.Unlock()
		until(t, "a new connection", func() bool {
			c.conn.mu.Lock()
			defer c.conn.mu.Unlock()
			return c.conn.link != before && c.conn.link != nil
		})
	}
	if got := ignorant.commands(""); got != "sentinel" { // from then on the one that knows is asked first
		t.Errorf("the second Sentinel got %s", got)
	}
	if got := strings.Count(knowing.commands("subscribe"), "sentinel"); got < 4 { // and once more with each connection, to hear of switches
		t.Errorf("the third Sentinel was asked %d times", got)
	}
}

// A master that was replaced by hand goes on as if it was not, for several seconds. Its connections end as soon as a Sentinel names another: when it
// announces a switch, or when it is asked again where it lets nobody subscribe.
func TestAMasterThatWasReplacedIsLeft(t *testing.T) {
	t.Parallel()
	for name, subscribe := range map[string]string{
		"announced": "*3\r\n$9\r\nsubscribe\r\n$14\r\n+switch-master\r\n:1",
		"asked":     "-NOPERM this user has no permissions to access one of the channels used as arguments",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, master, sentinel := newFake(t), newFake(t), newFake(t)
			answers(old, "role", isMaster)
			answers(master, "role", isMaster)
			answers(sentinel, "subscribe", subscribe)
			answers(sentinel, "sentinel", knows(old))
			c := newMonitored(t, sentinel)
			if err := ask(c, 1, time.Time{}); err != nil {
				t.Fatal(err)
			}
			until(t, "it listens", func() bool { return strings.HasSuffix(sentinel.commands(""), "subscribe, sentinel") })
			announce := func(of string) {
				sentinel.mu.Lock()
				defer sentinel.mu.Unlock()
				for _, nc := range sentinel.conns {
					_, _ = fmt.Fprintf(nc, "*3\r\n$7\r\nmessage\r\n$14\r\n+switch-master\r\n$%d\r\n%s 127.0.0.1 1 127.0.0.1 2\r\n", len(of)+24, of)
				}
			}
			if name == "announced" {
				asked := strings.Count(sentinel.commands(""), "sentinel")
				announce("x")
				until(t, "it asks", func() bool { return strings.Count(sentinel.commands(""), "sentinel") > asked })
				if err := ask(c, 2, time.Time{}); err != nil || master.commands("") != "" {
					t.Errorf("after the switch of another master: %v, the new one got %q", err, master.commands(""))
				}
			}
			answers(sentinel, "sentinel", knows(master))
			if name == "announced" {
				announce("m")
			}
			until(t, "the new master decides", func() bool { return ask(c, 3, time.Time{}) == nil && strings.Contains(master.commands(""), "evalsha") })
		})
	}
}

// A Sentinel may not know yet that the master was replaced. The replica that it names is not used, and another Sentinel is asked.
func TestTheMasterThatSaysItIsNoneIsNotUsed(t *testing.T) {
	t.Parallel()
	old, master, late, first := newFake(t), newFake(t), newFake(t), newFake(t)
	answers(old, "role", isReplica)
	answers(master, "role", isMaster)
	answers(late, "sentinel", knows(old))
	answers(first, "sentinel", knows(master))
	c := newMonitored(t, late, first)
	until(t, "the new master decides", func() bool { return ask(c, 1, time.Time{}) == nil })
	if got := old.commands(""); got != "role" {
		t.Errorf("the old master got %s", got)
	}
	if got := master.commands(""); !strings.HasPrefix(got, "role, evalsha") {
		t.Errorf("the new master got %s", got)
	}
}

// A call that a master has refused, since it is a replica now, is sent to the new one.
func TestACallThatADemotedMasterRefusesIsSentToTheNewOne(t *testing.T) {
	t.Parallel()
	old, master, sentinel := newFake(t), newFake(t), newFake(t)
	answers(old, "role", isMaster)
	answers(master, "role", isMaster)
	answers(sentinel, "sentinel", knows(old))
	c := newMonitored(t, sentinel)
	if err := ask(c, 1, time.Time{}); err != nil {
		t.Fatal(err)
	}
	answers(sentinel, "sentinel", knows(master))
	answers(old, "evalsha", "-READONLY You can't write against a read only replica.")
	if err := ask(c, 2, time.Time{}); err != nil {
		t.Error(err)
	}
	if got := master.commands(""); got != "role, evalsha" {
		t.Errorf("the new master got %s", got)
	}
}

func TestWhyThereIsNoMaster(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, sentinel, role string
		says                 string
		kind                 string
	}{
		{"the name is wrong", "*-1", isMaster, `knows no master of the name "m"`, "reply"},
		{"the Sentinel wants a password", "-NOAUTH Authentication required.", isMaster, "NOAUTH", "reply"},
		{"it is no Sentinel", "-ERR unknown command 'SENTINEL', with args beginning with: 'get-master-addr-by-name'", isMaster, "unknown command 'SENTINEL'", "reply"},
		{"the Sentinel makes no sense", "*2\r\n$1\r\na\r\n$1\r\nb", isMaster, "no Redis", "reply"},
		{"it says less", "*1\r\n$1\r\na", isMaster, "no Redis", "reply"},
		{"the user may not ask for the role", "", "-NOPERM this user has no permissions to run the 'role' command", "NOPERM this user has no permissions to run the 'role' command", "reply"},
		{"a replica", "", isReplica, "its role is slave", "reply"},
		{"a role that makes no sense", "", "+master", "its role is ", "reply"},
	} {
		test := c // the interpreter has one variable for all rounds
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server, sentinel := newFake(t), newFake(t)
			answers(server, "role", test.role)
			answers(sentinel, "sentinel", test.sentinel)
			if test.sentinel == "" {
				answers(sentinel, "sentinel", knows(server))
			}
			err := ask(newMonitored(t, sentinel), 1, time.Time{})
			if err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), "Sentinel "+sentinel.listener.Addr().String()) {
				t.Errorf("error %v, want %q", err, test.says)
			}
			if kind := redis.ErrorKind(err); kind != test.kind {
				t.Errorf("error %v is of the kind %q, want %q", err, kind, test.kind)
			}
		})
	}
}

// A Sentinel that does not answer is given up after the dial timeout, and no call waits for that.
func TestASentinelThatDoesNotAnswerIsPassedOver(t *testing.T) {
	t.Parallel()
	master, silent, knowing := newFake(t), newFake(t), newFake(t)
	answers(master, "role", isMaster)
	answers(silent, "sentinel", knows(master))
	answers(knowing, "sentinel", knows(master))
	silent.answer(0)
	addresses := []string{silent.listener.Addr().String(), knowing.listener.Addr().String()}
	c := newClient(t, Config{Addresses: addresses, MasterName: "m", Timeout: 10 * time.Millisecond, DialTimeout: 300 * time.Millisecond})
	if err := ask(c, 1, time.Time{}); !errors.Is(err, redis.ErrTimeout) {
		t.Errorf("error %v", err)
	}
	until(t, "the master decides", func() bool { return ask(c, 1, time.Now().Add(patience)) == nil })
	if silent.commands("") == "" { // on a busy machine the others can be too late, too; then it is asked again
		t.Error("the silent Sentinel was not asked")
	}
}

// Sentinels have a user and a password of their own, and no databases.
func TestSentinelsHaveAUserOfTheirOwn(t *testing.T) {
	t.Parallel()
	master, sentinel := newFake(t), newFake(t)
	answers(master, "role", isMaster)
	answers(sentinel, "sentinel", knows(master))
	for _, f := range []*fake{master, sentinel} {
		answers(f, "auth", "+OK")
		answers(f, "select", "+OK")
	}
	c := newClient(t, Config{
		Addresses: []string{sentinel.listener.Addr().String()}, MasterName: "m", DialTimeout: patience, Database: 1,
		Username: "weir", Password: "one", SentinelUsername: "watch", SentinelPassword: "two",
	})
	if err := ask(c, 1, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if got := sentinel.commands("") + " "; !strings.HasPrefix(got, "auth, sentinel") { // and then those of watchMaster
		t.Errorf("the Sentinel got %s", got)
	}
	sentinel.mu.Lock()
	for _, login := range sentinel.logins {
		if login != "watch:two" {
			t.Errorf("the Sentinel got the login %s", login)
		}
	}
	sentinel.mu.Unlock()
	if got := master.commands("") + " " + fmt.Sprint(master.logins); got != "auth, select, role, evalsha [weir:one]" {
		t.Errorf("the master got %s", got)
	}
}

func TestEachSentinelsReasonIsReported(t *testing.T) {
	t.Parallel()
	one, two := newFake(t), newFake(t)
	answers(one, "sentinel", "*-1")
	answers(two, "sentinel", "-NOAUTH Authentication required.")
	err := ask(newMonitored(t, one, two), 1, time.Time{})
	want := fmt.Sprintf(`at Sentinel %s: knows no master of the name "m"; at Sentinel %s: NOAUTH Authentication required.`, one.listener.Addr(), two.listener.Addr())
	if err == nil || !strings.HasSuffix(err.Error(), want) || redis.ErrorKind(err) != "reply" {
		t.Errorf("error %v, want %s", err, want)
	}
}
