package goredis_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// long is a period so long that no unit comes back while a test runs.
const long = 300 * 24 * time.Hour

// rule returns the configuration of a rule that admits so many units, and then no more while a test runs.
func rule(t testing.TB, name string, a rate.Algorithm, units int64) core.RuleConfig {
	t.Helper()
	c := rate.LimitConfig{Algorithm: a, Requests: units, Period: long}
	if a == rate.LeakyBucket { // one request leaves at once, and the others wait
		c = rate.LimitConfig{Algorithm: a, Requests: 1, Period: 80 * time.Second, Burst: units - 1, MaxDelay: time.Hour}
	}
	l, err := rate.NewLimit(c)
	must.Succeed(t, err)
	return core.RuleConfig{Name: name, Limit: l}
}

// oneOfEach returns a rule of each algorithm that admits so many units.
func oneOfEach(t testing.TB, units int64) []core.RuleConfig {
	t.Helper()
	var list []core.RuleConfig
	for i, name := range rate.AlgorithmNames {
		list = append(list, rule(t, name, rate.Algorithm(i+1), units))
	}
	return list
}

// node is a proxy of a fleet: a store, and the rules that are open in it.
type node struct {
	store *redis.Store
	rules []*core.Rule
}

// way is how a fleet connects to Redis. Every other node has the client of interpreted programs; the first of them is the first node if interpreted is
// true, otherwise the second.
type way struct {
	goredis.Config
	interpreted bool
}

// newFleet returns nodes that count together.
func newFleet(t testing.TB, nodes int, g way, rules ...core.RuleConfig) []*node {
	t.Helper()
	prefix := "fleet" + strconv.FormatInt(stores.Add(1), 10) + ":"
	var list []*node
	for i := range nodes {
		n := &node{store: newStore(t, redis.Config{Prefix: prefix, PlainKeys: true, Lines: g.interpreted == (i%2 == 0)}, g.Config)}
		for _, c := range rules {
			n.open(t, c)
		}
		list = append(list, n)
	}
	if g.Cluster { // a client cannot decide before it knows where the slots are
		for _, n := range list {
			must.Succeed(t, n.store.Check(patience))
		}
	}
	return list
}

// open opens a rule.
func (n *node) open(t testing.TB, c core.RuleConfig) {
	t.Helper()
	r, err := core.NewRule(c)
	must.Succeed(t, err)
	must.Succeed(t, n.store.Open(r))
	n.rules = append(n.rules, r)
}

// checks returns the checks of a request under some rules, with a key for each, or with one for all.
func (n *node) checks(rules []int, keys ...string) []core.Check {
	list := make([]core.Check, len(rules))
	for i, r := range rules {
		list[i] = core.Check{Rule: n.rules[r], Key: keys[i%len(keys)], Cost: 1}
	}
	return list
}

// ask reports whether a request is admitted.
func (n *node) ask(rules []int, keys ...string) (bool, error) {
	checks := n.checks(rules, keys...)
	err := n.store.Decide(checks, false)
	admitted := err == nil
	for i := range checks {
		admitted = admitted && (checks[i].Decision.Allowed || checks[i].Rule.Shadow)
	}
	return admitted, err
}

// used returns how many units of a key Redis has counted.
func (n *node) used(t testing.TB, r int, key string) int64 {
	t.Helper()
	checks := []core.Check{{Rule: n.rules[r], Key: key}}
	eventually(t, "asking what is used", func() error { return n.store.Decide(checks, true) })
	d := checks[0].Decision
	used := d.Limit - d.Remaining
	if n.rules[r].Limit.Algorithm == rate.LeakyBucket && d.ResetAfter > 0 {
		used++ // the request that has left: the decision counts only the queue
	}
	return used
}

// crowd makes requests by 64 callers, spread over the nodes, so many by each. It returns how many were admitted. Errors go to failed; if that is
// nil, they fail the test.
func crowd(t testing.TB, nodes []*node, each int, failed func(error), ask func(n *node, caller, i int) (bool, error)) int64 {
	t.Helper()
	var admitted atomic.Int64
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for caller := range 64 {
		wg.Go(func() {
			<-begin
			for i := range each {
				ok, err := ask(nodes[caller%len(nodes)], caller, i)
				switch {
				case err == nil:
				case failed != nil:
					failed(err)
				default:
					t.Error(err)
					return
				}
				if ok {
					admitted.Add(1)
				}
			}
		})
	}
	close(begin)
	wg.Wait()
	return admitted.Load()
}

