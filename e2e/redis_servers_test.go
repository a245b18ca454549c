package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis/redistest"
)

// inSeveral is a store in the Redis to which several addresses lead, for a test that is not about what happens when it does not answer.
func inSeveral(addrs []string, more string) string {
	return "{redis: {address: ['" + strings.Join(addrs, "', '") + "'], timeout: 20s, readTimeout: 20s, dialTimeout: 20s, nodes: 1, " + more + "}}"
}

// startOpenLoad starts clients that are never over their limit, whatever happens.
func startOpenLoad(s *site) *load {
	return s.startFlood(3, 0, 20*time.Millisecond, func(client, n int) (path, fields string) {
		return "/open", fmt.Sprintf("\r\nX-User: %d-%d", client, n%20)
	})
}

// unharmed stops such a load, and checks that each request was answered in time.
func unharmed(t *testing.T, l *load) {
	t.Helper()
	l.stop()
	if l.lost+l.rejected > 0 || l.slowest > deadline {
		t.Errorf("%d of %d requests were lost, %d rejected that were not over their limit; the slowest took %v: %q", l.lost, l.requests(), l.rejected, l.slowest, l.losses)
	}
	t.Logf("%d requests, none lost, the slowest took %v", l.requests(), l.slowest)
}

// The counters go on where the old master has left them, and no request is lost.
func TestTraefikFollowsTheMasterOfSentinels(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t, redistest.WithPassword("secret"))
	const monitored = "masterName: " + redistest.MasterName + ", password: secret, sentinelPassword: secret"
	s := newSite(t)
	s.limit("kept", "{limit: 30/366d, onError: closed, store: "+inSeveral(sentinel.Addrs(), monitored)+"}")
	s.limit("open", "{limit: 1000000/366d, key: [header:X-User], store: {redis: {address: ['"+strings.Join(sentinel.Addrs(), "', '")+"'], nodes: 1, "+monitored+"}}}")
	s.route("/kept", "kept")
	s.route("/open", "open")
	s.apply()
	s.admit(10, "/kept")
	for _, change := range []func() *redistest.Server{sentinel.Failover, sentinel.KillMaster} {
		sentinel.Master().MustDo(t, "WAIT", "1", "10000")
		l := startOpenLoad(s)
		master := change()
		before := scripts(t, master)
		eventually(t, "the new master decides", func() bool { return scripts(t, master) > before+100 })
		unharmed(t, l)
		// Each store finds the master by itself, and that of this limit has had no requests meanwhile. Until it has, it rejects, as it is told to.
		eventually(t, "the limit's own store has found the new master", func() bool { return s.do("/kept").status == http.StatusOK })
		s.admit(9, "/kept")
	}
	s.reject("/kept")
}

// A slot migrates while requests need it. Each of them is charged once, in the slots of both its rules.
func TestTraefikFollowsTheSlotsOfACluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	const units = 1000
	s := newSite(t)
	s.limit("exact", fmt.Sprintf(`
		rules:
		  - {name: user, key: [header:X-User], limit: %d/366d, algorithm: fixed_window, onError: closed}
		  - {name: all, key: [host], limit: 1000000/366d, algorithm: fixed_window, onError: closed}
		store: %s`, units, inSeveral(cluster.Addrs()[:2], "cluster: true, plainKeys: true")))
	s.limit("open", "{limit: 1000000/366d, key: [header:X-User], store: {redis: {address: ['"+strings.Join(cluster.Addrs(), "', '")+"'], cluster: true, nodes: 1}}}")
	s.route("/exact", "exact")
	s.route("/open", "open")
	s.apply()
	eventually(t, "the slots are known", func() bool { return s.do("/exact", "X-User", "first").status == http.StatusOK })

	for _, user := range []string{"one", "two"} {
		s.admit(1, "/exact", "X-User", user)
		slot := redistest.Slot("{" + user + "}")
		if keys := cluster.Master(slot).MustDo(t, "CLUSTER", "GETKEYSINSLOT", fmt.Sprint(slot), "10").List; len(keys) != 1 {
			t.Fatalf("%d keys are in the slot of user %s", len(keys), user)
		}
		l := s.startFlood(6, 0, 20*time.Millisecond, func(int, int) (path, fields string) { return "/exact", "\r\nX-User: " + user })
		more := func() {
			t.Helper()
			made := l.requests()
			eventually(t, "requests go on", func() bool { return l.requests() > made+100 })
		}
		more()
		m := cluster.Migrate(slot)
		more()
		m.To.MustDo(t, "SCRIPT", "FLUSH")
		s.admit(1, "/exact", "X-User", "another")
		m.Move(m.From.MustDo(t, "CLUSTER", "GETKEYSINSLOT", fmt.Sprint(slot), "10").Strings()...)
		more()
		m.Finish()
		more()
		eventually(t, "the limit is reached", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.rejected > 0
		})
		l.stop()
		if all := l.admitted + 1; all != units || l.lost > 0 {
			t.Errorf("%d requests of user %s were admitted, want %d; %d were lost: %q", all, user, units, l.lost, l.losses)
		}
	}

	l := startOpenLoad(s)
	master := cluster.KillMaster(redistest.Slot("{one}"))
	before := scripts(t, master)
	eventually(t, "the new master decides", func() bool { return scripts(t, master) > before+100 })
	unharmed(t, l)
}
