package ratelimit_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/deferral"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/redis/go-redis/v9"
)

// Who always gets a 502 is tried five times, with pauses that grow, if the service may get the request again; else once. The clock of Redis stands
// still but for the test's steps.
func TestAServiceThatIsDownIsTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		method   string
		once     string
		attempts int
	}{
		"PUT":                       {"PUT", "", 5},
		"DELETE":                    {"DELETE", "", 5},
		"POST":                      {"POST", "", 1},
		"PATCH":                     {"PATCH", "", 1},
		"POST with Idempotency-Key": {"POST", "k-1", 5},
	} {
		t.Run(name, func(t *testing.T) {
			store, up := redistest.Start(t, redistest.WithClock()), newWarehouse(t)
			now := time.UnixMicro(1_790_000_000_000_000)
			store.SetTime(now.UnixMicro())
			pass := func(d time.Duration) {
				now = now.Add(d)
				store.SetTime(now.UnixMicro())
			}
			up.open()
			up.answer = badGateway
			s := startSite(t, shop(store, up, "durability best_effort"))
			fields := of("ann")
			if c.once != "" {
				fields = append(fields, "Idempotency-Key", c.once)
			}
			var r response
			eventually(t, "it is deferred", func() bool {
				r = s.must(c.method, "/orders", "x", fields...)
				return r.status == http.StatusAccepted
			})
			queue := queueAt(t, store.Addr(), deferral.Config{})
			const step = 20 * time.Millisecond
			for attempt, pause := 1, 5*time.Second; attempt <= c.attempts; attempt, pause = attempt+1, 2*pause {
				var j *deferral.Job
				eventually(t, "it waits for another attempt, or is dead", func() bool {
					var err error
					j, err = queue.Get(t.Context(), idIn(r.header.Get("Location")))
					if err == nil && j.Attempts < attempt { // until its turn comes
						pass(step)
					}
					return err == nil && j.Attempts == attempt && (j.State == deferral.Waiting && !j.Due.IsZero() || j.State == deferral.Dead)
				})
				if j.State == deferral.Dead {
					break
				}
				if got := j.Due.Sub(now); got > pause || got < pause-step { // it may have been put back just before the last step
					t.Fatalf("after attempt %d the pause is %s, want %s", attempt, got, pause)
				}
				pass(pause - step)
			}
			o := s.awaitJob(r.header.Get("Location"), "dead")
			if o.Attempts != c.attempts || !strings.Contains(o.Reason, "502") {
				t.Errorf("%+v", o)
			}
			got := slices.DeleteFunc(up.got("x"), func(a arrival) bool { return !a.isDeferred() })
			if len(got) != c.attempts {
				t.Errorf("it arrived %d times, want %d", len(got), c.attempts)
			}
			for _, a := range got {
				if a.once() != got[0].once() || c.once != "" && a.once() != c.once {
					t.Errorf("it arrived with the key %q, and before with %q", a.once(), got[0].once())
				}
			}
			if r := s.must("GET", r.header.Get("Location")+"/result", ""); r.status != http.StatusBadGateway || r.body != "broken" {
				t.Errorf("the result: %d %s", r.status, r.body)
			}
		})
	}
}