// exact checks that three nodes together admit exactly the limit of each algorithm, and of all of them at once.
func exact(t *testing.T, g way) {
	t.Helper()
	const units = 41
	fleet := newFleet(t, 3, g, oneOfEach(t, units)...)
	all := []int{0, 1, 2, 3, 4}
	for r := range all {
		got := crowd(t, fleet, 3, nil, func(n *node, _, _ int) (bool, error) { return n.ask([]int{r}, "everybody") })
		if want := fleet[0].rules[r].Limit.Capacity; got != want {
			t.Errorf("%s: %d requests were admitted, want %d", fleet[0].rules[r].Name(), got, want)
		}
	}
	got := crowd(t, fleet, 3, nil, func(n *node, caller, _ int) (bool, error) {
		order := append(all[caller%5:5:5], all[:caller%5]...)
		return n.ask(order, "under all")
	})
	if got != units {
		t.Errorf("under five rules %d requests were admitted, want %d", got, units)
	}
	for r := range all {
		if used := fleet[1].used(t, r, "under all"); used != units {
			t.Errorf("under five rules %d units of %s were charged, want %d", used, fleet[0].rules[r].Name(), units)
		}
	}
}

// eventually calls a function until it returns no error. If an error stays, it ends the test with that.
func eventually(t testing.TB, what string, f func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// The permissions that an ACL user of the store needs, besides that for its keys: to run the scripts and their commands; in a Cluster also to
// read the slots, and to give charges back.
var (
	acl         = "+evalsha +eval +time +get +psetex +getrange +strlen +setrange +append +pexpire" + aclOld()
	aclOverflow = "+set +del +zadd +zcard +zincrby +zrange +zrangebyscore +zrem +zremrangebyrank +zremrangebyscore +zrevrange +zscore +lindex +lpop +lrange +lrem +lset +rpop +rpush"
	aclSwitch   = "+scan"
	aclCluster  = acl + " +cluster|slots +asking +set"
)

// aclOld is what it needs besides in Redis 6.2.
func aclOld() string {
	if redistest.Major() < 7 {
		return " +pttl"
	}
	return ""
}

func TestOneLimitForAFleet(t *testing.T) {
	t.Parallel()
	one := func(addr string) way { return way{Config: goredis.Config{Addresses: []string{addr}}} }

	t.Run("on a server", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		exact(t, one(server.Addr()))
		exact(t, one("redis://"+server.Addr()))

		g := one(server.Addr())
		g.Database = 3
		exact(t, g)
		exact(t, one("redis://"+server.Addr()+"/5"))
		keyspace := server.MustDo(t, "INFO", "keyspace").Text
		for _, db := range []string{"db0", "db3", "db5"} {
			counts := regexp.MustCompile(db + `:keys=(\d+),expires=(\d+)`).FindStringSubmatch(keyspace)
			if counts == nil || counts[1] != counts[2] {
				t.Errorf("%s: %q has either no keys or some that do not expire", db, keyspace)
			}
		}
	})

	t.Run("with a password", func(t *testing.T) {
		t.Parallel()
		const password = `p@ss:w/o?r#d%`
		server := redistest.Start(t, redistest.WithPassword(password))
		g := one(server.Addr())
		g.Password = password
		exact(t, g)
		exact(t, one("redis://:"+url.QueryEscape(password)+"@"+server.Addr()))
	})

	t.Run("as an ACL user with no other right", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.WithUser("weir", "secret", "~fleet* "+acl))
		g := one(server.Addr())
		g.Username, g.Password = "weir", "secret"
		exact(t, g)
		longLog(t, g)
		server.MustDo(t, "ACL", "SETUSER", "weir", "+select")
		exact(t, one("redis://weir:secret@"+server.Addr()+"/1"))
		if log := server.MustDo(t, "ACL", "LOG"); len(log.List) != 0 {
			t.Errorf("the server has refused something: %v", log)
		}
	})

	t.Run("over TLS", func(t *testing.T) {
		t.Parallel()
		certificates := redistest.NewCertificates(t)
		server := redistest.Start(t, redistest.WithTLS(certificates, "yes"), redistest.WithPassword("secret"))
		g := one(server.Addr())
		g.Password = "secret"
		g.TLS = certificates.Config()
		exact(t, g)
		g = one("rediss://:secret@" + server.Addr())
		g.TLS = certificates.Config()
		exact(t, g)
	})

	t.Run("over a Unix socket", func(t *testing.T) {
		t.Parallel()
		dir, err := os.MkdirTemp("", "weir") // t.TempDir may be too long for a socket's path
		must.Succeed(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		socket := filepath.Join(dir, "redis.sock")
		redistest.Start(t, redistest.WithConfig("unixsocket "+socket), redistest.WithPassword("secret"))
		g := one(socket)
		g.Password = "secret"
		exact(t, g)
		exact(t, one("unix://:secret@"+socket+"?db=2"))
	})
}

// longLog checks that a log with more entries than are read at once is charged, trimmed and peeked at.
func longLog(t *testing.T, g way) {
	t.Helper()
	l, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.SlidingWindowLog, Requests: 900, Period: 300 * time.Millisecond})
	must.Succeed(t, err)
	n := newFleet(t, 1, g, core.RuleConfig{Name: "log", Limit: l})[0]
	for range 40 {
		checks := n.checks([]int{0}, "everybody")
		checks[0].Cost = 100
		if err := n.store.Decide(checks, false); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Millisecond) // the server's clock must advance
	}
}

