package goredis

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/proxyweir/weir/redis"
)

// cluster is the client of a Redis Cluster. go-redis knows which node has which slot, and has a client for each node. For each of these,
// cluster has a conn and a redis.Server. It is safe for concurrent use.
type cluster struct {
	config Config
	client *goredis.ClusterClient
	known  atomic.Bool  // go-redis knows where the slots are
	why    atomic.Value // error: why it does not know yet
	stop   context.CancelFunc

	mu        sync.RWMutex
	closed    bool
	nodes     map[*goredis.Client]*node
	referrals map[string]*goredis.Client // the targets of MOVED and ASK, by address
}

type node struct {
	conn   *conn
	server *redis.Server
}

func newCluster(c Config) *cluster {
	ctx, stop := context.WithCancel(context.Background())
	k := &cluster{
		config:    c,
		client:    goredis.NewClusterClient(options(&c, c.Addresses).Cluster()),
		stop:      stop,
		nodes:     make(map[*goredis.Client]*node),
		referrals: make(map[string]*goredis.Client),
	}
	go k.discover(ctx)
	return k
}

// discover tries to find out where the slots are, until it succeeds or ctx ends. After that go-redis keeps this up to date.
func (k *cluster) discover(ctx context.Context) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		_, err := k.client.MasterForKey(ctx, "")
		if err == nil {
			k.known.Store(true)
			return
		}
		k.why.Store(fmt.Errorf("%w: the Cluster's slots are not known: %w", redis.ErrUnavailable, mark(err)))
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// Server implements redis.Client.
func (k *cluster) Server(key string) (*redis.Server, error) {
	if !k.known.Load() {
		if why, ok := k.why.Load().(error); ok {
			return nil, why
		}
		return nil, redis.ErrUnavailable
	}
	client, err := k.client.MasterForKey(context.Background(), key)
	if err != nil {
		return nil, fmt.Errorf("%w: no node has the slot: %w", redis.ErrUnavailable, mark(err))
	}
	k.mu.RLock()
	n := k.nodes[client]
	k.mu.RUnlock()
	if n == nil {
		n = k.addNode(client)
	}
	return n.server, nil
}

func (k *cluster) addNode(client *goredis.Client) *node {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.nodes[client]
	if n != nil {
		return n
	}
	n = &node{conn: newConn(client, k.config.PoolSize, k.config.Timeout)}
	if k.closed { // since the call of Server
		n.conn.close()
	}
	n.conn.cluster = k
	n.server = redis.NewServer(client.Options().Addr, n.conn)
	n.server.TLS = k.config.TLS != nil
	k.nodes[client] = n
	if len(k.nodes) > 1 {
		go k.prune() // the new node may have replaced an old one
	}
	return n
}

// prune closes the nodes that are no longer masters.
func (k *cluster) prune() {
	var mu sync.Mutex
	masters := make(map[*goredis.Client]bool)
	err := k.client.ForEachMaster(context.Background(), func(_ context.Context, client *goredis.Client) error {
		mu.Lock()
		masters[client] = true
		mu.Unlock()
		return nil
	})
	if err != nil {
		return
	}
	k.mu.RLock()
	var gone []*goredis.Client
	for client := range k.nodes {
		if !masters[client] {
			gone = append(gone, client)
		}
	}
	k.mu.RUnlock()
	for _, client := range gone {
		k.dropNode(client)
	}
}

// dropNode closes a node and forgets it.
func (k *cluster) dropNode(client *goredis.Client) {
	k.mu.Lock()
	n := k.nodes[client]
	delete(k.nodes, client)
	k.mu.Unlock()
	if n != nil {
		n.conn.close()
	}
}

// failed is called when a node has not answered. It makes go-redis look up the slots again, since another node may have taken over.
func (k *cluster) failed() { k.client.ReloadState(context.Background()) }

// elsewhere returns a client of the node at addr, to which another node has referred with MOVED or ASK.
func (k *cluster) elsewhere(addr string, moved bool) *goredis.Client {
	if moved {
		k.failed()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	client := k.referrals[addr]
	if client == nil {
		client = goredis.NewClient(options(&k.config, []string{addr}).Simple())
		if k.closed { // since the call was sent
			_ = client.Close()
		}
		k.referrals[addr] = client
	}
	return client
}

// Servers implements redis.Client.
func (k *cluster) Servers() []*redis.Server {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var list []*redis.Server
	for _, n := range k.nodes {
		list = append(list, n.server)
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
	k.stop()
	k.mu.Lock()
	k.closed = true
	for _, n := range k.nodes {
		n.conn.close()
	}
	for _, client := range k.referrals {
		_ = client.Close() // an error could only come from closing a socket
	}
	k.mu.Unlock()
	return k.client.Close()
}
