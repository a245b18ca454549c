package redis

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/match"
)

// comparison finds out whether other nodes that share a rule mask the addresses in its key to other networks. Such nodes count apart,
// each lets the whole limit through, and nothing else shows it. For each rule whose key may have an address one node keeps a mark in
// Redis, of what it masks to; the others look at it. That goes on in the background, at long intervals.
type comparison struct {
	store   *Store
	differs func(namespace, rule string, here, there match.Prefixes) // nil: nothing is compared
	node    string                                                   // in the marks of this node
	again   func()                                                   // compares, and sets the timer again: made once, as that of leases

	mu     sync.Mutex
	rules  map[string]*comparedRule // by their mark's key
	timer  *time.Timer              // nil: none is set
	closed bool
}

// comparedRule is a rule that is compared.
type comparedRule struct {
	namespace, name string
	here            match.Prefixes // of the rule that was opened last (Which is not kept itself: Yaegi takes it for another type then.)
	uses            int
	reported        map[match.Prefixes]bool // what others mask to has been told
}

const (
	firstComparison = 5 * time.Second  // after a rule was opened
	comparisons     = 10 * time.Minute // from one to the next
	markLasts       = 3 * comparisons
)

// begin makes the comparison of a store ready.
func (c *comparison) begin(s *Store, differs func(namespace, rule string, here, there match.Prefixes)) {
	c.store = s
	c.differs = differs
	c.rules = make(map[string]*comparedRule)
	c.again = func() { c.compareLater() }
	var node [6]byte
	_, _ = rand.Read(node[:])
	c.node = hex.EncodeToString(node[:])
}

// markOf returns the key of a rule's mark; "" where it has none. Rules with the same mark are to share their counters, but for what
// they mask to.
func (c *comparison) markOf(r *core.Rule) string {
	of, _ := splitSpec(r.KeySpec())
	if c.differs == nil || r.IsCandidate() || !hasAddress(of) {
		return ""
	}
	sum := sha256.Sum256([]byte(format + "|" + strings.TrimSuffix(r.Identity(), r.KeySpec()) + of))
	return c.store.naming.prefix + "rules}:" + base64.RawURLEncoding.EncodeToString(sum[:12])
}

// hasAddress reports whether a key is made of addresses, by the names of its sources: the proxy's own, or fields that proxies set, such as
// X-Real-IP.
func hasAddress(spec string) bool {
	for _, source := range strings.Fields(strings.ToLower(spec)) {
		if !strings.HasPrefix(source, "static:") && addressWord.MatchString(source) {
			return true
		}
	}
	return false
}

var (
	// addressWord finds a word by which the name of a source says that it is an address.
	addressWord = regexp.MustCompile(`(^|[^a-z0-9])(ip|remote|clientip|realip)($|[^a-z0-9])`)

	// maskedSpec finds how addresses are masked, at the end of what a key is made of.
	maskedSpec = regexp.MustCompile(`^((?s).*) /(\d{1,3}) /(\d{1,3})$`)
)

// splitSpec returns what a key is made of without how its addresses are masked, and that.
func splitSpec(spec string) (string, match.Prefixes) {
	prefixes := match.Prefixes{IPv4: 32, IPv6: 128}
	found := maskedSpec.FindStringSubmatch(spec)
	if found == nil {
		return spec, prefixes
	}
	if n, _ := strconv.Atoi(found[2]); n != 0 {
		prefixes.IPv4 = n
	}
	if n, _ := strconv.Atoi(found[3]); n != 0 {
		prefixes.IPv6 = n
	}
	return found[1], prefixes
}

func (c *comparison) add(r *core.Rule) {
	mark := c.markOf(r)
	if mark == "" {
		return
	}
	c.mu.Lock()
	compared := c.rules[mark]
	if compared == nil {
		compared = &comparedRule{reported: make(map[match.Prefixes]bool)}
		c.rules[mark] = compared
	}
	compared.namespace = r.Namespace()
	compared.name = r.Name()
	_, compared.here = splitSpec(r.KeySpec())
	compared.uses++
	if c.closed {
		// nobody asks any more
	} else if c.timer == nil {
		c.timer = time.AfterFunc(firstComparison, c.again)
	} else {
		c.timer.Reset(firstComparison)
	}
	c.mu.Unlock()
}

func (c *comparison) remove(r *core.Rule) {
	mark := c.markOf(r)
	if mark == "" {
		return
	}
	c.mu.Lock()
	if compared := c.rules[mark]; compared != nil {
		compared.uses--
		if compared.uses == 0 {
			delete(c.rules, mark)
		}
	}
	c.mu.Unlock()
}

// close ends the comparisons.
func (c *comparison) close() {
	c.mu.Lock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
}

// compareLater compares all rules, and has that done again after a while.
func (c *comparison) compareLater() {
	defer func() {
		_ = recover() // in an interpreted program nobody above would
		c.mu.Lock()
		if !c.closed {
			c.timer.Reset(comparisons)
		}
		c.mu.Unlock()
	}()
	c.store.Compare()
}

// Compare looks whether other nodes mask the addresses in the keys of the rules that are open otherwise than this one, and tells
// Config.Differs. A store does so by itself, in the background, five seconds after a rule was opened and every ten minutes.
func (s *Store) Compare() {
	c := &s.comparison
	c.mu.Lock()
	var marks []string
	for mark := range c.rules {
		marks = append(marks, mark)
	}
	c.mu.Unlock()
	for _, mark := range marks {
		if !c.compare(mark) {
			return // until the next time
		}
	}
}

// compare looks at one mark. It returns false where the server did not answer.
func (c *comparison) compare(mark string) bool {
	c.mu.Lock()
	compared := c.rules[mark]
	var here match.Prefixes
	if compared != nil {
		here = compared.here
	}
	c.mu.Unlock()
	if compared == nil {
		return true
	}
	own := fmt.Sprintf("%d %d %s", here.IPv4, here.IPv6, c.node)
	call := &Call{Script: scriptOfMark, Keys: []string{mark}, Args: []string{own, fmt.Sprint(int64(markLasts / time.Millisecond)), c.node}}
	if !c.store.runAside(call) {
		return false
	}
	if len(call.Reply) != 2 {
		return true
	}
	there := match.Prefixes{IPv4: int(call.Reply[0]), IPv6: int(call.Reply[1])}
	if there == here {
		return true
	}
	c.mu.Lock()
	reported := compared.reported[there]
	compared.reported[there] = true
	c.mu.Unlock()
	if !reported {
		c.differs(compared.namespace, compared.name, here, there)
	}
	return true
}

// luaMark keeps a mark, unless there is one of another node, with other numbers, and returns the numbers of the one that there is. ARGV
// has this node's mark, how long it lasts in milliseconds, and the node.
const luaMark = `
local call = redis.call
local mark = redis.pcall('GET', KEYS[1])
local ipv4, ipv6, node
if type(mark) == 'string' then ipv4, ipv6, node = string.match(mark, '^(%d+) (%d+) (%x+)$') end
local own4, own6 = string.match(ARGV[1], '^(%d+) (%d+) ')
if not node or node == ARGV[3] or ipv4 == own4 and ipv6 == own6 then
	ipv4, ipv6 = own4, own6
	call('PSETEX', KEYS[1], ARGV[2], ARGV[1])
end
return {tonumber(ipv4), tonumber(ipv6)}
`