func TestARefusalByTheServerIsReported(t *testing.T) {
	t.Parallel()
	certificates := redistest.NewCertificates(t)
	plain := redistest.Start(t, redistest.WithPassword("right"), redistest.WithUser("weir", "right", "~other:* "+acl))
	encrypted := redistest.Start(t, redistest.WithTLS(certificates, "yes"))
	old := redistest.Start(t, redistest.WithConfig(`rename-command AUTH ""`, `rename-command HELLO ""`))
	bare := &tls.Config{RootCAs: certificates.Config().RootCAs}
	named := certificates.Config()
	named.ServerName = "redis.example"
	for _, c := range []struct {
		name   string
		config goredis.Config
		want   string
		kind   string // of the error
	}{
		{"no password", goredis.Config{Addresses: []string{plain.Addr()}}, "NOAUTH", "reply"},
		{"a wrong password", goredis.Config{Addresses: []string{plain.Addr()}, Password: "hunter2"}, "WRONGPASS", "reply"},
		{"a wrong password in a URL", goredis.Config{Addresses: []string{"redis://weir:hunter2@" + plain.Addr()}}, "WRONGPASS", "reply"},
		{"a server that does not know AUTH", goredis.Config{Addresses: []string{old.Addr()}, Password: "hunter2"}, "unknown command '(?i:AUTH)'", "reply"},
		{"a server that does not know AUTH, and a long password", goredis.Config{Addresses: []string{old.Addr()}, Username: "weir", Password: strings.Repeat("hunter2", 30)}, "unknown command '(?i:AUTH)'", "reply"},
		{"the certificate of another name", goredis.Config{Addresses: []string{encrypted.Addr()}, TLS: named}, "certificate is valid for localhost, not redis.example", "connection"},
		{"keys of others", goredis.Config{Addresses: []string{plain.Addr()}, Username: "weir", Password: "right"}, "NOPERM", "reply"},
		{"no such database", goredis.Config{Addresses: []string{plain.Addr()}, Password: "right", Database: 99}, "DB index", "reply"},
		{"TLS to a server without", goredis.Config{Addresses: []string{"rediss://" + plain.Addr()}, DialTimeout: 100 * time.Millisecond}, "deadline exceeded", "connection"},
		{"no TLS to a server with it", goredis.Config{Addresses: []string{encrypted.Addr()}}, "EOF|reset|broken pipe", "connection"},
		{"no client certificate", goredis.Config{Addresses: []string{encrypted.Addr()}, TLS: bare}, "certificate required|reset|broken pipe", "connection"},
		{"an unknown authority", goredis.Config{Addresses: []string{"rediss://" + encrypted.Addr()}}, "certificate signed by unknown authority", "connection"},
		{"a Cluster's way on a server", goredis.Config{Addresses: []string{plain.Addr()}, Password: "right", Cluster: true}, "not available", "reply|connection"}, // connection before the client has found out
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if c.config.DialTimeout == 0 { // on a busy machine a handshake takes seconds
				c.config.DialTimeout = 30 * time.Second
			}
			n := &node{store: newStore(t, redis.Config{}, c.config)}
			n.open(t, rule(t, "one", rate.TokenBucket, 1))
			_, err := n.ask([]int{0}, "key")
			if err == nil || !regexp.MustCompile(c.want).MatchString(err.Error()) {
				t.Errorf("error %v, want %s", err, c.want)
			}
			if kind := redis.ErrorKind(err); !slices.Contains(strings.Split(c.kind, "|"), kind) {
				t.Errorf("error %v is of the kind %q, want %q", err, kind, c.kind)
			}
			if err != nil && (strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "right")) {
				t.Errorf("error %q has a password in it", err)
			}
		})
	}
}

// load starts callers that make requests to a node, until the returned function is called. That returns how many requests were admitted, how
// many calls failed, and the last error.
func load(nodes []*node, callers int, ask func(n *node) (bool, error)) (stop func() (admitted, failed int64, last error)) {
	var admitted, failures atomic.Int64
	var lastError atomic.Value
	var wg sync.WaitGroup
	done := make(chan struct{})
	for i := range callers {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				ok, err := ask(nodes[i%len(nodes)])
				if err != nil {
					failures.Add(1)
					lastError.Store(&err)
					time.Sleep(time.Millisecond) // with an open breaker calls fail at once
				} else if ok {
					admitted.Add(1)
				}
			}
		})
	}
	return func() (int64, int64, error) {
		close(done)
		wg.Wait()
		var last error
		if e, ok := lastError.Load().(*error); ok {
			last = *e
		}
		return admitted.Load(), failures.Load(), last
	}
}

