package report

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/fnv"
	"net"
	"net/http"
	"net/netip"
	"reflect"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/exception"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/ruleset"
)

const (
	mostBlocked = 65_536
	askedFor    = 10 * time.Minute // from one question to the next, or nothing is remembered any more
)

// BlockedAddresses remembers the addresses that are rejected under a penalty or a block, from the first question for them on, and with the rules that each is
// rejected by. It is safe for concurrent use.
type BlockedAddresses struct {
	on    atomic.Bool // somebody asks
	epoch string      // of this process

	mu      sync.Mutex
	since   time.Time // the first question
	asked   time.Time // the last one
	seen    map[blockedKey]*Seen
	others  int                 // of seen, that are no peers
	ends    int64               // when the first of them ends, or before
	blocks  map[[2]string]int64 // until when people have blocked which keys of which rules
	forgets map[[2]string]int64 // when penalties of which keys of which rules were last ended elsewhere
	decided [2]uint64           // sums of both
	full    bool                // an address was left out
	changes int64               // of all this
	wake    chan struct{}       // closed at the next change
}

// NewBlockedAddresses returns those of this process.
func NewBlockedAddresses() *BlockedAddresses {
	return &BlockedAddresses{epoch: rand.Text()[:8], wake: make(chan struct{})}
}

type blockedKey struct {
	rule    string // its label
	address netip.Addr
}

// Seen is what is remembered of an address that a rule rejects. Times are in microseconds since the Unix epoch.
type Seen struct {
	Rule    string // its label
	Address netip.Addr
	Key     string // the rule's, which may be a network
	Until   int64
	Block   bool // by a person; else it is a penalty
	Peer    bool // a connection came from the address
	noted   int64
}

// Wanted reports whether somebody asks, so that Note is to be called.
func (b *BlockedAddresses) Wanted() bool { return b.on.Load() }

// AddressOf returns the source of a rule's key if that is an address, and nothing else; nil: it is not.
func AddressOf(r *ruleset.Rule) *match.Source {
	if len(r.Parts) != 1 || !r.Parts[0].Source.IsAddress() {
		return nil
	}
	return &r.Parts[0].Source
}

// Note remembers the address of a request that was rejected, if that is for a penalty or a block of its address.
func (b *BlockedAddresses) Note(r *http.Request, checks []core.Check) {
	if r.TLS != nil && !r.TLS.HandshakeComplete {
		return // anybody can have sent it, from any address
	}
	now := time.Now().UnixMicro()
	for i := range checks {
		c := &checks[i]
		if rule := Of(c); rule.Address != nil && !c.Decision.Allowed && !c.Rule.Shadow && !c.Uncounted && c.Decision.RetryAfter > 0 {
			b.note(r, c, rule, now)
		}
	}
}

func (b *BlockedAddresses) note(r *http.Request, c *core.Check, rule *Reporter, now int64) {
	client := syntax.ClientIPOf(r)
	address := match.ReadAddress(rule.Address.Value(r, client))
	if !address.IsValid() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	d := &c.Decision
	until, block := b.blocks[[2]string{rule.Stats.Label, c.Key}]
	if !block {
		// A limit alone lets its clients have a part of the quota before it has all of it back, unless a window ends.
		terms, _ := c.Rule.Terms()
		reset := d.ResetAfter
		if c.Rule.JittersReset {
			reset -= front.Later(c.Rule, c.Key, r) // which front.SetLater has added
		}
		if !d.Penalty && (len(terms.Penalties) == 0 || d.RetryAfter != reset) {
			return
		}
		until = now + d.RetryAfter
	}
	key := blockedKey{rule.Stats.Label, address}
	one := b.seen[key]
	if b.seen == nil { // nobody asks any more
		return
	}
	peer := one != nil && one.Peer || isPeer(r, address)
	if one == nil && len(b.seen) >= mostBlocked {
		b.full = true
		if !peer || b.others == 0 {
			return
		}
		for k, other := range b.seen {
			if !other.Peer {
				b.drop(k)
				break
			}
		}
	}
	const same = int64(time.Second / time.Microsecond)
	if one != nil && one.Block == block && one.Peer == peer && until-one.Until < same && one.Until-until < same {
		one.noted = now
		return
	}
	if one != nil {
		b.drop(key)
	}
	if !peer {
		b.others++
	}
	b.seen[key] = &Seen{Rule: rule.Stats.Label, Address: address, Key: c.Key, Until: until, Block: block, Peer: peer, noted: now}
	b.ends = min(b.ends, until)
	b.change()
}

// drop forgets an address.
func (b *BlockedAddresses) drop(key blockedKey) {
	if !b.seen[key].Peer {
		b.others--
	}
	delete(b.seen, key)
	b.change()
}

// isPeer reports whether a request's connection came from an address. What a proxy says of another connection, in a field or in front of the connection, is not that.
func isPeer(r *http.Request, address netip.Addr) bool {
	if trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool); trusted {
		return false
	}
	remote := r.RemoteAddr
	if conn, ok := r.Context().Value(connection{}).(net.Conn); ok {
		if conn = bare(conn); conn == nil {
			return false
		}
		remote = conn.RemoteAddr().String()
	}
	return match.ReadAddress(match.HostOf(remote)) == address
}

// connection is the key of a request's connection in its context.
type connection struct{}

// TellConnections has a server tell the connections of its requests, if what is around them may say that they come from elsewhere. It is to be called before the
// server starts. HTTP/3 has no such connections.
func TellConnections(server *caddyhttp.Server) {
	if syntax.WrapsConnections(server) {
		server.RegisterConnContext(func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connection{}, conn)
		})
	}
}

