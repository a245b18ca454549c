package redistest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// slots is the number of slots of a cluster.
const slots = 16384

// nodeTimeout is the time in milliseconds after which the nodes of a cluster take a node that does not answer for dead.
const nodeTimeout = "2000"

// Cluster is a Redis Cluster of three masters with a replica each.
type Cluster struct {
	t       testing.TB
	nodes   []*Server
	patient sync.Once // makes its nodes take no node for dead any more: see SetTime
}

// StartCluster starts a cluster whose nodes all have those options, and waits as Settle does.
func StartCluster(t testing.TB, opts ...Option) *Cluster {
	t.Helper()
	o := newOptions(opts)
	o.cluster = true
	o.lines = append([]string{
		"cluster-node-timeout " + nodeTimeout,
		"cluster-require-full-coverage no",
		"cluster-replica-validity-factor 0",
		"cluster-allow-replica-migration no",
		"repl-ping-replica-period 1", // CLUSTER SLOTS has a replica when it was sent something
	}, o.lines...)
	const masters = 3
	c := &Cluster{t: t}
	for range 2 * masters {
		c.nodes = append(c.nodes, start(t, o))
	}
	stopTogether(t, c.nodes)
	for i, n := range c.nodes {
		n.MustDo(t, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < masters {
			command := []string{"CLUSTER", "ADDSLOTS"}
			for slot := slots * i / masters; slot < slots*(i+1)/masters; slot++ {
				command = append(command, strconv.Itoa(slot))
			}
			n.MustDo(t, command...)
		}
	}
	for i, n := range c.nodes {
		// Each node meets all others, since gossip would take a while.
		for _, other := range c.nodes[i+1:] {
			n.MustDo(t, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(other.port))
		}
	}
	for i, n := range c.nodes[masters:] {
		master := c.id(c.nodes[i])
		await(t, "a replica finds its master", func() error {
			_, err := n.Do("CLUSTER", "REPLICATE", master)
			return err
		})
	}
	c.Settle()
	return c
}

// Nodes returns all servers, dead ones too. The first three were started as masters, and the others as their replicas, in the
// same order.
func (c *Cluster) Nodes() []*Server { return slices.Clone(c.nodes) }

// Addrs returns the addresses of the nodes.
func (c *Cluster) Addrs() []string { return addrs(c.nodes) }

// Slot returns the slot of a key.
func Slot(key string) int {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16 // CRC-16/XMODEM, as the cluster specification has it
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slots
}

// Master returns the node that serves a slot.
func (c *Cluster) Master(slot int) *Server {
	c.t.Helper()
	return c.shard(slot).nodes[0]
}

// Replicas returns the nodes that replicate a slot, without dead ones.
func (c *Cluster) Replicas(slot int) []*Server {
	c.t.Helper()
	return c.shard(slot).nodes[1:]
}

// KillMaster kills the node that serves a slot, waits as Settle does, and returns the node that serves it now.
func (c *Cluster) KillMaster(slot int) *Server {
	c.t.Helper()
	c.Master(slot).Kill()
	c.Settle()
	return c.Master(slot)
}

// Settle waits until the cluster is stable. Nodes that are dead or paused do not count. All others must know each other and nobody else, and
// agree on which node serves which slots; the replicas among them must be in sync with their masters. After the death of a master, this means
// that its replica has taken over.
func (c *Cluster) Settle() {
	c.t.Helper()
	await(c.t, "the cluster settles", c.settled)
}

func (c *Cluster) settled() error {
	nodes := live(c.nodes)
	if len(nodes) == 0 {
		return errors.New("no node is alive")
	}
	var first string
	for _, n := range nodes {
		info, err := n.Do("CLUSTER", "INFO")
		if err != nil {
			return err
		}
		if state := field(info.Text, "cluster_state"); state != "ok" {
			return fmt.Errorf("the state is %q on %s", state, n.Addr())
		}
		shards, err := c.shards(n)
		if err != nil {
			return err
		}
		view := fmt.Sprint(shards)
		if first == "" {
			first = view
		}
		if view != first {
			return fmt.Errorf("%s says %s, another node %s", n.Addr(), view, first)
		}
		var known []*Server
		covered := 0
		for _, s := range shards {
			covered += s.last - s.first + 1
			for _, node := range s.nodes {
				if !slices.Contains(known, node) {
					known = append(known, node)
				}
			}
			if slices.Contains(s.nodes[1:], n) {
				info, err := n.Do("INFO", "replication")
				if err != nil {
					return err
				}
				if link := field(info.Text, "master_link_status"); link != "up" {
					return fmt.Errorf("the link of replica %s to its master is %q", n.Addr(), link)
				}
			}
		}
		if covered != slots {
			return fmt.Errorf("%s knows who serves %d of %d slots", n.Addr(), covered, slots)
		}
		for _, node := range c.nodes {
			if slices.Contains(known, node) != slices.Contains(nodes, node) {
				return fmt.Errorf("%s knows %v, %v are alive", n.Addr(), addrs(known), addrs(nodes))
			}
		}
	}
	return nil
}

// shard is a range of slots with its nodes, the master first and then its replicas by address.
type shard struct {
	first, last int
	nodes       []*Server
}

func (s shard) String() string {
	return fmt.Sprintf("%d-%d: %s", s.first, s.last, strings.Join(addrs(s.nodes), " "))
}

// shard returns the range that a slot is in, according to a node that is alive.
func (c *Cluster) shard(slot int) shard {
	c.t.Helper()
	for _, n := range live(c.nodes) {
		shards, err := c.shards(n)
		if err != nil {
			c.t.Fatal(err)
		}
		for _, s := range shards {
			if s.first <= slot && slot <= s.last {
				return s
			}
		}
	}
	c.t.Fatalf("nobody serves slot %d", slot)
	return shard{}
}

// shards returns the ranges according to a node, in the order of the slots.
func (c *Cluster) shards(n *Server) ([]shard, error) {
	reply, err := n.Do("CLUSTER", "SLOTS")
	if err != nil {
		return nil, err
	}
	var list []shard
	for _, e := range reply.List {
		s := shard{first: int(e.List[0].Int), last: int(e.List[1].Int)}
		for _, address := range e.List[2:] {
			port := int(address.List[1].Int)
			i := slices.IndexFunc(c.nodes, func(n *Server) bool { return n.port == port })
			if i < 0 {
				return nil, fmt.Errorf("%s knows a node on port %d, which is none of the cluster", n.Addr(), port)
			}
			s.nodes = append(s.nodes, c.nodes[i])
		}
		slices.SortFunc(s.nodes[1:], func(a, b *Server) int { return a.port - b.port })
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b shard) int { return a.first - b.first })
	return list, nil
}

// id returns the name by which the cluster knows a node.
func (c *Cluster) id(n *Server) string {
	c.t.Helper()
	return n.MustDo(c.t, "CLUSTER", "MYID").Text
}

// SetTime sets the time of all nodes of a cluster that was started with WithClock, as Server.SetTime does. The nodes measure their timeouts
// by that clock. So from the first call on they take no node for dead, and no replica takes over.
func (c *Cluster) SetTime(micros int64) {
	c.t.Helper()
	c.patient.Do(func() {
		for _, n := range c.nodes {
			n.MustDo(c.t, "CONFIG", "SET", "cluster-node-timeout", "1000000000000000")
			n.MustDo(c.t, "CONFIG", "SET", "repl-timeout", "2147483647")
		}
	})
	for _, n := range c.nodes {
		n.SetTime(micros)
	}
}