func TestSentinelsLeadToTheMaster(t *testing.T) {
	t.Parallel()
	certificates := redistest.NewCertificates(t)
	s := redistest.StartSentinel(t, redistest.WithPassword("secret"), redistest.WithTLS(certificates, "yes"))
	g := way{Config: goredis.Config{
		Addresses:        s.Addrs(),
		MasterName:       redistest.MasterName,
		Password:         "secret",
		SentinelPassword: "secret",
		TLS:              certificates.Config(),
	}}
	exact(t, g)
	exact(t, way{Config: goredis.Config{TLS: certificates.Config(), Addresses: []string{
		"rediss-sentinel://:secret@" + s.Addrs()[0] + "?master_name=" + redistest.MasterName + "&password=secret&addr=" + s.Addrs()[1],
	}}})

	const units = 60
	impatient := g
	impatient.Timeout = time.Second
	fleet := newFleet(t, 2, impatient, rule(t, "kept", rate.FixedWindow, units), rule(t, "load", rate.TokenBucket, rate.MaxRequests))
	if known := fleet[0].store.Servers(); len(known) != 1 || known[0] != (redis.ServerState{Name: "the master " + redistest.MasterName}) {
		t.Errorf("the known servers: %+v", known)
	}
	take := func(want int) {
		t.Helper()
		taken := 0
		for range 4 * want {
			for _, n := range fleet {
				eventually(t, "a decision", func() error {
					ok, err := n.ask([]int{0}, "everybody")
					if ok {
						taken++
					}
					return err
				})
				if taken == want {
					return
				}
			}
		}
		t.Errorf("%d of %d were admitted", taken, want)
	}
	for _, change := range []struct {
		name string
		make func() *redistest.Server
	}{{"replaced", s.Failover}, {"killed", s.KillMaster}} {
		take(units / 3)
		s.Master().MustDo(t, "WAIT", "2", "10000")
		stop := load(fleet, 8, func(n *node) (bool, error) { return n.ask([]int{1}, "load") })
		change.make()
		for _, n := range fleet {
			eventually(t, "deciding when the master was "+change.name, func() error {
				_, err := n.ask([]int{1}, "load")
				return err
			})
		}
		admitted, failed, last := stop()
		t.Logf("the master was %s: %d calls were answered, %d failed: %v", change.name, admitted, failed, last)
	}
	take(units / 3)
	for _, n := range fleet {
		if ok, err := n.ask([]int{0}, "everybody"); ok || err != nil {
			t.Errorf("over the limit: %v, %v", ok, err)
		}
	}
	if used := fleet[0].used(t, 0, "everybody"); used != units {
		t.Errorf("%d units are used, want %d", used, units)
	}
}

// A failover by hand loses what the old master admits while Sentinel replaces it. One before which writes are paused, as docs/redis.md has it, loses nothing.
func TestAFailoverByHand(t *testing.T) {
	t.Parallel()
	const units = 1200
	for _, paused := range []bool{false, true} {
		t.Run(fmt.Sprintf("paused=%t", paused), func(t *testing.T) {
			t.Parallel()
			s := redistest.StartSentinel(t)
			for _, sentinel := range s.Sentinels() { // no failover of their own accord, only because a busy machine keeps the master for a second
				sentinel.MustDo(t, "SENTINEL", "SET", redistest.MasterName, "down-after-milliseconds", "60000")
			}
			g := way{Config: goredis.Config{Addresses: s.Addrs(), MasterName: redistest.MasterName, Timeout: time.Second}}
			fleet := newFleet(t, 4, g, rule(t, "everybody", rate.FixedWindow, units))
			var admitted, rejected, failed atomic.Int64
			done := make(chan struct{})
			var callers sync.WaitGroup
			for i := range 16 {
				callers.Go(func() {
					for {
						ok, err := fleet[i%4].ask([]int{0}, "everybody")
						switch {
						case err != nil:
							failed.Add(1)
						case ok:
							admitted.Add(1)
							rejected.Store(0)
						default:
							rejected.Add(1) // since the last admission
						}
						select {
						case <-done:
							return
						case <-time.After(50 * time.Millisecond): // what comes is some 300 requests a second
						}
					}
				})
			}
			until(t, "a quarter is admitted", func() bool { return admitted.Load() > units/4 })
			old := s.Master()
			if paused {
				old.MustDo(t, "CLIENT", "PAUSE", "60000", "WRITE")
				until(t, "the replicas have everything", func() bool { return inSync(t, old) })
			}
			if paused {
				until(t, "Sentinel names another master", func() bool { return s.Replace(old) == nil })
				_, port, _ := net.SplitHostPort(s.Master().Addr())
				old.MustDo(t, "REPLICAOF", "127.0.0.1", port)
				old.MustDo(t, "CLIENT", "UNPAUSE")
				s.Settle()
			} else {
				s.Failover()
			}
			until(t, "the limit is used up", func() bool { return rejected.Load() > 100 })
			close(done)
			callers.Wait()
			beyond := admitted.Load() - units
			t.Logf("%d beyond %d, %d failed", beyond, units, failed.Load())
			if paused && (beyond > 0 || beyond < -failed.Load()) { // those that failed may have been counted
				t.Errorf("%d units are admitted beyond the limit", beyond)
			}
		})
	}
}