// bare returns the kernel's connection inside another; nil: that hides it.
func bare(conn net.Conn) net.Conn {
	for conn != nil {
		switch outer := conn.(type) {
		case syscall.Conn:
			return conn
		case interface{ NetConn() net.Conn }: // TLS
			conn = outer.NetConn()
		case interface{ Raw() net.Conn }: // the PROXY protocol
			conn = outer.Raw()
		default: // as most that listener wrappers return
			conn = embedded(conn)
		}
	}
	return nil
}

// embedded returns the connection that a struct has in its field Conn; nil: it has none.
func embedded(conn net.Conn) (inner net.Conn) {
	if v := reflect.Indirect(reflect.ValueOf(conn)); v.Kind() == reflect.Struct {
		if field := v.FieldByName("Conn"); field.IsValid() && field.CanInterface() {
			inner, _ = field.Interface().(net.Conn)
		}
	}
	return inner
}

func (b *BlockedAddresses) change() {
	b.changes++
	close(b.wake)
	b.wake = make(chan struct{})
}

// Changed says that the list may be another for another reason: a configuration has come into force, for example.
func (b *BlockedAddresses) Changed() {
	b.mu.Lock()
	b.change()
	b.mu.Unlock()
}

// Forget forgets the addresses of a key of a rule, whose penalty or block has been ended.
func (b *BlockedAddresses) Forget(rule, key string) {
	b.mu.Lock()
	b.forget(map[[2]string]bool{{rule, key}: true}, time.Now().UnixMicro())
	b.mu.Unlock()
}

// forget forgets those of keys of rules that were noted before a time.
func (b *BlockedAddresses) forget(ended map[[2]string]bool, before int64) {
	for k, one := range b.seen {
		if one.noted <= before && ended[[2]string{k.rule, one.Key}] {
			b.drop(k)
		}
	}
}

// Ask has addresses remembered from now on, for some minutes, and looks which are over. list is what people have decided: blocks, and which keys they have ended
// penalties of. It returns the version of what is remembered, and a channel that is closed when that changes.
func (b *BlockedAddresses) Ask(list []exception.Exception) (version string, changed <-chan struct{}) {
	// Requests that are rejected wait for the lock: under it, there is work only if people have decided something since.
	sum, forgotten := fnv.New64a(), fnv.New64a()
	for i := range list {
		switch e := &list[i]; e.Kind {
		case exception.Block:
			_, _ = fmt.Fprintf(sum, "%q %q %d\n", e.Rule, e.Key, e.Until)
		case exception.Forget:
			_, _ = fmt.Fprintf(forgotten, "%q %q %d\n", e.Rule, e.Key, e.Made)
		}
	}
	decided := [2]uint64{sum.Sum64(), forgotten.Sum64()}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = time.Now()
	now := b.asked.UnixMicro()
	if !b.on.Load() {
		b.since, b.seen = b.asked, make(map[blockedKey]*Seen)
		b.on.Store(true)
		b.change()
	}
	if b.decided != decided {
		b.decided = decided
		b.learn(list, now)
	}
	b.sweep(now)
	return fmt.Sprintf("%s-%d-%x", b.epoch, b.changes, decided[0]), b.wake
}

// learn takes what people have decided, and forgets the addresses whose penalty or block they have ended.
func (b *BlockedAddresses) learn(list []exception.Exception, now int64) {
	blocks, forgets, ended := make(map[[2]string]int64), make(map[[2]string]int64), make(map[[2]string]bool)
	for i := range list {
		e := &list[i]
		key := [2]string{e.Rule, string(e.Key)}
		switch e.Kind {
		case exception.Block:
			blocks[key] = e.Until
		case exception.Forget:
			if forgets[key] = e.Made; b.forgets[key] != e.Made {
				ended[key] = true
			}
		}
	}
	for key := range b.blocks {
		if _, still := blocks[key]; !still {
			ended[key] = true
		}
	}
	b.blocks, b.forgets = blocks, forgets
	if len(ended) > 0 {
		b.forget(ended, now)
	}
}

// sweep forgets what is over.
func (b *BlockedAddresses) sweep(now int64) {
	if now < b.ends {
		return
	}
	b.ends = now + sweptAfter
	for k, one := range b.seen {
		if one.Block { // which Ask forgets
			continue
		}
		if one.Until <= now {
			b.drop(k)
			b.full = false
		} else {
			b.ends = min(b.ends, one.Until)
		}
	}
}

// sweptAfter is how long nothing is swept if nothing ends, in microseconds.
const sweptAfter = int64(time.Minute / time.Microsecond)

// List returns the addresses that are remembered, in any order, since when addresses are, and whether there are too many.
func (b *BlockedAddresses) List() (list []Seen, since time.Time, full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list = make([]Seen, 0, len(b.seen))
	for k, one := range b.seen {
		now := *one
		if now.Block {
			now.Until = b.blocks[[2]string{k.rule, now.Key}]
		}
		list = append(list, now)
	}
	return list, b.since, b.full
}

// Sweep remembers no addresses any more if nobody has asked for long.
func (b *BlockedAddresses) Sweep() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.on.Load() && time.Since(b.asked) > askedFor {
		b.on.Store(false)
		b.seen, b.others, b.blocks, b.forgets, b.decided, b.full = nil, 0, nil, nil, [2]uint64{}, false
	}
}
