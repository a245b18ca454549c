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
	"github.com/proxyweir/weir/core/match"
)

// comparison finds out whether other nodes that share a rule mask the addresses in its key to other networks. Such nodes count apart, and
// each lets the whole limit through; nothing else shows it. For each rule whose key may have an address, one node keeps a mark in Redis
// with the networks that it masks to. The other nodes compare it with theirs, in the background, at long intervals.
type comparison struct {
	store   *Store
	differs func(namespace, rule string, here, there match.Prefixes) // nil: nothing is compared
	node    string                                                   // identifies this node in its marks
	again   func()                                                   // compares, and sets the timer again: made once, as renewals.again is

	mu     sync.Mutex
	rules  map[string]*comparedRule // by their mark's key
	timer  *time.Timer              // nil: none is set
	closed bool
}

// comparedRule is a rule that is compared.
type comparedRule struct {
	namespace, name string
	here            match.Prefixes // of the rule that was opened last (The rule itself is not kept: Yaegi would take it for another type.)
	uses            int
	reported        map[match.Prefixes]bool // the other nodes' prefixes for which Differs was called
}

const (
	firstComparison = 5 * time.Second  // after a rule was opened
	comparisons     = 10 * time.Minute // from one to the next
	markLasts       = 3 * comparisons
)

// begin sets up the comparison of a store.
func (c *comparison) begin(s *Store, differs func(namespace, rule string, here, there match.Prefixes)) {
	c.store = s
	c.differs = differs
	c.rules = make(map[string]*comparedRule)
	c.again = func() { c.compareLater() }
	var node [6]byte
	_, _ = rand.Read(node[:])
	c.node = hex.EncodeToString(node[:])
}

// markOf returns the key of a rule's mark; "" if it has none. Rules with the same mark should share their counters: they differ at most in
// the networks that they mask to.
func (c *comparison) markOf(r *core.Rule) string {
	of, _ := splitSpec(r.KeySpec())
	if c.differs == nil || r.IsCandidate() || !hasAddress(of) {
		return ""
	}
	sum := sha256.Sum256([]byte(format + "|" + strings.TrimSuffix(r.Identity, r.KeySpec()) + of))
	return c.store.naming.prefix + "rules}:" + base64.RawURLEncoding.EncodeToString(sum[:12])
}

// hasAddress reports whether a key contains an address. It goes by the names of the key's sources: those of the proxy itself, and of
// header fields that proxies set, such as X-Real-IP.
func hasAddress(spec string) bool {
	for _, source := range strings.Fields(strings.ToLower(spec)) {
		if !strings.HasPrefix(source, "static:") && addressWord.MatchString(source) {
			return true
		}
	}
	return false
}

var (
	// addressWord finds a word that says that a source is an address.
	addressWord = regexp.MustCompile(`(^|[^a-z0-9])(ip|remote|clientip|realip)($|[^a-z0-9])`)

	// maskedSpec finds the lengths of the prefixes at the end of a key's spec.
	maskedSpec = regexp.MustCompile(`^((?s).*) /(\d{1,3}) /(\d{1,3})$`)
)

// splitSpec splits a key's spec into its sources and the prefixes to which addresses are masked. Without prefixes these are 32 and 128.
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
	compared.namespace = r.Namespace
	compared.name = r.Name()
	_, compared.here = splitSpec(r.KeySpec())
	compared.uses++
	if c.closed {
		// no more comparisons
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

// close stops the comparisons.
func (c *comparison) close() {
	c.mu.Lock()
	c.closed = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
}

// compareLater compares all rules, and sets the timer for the next time.
func (c *comparison) compareLater() {
	defer func() {
		_ = recover() // an interpreted program has no other recover
		c.mu.Lock()
		if !c.closed {
			c.timer.Reset(comparisons)
		}
		c.mu.Unlock()
	}()
	c.store.Compare()
}

// Compare finds open rules for which another node masks the addresses in the key to other networks than this node, and calls
// Config.Differs for them. A store does this by itself, in the background, five seconds after a rule was opened and then every ten
// minutes.
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

// compare compares one rule with its mark. It returns false if the server did not answer.
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