// inSync reports whether all replicas of a master have what it has written.
func inSync(t *testing.T, master *redistest.Server) bool {
	t.Helper()
	info := master.MustDo(t, "INFO", "replication").Text
	offset := regexp.MustCompile(`master_repl_offset:(\d+)`).FindStringSubmatch(info)
	replicas := regexp.MustCompile(`slave\d+:.*offset=(\d+)`).FindAllStringSubmatch(info, -1)
	for _, r := range replicas {
		if r[1] != offset[1] {
			return false
		}
	}
	return len(replicas) == 2
}

// SlotOf returns the slot of a client's keys.
func slotOf(client string) int { return redistest.Slot("{" + client + "}") }

// apart returns the names of so many clients whose keys lie on different masters.
func apart(c *redistest.Cluster, name string, n int) []string {
	var list []string
	var masters []*redistest.Server
	for i := 0; len(list) < n; i++ {
		client := name + strconv.Itoa(i)
		if master := c.Master(slotOf(client)); !slices.Contains(masters, master) {
			masters = append(masters, master)
			list = append(list, client)
		}
	}
	return list
}

func TestACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.WithPassword("other"), redistest.WithUser("weir", "secret", "~fleet* "+aclCluster),
		redistest.WithUser("overflow", "secret", "~fleet* "+aclCluster+" "+aclOverflow))
	g := way{Config: goredis.Config{Addresses: c.Addrs()[:2], Cluster: true, Username: "weir", Password: "secret"}}
	for _, test := range []struct {
		name string
		run  func(t *testing.T, c *redistest.Cluster, g way)
	}{
		{"has one limit for a fleet", func(t *testing.T, _ *redistest.Cluster, g way) {
			exact(t, g)
			exact(t, way{Config: goredis.Config{Addresses: []string{"redis://weir:secret@" + c.Addrs()[5] + "?addr=" + c.Addrs()[0]}, Cluster: true}})
		}},
		{"gets one call for one client", oneClientIsOneCall},
		{"gives charges back after a denial by another slot", denialsAreGivenBack},
		{"gives charges back after another slot did not answer", failuresAreGivenBack},
		{"never exceeds limits in different slots", limitsInDifferentSlots},
		{"is followed when a slot migrates", slotsThatMove},
		{"is followed when a slot with rules of several keys migrates", func(t *testing.T, c *redistest.Cluster, g way) {
			g.Username = "overflow"
			rulesOfSlotsThatMove(t, c, g)
		}},
	} {
		for _, interpreted := range []bool{true, false} {
			g.interpreted = interpreted
			t.Run(fmt.Sprintf("%s, interpreted %v", test.name, interpreted), func(t *testing.T) { test.run(t, c, g) })
		}
	}
	t.Run("goes on when replicas take over", func(t *testing.T) { replicasTakeOver(t, c, g) })
	for _, server := range c.Nodes() {
		if !server.Running() {
			continue
		}
		if log := server.MustDo(t, "ACL", "LOG"); len(log.List) != 0 {
			t.Errorf("%s has refused something: %v", server.Addr(), log)
		}
		until(t, "all connections of the stores, which are closed, are closed", func() bool {
			return !strings.Contains(server.MustDo(t, "CLIENT", "LIST").Text, " user=weir ")
		})
	}
}

func oneClientIsOneCall(t *testing.T, c *redistest.Cluster, g way) {
	denying := rule(t, "denying", rate.FixedWindow, 3)
	denying.CountRejected = true // otherwise the store would reject from memory
	n := newFleet(t, 1, g, append(oneOfEach(t, 1000), denying)...)[0]
	all := []int{0, 1, 2, 3, 4}
	asked := func() int {
		sum := 0
		for _, s := range c.Nodes() {
			calls, _ := runs(t, s)
			sum += calls
		}
		return sum
	}
	clients := apart(c, "client", 3)
	for _, test := range []struct {
		keys []string
		want int
	}{
		{clients[:1], 1},
		{[]string{clients[0], clients[0], clients[1], clients[0], clients[1]}, 2},
		{[]string{clients[0], clients[1], clients[2], clients[1], clients[0]}, 3},
	} {
		var before int
		for range 2 { // the first may have to load a script
			before = asked()
			if ok, err := n.ask(all, test.keys...); !ok || err != nil {
				t.Errorf("%v, %v", ok, err)
			}
		}
		if got := asked() - before; got != test.want {
			t.Errorf("a request with the keys %v made %d calls, want %d", test.keys, got, test.want)
		}
		known := n.store.Servers()
		for i, s := range known {
			if s.Open || !slices.Contains(c.Addrs(), s.Name) || i > 0 && s.Name <= known[i-1].Name {
				t.Errorf("the known servers: %+v", known)
			}
		}
		if len(known) < test.want {
			t.Errorf("%d servers are known after a request to %d: %+v", len(known), test.want, known)
		}
	}

	// The part that is known to deny goes first, so that no charge must be given back.
	for call := range 6 {
		before := asked()
		ok, err := n.ask([]int{0, 2, 5}, clients...)
		if ok != (call < 3) || err != nil {
			t.Errorf("call %d: %v, %v", call, ok, err)
		}
		if got := asked() - before; call > 0 && got != 3 {
			t.Errorf("request %d made %d calls, want 3", call, got)
		}
	}
}