// An order that its service does not answer holds those of its customer until the time is over in which it is tried, and those of no other customer. Then it is
// a dead letter, which operators see, try again and remove.
func TestAnOrderThatHangsHoldsItsCustomerForALimitedTime(t *testing.T) {
	up, hang := newWarehouse(t), make(chan struct{})
	t.Cleanup(func() { close(hang) })
	up.open()
	up.answer = func(w http.ResponseWriter, a arrival) {
		if a.isDeferred() && a.body == "poison" {
			<-hang
		}
		w.WriteHeader(http.StatusCreated)
	}
	a := deferringShop(t, up, "give_up_after 5s")
	poison := a.deferred("poison", "X-Customer", "ann").header.Get("Location")
	second := a.must("POST", "/orders", "second", of("ann")...).header.Get("Location")
	a.awaitJob(a.deferred("other", "X-Customer", "bob").header.Get("Location"), "done")
	if o := a.must("GET", second, "").job(t); o.Status != "waiting" {
		t.Errorf("%+v", o)
	}
	if o := a.awaitJob(poison, "dead"); o.Attempts != 1 || o.Reason != "the service did not answer in time; it is not repeated, since the service may have acted on it" {
		t.Errorf("%+v", o)
	}
	a.awaitJob(second, "done")
	if got := at(t, a.ask("deferred?status=dead", ""), "jobs", 0, "id"); got != idIn(poison) {
		t.Errorf("dead is %v", got)
	}
	a.ask("deferred/retry", `{"id": "`+idIn(poison)+`"}`)
	a.awaitJob(poison, "dead")
	a.ask("deferred/cancel", `{"id": "`+idIn(poison)+`"}`)
	if r := a.must("GET", poison, ""); r.status != http.StatusNotFound {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// A Redis that does not acknowledge a job, or cannot store it, has its client get no 202; what had one stays.
func TestWithoutAnAcknowledgementThereIsNo202(t *testing.T) {
	store, up := durably(t), newWarehouse(t)
	proxy := redistest.NewProxy(t, store.Addr())
	site := slow(shop(store, up))
	site = strings.Replace(site, storeAt(store.Addr(), patiently), storeAt(proxy.Addr(), "timeout 200ms\nread_timeout 200ms\ndial_timeout 200ms\nnodes 1"), 1)
	site = strings.Replace(site, "algorithm token_bucket", "algorithm token_bucket\non_error closed", 1)
	s := startSite(t, site)
	accepted := make(map[string]bool)
	order := func(what string) {
		t.Helper()
		eventually(t, what, func() bool {
			r := s.must("POST", "/orders", "accepted", of("ann")...)
			if r.status == http.StatusAccepted {
				accepted[r.job(t).ID] = true
			}
			return r.status == http.StatusAccepted
		})
	}
	order("an order is deferred")
	for _, c := range []struct {
		name      string
		ail, mend func()
	}{
		{"black hole", proxy.BlackHole, proxy.Pass},
		{"without memory", func() { store.MustDo(t, "CONFIG", "SET", "maxmemory", "1") }, func() { store.MustDo(t, "CONFIG", "SET", "maxmemory", "0") }},
		{"read-only", func() { store.MustDo(t, "REPLICAOF", "127.0.0.1", "1") }, func() { store.MustDo(t, "REPLICAOF", "NO", "ONE") }},
	} {
		c.ail()
		for range 3 {
			r := s.must("POST", "/orders", c.name, of("ann")...)
			if r.status != http.StatusTooManyRequests && r.status != http.StatusServiceUnavailable {
				t.Errorf("%s: %d %s", c.name, r.status, r.body)
			}
		}
		c.mend()
		order("orders are deferred again after: " + c.name)
	}
	for id := range accepted {
		if o := s.must("GET", "/deferred/orders/"+id, "").job(t); o.Status != "waiting" {
			t.Errorf("%+v", o)
		}
	}
	eventually(t, "what got no 202 is withdrawn", func() bool {
		return s.must("GET", "/deferred/orders/"+deferral.NewID(), "").status == http.StatusNotFound && len(jobsIn(t, store)) == len(accepted)
	})
}

// While a node cannot reach Redis, it answers 503 to customers who have orders in the queue, as far as it knows, and decides on others by on_error. It knows what
// another node has accepted, and still does after a reload. So nobody overtakes their own orders.
func TestWhileRedisIsAwayNobodyOvertakesWhatWaits(t *testing.T) {
	store, up := durably(t), newWarehouse(t)
	proxy := redistest.NewProxy(t, store.Addr())
	there := shop(store, up)
	here := func(lines ...string) string {
		return strings.Replace(shop(store, up, lines...), storeAt(store.Addr(), patiently), storeAt(proxy.Addr(), "timeout 200ms\nread_timeout 200ms\ndial_timeout 200ms\nnodes 1"), 1)
	}
	other, s := startMember(t, there), startSite(t, here())
	first := other.deferred("ann-1", "X-Customer", "ann", "Idempotency-Key", "ann-1").header.Get("Location")
	order := func(body, customer string) int {
		return s.must("POST", "/orders", body, append(of(customer), "Idempotency-Key", body)...).status
	}
	eventually(t, "the node knows what the other has accepted", func() bool {
		proxy.Refuse()
		if order("probe", "ann") == http.StatusServiceUnavailable {
			return true
		}
		proxy.Pass()
		time.Sleep(100 * time.Millisecond) // in which it may look, by Redis
		return false
	})
	if got := order("bob-1", "bob"); got != http.StatusCreated {
		t.Errorf("bob, who has no orders: %d", got)
	}
	s.reload(here("max_wait 2h"))
	if got := order("overtakes", "ann"); got != http.StatusServiceUnavailable {
		t.Errorf("ann after a reload: %d", got)
	}
	if got := order("carl-1", "carl"); got != http.StatusCreated {
		t.Errorf("carl, who has no orders: %d", got)
	}
	proxy.Pass()
	eventually(t, "the order is accepted again", func() bool { return order("ann-2", "ann") == http.StatusAccepted })
	up.open()
	other.awaitJob(first, "done")
	eventually(t, "both have arrived", func() bool { return len(up.deferredOf(t, "ann")) >= 2 })
	if got := slices.Compact(up.deferredOf(t, "ann")); !slices.Equal(got, []int{1, 2}) || len(up.got("overtakes")) > 0 {
		t.Errorf("they arrived as %v, and %d have overtaken them", got, len(up.got("overtakes")))
	}
}

// jobsIn returns the keys of the jobs in a Redis.
func jobsIn(t *testing.T, store *redistest.Server) []string {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: store.Addr()})
	defer client.Close()
	keys, err := client.Keys(t.Context(), "weir:{defer:/orders}:job:*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// The master is killed while clients order. Each 202 was given when a replica had the job, too; so each is done. The warehouse has its gate shut, so that
// what comes after a customer's first job waits behind it.
func TestNoAcceptedRequestIsLostInAFailover(t *testing.T) {
	sentinel := redistest.StartSentinel(t, redistest.WithConfig("maxmemory-policy noeviction"))
	up := newWarehouse(t)
	site := shop(sentinel.Master(), up, "durability best_effort", "replicas 1")
	s := startSite(t, strings.Replace(site, storeAt(sentinel.Master().Addr(), patiently), storeAt(strings.Join(sentinel.Addrs(), " "), "master_name "+redistest.MasterName, patiently), 1))
	accepted := make(map[string]string) // where the jobs are, by their bodies
	customers := []string{"ann", "bob", "cyd", "dan"}
	order := func(customer, body string) {
		eventually(t, body+" is deferred", func() bool {
			r, err := s.send("POST", "/orders", body, of(customer)...)
			if err == nil && r.status == http.StatusAccepted {
				accepted[body] = r.header.Get("Location")
			}
			return accepted[body] != ""
		})
	}
	for _, customer := range customers {
		order(customer, customer+"-first")
		order(customer, customer+"-second")
	}
	sentinel.KillMaster()
	for _, customer := range customers {
		order(customer, customer+"-third")
	}
	up.open()
	for body, location := range accepted {
		s.awaitJob(location, "done")
		if !slices.ContainsFunc(up.got(body), arrival.isDeferred) {
			t.Errorf("%s did not arrive", body)
		}
	}
}

// In a Cluster, too, all that clients see of their jobs goes on when the master of the queue dies: its replica had each job before its 202. Until there is another
// replica, there is no further 202.
func TestDeferredRequestsInAClusterOutliveTheirMaster(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.WithConfig("appendonly yes", "appendfsync always", "maxmemory-policy noeviction"))
	slot, up := redistest.Slot("weir:{defer:/orders}:"), newWarehouse(t)
	master := cluster.Master(slot)
	site := shop(master, up, "replicas 1")
	s := startSite(t, strings.Replace(site, storeAt(master.Addr(), patiently), storeAt(strings.Join(cluster.Addrs(), " "), "cluster", "nodes 1"), 1))
	var jobs []response
	for i := range 4 {
		r := s.deferred(fmt.Sprint("order ", i), "X-Customer", "ann")
		if i == 0 {
			s.awaitJob(r.header.Get("Location"), "running")
		}
		if o := r.job(t); o.Status != "waiting" || o.Position < i+1 { // in front of it there may be one that no replica had in time
			t.Errorf("order %d: %+v", i, o)
		}
		jobs = append(jobs, r)
	}
	where := func(i int) string { return jobs[i].header.Get("Location") }
	cancel := func(i int) {
		t.Helper()
		if r := s.must("DELETE", where(i), ""); r.status != http.StatusNoContent {
			t.Errorf("order %d is not cancelled: %d %s", i, r.status, r.body)
		}
		if r := s.must("GET", where(i), ""); r.status != http.StatusNotFound {
			t.Errorf("order %d, which was cancelled: %d %s", i, r.status, r.body)
		}
	}
	cancel(1)
	eventually(t, "the master has the three jobs", func() bool {
		return len(master.MustDo(t, "KEYS", "weir:{defer:/orders}:job:*").Strings()) == 3
	})

	if now := cluster.KillMaster(slot); now == master {
		t.Fatal("the master is the old one")
	}
	var o order
	eventually(t, "the status can be asked for", func() bool {
		r := s.must("GET", where(2), "")
		o = r.job(t)
		return r.status == http.StatusOK
	})
	if o.Status != "waiting" || o.Position != 2 {
		t.Errorf("%+v", o)
	}
	if r := s.must("GET", where(2)+"/result", ""); r.status != http.StatusAccepted {
		t.Errorf("its result, while it waits: %d %s", r.status, r.body)
	}
	cancel(3)
	eventually(t, "there is no 202 without a replica, but a 429", func() bool { // the store of the limits may notice the failover later
		r := s.must("POST", "/orders", "alone", of("ann")...)
		if r.status == http.StatusAccepted {
			t.Fatalf("without a replica: %d %s", r.status, r.body)
		}
		return r.status == http.StatusTooManyRequests
	})
	master.Restart() // as a replica of the other
	cluster.Settle()
	var last response
	eventually(t, "orders are deferred again", func() bool {
		last = s.must("POST", "/orders", "last", of("ann")...)
		return last.status == http.StatusAccepted
	})

	up.open()
	for _, c := range []struct{ location, body string }{{where(0), "order 0"}, {where(2), "order 2"}, {last.header.Get("Location"), "last"}} {
		s.awaitJob(c.location, "done")
		r := s.must("GET", c.location+"/result", "")
		if r.status != http.StatusCreated || r.body != "ordered "+c.body {
			t.Errorf("the result of %s: %d %s", c.body, r.status, r.body)
		}
	}
	for _, cancelled := range []string{"order 1", "order 3"} {
		if slices.ContainsFunc(up.got(cancelled), arrival.isDeferred) {
			t.Errorf("%s was cancelled, and arrived", cancelled)
		}
	}
}
