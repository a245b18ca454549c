package ratelimit_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
)

// These tests run a real Caddy under steady load, while one fault after another hits its Redis. In `go test` a fault lasts less
// than a second; with WEIR_CHAOS=long it lasts five. No assertion depends on the speed of the machine; measured times are only
// printed, in a table at the end.

// The load: this many clients, each of which makes a request at this interval, or as soon as its last one is answered. Each uses
// this many keys in rotation.
const (
	loadClients = 16
	loadPause   = 20 * time.Millisecond
	loadKeys    = 64
)

// The limits of chaosSite: no client makes so many requests, except for hot keys.
const (
	plainLimit   = 1_000_000
	hotLimit     = 20
	witnessLimit = 1_000_000_000
)

// chaosSite is a site with the limits above. The zone witness shows who has decided on a request: with on_error open, the RateLimit
// field omits it if Redis has not decided, while the other zones always appear. Its remaining quota shows what Redis has counted.
// (A rejection that the node remembers counts as Redis's.)
func chaosSite(store, witness string) string {
	return fmt.Sprintf(`
		rate_limit {
			zone client {
				key {header.X-Client}
				limit %d/366d
				on_error local
			}
			zone hot {
				key {header.X-Hot}
				on_missing_key skip
				limit %d/366d
				algorithm fixed_window
				on_error local
			}
			zone witness {
				key %s
				limit %d/366d
				algorithm fixed_window
				on_error open
			}
			%s
		}
		respond ok`, plainLimit, hotLimit, witness, witnessLimit, store)
}

// chaosStore has the settings of the store under test.
const chaosStore = "timeout 50ms\nnodes 1\nplain_keys"

// What the RateLimit field has for the zones witness and hot.
var (
	testimony = regexp.MustCompile(`"witness";r=(\d+)`)
	hotState  = regexp.MustCompile(`"hot";r=(\d+)`)
)

// chaos is a Caddy whose store has faults.
type chaos struct {
	server  *server
	alone   *redistest.Server // nil: there are several, whose commands and counts are not checked
	lasting time.Duration     // how long a fault lasts
	table   *[]string
}

// fault is one thing that happens to Redis.
type fault struct {
	name string

	// forgets says that Redis may lose its counts.
	forgets bool

	// restarts says that Redis loses its count of commands.
	restarts bool

	// silences says that Redis decides nothing during the fault, so that the breaker opens.
	silences bool

	// happen makes the fault happen for about that long, and returns when it has ended.
	happen func(t *testing.T, l *traffic, lasting time.Duration)
}

func TestNoRequestIsLostWhateverBefallsRedis(t *testing.T) {
	lasting := 400 * time.Millisecond
	if os.Getenv("WEIR_CHAOS") == "long" {
		lasting = 5 * time.Second
	}
	goroutines := goroutinesButLoggers()
	table := []string{
		"| what happens | for | requests | lost | by on_error | worst | without | 99th percentile | without | Redis decides again after | commands a request |",
		"| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
	}
	t.Run("alone", func(t *testing.T) {
		redis, other := redistest.Start(t), redistest.Start(t)
		c := &chaos{
			server:  startSite(t, chaosSite(storeAt(redis.Addr(), chaosStore), "everyone")),
			alone:   redis,
			lasting: lasting,
			table:   &table,
		}
		for _, f := range faultsOfAServer(redis, other) {
			t.Run(f.name, func(t *testing.T) { c.befall(t, f) })
		}
	})
	t.Run("behind a proxy", func(t *testing.T) {
		redis := redistest.Start(t)
		proxy := redistest.NewProxy(t, redis.Addr())
		c := &chaos{
			server:  startSite(t, chaosSite(storeAt(proxy.Addr(), chaosStore), "everyone")),
			alone:   redis,
			lasting: lasting,
			table:   &table,
		}
		for _, f := range faultsOfANetwork(proxy) {
			t.Run(f.name, func(t *testing.T) { c.befall(t, f) })
		}
	})
	t.Run("Sentinel", func(t *testing.T) {
		sentinel := redistest.StartSentinel(t)
		store := "store redis " + strings.Join(sentinel.Addrs(), " ") + " {\nmaster_name " + redistest.MasterName + "\n" + chaosStore + "\n}\n"
		c := &chaos{server: startSite(t, chaosSite(store, "everyone")), lasting: lasting, table: &table}
		f := fault{name: "Sentinel: the master is killed", forgets: true, silences: true, happen: func(t *testing.T, _ *traffic, _ time.Duration) {
			sentinel.Master().Kill()
			awaitMaster(t, sentinel.Servers()...)
		}}
		t.Run(f.name, func(t *testing.T) { c.befall(t, f) })
	})
	t.Run("Cluster", func(t *testing.T) {
		cluster := redistest.StartCluster(t)
		store := storeAt(strings.Join(cluster.Addrs(), " "), "cluster", chaosStore)
		// The witness has the client as its key, so that a request is one call, to one of the masters.
		c := &chaos{server: startSite(t, chaosSite(store, "{header.X-Client}")), lasting: lasting, table: &table}
		f := fault{name: "Cluster: a master is killed", forgets: true, silences: true, happen: func(t *testing.T, l *traffic, _ time.Duration) {
			slot := redistest.Slot(l.freshKey)
			replicas := cluster.Replicas(slot)
			cluster.Master(slot).Kill()
			awaitMaster(t, replicas...)
		}}
		t.Run(f.name, func(t *testing.T) { c.befall(t, f) })
	})
	t.Log("\n" + strings.Join(table, "\n"))
	eventually(t, "what has been started has ended", func() bool { return goroutinesButLoggers() <= goroutines })
}