func denialsAreGivenBack(t *testing.T, c *redistest.Cluster, g way) {
	shadow := rule(t, "shadow", rate.FixedWindow, 10)
	shadow.Shadow = true
	counting := rule(t, "counting", rate.FixedWindow, 10)
	counting.CountRejected = true
	const enforced, one, two, counted, silent = 0, 1, 2, 3, 4
	for a := rate.TokenBucket; a <= rate.SlidingWindowCounter; a++ {
		fleet := newFleet(t, 3, g, rule(t, "enforced", a, 2), rule(t, "one", a, 10), rule(t, "two", a, 10), counting, shadow)
		keys := apart(c, a.String(), 3)
		var rules []int
		var of []string
		ask := func(n *node, want bool) {
			t.Helper()
			if ok, err := n.ask(rules, of...); ok != want || err != nil {
				t.Errorf("%v: %v, %v; want %v", a, ok, err, want)
			}
		}
		expect := func(r int, key string, want int64) {
			t.Helper()
			if used := fleet[0].used(t, r, key); used != want {
				t.Errorf("%v: %d units of %s are used, want %d", a, used, fleet[0].rules[r].Name(), want)
			}
		}
		// As long as nothing is known, the order is that of the rules: the one that denies goes last.
		rules, of = []int{one, two, counted, silent, enforced}, []string{keys[0], keys[0], keys[1], keys[1], keys[2]}
		ask(fleet[0], true)
		ask(fleet[0], true)
		for range 3 {
			ask(fleet[1], false) // at first it knows nothing, and then which rule denies
		}
		for r, key := range of {
			expect(rules[r], key, 2)
		}

		// A rule with count_rejected rejects another client: that rule is charged, and no other.
		rules, of = []int{counted}, []string{keys[1] + "x"}
		for range 10 {
			ask(fleet[0], true)
		}
		rules, of = []int{one, silent, counted}, []string{keys[0] + "x", keys[2] + "x", keys[1] + "x"}
		for range 2 {
			ask(fleet[1], false)
		}
		expect(one, keys[0]+"x", 0)
		expect(silent, keys[2]+"x", 0)
		expect(counted, keys[1]+"x", 10)

		// A shadow rule over its limit denies nothing. It was not charged, and gets nothing back.
		rules, of = []int{silent}, []string{keys[1] + "y"}
		for range 10 {
			ask(fleet[0], true)
		}
		rules, of = []int{silent, one}, []string{keys[1] + "y", keys[0] + "y"}
		ask(fleet[1], true)
		expect(one, keys[0]+"y", 1)
		expect(silent, keys[1]+"y", 10)
		rules, of = []int{silent, one, enforced}, []string{keys[1] + "y", keys[1] + "y", keys[2]}
		ask(fleet[2], false) // decides on the shadow rule and the other rule of its key before the denial
		expect(one, keys[1]+"y", 0)
		expect(silent, keys[1]+"y", 10)

		// When a rule denies, other rules of the same key were not charged, and get nothing back.
		rules, of = []int{one}, []string{keys[2]}
		ask(fleet[0], true)
		rules, of = []int{one, enforced, two}, []string{keys[2], keys[2], keys[0]}
		ask(fleet[2], false)
		expect(one, keys[2], 1)
		expect(two, keys[0], 2)
	}
}

func failuresAreGivenBack(t *testing.T, c *redistest.Cluster, g way) {
	g.Timeout = 100 * time.Millisecond
	g.ReadTimeout = patience
	n := newFleet(t, 1, g, rule(t, "one", rate.FixedWindow, 10), rule(t, "two", rate.SlidingWindowLog, 10))[0]
	keys := apart(c, "failing", 2)
	both := []int{0, 1}
	// Each master first decides on other clients: an early charge that is late may be given back at any time.
	for _, client := range apart(c, "early", 3) {
		eventually(t, "the first decision", func() error { _, err := n.ask(both, client); return err })
	}
	before := n.used(t, 0, keys[0])
	master := c.Master(slotOf(keys[1]))
	master.Pause() // for less time than the others wait before they take it for dead
	_, err := n.ask(both, keys...)
	master.Resume()
	if !errors.Is(err, redis.ErrTimeout) {
		t.Errorf("a request with one slot that does not answer: %v", err)
	}
	// The deadline has passed, so the charge is given back in the background.
	eventually(t, "the charge is given back", func() error {
		if after := n.used(t, 0, keys[0]); after != before {
			return fmt.Errorf("the units used in the slot that has answered have changed from %d to %d", before, after)
		}
		return nil
	})
	c.Settle()
}

