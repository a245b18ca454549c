package goredis_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
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
	"github.com/proxyweir/weir/tools/underrace"
)

// plenty is a limit that no test reaches.
const plenty = 1_000_000

// observed is a node that shows whether its server is available, and the events of Changed.
type observed struct {
	*node
	client redis.Client

	mu     sync.Mutex
	events []error // the arguments of Changed
}

// newObserved returns a node with one connection, unless g says otherwise, and a rule of a fixed window with plenty as its limit.
func newObserved(t testing.TB, g goredis.Config) *observed {
	t.Helper()
	if g.PoolSize == 0 {
		g.PoolSize = 1
	}
	client, err := goredis.New(g)
	must.Succeed(t, err)
	w := &observed{client: client}
	store, err := redis.NewStore(redis.Config{
		Client:    client,
		Prefix:    "observed" + strconv.FormatInt(stores.Add(1), 10) + ":",
		PlainKeys: true,
		Changed: func(_ string, err error) {
			w.mu.Lock()
			w.events = append(w.events, err)
			w.mu.Unlock()
		},
	})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = store.Close() }) // may be closed already
	w.node = &node{store: store}
	w.open(t, rule(t, "plenty", rate.FixedWindow, plenty))
	return w
}

// take takes one unit of the first rule.
func (w *observed) take() error {
	_, err := w.ask([]int{0}, "everybody")
	return err
}

func (w *observed) available() bool {
	server, err := w.client.Server("")
	return err == nil && server.Available()
}

func (w *observed) changes() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

// until waits for a condition.
func until(t testing.TB, what string, f func() bool) {
	t.Helper()
	eventually(t, what, func() error {
		if f() {
			return nil
		}
		return errors.New("it has not happened")
	})
}

// recovers waits until the breaker closes, without a call, and then until a call succeeds.
func (w *observed) recovers(t testing.TB) {
	t.Helper()
	until(t, "the breaker closes by itself", w.available)
	if err := w.take(); err != nil {
		eventually(t, "deciding again", w.take) // a connection from before the recovery may be left
	}
}

// runs returns how many calls of scripts a server has got, and how many of them have failed.
func runs(t testing.TB, s *redistest.Server) (calls, failed int) {
	t.Helper()
	for line := range strings.Lines(s.MustDo(t, "INFO", "commandstats").Text) {
		name, values, _ := strings.Cut(line, ":")
		if name != "cmdstat_eval" && name != "cmdstat_evalsha" {
			continue
		}
		for value := range strings.SplitSeq(strings.TrimSpace(values), ",") {
			key, number, _ := strings.Cut(value, "=")
			n, _ := strconv.Atoi(number)
			switch key {
			case "calls":
				calls += n
			case "failed_calls":
				failed += n
			}
		}
	}
	return calls, failed
}