// goroutinesButLoggers returns how many goroutines run, without those of Caddy's log files, each of which leaves one behind.
func goroutinesButLoggers() int {
	return strings.Count(stacks(), "\ngoroutine ") - strings.Count(stacks(), "timberjack.(*Logger).millRun(")
}

// awaitMaster waits until one of the servers is the master, after the old master was killed.
func awaitMaster(t *testing.T, servers ...*redistest.Server) {
	eventually(t, "a replica takes over", func() bool {
		return slices.ContainsFunc(servers, func(server *redistest.Server) bool {
			if !server.Running() {
				return false
			}
			role, err := server.Do("ROLE")
			return err == nil && strings.HasPrefix(role.String(), "[master ")
		})
	})
}

// faultsOfAServer are the faults of a Redis that can be reached. other is a server of which it is made a replica.
func faultsOfAServer(redis, other *redistest.Server) []fault {
	do := func(command string) func(*testing.T) {
		return func(t *testing.T) { redis.MustDo(t, strings.Fields(command)...) }
	}
	host, port, _ := strings.Cut(other.Addr(), ":")
	return []fault{
		{name: "SCRIPT FLUSH every 10 ms", happen: again(10*time.Millisecond, do("SCRIPT FLUSH"))},
		{name: "CLIENT KILL every 10 ms", happen: again(10*time.Millisecond, do("CLIENT KILL TYPE normal"))},
		{name: "stopped (SIGSTOP)", silences: true, happen: between(
			func(*testing.T) { redis.Pause() },
			func(*testing.T) { redis.Resume() },
		)},
		{name: "out of memory", silences: true, happen: between(
			do("CONFIG SET maxmemory 1 maxmemory-policy noeviction"),
			do("CONFIG SET maxmemory 0"),
		)},
		{name: "read-only (REPLICAOF)", forgets: true, silences: true, happen: between(
			do("REPLICAOF "+host+" "+port),
			do("REPLICAOF NO ONE"),
		)},
		{name: "restarted, empty", forgets: true, restarts: true, happen: func(*testing.T, *traffic, time.Duration) { redis.Restart() }},
		{name: "killed, started later", forgets: true, restarts: true, silences: true, happen: between(
			func(*testing.T) { redis.Kill() },
			func(*testing.T) { redis.Restart() },
		)},
	}
}

// faultsOfANetwork are the faults of the network to Redis.
func faultsOfANetwork(proxy *redistest.Proxy) []fault {
	heal := func(*testing.T) { proxy.Pass() }
	then := func(happen func(*testing.T, *traffic, time.Duration)) func(*testing.T, *traffic, time.Duration) {
		return func(t *testing.T, l *traffic, lasting time.Duration) {
			happen(t, l, lasting)
			heal(t)
		}
	}
	return []fault{
		{name: "connections cut every 20 ms", happen: again(20*time.Millisecond, func(*testing.T) { proxy.Cut() })},
		{name: "half a reply, then cut, every 20 ms", happen: then(again(20*time.Millisecond, func(*testing.T) { proxy.CutAfter(5) }))},
		{name: "replies dropped every 20 ms", happen: then(again(20*time.Millisecond, func(*testing.T) { proxy.DropReply("evalsha") }))},
		{name: "replies 30 ms late", happen: between(func(*testing.T) { proxy.Delay(15 * time.Millisecond) }, heal)}, // 15 ms each way
		{name: "replies 200 ms late", silences: true, happen: between(func(*testing.T) { proxy.Delay(100 * time.Millisecond) }, heal)},
		{name: "replies garbled", silences: true, happen: between(func(*testing.T) { proxy.Garble(nil) }, heal)},
		{name: "a black hole", silences: true, happen: between(func(*testing.T) { proxy.BlackHole() }, heal)},
		{name: "connections refused", silences: true, happen: between(func(*testing.T) { proxy.Refuse() }, heal)},
	}
}

