package ratelimit_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

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
	must.Equal(t, order("bob-1", "bob"), http.StatusCreated, "bob, who has no orders")
	s.reload(here("max_wait 2h"))
	must.Equal(t, order("overtakes", "ann"), http.StatusServiceUnavailable, "ann after a reload")
	must.Equal(t, order("carl-1", "carl"), http.StatusCreated, "carl, who has no orders")
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

// In a Cluster, too, deferred requests go on when the master of the queue dies: its replica had each job before its 202.
func TestDeferredRequestsInAClusterOutliveTheirMaster(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.WithConfig("appendonly yes", "appendfsync always", "maxmemory-policy noeviction"))
	slot, up := redistest.Slot("weir:{defer:/orders}:"), newWarehouse(t)
	master := cluster.Master(slot)
	site := shop(master, up, "replicas 1")
	s := startSite(t, strings.Replace(site, storeAt(master.Addr(), patiently), storeAt(strings.Join(cluster.Addrs(), " "), "cluster", "nodes 1"), 1))
	first := s.deferred("first", "X-Customer", "ann").header.Get("Location")
	second := s.deferred("second", "X-Customer", "ann").header.Get("Location")
	if now := cluster.KillMaster(slot); now == master {
		t.Fatal("the master is the old one")
	}
	up.open()
	for location, body := range map[string]string{first: "first", second: "second"} {
		eventually(t, "the job is done", func() bool {
			r := s.must("GET", location, "") // 503 while no master is known
			return r.status == http.StatusOK && r.job(t).Status == "done"
		})
		if r := s.must("GET", location+"/result", ""); r.status != http.StatusCreated || r.body != "ordered "+body {
			t.Errorf("the result of %s: %d %s", body, r.status, r.body)
		}
	}
}

// Where Redis does not say whether a customer has orders, on_error closed lets none of theirs through, also if the limiter reaches Redis a moment later.
func TestWithOnErrorClosedWhoMayHaveOrdersIsNotLetThrough(t *testing.T) {
	store, up := durably(t), newWarehouse(t)
	proxy := redistest.NewProxy(t, store.Addr())
	site := strings.Replace(shop(store, up), "limit 1/2s", "limit 1/2s\non_error closed", 1)
	s := startSite(t, strings.Replace(site, storeAt(store.Addr(), patiently), storeAt(proxy.Addr(), "timeout 200ms\nread_timeout 200ms\ndial_timeout 200ms\nnodes 1"), 1))
	must.Equal(t, s.must("POST", "/orders", "warm", of("bob")...).status, http.StatusCreated, "an order")
	proxy.DropReply("evalsha")
	if got := s.must("POST", "/orders", "unasked", of("carl")...).status; got != http.StatusServiceUnavailable {
		t.Errorf("an order of whom Redis has not said anything: %d", got)
	}
}