func limitsInDifferentSlots(t *testing.T, _ *redistest.Cluster, g way) {
	shadow := rule(t, "shadow", rate.TokenBucket, plenty)
	shadow.Shadow = true
	counting := rule(t, "counting", rate.FixedWindow, plenty)
	counting.CountRejected = true
	for a := rate.TokenBucket; a <= rate.SlidingWindowCounter; a++ {
		kept := int64(0) // a bucket does not give back what has drained meanwhile: here a part of a unit
		if a == rate.TokenBucket || a == rate.LeakyBucket {
			kept = 1
		}
		fleet := newFleet(t, 3, g, rule(t, "address", a, 20), rule(t, "account", a, 30), shadow, counting)
		var mu sync.Mutex
		admitted := make(map[string]int64)
		ask := func(n *node, address, account string) (bool, error) {
			ok, err := n.ask([]int{0, 1, 2, 3}, address, account, "all", "everybody")
			if ok {
				mu.Lock()
				admitted[address]++
				admitted[account]++
				admitted["all"]++
				admitted["everybody"]++
				mu.Unlock()
			}
			return ok, err
		}
		crowd(t, fleet, 6, nil, func(n *node, caller, i int) (bool, error) {
			return ask(n, "address "+strconv.Itoa((caller+i)%4), "account "+strconv.Itoa((caller/4+i)%3))
		})
		for r, name := range []string{"address ", "account "} {
			for i := range 4 - r {
				key := name + strconv.Itoa(i)
				used := fleet[0].used(t, r, key)
				if used < admitted[key] || used > admitted[key]+kept || admitted[key] > fleet[0].rules[r].Limit.Capacity {
					t.Errorf("%v: %d units of %s are used, %d requests were admitted", a, used, key, admitted[key])
				}
			}
		}
		for r, key := range map[int]string{2: "all", 3: "everybody"} {
			if used := fleet[0].used(t, r, key); used < admitted[key] || used > admitted[key]+1 {
				t.Errorf("%v: %d units of %s are used, %d requests were admitted", a, used, fleet[0].rules[r].Name(), admitted[key])
			}
		}
		// Others can use the units that were given back.
		before := admitted["account 0"]
		for range 100 {
			if ok, err := ask(fleet[1], "address of one", "account 0"); err != nil || !ok {
				break
			}
		}
		if got, want := admitted["account 0"], min(30, before+20); got > want || got < want-kept {
			t.Errorf("%v: %d requests of an account were admitted, want %d", a, got, want)
		}
	}
}

func slotsThatMove(t *testing.T, c *redistest.Cluster, g way) {
	const units = 2000
	fleet := newFleet(t, 3, g, rule(t, "limit", rate.FixedWindow, units), rule(t, "plenty", rate.TokenBucket, plenty))
	clients := apart(c, "moving", 3)
	for round, client := range clients {
		first := fleet[0]
		if ok, err := first.ask([]int{0}, client); !ok || err != nil { // this key exists now, and no other
			t.Fatalf("%v, %v", ok, err)
		}
		stop := load(fleet, 9, func(n *node) (bool, error) { return n.ask([]int{0}, client) })
		m := c.Migrate(slotOf(client))
		m.To.MustDo(t, "SCRIPT", "FLUSH")
		if _, err := first.ask([]int{1}, client); err != nil { // created on the target
			t.Errorf("round %d: a request with a key that does not exist yet: %v", round, err)
		}
		if _, err := first.ask([]int{0, 1}, client); err != nil {
			t.Errorf("round %d: a request with keys on both nodes: %v", round, err)
		}
		m.Move(m.From.MustDo(t, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(m.Slot), "10").Strings()...)
		if _, err := first.ask([]int{0, 1}, client); err != nil {
			t.Errorf("round %d: a request with keys that have moved: %v", round, err)
		}
		m.Finish()
		if _, err := first.ask([]int{0, 1}, client); err != nil {
			t.Errorf("round %d: a request after the migration: %v", round, err)
		}
		until(t, "the limit is used up", func() bool {
			ok, err := first.ask([]int{0}, client)
			return err == nil && !ok
		})
		_, failed, last := stop()
		must.Equal(t, failed, 0, "round %d: %d calls failed: %v", round, failed, last)
		for _, n := range fleet {
			if used := n.used(t, 0, client); used != units {
				t.Errorf("round %d: %d units are used, want %d", round, used, units)
			}
			if used := n.used(t, 1, client); used < 1 || used > 4 {
				t.Errorf("round %d: %d units of the other rule are used", round, used)
			}
		}
	}
}

func replicasTakeOver(t *testing.T, c *redistest.Cluster, g way) {
	const units = 60
	g.Timeout = time.Second
	fleet := newFleet(t, 2, g, rule(t, "limit", rate.SlidingWindowLog, units), rule(t, "plenty", rate.TokenBucket, plenty))
	clients := apart(c, "orphan", 3)
	master := c.Master(slotOf(clients[0]))
	for _, client := range clients {
		for i := range units / 2 {
			eventually(t, "a decision", func() error { _, err := fleet[i%2].ask([]int{0}, client); return err })
		}
		c.Master(slotOf(client)).MustDo(t, "WAIT", "1", "10000")
	}
	var next atomic.Int64
	stop := load(fleet, 12, func(n *node) (bool, error) {
		return n.ask([]int{1}, clients[next.Add(1)%3])
	})
	c.KillMaster(slotOf(clients[0]))
	for _, n := range fleet {
		for _, client := range clients {
			eventually(t, "deciding when the master is dead", func() error { _, err := n.ask([]int{1}, client); return err })
		}
	}
	answered, failed, last := stop()
	t.Logf("%s was killed: %d calls were answered, %d failed: %v", master.Addr(), answered, failed, last)
	for _, client := range clients {
		admitted := 0
		for i := range 2 * units {
			eventually(t, "a decision", func() error {
				ok, err := fleet[i%2].ask([]int{0}, client)
				if ok {
					admitted++
				}
				return err
			})
		}
		must.Equal(t, admitted, units/2, "%d of the %d that were left to %s were admitted", admitted, units/2, client)
	}
}

// rulesOfSlotsThatMove checks rules with several keys, most of which do not exist. They work during a migration, too, unless the source has any of
// the keys.
func rulesOfSlotsThatMove(t *testing.T, c *redistest.Cluster, g way) {
	n := newFleet(t, 1, g, rule(t, "limit", rate.FixedWindow, 100))[0]
	openConcurrency(t, n, "places", 5)
	statuses, err := core.ParseCounted([]string{"401"})
	must.Succeed(t, err)
	tries := rule(t, "tries", rate.SlidingWindowLog, 3)
	tries.OverflowPolicy = core.OverflowPolicy{Count: statuses}
	n.open(t, tries)
	clients := apart(c, "sliding", 2)
	settle := func(checks []core.Check, keep bool) {
		t.Helper()
		reservations := core.AppendReservations(nil, checks)
		for i := range reservations {
			reservations[i].Keep(keep)
		}
		if err := n.store.Settle(reservations); err != nil {
			t.Errorf("at the end of a request: %v", err)
		}
	}
	take := func(client string, rules ...int) (checks []core.Check, admitted bool) {
		t.Helper()
		checks = n.checks(rules, client)
		if err := n.store.Decide(checks, false); err != nil {
			t.Fatalf("rules %v: %v", rules, err)
		}
		admitted = true
		for i := range checks {
			admitted = admitted && checks[i].Decision.Allowed
		}
		return checks, admitted
	}

	client := clients[0] // without any keys yet
	m := c.Migrate(slotOf(client))
	for round := range 30 {
		var under [][]core.Check
		for range 5 {
			checks, ok := take(client, 1)
			if !ok {
				t.Fatalf("round %d: a free place is refused", round)
			}
			under = append(under, checks)
		}
		if _, ok := take(client, 1); ok {
			t.Fatalf("round %d: a sixth place is given", round)
		}
		for _, checks := range under {
			settle(checks, false)
		}
	}
	for i := range 5 {
		checks, ok := take(client, 2)
		must.Equal(t, ok, i < 3, "try %d", i)
		settle(checks, true)
	}
	for i := range 3 {
		checks, ok := take(client, 0, 1)
		if !ok {
			t.Errorf("request %d under two rules is rejected", i)
		}
		settle(checks, false)
	}
	m.Finish()
	if used := n.used(t, 0, client); used != 3 {
		t.Errorf("%d units of the limit are used, want 3", used)
	}
	if checks, ok := take(client, 2); ok {
		t.Errorf("a fourth try after the migration: %+v", checks[0].Decision)
	}
	if checks, ok := take(client, 1); !ok || checks[0].Decision.Remaining != 4 {
		t.Errorf("a place after the migration: %v, %+v", ok, checks[0].Decision)
	}

	client = clients[1] // with requests under way
	checks, _ := take(client, 1)
	m = c.Migrate(slotOf(client))
	for range 5 {
		if _, err := n.ask([]int{1}, client); !errors.Is(err, redis.ErrMoving) {
			t.Errorf("places whose keys are on the source: %v", err)
		}
	}
	if keys := m.To.MustDo(t, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(m.Slot), "10").Strings(); len(keys) != 0 {
		t.Errorf("counted apart: %q", keys)
	}
	m.Move(m.From.MustDo(t, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(m.Slot), "10").Strings()...)
	if second, ok := take(client, 1); !ok || second[0].Decision.Remaining != 3 {
		t.Errorf("a second place, after the first has moved: %v, %+v", ok, second[0].Decision)
	}
	settle(checks, false)
	if third, ok := take(client, 1); !ok || third[0].Decision.Remaining != 3 {
		t.Errorf("a place after the first is free: %v, %+v", ok, third[0].Decision)
	}
	m.Finish()
}