// between returns a fault that begins and ends. One that silences Redis ends no earlier than the breaker has opened: on a busy machine few requests
// come in so short a time.
func between(begin, end func(*testing.T)) func(*testing.T, *traffic, time.Duration) {
	return func(t *testing.T, l *traffic, lasting time.Duration) {
		begin(t)
		<-time.After(lasting)
		if l.silenced != nil {
			eventually(t, "the breaker opens", l.silenced)
		}
		end(t)
	}
}

// again returns a fault that happens over and over.
func again(pause time.Duration, happens func(*testing.T)) func(*testing.T, *traffic, time.Duration) {
	return func(t *testing.T, _ *traffic, lasting time.Duration) {
		end := time.After(lasting)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			happens(t)
			select {
			case <-end:
				return
			case <-tick.C:
			}
		}
	}
}

// befall makes a fault happen under load, and checks what the documentation promises.
func (c *chaos) befall(t *testing.T, f fault) {
	l := newTraffic(t, c.server)
	defer l.stop()
	counted := l.consult()
	l.consulted = l.now()
	l.spend()

	opened := len(c.server.logs(saysDown))
	if f.silences {
		l.silenced = func() bool { return len(c.server.logs(saysDown)) > opened }
	}
	l.start()
	<-time.After(c.lasting / 2)
	commands := c.commands(t)
	l.faulty.Store(true)
	began := l.now()
	f.happen(t, l, c.lasting)
	ended := l.now()
	var recovered time.Duration
	eventually(t, "Redis decides again", func() (again bool) {
		recovered, again = l.recovered(ended)
		return again
	})
	commands = c.commands(t) - commands
	asked := l.now()
	l.stop()

	// After the fault, the limit is that of Redis: it admits a key exactly as often as the limit says.
	l.exhaust("late", l.lateKey)
	l.exhaust("fresh", l.freshKey)
	l.checkHotKeys(f, ended)
	if counted = l.consult() - counted; c.alone != nil {
		l.checkCharges(f, counted)
	}

	calm := l.figures(func(s *sample) bool { return s.at+s.took < began })
	fault := l.figures(func(s *sample) bool { return s.at+s.took >= began && s.at < recovered })
	if l.lost() > 0 {
		t.Errorf("%d of %d requests were lost: %q", l.lost(), len(l.samples), l.losses)
	}
	if f.silences && len(c.server.logs(saysDown)) == opened {
		t.Error("the breaker has not opened")
	}
	if c.alone != nil {
		eventually(t, "each time that the breaker opened it has closed", func() bool {
			return len(c.server.logs(saysDown)) == len(c.server.logs(saysUpAgain))
		})
	}
	perRequest := "–"
	if c.alone != nil && !f.restarts {
		during := l.figures(func(s *sample) bool { return s.at >= began && s.at+s.took < asked })
		perRequest = fmt.Sprintf("%.2f", float64(commands)/float64(during.requests))
	}
	row := fmt.Sprintf("| %s | %s | %d | %d | %d | %s | %s | %s | %s | %s | %s |", f.name, milliseconds(ended-began), fault.requests, l.lost(), fault.byOnError,
		milliseconds(fault.worst), milliseconds(calm.worst), milliseconds(fault.percentile99), milliseconds(calm.percentile99),
		milliseconds(recovered-ended), perRequest)
	t.Log(row)
	*c.table = append(*c.table, row)
}

// commands returns how many scripts Redis has been asked to run since it started.
func (c *chaos) commands(t *testing.T) int {
	if c.alone == nil {
		return 0
	}
	return calls(t, c.alone)
}

// traffic makes requests from start to stop, and keeps their outcomes.
type traffic struct {
	t      *testing.T
	server *server
	began  time.Time

	silenced func() bool // the breaker has opened; nil: it need not

	// The hot keys. The load uses the first two from the beginning of the fault. By then the limit of one is used up to the last
	// unit (but nothing was rejected, since the node would remember that), and that of the other is unused. The last is for after
	// the fault.
	spentKey, freshKey, lateKey string

	consulted time.Duration // when Redis was last asked for its count
	started   time.Duration

	faulty  atomic.Bool // the fault has begun
	end     chan struct{}
	clients sync.WaitGroup

	mu      sync.Mutex
	samples []sample // in the order of the answers
	losses  []string // the outcomes of the first few lost requests
}

