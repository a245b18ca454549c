package resp

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/proxyweir/weir/redis"
)

// cluster is the client of a Redis Cluster. It has a table of the slots, and a conn for each node. A node that does not have a slot, or not all
// of its keys, refers to another one, which refer finds. A goroutine looks the table up at first, and again after any sign that it is out of
// date: a node has said MOVED, or cannot be reached, or nobody has a slot. The cluster is safe for concurrent use.
type cluster struct {
	config    Config
	referrals *referrals
	started   time.Time       // all times are durations since then
	ctx       context.Context //nolint:containedctx // ends with the cluster
	cancel    context.CancelFunc

	mu      sync.Mutex       // a conn may hold its own when it takes this one, and never the other way round
	nodes   map[string]*node // by address
	slots   []*node          // the master of each slot, nil where none is known; empty until a first look-up has succeeded
	guide   string           // the address of the node that has last answered a look-up; "": none has
	why     error            // why the last look-up failed
	looking bool             // a goroutine looks up the slots
	stale   bool             // something has happened since the look-up began
	looks   int              // look-ups in short succession
	looked  time.Duration    // when the last one ended
	asked   time.Duration    // when one was last asked for
	closed  bool
}

// node is a server of a Cluster.
type node struct {
	conn   *conn
	server *redis.Server

	// The cluster's mutex guards these.
	master   bool          // it has slots
	leaving  bool          // a goroutine closes it unless it gets slots
	referred time.Duration // when another node last referred to it
}

func newCluster(config Config) *cluster {
	k := &cluster{config: config, started: time.Now(), nodes: make(map[string]*node)}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.why = errUnknown
	k.referrals = &referrals{
		follow: func(from string, f *pendingCall) error { return follow(k, from, f) },
		doubt:  func() { look(k) },
	}
	look(k)
	return k
}

var errUnknown = errors.New("they are being looked up")

// Server implements redis.Client.
func (k *cluster) Server(key string) (*redis.Server, error) {
	var n *node
	slot := slotOf(key)
	k.mu.Lock()
	known := len(k.slots) > 0
	if known {
		n = k.slots[slot]
	}
	why := k.why
	k.mu.Unlock()
	if n != nil {
		return n.server, nil
	}
	look(k)
	if known {
		return nil, fmt.Errorf("%w: no node has the slot %d", redis.ErrUnavailable, slot)
	}
	return nil, fmt.Errorf("%w: the Cluster's slots are not known: %w", redis.ErrUnavailable, why)
}

// Servers implements redis.Client.
func (k *cluster) Servers() []*redis.Server {
	k.mu.Lock()
	defer k.mu.Unlock()
	var list []*redis.Server
	for _, n := range k.nodes {
		if n.master {
			list = append(list, n.server)
		}
	}
	return list
}

// Cluster implements redis.Client.
func (k *cluster) Cluster() bool { return true }

// Timeout implements redis.Client.
func (k *cluster) Timeout() time.Duration { return k.config.Timeout }

// Background implements redis.Client.
func (k *cluster) Background() time.Duration { return k.config.Background }

// Name implements redis.Client.
func (k *cluster) Name() string { return "the Cluster of " + k.config.Addresses[0] }

// Close implements redis.Client.
func (k *cluster) Close() error {
	k.mu.Lock()
	k.closed = true
	nodes := k.nodes
	k.nodes = make(map[string]*node)
	k.mu.Unlock()
	k.cancel()
	for _, n := range nodes {
		n.conn.close()
	}
	return nil
}

// nodeAt returns the node at an address. The caller has the cluster's mutex.
func nodeAt(k *cluster, address string) *node {
	n := k.nodes[address]
	if n != nil {
		return n
	}
	c := newConn(k.config, address, k.started)
	c.referrals = k.referrals
	if k.closed {
		c.close()
	}
	n = &node{conn: c, server: redis.NewServer(address, c)}
	n.server.TLS = k.config.TLS != nil
	k.nodes[address] = n
	return n
}

// follow sends a pending call again, to the server that the reply of a server refers to.
func follow(k *cluster, from string, f *pendingCall) error {
	to := refer(k, from, f.referral)
	if to == nil {
		return failed(f)
	}
	f.asks = f.retry == asking
	if !resend(to, f) {
		return failed(f)
	}
	return again(to, f)
}

// refer returns the conn of the server that a reply of MOVED or ASK refers to, such as "MOVED 3999 127.0.0.1:6381"; nil: it refers to none. A
// reply without a host means that of the server that has sent it. After MOVED, later calls for that slot go there at once.
func refer(k *cluster, from, reply string) *conn {
	words := strings.Split(reply, " ")
	if len(words) < 3 {
		return nil
	}
	slot, err := strconv.Atoi(words[1])
	if err != nil || slot < 0 || slot >= slots {
		return nil
	}
	colon := strings.LastIndex(words[2], ":")
	if colon < 0 {
		return nil
	}
	port, err := strconv.Atoi(words[2][colon+1:])
	if err != nil {
		return nil
	}
	address := addressOf(words[2][:colon], port, from)
	if address == "" {
		return nil
	}
	moved := words[0] == "MOVED"
	k.mu.Lock()
	n := nodeAt(k, address)
	n.referred = time.Since(k.started)
	if moved && len(k.slots) > 0 {
		n.master = true
		k.slots[slot] = n
	}
	k.mu.Unlock()
	if moved {
		look(k)
	}
	return n.conn
}