// again calls a function at once, and again and again until the returned function is called.
func again(f func()) (stop func()) {
	var wg sync.WaitGroup
	done := make(chan struct{})
	wg.Go(func() {
		for {
			f()
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

func TestScriptsThatAreFlushedAreLoadedAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	fleet := newFleet(t, 3, way{Config: goredis.Config{Addresses: []string{server.Addr()}}}, oneOfEach(t, 10_000)...)
	rules := []int{0, 2, 3, 4} // a leaky bucket would delay most of the requests
	ask := func(n *node, caller, i int) (bool, error) {
		return n.ask([]int{rules[i%4], rules[(i+1+caller%3)%4]}, "everybody")
	}
	for range 3 {
		server.MustDo(t, "SCRIPT", "FLUSH")
		if ok, err := ask(fleet[0], 0, 0); !ok || err != nil {
			t.Fatalf("after SCRIPT FLUSH: %v, %v", ok, err)
		}
	}
	stop := again(func() { server.MustDo(t, "SCRIPT", "FLUSH") })
	admitted := crowd(t, fleet, 10, nil, ask)
	stop()
	must.Equal(t, admitted, 640, "%d of 640 requests were admitted", admitted)
	used := int64(0)
	for _, r := range rules {
		used += fleet[0].used(t, r, "everybody")
	}
	if want := 2 * (admitted + 3); used != want {
		t.Errorf("%d units are used, want %d", used, want)
	}
	if _, failed := runs(t, server); failed == 0 {
		t.Error("no script was missing")
	}
}

func TestAReplicaIsUsedAgainWhenItIsTheMaster(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := newObserved(t, goredis.Config{Addresses: []string{server.Addr()}, Timeout: patience})
	replica := func() { server.MustDo(t, "REPLICAOF", "127.0.0.1", "1") }
	master := func() { server.MustDo(t, "REPLICAOF", "NO", "ONE") }
	must.Succeed(t, w.take())
	replica()
	for call := 0; w.available(); call++ {
		if call == 100 {
			t.Fatal("the breaker does not open")
		}
		if err := w.take(); err == nil || !strings.Contains(err.Error(), "READONLY") {
			t.Fatalf("a replica: %v", err)
		}
	}
	before, _ := runs(t, server)
	for range 10_000 {
		if err := w.take(); !errors.Is(err, redis.ErrUnavailable) {
			t.Fatalf("with the breaker open: %v", err)
		}
	}
	if after, _ := runs(t, server); after-before > 1000 { // probes, each sent a few times
		t.Errorf("10000 calls with the breaker open sent %d scripts", after-before)
	}
	master()
	w.recovers(t)
	if events := w.changes(); len(events) != 2 || events[0] == nil || events[1] != nil {
		t.Errorf("the changes are %v, want an error and none", events)
	}
	if used := w.used(t, 0, "everybody"); used != 2 {
		t.Errorf("%d units are used, want 2", used)
	}

	// Back and forth under load: requests that were answered were charged once, and those that failed were not.
	stop := load([]*node{w.node}, 8, func(n *node) (bool, error) { return n.ask([]int{0}, "load") })
	for range 20 {
		replica()
		until(t, "it has refused", func() bool { _, failed := runs(t, server); return failed > 0 })
		master()
		server.MustDo(t, "CONFIG", "RESETSTAT")
		until(t, "it has been asked", func() bool { calls, _ := runs(t, server); return calls > 0 })
	}
	admitted, failed, last := stop()
	w.recovers(t)
	if used := w.used(t, 0, "load"); used != admitted {
		t.Errorf("%d units are used, %d requests were admitted", used, admitted)
	}
	t.Logf("back and forth: %d admitted, %d failed: %v", admitted, failed, last)
}

func TestAServerIsUsedAgainWhenItHasLoadedItsData(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithConfig("key-load-delay 300", "loading-process-events-interval-bytes 1024"))
	w := newObserved(t, goredis.Config{Addresses: []string{server.Addr()}, Timeout: patience})
	must.Succeed(t, w.take())
	server.MustDo(t, "DEBUG", "POPULATE", "3000", "other", "100")
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := server.Do("DEBUG", "RELOAD"); err != nil {
			t.Error(err)
		}
	})
	until(t, "it says that it loads", func() bool {
		err := w.take()
		return err != nil && strings.Contains(err.Error(), "LOADING")
	})
	wg.Wait()
	before := w.used(t, 0, "everybody")
	w.recovers(t)
	must.Equal(t, w.used(t, 0, "everybody"), before+1, "one call has changed the units used from %d to", before)
}

func TestWithoutMemoryNothingIsHalfWritten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	n := newFleet(t, 1, way{Config: goredis.Config{Addresses: []string{server.Addr()}}}, oneOfEach(t, plenty/10)...)[0]
	all := []int{0, 1, 2, 3, 4}
	cost := func(rules []int, cost int64) error {
		checks := n.checks(rules, "seen")
		for i := range checks {
			checks[i].Cost = cost
		}
		return n.store.Decide(checks, false)
	}
	must.Succeed(t, cost(all, 1))
	if err := cost([]int{3}, 1000); err != nil { // a long log is written in pieces
		t.Fatal(err)
	}
	dump := func() string {
		var b strings.Builder
		for r, name := range rate.AlgorithmNames {
			fmt.Fprintf(&b, "%s: seen %d, new %d; ", name, n.used(t, r, "seen"), n.used(t, r, "new"))
		}
		return b.String()
	}
	before := dump()
	server.MustDo(t, "CONFIG", "SET", "maxmemory", "1")
	for _, key := range []string{"seen", "new"} {
		for r := range all {
			if _, err := n.ask([]int{r}, key); err == nil || !strings.Contains(err.Error(), "OOM") {
				t.Errorf("%s without memory: %v", rate.AlgorithmNames[r], err)
			}
			until(t, "the breaker closes", func() bool { // if probes succeed: they write nothing that stays
				server.MustDo(t, "CONFIG", "SET", "maxmemory", "0")
				err := cost([]int{0}, 0)
				server.MustDo(t, "CONFIG", "SET", "maxmemory", "1")
				return err == nil
			})
		}
		order := slices.Clone(all)
		slices.Reverse(order)
		for _, rules := range [][]int{all, order} {
			if _, err := n.ask(rules, key); err == nil || !strings.Contains(err.Error(), "OOM") {
				t.Errorf("five rules without memory: %v", err)
			}
		}
	}
	server.MustDo(t, "CONFIG", "SET", "maxmemory", "0")
	eventually(t, "deciding again", func() error { return cost([]int{0}, 0) })
	if after := dump(); after != before {
		t.Errorf("before: %s\nafter:  %s", before, after)
	}
}