// sample is one request and its outcome. Times are since traffic.began.
type sample struct {
	kind     string // plain, or the hot key
	at, took time.Duration
	status   int  // 0: no answer
	byRedis  bool // rather than by on_error
	left     int  // of the witness, if Redis has decided
	hotLeft  int  // of a hot key
}

func newTraffic(t *testing.T, s *server) *traffic {
	return &traffic{
		t:        t,
		server:   s,
		began:    time.Now(),
		spentKey: "spent/" + t.Name(),
		freshKey: "fresh/" + t.Name(),
		lateKey:  "late/" + t.Name(),
		end:      make(chan struct{}),
	}
}

func (l *traffic) now() time.Duration { return time.Since(l.began) }

func (l *traffic) start() {
	l.started = l.now()
	for i := range loadClients {
		l.clients.Go(func() {
			tick := time.NewTicker(loadPause * time.Duration(i+1) / loadClients) // they do not all start at once
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-l.end:
					return
				case <-tick.C:
				}
				if n == 0 {
					tick.Reset(loadPause)
				}
				switch {
				case n%8 == 3 && l.faulty.Load():
					l.send("spent", l.spentKey, l.spentKey)
				case n%8 == 7 && l.faulty.Load():
					l.send("fresh", l.freshKey, l.freshKey)
				default:
					l.send("plain", fmt.Sprintf("%d.%d", i, n%loadKeys), "")
				}
			}
		})
	}
}

// stop undoes start. It does nothing the second time.
func (l *traffic) stop() {
	select {
	case <-l.end:
	default:
		close(l.end)
	}
	l.clients.Wait()
	l.server.client.CloseIdleConnections()
}

// send makes one request, without a second try.
func (l *traffic) send(kind, client, hot string) sample {
	fields := []string{"X-Client", client}
	if hot != "" {
		fields = append(fields, "X-Hot", hot)
	}
	s := sample{kind: kind, at: l.now()}
	r, err := l.server.once(l.server.client, "/", fields...)
	s.took = l.now() - s.at
	loss := ""
	if err != nil {
		loss = err.Error()
	} else {
		s.status = r.status
		if state := testimony.FindStringSubmatch(r.header.Get("RateLimit")); state != nil {
			s.byRedis = true
			s.left, _ = strconv.Atoi(state[1])
		}
		if state := hotState.FindStringSubmatch(r.header.Get("RateLimit")); state != nil {
			s.hotLeft, _ = strconv.Atoi(state[1])
		}
		if s.status != http.StatusOK && (s.status != http.StatusTooManyRequests || hot == "") {
			loss = strconv.Itoa(s.status)
		}
	}
	l.mu.Lock()
	l.samples = append(l.samples, s)
	if loss != "" && len(l.losses) < 10 {
		l.losses = append(l.losses, loss)
	}
	l.mu.Unlock()
	return s
}

// lost returns how many requests got no answer, or one that is neither 200 nor, for a hot key, 429.
func (l *traffic) lost() int {
	return l.count(func(s *sample) bool {
		return s.status != http.StatusOK && (s.status != http.StatusTooManyRequests || s.kind == "plain")
	})
}

func (l *traffic) count(counts func(*sample) bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for i := range l.samples {
		if counts(&l.samples[i]) {
			n++
		}
	}
	return n
}

// recovered returns when Redis decided again: when the first of a series of requests was answered, all made after the fault and all
// decided by Redis. The series is long enough to have keys of every master of a Cluster. Only keys for which the node cannot
// remember a rejection count.
func (l *traffic) recovered(ended time.Duration) (time.Duration, bool) {
	const row = 48
	l.mu.Lock()
	defer l.mu.Unlock()
	var first time.Duration
	n := 0
	for i := len(l.samples) - 1; i >= 0 && l.samples[i].at+l.samples[i].took >= ended; i-- {
		s := &l.samples[i]
		if s.kind != "plain" || s.at < ended {
			continue
		}
		if !s.byRedis {
			break // earlier ones do not matter: the series must be the last one
		}
		first = s.at + s.took
		n++
	}
	return first, n >= row
}

// spend uses up what Redis admits of the first hot key, and stops there.
func (l *traffic) spend() {
	l.t.Helper()
	eventually(l.t, "Redis has admitted a hot key as often as it does", func() bool {
		s := l.send("spent", l.spentKey, l.spentKey)
		return s.byRedis && s.hotLeft == 0
	})
}