// addressOf returns the address of a node as another node has it: an empty host is that of the other, and "?" is not known. If it is
// invalid or not known, addressOf returns "".
func addressOf(host string, port int, other string) string {
	if host == "" {
		host, _, _ = net.SplitHostPort(other)
	}
	if host == "" || host == "?" || port < 1 || port > 65535 {
		return ""
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(port))
}

// look has the slots looked up, in the background.
func look(k *cluster) {
	k.mu.Lock()
	k.stale = true
	k.asked = time.Since(k.started)
	if !k.looking && !k.closed {
		k.looking = true
		go lookUp(k)
	}
	k.mu.Unlock()
}

// lookUp looks up the slots until it succeeds and nothing has happened meanwhile, nobody has asked for it for a while, or the cluster is
// closed. A look-up soon after another waits, the longer the more there were.
func lookUp(k *cluster) {
	defer func() {
		if p := recover(); p != nil { // an interpreted program has no other recover
			k.mu.Lock()
			k.looking = false
			k.why = fmt.Errorf("looking them up panicked: %v", p)
			k.mu.Unlock()
		}
	}()
	k.mu.Lock()
	if time.Since(k.started)-k.looked > lastWait {
		k.looks = 0
	}
	for {
		if k.looks > 0 {
			wait := backoff(k.looks, rand.Float64()) //nolint:gosec // spreads nodes, keeps no secret
			k.mu.Unlock()
			sleep(k.ctx, wait)
			k.mu.Lock()
		}
		k.looks++
		k.stale = false
		places := placesOf(k)
		k.mu.Unlock()
		guide, ranges, err := fetch(k, places)
		k.mu.Lock()
		k.looked = time.Since(k.started)
		k.guide = guide
		k.why = err
		if err == nil {
			arrange(k, ranges)
		}
		if k.closed || err == nil && !k.stale || k.looked-k.asked > retryFor {
			k.looking = false
			k.mu.Unlock()
			return
		}
	}
}

// placesOf returns the addresses at which the slots can be looked up, the most likely one first. The caller has the cluster's mutex.
func placesOf(k *cluster) []string {
	var list []string
	if k.guide != "" {
		list = append(list, k.guide)
	}
	for address := range k.nodes {
		if address != k.guide {
			list = append(list, address)
		}
	}
	return append(list, k.config.Addresses...)
}

// slotRange is a range of slots with the address of its master.
type slotRange struct {
	first, last int
	address     string
}

// fetch asks one place after the other for the slots, until one knows them. It returns the address of that one, and what it knows.
func fetch(k *cluster, places []string) (string, []slotRange, error) {
	var why error
	for _, address := range places {
		place := address
		var ranges []slotRange
		l, err := connectTo(k.ctx, k.config, place, func(s *redis.Stream) error {
			a, err := roundTrip(s, "CLUSTER", "SLOTS")
			if err != nil {
				return err
			}
			ranges, err = readSlots(a, place)
			return err
		})
		if err == nil {
			hangUp(l)
			return place, ranges, nil
		}
		why = fmt.Errorf("%s: %w", place, err)
	}
	return "", nil, why
}

// readSlots reads the reply to CLUSTER SLOTS that a node at that address has sent.
func readSlots(a *answer, address string) ([]slotRange, error) {
	var list []slotRange
	for entries := a.number("*"); entries > 0 && !a.bad; entries-- {
		parts := a.number("*")
		first := a.number(":")
		last := a.number(":")
		properties := a.number("*") // of the master; replicas follow
		host := a.text()
		port := a.number(":")
		a.skip(properties - 2)
		a.skip(parts - 3)
		if first < 0 || last < first || last >= slots {
			a.bad = true
		}
		if master := addressOf(host, port, address); master != "" {
			list = append(list, slotRange{first: first, last: last, address: master})
		}
	}
	if err := a.err(); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("no node has a slot%w", redis.ErrReply)
	}
	return list, nil
}

// arrange makes the table of the slots. Nodes that have none any more are closed, later. The caller has the cluster's mutex.
func arrange(k *cluster, ranges []slotRange) {
	if k.closed {
		return
	}
	for _, n := range k.nodes {
		n.master = false
	}
	table := make([]*node, slots)
	for _, r := range ranges {
		n := nodeAt(k, r.address)
		n.master = true
		part := table[r.first : r.last+1]
		part[0] = n
		for done := 1; done < len(part); done *= 2 {
			copy(part[done:], part[:done])
		}
	}
	k.slots = table
	for address, n := range k.nodes {
		if !n.master && !n.leaving {
			n.leaving = true
			go leave(k, address, n)
		}
	}
}

// leave closes a node when no call to it can be under way any more, unless it gets slots first.
func leave(k *cluster, address string, n *node) {
	defer func() {
		_ = recover() // an interpreted program has no other recover
	}()
	longest := k.config.ReadTimeout
	if longest < k.config.Background {
		longest = k.config.Background
	}
	for {
		sleep(k.ctx, longest)
		k.mu.Lock()
		if k.closed || n.master {
			n.leaving = false
			k.mu.Unlock()
			return
		}
		if time.Since(k.started)-n.referred > longest {
			delete(k.nodes, address)
			k.mu.Unlock()
			n.conn.close()
			return
		}
		k.mu.Unlock()
	}
}