func TestAForeignValueUnderAKeyIsOverwritten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rules := oneOfEach(t, 1000)
	n := newFleet(t, 1, way{Config: goredis.Config{Addresses: []string{server.Addr()}}}, rules...)[0]
	if _, err := n.ask([]int{0, 1, 2, 3, 4}, "everybody"); err != nil {
		t.Fatal(err)
	}
	keys := make([]string, len(rules))
	for _, key := range server.MustDo(t, "KEYS", "*").Strings() {
		for r := range rules {
			if strings.Contains(key, ":"+rules[r].Name+":") {
				keys[r] = key
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	junk := func(length int) string {
		b := make([]byte, length)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return string(b)
	}
	values := [][]string{
		{"RPUSH", "a", "b"},
		{"HSET", "field", "value"},
		{"SADD", "member"},
		{"ZADD", "1", "member"},
		{"XADD", "*", "field", "value"},
		{"SET", ""},
		{"SET", "1"},
		{"SET", "12345"},
		{"SET", strings.Repeat("x", 100_001)},
		{"SET", strings.Repeat("\x00", 100_002)},
		{"SET", strings.Repeat("\xff", 100_003)},
	}
	for _, length := range []int{10, 11, 12, 15, 17, 1034, 1035, 1039, 4011} {
		values = append(values, []string{"SET", strings.Repeat("\xff", length)}, []string{"SET", junk(length)})
	}
	for r := range rules {
		for _, value := range values {
			for _, several := range []bool{false, true} {
				what := fmt.Sprintf("%s over %s of %d bytes, several rules: %v", rules[r].Name, value[0], len(value[1]), several)
				server.MustDo(t, "DEL", keys[r])
				server.MustDo(t, append([]string{value[0], keys[r]}, value[1:]...)...)
				asked := []int{r}
				if several {
					asked = append(asked, (r+1)%5)
				}
				if ok, err := n.ask(asked, "everybody"); !ok || err != nil {
					t.Errorf("%s: admitted %v, %v", what, ok, err)
					eventually(t, "deciding again", func() error {
						server.MustDo(t, "DEL", keys[r])
						_, err := n.ask([]int{r}, "everybody")
						return err
					})
					continue
				}
				if used := n.used(t, r, "everybody"); used != 1 {
					t.Errorf("%s: %d units are used", what, used)
				}
				if kind, ttl := server.MustDo(t, "TYPE", keys[r]).Text, server.MustDo(t, "PTTL", keys[r]).Int; kind != "string" || ttl <= 0 {
					t.Errorf("%s: a %s is there, for %d ms", what, kind, ttl)
				}
			}
		}
	}
}

// This is for a defect: while the key of reservations, of charges to come, or of requests that wait had a value of another type, requests under
// the rule failed.
func TestAForeignValueUnderAFurtherKeyIsOverwritten(t *testing.T) {
	underrace.OneGoroutine(t)
	t.Parallel()
	server := redistest.Start(t)
	statuses, err := core.ParseCounted([]string{"401"})
	must.Succeed(t, err)
	var rules []core.RuleConfig
	for _, c := range oneOfEach(t, 10) {
		name := c.Name
		c.Name, c.OverflowPolicy = name+"-penalty", core.OverflowPolicy{Penalties: []time.Duration{time.Hour}}
		if c.Limit.Algorithm != rate.LeakyBucket { // it allows no count by status and no penalties
			rules = append(rules, c)
			c.Name, c.OverflowPolicy = name+"-count", core.OverflowPolicy{Count: statuses}
			rules = append(rules, c)
		}
		if c.Limit.Algorithm == rate.SlidingWindowCounter { // it never delays
			continue
		}
		most := int64(2)
		if c.Limit.Algorithm == rate.LeakyBucket { // its requests wait, from the second on
			most = 4
		}
		delayed, err := rate.NewLimit(rate.LimitConfig{Requests: most, Period: 10 * time.Minute, Algorithm: c.Limit.Algorithm, Delays: true, MaxDelay: time.Hour})
		must.Succeed(t, err)
		rules = append(rules, core.RuleConfig{Name: name + "-delay", Limit: delayed})
	}
	places, err := rate.NewConcurrency(10)
	must.Succeed(t, err)
	rules = append(rules, core.RuleConfig{Name: "places", Limit: places})
	n := newFleet(t, 1, way{Config: goredis.Config{Addresses: []string{server.Addr()}}}, rules...)[0]
	values := [][]string{
		{"RPUSH", "a", "b"},
		{"HSET", "field", "value"},
		{"SADD", "member"},
		{"ZADD", "1", "member"},
		{"ZADD", "9e15", "member", "9e15", "a longer member than any that there should be"},
		{"SET", "12345"},
	}
	for r, c := range rules {
		server.MustDo(t, "FLUSHALL")
		if _, err := n.ask([]int{r}, "everybody"); err != nil {
			t.Fatal(err)
		}
		keys := server.MustDo(t, "KEYS", "*").Strings()
		if len(keys) == 0 {
			t.Fatal("there is no key")
		}
		base := strings.TrimSuffix(strings.TrimSuffix(keys[0], ":h"), ":a")
		for _, suffix := range []string{":a", ":h", ":m", ":p", ":l"} {
			for _, value := range values {
				for _, when := range []string{"before", "between", "at the end"} {
					what := fmt.Sprintf("%s, %s over %s, %s", c.Name, suffix, value[0], when)
					server.MustDo(t, "FLUSHALL")
					spoil := func() {
						server.MustDo(t, "DEL", base+suffix)
						server.MustDo(t, append([]string{value[0], base + suffix}, value[1:]...)...)
					}
					var reservations []core.Reservation
					for i := range 3 { // one costs two units: its reservation has another key
						if when == "before" && i == 0 || when == "between" && i == 2 {
							spoil()
						}
						checks := []core.Check{{Rule: n.rules[r], Key: "everybody", Cost: 1 + int64(i)%2}}
						if err := n.store.Decide(checks, false); err != nil || !checks[0].Decision.Allowed {
							t.Errorf("%s: request %d: %v, %v", what, i+1, checks[0].Decision.Allowed, err)
							continue
						}
						reservations = append(reservations, core.AppendReservations(nil, checks)...)
					}
					if when == "at the end" {
						spoil()
					}
					for i := range reservations {
						reservations[i].Keep(i == 0)
					}
					if err := n.store.Settle(reservations); err != nil {
						t.Errorf("%s: the end: %v", what, err)
					}
				}
			}
		}
	}
}

func TestACallThatMayHaveBeenExecutedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	w := newObserved(t, goredis.Config{Addresses: []string{proxy.Addr()}, Timeout: patience})
	made := 0
	lost := func(what string, spoil func()) {
		t.Helper()
		made++
		if err := w.take(); err != nil {
			t.Fatalf("%s: before: %v", what, err)
		}
		before, _ := runs(t, server)
		spoil()
		made++
		if err := w.take(); err == nil {
			t.Errorf("%s: no error", what)
		}
		proxy.Pass()
		if after, _ := runs(t, server); after != before+1 {
			t.Errorf("%s: the script was run %d times", what, after-before)
		}
		if used := w.used(t, 0, "everybody"); used != int64(made) {
			t.Errorf("%s: %d units are used, want %d", what, used, made)
		}
	}
	lost("the reply is dropped", func() { proxy.DropReply("evalsha") })
	for n := 1; n < len("*3\r\n:999990\r\n:0\r\n"); n++ {
		lost(fmt.Sprintf("the reply is cut after %d bytes", n), func() { proxy.CutAfter(n) })
	}
	lost("the reply is garbled", func() { proxy.Garble(nil) })
}

// malformed are texts that are never a reply of a server.
var malformed = []string{
	"*99999999999\r\n", "*+99999999999\r\n", "*9999999\r\n", "*-5\r\n", "*-1\r\n", "*0\r\n", "*\r\n", "*x\r\n", "*?\r\n", "*3\r\n", "*00000000000000003\r\n",
	"$-5\r\n", "$99999999999\r\n", "$+99999999999\r\n", "$9223372036854775807\r\n", "$-1\r\n", "$0\r\n\r\n", "$5\r\nhe", "$\r\n",
	"*3\r\n$99999999999\r\n", "*3\r\n$-5\r\n", "*3\r\n*3\r\n*3\r\n", "*3\r\n+a\r\n+b\r\n+c\r\n", "*3\r\n:1\r\n:2\r\n", "*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n",
	"*3\r\n:99999999999999999999\r\n:0\r\n:0\r\n", "*3\r\n:\r\n:\r\n:\r\n", "*3\r\n-ERR\r\n:0\r\n:0\r\n", "*3\r\n$-1\r\n$-1\r\n$-1\r\n",
	"%99999999999\r\n", "~99999999999\r\n", ">99999999999\r\n", "|99999999999\r\n", "=99999999999\r\n", "!99999999999\r\n", "!-5\r\n", "!5\r\nERR",
	"%3\r\n", "|1\r\n+a\r\n+b\r\n", "|1\r\n", ">2\r\n+a\r\n", ",1.5\r\n", "#t\r\n", "(123\r\n", "_\r\n", ":\r\n", ":1\r\n", "+OK\r\n", "-ERR\r\n", "-\r\n",
	"-MOVED\r\n", "-MOVED 1\r\n", "-MOVED 1 \r\n", "-MOVED 1 nowhere:1\r\n", "-ASK\r\n", "-ASK 1 x\r\n", "-READONLY\r\n", "-NOSCRIPT\r\n", "-NOSCRIPT No\r\n",
	"\r\n", "\n", "\r", "\x00", "HTTP/1.1 400 Bad Request\r\n\r\n", "\r\n\r\n\r\n", strings.Repeat("x", 100_000), strings.Repeat("*1\r\n", 50_000),
}

func TestAMalformedReplyDoesNoHarm(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	g := goredis.Config{Addresses: []string{proxy.Addr()}, PoolSize: 2, Timeout: 20 * time.Millisecond, ReadTimeout: 20 * time.Millisecond}
	junk := slices.Clone(malformed)
	random := rand.New(rand.NewPCG(3, 4))
	const alphabet = "*$:+-%~>|=!_#,(0123456789\r\n"
	for range 150 {
		b := make([]byte, 1+random.IntN(60))
		for i := range b {
			b[i] = alphabet[random.IntN(len(alphabet))]
			if i > 0 && b[i-1] == '\r' {
				b[i] = '\n'
			}
		}
		junk = append(junk, string(b))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var next atomic.Int64
	proxy.Garble(func([]byte) []byte { return []byte(junk[int(next.Add(1)-1)%len(junk)]) })
	for int(next.Load()) < len(junk) {
		w := newObserved(t, g)
		for try := 0; try < 100 && w.available(); try++ {
			_ = w.take() // may be an error, or a decision that the server has not made: it must only return
		}
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
	}
	runtime.ReadMemStats(&after)
	if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > 1024 {
		t.Errorf("%d MB were allocated for %d replies", allocated, len(junk))
	}

	// One store, connected before, gets them all, and recovers when the replies do.
	proxy.Pass()
	w := newObserved(t, g)
	eventually(t, "the first decision", w.take)
	for _, reply := range malformed {
		proxy.Garble(func([]byte) []byte { return []byte(reply) })
		for range 3 { // too few calls to open the breaker
			err := w.take()
			if kind := redis.ErrorKind(err); err != nil && kind != "reply" && kind != "timeout" && kind != "connection" {
				t.Errorf("%.20q: error %v is of the kind %q", reply, err, kind)
			}
		}
		proxy.Pass()
		proxy.Cut() // the client may have taken the junk for the beginning of a reply
		until(t, fmt.Sprintf("recovering from %.20q", reply), func() bool { return w.available() && w.take() == nil })
	}
}

func TestKilledConnectionsAreReplaced(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	g := goredis.Config{Addresses: []string{server.Addr()}, Timeout: time.Second}
	fleet := newFleet(t, 3, way{Config: g}, rule(t, "plenty", rate.TokenBucket, plenty))
	var kills atomic.Int64
	stop := again(func() {
		if killed, err := server.Do("CLIENT", "KILL", "TYPE", "normal"); err == nil {
			kills.Add(killed.Int)
		}
	})
	end := load(fleet, 16, func(n *node) (bool, error) { return n.ask([]int{0}, "everybody") })
	until(t, "connections are killed", func() bool { return kills.Load() >= 60 })
	stop()
	for _, n := range fleet {
		eventually(t, "deciding again", func() error { _, err := n.ask([]int{0}, "everybody"); return err })
	}
	admitted, failed, last := end()
	used := fleet[0].used(t, 0, "everybody")
	if used < admitted || used > admitted+failed+3 {
		t.Errorf("%d units are used; %d calls were answered, and %d failed", used, admitted, failed)
	}
	t.Logf("%d connections were killed, %d calls answered, %d failed: %v", kills.Load(), admitted, failed, last)
}

// A call whose connection ends before the call is written to it was not executed, and is sent over another.
func TestACallThatWasNotWrittenIsSentOverAnotherConnection(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.WithPassword("secret"))
	proxy := redistest.NewProxy(t, server.Addr())
	w := newObserved(t, goredis.Config{Addresses: []string{proxy.Addr()}, Password: "secret", Timeout: patience})
	eventually(t, "the first decision", w.take)
	for bytes := 1; bytes < len("+OK\r\n"); bytes++ {
		proxy.Cut()
		proxy.CutAfter(bytes) // of the reply to AUTH
		if err := w.take(); err != nil {
			t.Errorf("a connection ends after %d bytes of the reply to AUTH: %v", bytes, err)
		}
		proxy.Pass()
	}
}

func TestACallToABlackHoleEndsAtTheTimeout(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	w := newObserved(t, goredis.Config{Addresses: []string{proxy.Addr()}, PoolSize: 2, Timeout: 50 * time.Millisecond, ReadTimeout: 100 * time.Millisecond})
	eventually(t, "the first decision", w.take)
	proxy.BlackHole()
	for call := 0; w.available(); call++ {
		if call == 100 {
			t.Fatal("the breaker does not open")
		}
		began := time.Now()
		err := w.take()
		if err == nil {
			t.Fatal("a black hole has answered")
		}
		// Its connections are closed, and new ones get no answer either.
		if kind := redis.ErrorKind(err); kind != "timeout" && kind != "connection" {
			t.Errorf("error %v is of the kind %q", err, kind)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("a call took %v", took)
		}
	}
	last := func() error {
		events := w.changes()
		return events[len(events)-1]
	}
	// On a busy machine there may have been others before.
	until(t, "it is told that the breaker is open", func() bool { return len(w.changes()) > 0 && last() != nil })
	told := len(w.changes())
	for range 10_000 {
		if err := w.take(); !errors.Is(err, redis.ErrUnavailable) || redis.ErrorKind(err) != "unavailable" {
			t.Fatalf("with the breaker open: %v", err)
		}
	}
	if events := w.changes(); len(events) != told {
		t.Errorf("the changes are %v, want that it is told once", events)
	}
	proxy.Pass()
	w.recovers(t)
	until(t, "it is told that the breaker is closed", func() bool { return last() == nil })
}

func TestAServerThatComesLaterIsFound(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Stop()
	w := newObserved(t, goredis.Config{Addresses: []string{server.Addr()}, PoolSize: 2, Timeout: patience})
	until(t, "the breaker opens", func() bool {
		if err := w.take(); err == nil {
			t.Fatal("no server has answered")
		}
		return !w.available()
	})
	server.Restart()
	w.recovers(t)
	server.Restart() // which empties it, and closes the connections
	eventually(t, "deciding after a restart", w.take)
	if used := w.used(t, 0, "everybody"); used != 1 {
		t.Errorf("%d units are used after a restart, want 1", used)
	}
	server.MustDo(t, "PING")
}

func TestAPausedServerAdmitsNoMoreThanTheLimitAfterwards(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	const units = 5000
	g := goredis.Config{Addresses: []string{server.Addr()}, Timeout: 50 * time.Millisecond}
	fleet := newFleet(t, 2, way{Config: g}, rule(t, "limit", rate.FixedWindow, units))
	stop := load(fleet, 32, func(n *node) (bool, error) { return n.ask([]int{0}, "everybody") })
	until(t, "some were admitted", func() bool { calls, _ := runs(t, server); return calls > 100 })
	server.Pause()
	until(t, "the breakers open", func() bool {
		for _, n := range fleet {
			if _, err := n.ask([]int{0}, "another"); !errors.Is(err, redis.ErrUnavailable) {
				return false
			}
		}
		return true
	})
	server.Resume()
	for _, n := range fleet {
		eventually(t, "deciding again", func() error { _, err := n.ask([]int{0}, "another"); return err })
	}
	mine := int64(0)
	until(t, "the limit is used up", func() bool {
		ok, err := fleet[0].ask([]int{0}, "everybody")
		if ok {
			mine++
		}
		return err == nil && !ok
	})
	admitted, failed, last := stop()
	admitted += mine
	if admitted > units {
		t.Errorf("%d of %d were admitted; %d failed: %v", admitted, units, failed, last)
	}
	if used := fleet[1].used(t, 0, "everybody"); used != units {
		t.Errorf("%d units are used, want %d", used, units)
	}
	t.Logf("%d of %d were admitted, %d failed: %v", admitted, units, failed, last)
}

func TestACallThatHasWaitedTooLongIsNotSent(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	w := newObserved(t, goredis.Config{Addresses: []string{server.Addr()}, Timeout: 200 * time.Millisecond, ReadTimeout: patience})
	eventually(t, "the first decision", w.take)
	before := w.used(t, 0, "everybody")
	server.Pause()
	for call := range 4 { // the first is sent; the others wait for its connection. A fifth would open the breaker
		if err := w.take(); !errors.Is(err, redis.ErrTimeout) {
			t.Errorf("call %d: %v", call, err)
		}
	}
	server.Resume()
	var used int64
	eventually(t, "deciding again", func() error {
		checks := []core.Check{{Rule: w.rules[0], Key: "everybody"}}
		err := w.store.Decide(checks, true)
		used = checks[0].Decision.Limit - checks[0].Decision.Remaining
		return err
	})
	must.Equal(t, used, before+1, "%d of four calls were executed, but only one was sent", used-before)
}

func TestCallsInFlightEndWithClose(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	for _, spoil := range []func(){proxy.Pass, proxy.BlackHole} {
		proxy.Pass()
		w := newObserved(t, goredis.Config{Addresses: []string{proxy.Addr()}, PoolSize: 2, Timeout: time.Second, ReadTimeout: patience})
		eventually(t, "the first decision", w.take)
		stop := load([]*node{w.node}, 32, func(*node) (bool, error) { return true, w.take() })
		until(t, "calls are made", func() bool { calls, _ := runs(t, server); return calls > 100 })
		spoil()
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
		until(t, "calls fail", func() bool { return w.take() != nil })
		stop()
		if err := w.take(); err == nil {
			t.Error("a call is answered after Close")
		}
	}
}

// ours returns the stacks of goroutines that the client has started.
func ours() []string {
	buf := make([]byte, 4<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var list []string
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		if strings.Contains(stack, "goredis.(*") || strings.Contains(stack, "redis/go-redis/v9") {
			list = append(list, stack)
		}
	}
	return list
}

// It is not parallel, since it looks at all goroutines.
func TestNothingIsLeftAfterClose(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	dead := redistest.Start(t)
	dead.Stop()
	if left := ours(); len(left) != 0 {
		t.Fatalf("there are goroutines before the test begins:\n%s", strings.Join(left, "\n\n"))
	}
	base := goredis.Config{PoolSize: 3, Timeout: 20 * time.Millisecond, DialTimeout: patience, ReadTimeout: patience}
	at := func(addr string, change func(g *goredis.Config)) goredis.Config {
		g := base
		g.Addresses = []string{addr}
		if change != nil {
			change(&g)
		}
		return g
	}
	sentinel := func(g *goredis.Config) { g.MasterName = "m" }
	cluster := func(g *goredis.Config) { g.Cluster = true }
	var nodes []*node
	var wg sync.WaitGroup
	for _, g := range []goredis.Config{
		at(server.Addr(), nil), at(proxy.Addr(), nil), at(dead.Addr(), nil),
		at(proxy.Addr(), sentinel), at(dead.Addr(), sentinel),
		at(proxy.Addr(), cluster), at(dead.Addr(), cluster),
	} {
		client, err := goredis.New(g)
		must.Succeed(t, err)
		store, err := redis.NewStore(redis.Config{Client: client, Prefix: "left:"})
		must.Succeed(t, err)
		n := &node{store: store}
		n.open(t, rule(t, "plenty", rate.TokenBucket, plenty))
		nodes = append(nodes, n)
	}
	stop := load(nodes, 21, func(n *node) (bool, error) { return n.ask([]int{0}, "everybody") })
	for _, fault := range []func(){
		proxy.Cut,
		func() { proxy.Garble(nil) },
		proxy.HangUp,
		proxy.Refuse,
		proxy.BlackHole,
		func() { server.MustDo(t, "SCRIPT", "FLUSH") },
		func() { server.MustDo(t, "CLIENT", "KILL", "TYPE", "normal") },
	} {
		fault()
		for range 20 {
			_, _ = nodes[1].ask([]int{0}, "everybody")
			_, _ = nodes[0].ask([]int{0}, "everybody")
		}
	}
	if len(ours()) == 0 {
		t.Error("no goroutine of the client's is found")
	}
	for _, n := range nodes {
		wg.Go(func() {
			if err := n.store.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	stop()
	eventually(t, "all goroutines end", func() error {
		if left := ours(); len(left) != 0 {
			return errors.New(strings.Join(left, "\n\n"))
		}
		return nil
	})
}