// exhaust uses a hot key until Redis rejects it. Redis charged each request once that it admitted, and each that on_error decided
// at most once.
func (l *traffic) exhaust(kind, key string) {
	l.t.Helper()
	decided := func(status int) int {
		return l.count(func(s *sample) bool { return s.kind == kind && s.byRedis && s.status == status })
	}
	rejected := decided(http.StatusTooManyRequests)
	eventually(l.t, "Redis rejects a hot key", func() bool {
		l.send(kind, key, key)
		return decided(http.StatusTooManyRequests) > rejected
	})
	for range 3 { // the rejection holds, whoever decides
		if s := l.send(kind, key, key); s.status != http.StatusTooManyRequests {
			l.t.Errorf("the %s key is over its limit, and then not: status %d", kind, s.status)
		}
	}
	uncertain := l.count(func(s *sample) bool { return s.kind == kind && !s.byRedis })
	if n := decided(http.StatusOK); kind != "fresh" && (n > hotLimit || n+uncertain < hotLimit) {
		l.t.Errorf("Redis has admitted the %s key %d times, and %d are uncertain; want %d", kind, n, uncertain, hotLimit)
	}
}

// checkHotKeys checks how often the hot keys were admitted in total. Redis admits a key as often as its limit says, and as often
// again if it has lost its counts. This node's memory admits its share of the limit, which is the whole limit for one node. Memory
// admits that only once, since a window is longer than the test.
//
// If a key's limit was used up before the fault, memory admits nothing, since it starts from the last known state; nor does Redis,
// unless it has lost its counts.
func (l *traffic) checkHotKeys(f fault, ended time.Duration) {
	l.t.Helper()
	byRedis := hotLimit
	if f.forgets {
		byRedis += hotLimit
	}
	for _, kind := range []string{"spent", "fresh"} {
		redis := l.count(func(s *sample) bool { return s.kind == kind && s.status == http.StatusOK && s.byRedis })
		local := l.count(func(s *sample) bool { return s.kind == kind && s.status == http.StatusOK && !s.byRedis })
		if redis > byRedis || local > hotLimit {
			l.t.Errorf("the %s key was admitted %d times by Redis and %d times by memory, want at most %d and %d",
				kind, redis, local, byRedis, hotLimit)
		}
	}
	again := func(byRedis bool) int {
		return l.count(func(s *sample) bool {
			known := !f.forgets || !s.byRedis && s.at+s.took < ended // that the limit is used up
			return s.kind == "spent" && s.status == http.StatusOK && s.at >= l.started && known && s.byRedis == byRedis
		})
	}
	if again(true)+again(false) > 0 {
		l.t.Errorf("the spent key had used up its limit, and was admitted %d times by Redis and %d times by memory after that",
			again(true), again(false))
	}
}

// consult makes one more request to find out how many requests Redis has charged since it last lost its counts, that one included.
func (l *traffic) consult() int {
	l.t.Helper()
	charged := 0
	eventually(l.t, "Redis reports what it has counted", func() bool {
		s := l.send("plain", "consultant", "")
		charged = witnessLimit - s.left
		return s.byRedis
	})
	return charged
}

// checkCharges checks that no request was charged twice. Redis charged each request once that it admitted; each that on_error
// decided at most once; and no rejection. Nor was any charge lost, unless Redis loses its counts. charged is the count when Redis
// was first asked.
func (l *traffic) checkCharges(f fault, charged int) {
	l.t.Helper()
	certain := l.count(func(s *sample) bool { return s.byRedis && s.status == http.StatusOK && s.at >= l.consulted })
	uncertain := l.count(func(s *sample) bool { return !s.byRedis })
	if charged > certain+uncertain || charged < certain && !f.forgets {
		l.t.Errorf("Redis has charged %d requests, want from %d, which it has admitted, to %d more, of which it is not known",
			charged, certain, uncertain)
	}
}

// figures are the outcomes of some of the requests.
type figures struct {
	requests, byOnError int
	worst, percentile99 time.Duration
}

func (l *traffic) figures(of func(*sample) bool) figures {
	l.mu.Lock()
	defer l.mu.Unlock()
	var f figures
	var took []time.Duration
	for i := range l.samples {
		s := &l.samples[i]
		if !of(s) {
			continue
		}
		took = append(took, s.took)
		if !s.byRedis {
			f.byOnError++
		}
	}
	if f.requests = len(took); f.requests > 0 {
		slices.Sort(took)
		f.worst = took[f.requests-1]
		f.percentile99 = took[f.requests*99/100]
	}
	return f
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }
