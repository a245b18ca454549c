package redistest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// MasterName is the name under which sentinels know the master.
const MasterName = "weir"

// Sentinel is a master with two replicas under three sentinels, of which two are a quorum.
type Sentinel struct {
	t         testing.TB
	servers   []*Server
	sentinels []*Server
}

// StartSentinel starts a master, its replicas and the sentinels, and waits as Settle does. The options are for the master and its replicas. Of
// them the sentinels have only the password and TLS.
func StartSentinel(t testing.TB, opts ...Option) *Sentinel {
	t.Helper()
	o := newOptions(opts)
	if o.clock {
		t.Fatal("WithClock is for a server or a cluster: sentinels go by the clock in all that they do")
	}
	s := &Sentinel{t: t}
	master := start(t, o)
	s.servers = append(s.servers, master)
	replica := o
	replica.lines = append(slices.Clone(o.lines), fmt.Sprintf("replicaof 127.0.0.1 %d", master.port))
	for range 2 {
		s.servers = append(s.servers, start(t, replica))
	}
	lines := []string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 2", MasterName, master.port),
		fmt.Sprintf("sentinel down-after-milliseconds %s 1000", MasterName),
		fmt.Sprintf("sentinel failover-timeout %s 2000", MasterName),
	}
	if o.password != "" {
		lines = append(lines, fmt.Sprintf("sentinel auth-pass %s %s", MasterName, strconv.Quote(o.password)))
	}
	for range 3 {
		sentinel := start(t, options{
			sentinel:     true,
			lines:        lines,
			password:     o.password,
			certificates: o.certificates,
			clients:      o.clients,
		})
		// Sentinels check servers more often than by default, and do not pause themselves when the machine is busy, nor go on with a pause
		// that began before this command.
		sentinel.setPeriods("info-period", "200", "publish-period", "200", "ping-period", "200",
			"ask-period", "200", "tilt-trigger", "60000", "tilt-period", "1")
		s.sentinels = append(s.sentinels, sentinel)
	}
	stopTogether(t, slices.Concat(s.sentinels, s.servers))
	s.Settle()
	for _, sentinel := range s.sentinels {
		// Four of the first of these periods must be longer than it takes until all sentinels know of a failover. Otherwise those that do not
		// would undo it. A replica that has not answered for five of the second cannot become the master, so these must be longer than a busy
		// machine makes it wait.
		sentinel.setPeriods("publish-period", "1000", "ping-period", "1000")
	}
	return s
}

// setPeriods sets periods of a sentinel, in milliseconds. In Redis 6.2 they cannot be set.
func (s *Server) setPeriods(periods ...string) {
	s.t.Helper()
	if s.program.major >= 7 {
		s.MustDo(s.t, append([]string{"SENTINEL", "DEBUG"}, periods...)...)
	}
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinel) Addrs() []string { return addrs(s.sentinels) }

// Sentinels returns the sentinels.
func (s *Sentinel) Sentinels() []*Server { return slices.Clone(s.sentinels) }

// Servers returns the master and the replicas, dead ones too. A failover does not change their order.
func (s *Sentinel) Servers() []*Server { return slices.Clone(s.servers) }

// Master returns the server that a sentinel names as the master.
func (s *Sentinel) Master() *Server {
	s.t.Helper()
	err := errors.New("no sentinel is alive")
	for _, sentinel := range live(s.sentinels) {
		var master *Server
		if master, err = s.masterOf(sentinel); err == nil {
			return master
		}
	}
	s.t.Fatal(err)
	return nil
}

// Failover makes a sentinel replace the master, which stays alive. It waits as Settle does, and returns the new master.
func (s *Sentinel) Failover() *Server {
	s.t.Helper()
	old := s.Master()
	await(s.t, "the master is replaced", func() error {
		if err := s.Replace(old); err != nil {
			return err
		}
		return s.settled()
	})
	return s.Master()
}

// Replace has a sentinel replace a master, and returns an error until it names another. It must be called again and again, since on a busy machine a sentinel may
// give a failover up. It never begins a second one: that would lose what the new master has not yet passed on.
func (s *Sentinel) Replace(old *Server) error {
	reply, err := s.sentinels[0].Do("SENTINEL", "MASTER", MasterName)
	if err != nil {
		return err
	}
	master := reply.Strings()
	if property(master, "port") == strconv.Itoa(old.port) && !strings.Contains(property(master, "flags"), "failover_in_progress") {
		if _, err = s.sentinels[0].Do("SENTINEL", "FAILOVER", MasterName); err != nil {
			return err
		}
	}
	if s.Master() == old {
		return fmt.Errorf("the master is %s as before", old.Addr())
	}
	return nil
}

// KillMaster kills the master, waits as Settle does, and returns the new master.
func (s *Sentinel) KillMaster() *Server {
	s.t.Helper()
	s.Master().Kill()
	s.Settle()
	return s.Master()
}

// Settle waits until the sentinels know each other, and agree on a master. That server must run, not be paused, and take itself for the master.
// All other servers that run and are not paused must be its replicas, in sync with it. After the death of a master, this means that a replica
// has taken over.
func (s *Sentinel) Settle() {
	s.t.Helper()
	await(s.t, "the sentinels settle", s.settled)
}

func (s *Sentinel) settled() error {
	var master *Server
	for _, sentinel := range live(s.sentinels) {
		m, err := s.masterOf(sentinel)
		if err != nil {
			return err
		}
		if master == nil {
			master = m
		}
		if m != master {
			return fmt.Errorf("sentinels name %s and %s", master.Addr(), m.Addr())
		}
		if err = s.seen(sentinel); err != nil {
			return err
		}
	}
	if master == nil {
		return errors.New("no sentinel is alive")
	}
	if !master.live() {
		return fmt.Errorf("the master %s is not alive", master.Addr())
	}
	for _, server := range live(s.servers) {
		role, err := server.Do("ROLE")
		if err != nil {
			return err
		}
		want := "[master "
		if server != master {
			want = fmt.Sprintf("[slave 127.0.0.1 %d connected ", master.port)
		}
		if !strings.HasPrefix(role.String(), want) {
			return fmt.Errorf("the role of %s is %v, the master is %s", server.Addr(), role, master.Addr())
		}
	}
	return nil
}

// masterOf returns the server that a sentinel names as the master.
func (s *Sentinel) masterOf(sentinel *Server) (*Server, error) {
	reply, err := sentinel.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName)
	if err != nil {
		return nil, err
	}
	if len(reply.List) == 2 {
		for _, server := range s.servers {
			if strconv.Itoa(server.port) == reply.List[1].Text {
				return server, nil
			}
		}
	}
	return nil, fmt.Errorf("sentinel %s names %v, which is none of the servers", sentinel.Addr(), reply)
}

// seen returns an error unless a sentinel is connected to the other sentinels and to all servers that are alive, and no failover is under way.
func (s *Sentinel) seen(sentinel *Server) error {
	states := make(map[string]string) // the flags of each, by its port
	for _, list := range []string{"MASTERS", "REPLICAS", "SENTINELS"} {
		command := []string{"SENTINEL", list}
		if list != "MASTERS" {
			command = append(command, MasterName)
		}
		reply, err := sentinel.Do(command...)
		if err != nil {
			return err
		}
		for _, e := range reply.List {
			properties := e.Strings()
			states[property(properties, "port")] = property(properties, "flags")
		}
	}
	for _, other := range live(slices.Concat(s.servers, s.sentinels)) {
		if other == sentinel {
			continue
		}
		switch flags := states[strconv.Itoa(other.port)]; flags {
		case "master", "slave", "sentinel":
		case "sentinel,master_down":
			// That is what the other sentinel last said of the master, which this one may take for alive. It forgets that after five
			// seconds, but not while it tilts, which takes 30 seconds in Redis 6.2 and begins whenever the machine let it wait for two.
		default:
			return fmt.Errorf("sentinel %s has %q for %s", sentinel.Addr(), flags, other.Addr())
		}
	}
	return nil
}

// property returns the value of a name in a list of names and values.
func property(list []string, name string) string {
	for i := 0; i+1 < len(list); i += 2 {
		if list[i] == name {
			return list[i+1]
		}
	}
	return ""
}
