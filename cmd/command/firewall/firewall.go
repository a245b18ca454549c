// Package firewall keeps addresses that Caddys block out of this machine, in sets of nftables. It knows Caddy's answers, and no handler.
//
// What is closed is closed for a lease at most, and renewed with each answer. So it opens by itself if this process dies, hangs, or hears nothing.
package firewall

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// List is the answer of /rate_limit/blocked.
type List struct {
	Version   string
	Rules     []string // that can be in it
	Addresses []Address
}

// Address is an address whose requests a rule of a Caddy rejects.
type Address struct {
	Address, Rule, Reason, Spare string
	Until                        time.Time
	Peer                         bool
}

// Caddy is one that is followed.
type Caddy struct {
	Name string

	// Ask returns the list when it is another than that of a version, or nil after the wait.
	Ask func(version string, wait time.Duration) (*List, error)
}

// Options say what is closed for whom.
type Options struct {
	Caddys []Caddy
	Ports  []uint16       // closed, of TCP and UDP
	Rules  []string       // whose addresses are kept out; none: all rules
	Except []netip.Prefix // who is never kept out
	Lease  time.Duration
	Dry    bool      // only says what it would do
	Out    io.Writer // gets what is done

	lacking []string // of Rules: those that a warning was written of
}

// Most is how many addresses and networks are kept out at a time.
const Most = 65_536

// closing is why an address or network is kept out, and until when, if nothing renews it.
type closing struct {
	end    time.Time
	why    string
	former bool // only a former process of Caddy has blocked it
}

// followed is what is known of one Caddy.
type followed struct {
	process string // of the last list
	closed  map[netip.Prefix]closing
	rules   []string // that can be in its list
}

// wall is where addresses are kept out.
type wall interface {
	// keep keeps out those and nobody else; renew says to renew the time of those that it keeps out already.
	keep(closed map[netip.Prefix]closing, now time.Time, renew bool) error
	open() error // for all
}

// dryWall keeps nobody out.
type dryWall struct{}

func (dryWall) keep(map[netip.Prefix]closing, time.Time, bool) error { return nil }
func (dryWall) open() error                                          { return nil }

// Run keeps out what the Caddys block, until ctx is done. Then all is open.
func Run(ctx context.Context, o Options) (err error) {
	var w wall = dryWall{}
	if !o.Dry {
		if w, err = newWall(o.Ports); err != nil {
			return err
		}
	}
	defer func() { err = cmp.Or(err, w.open()) }()
	lists := make(chan heard)
	for i := range o.Caddys {
		go o.follow(ctx, i, lists)
	}
	known := make([]followed, len(o.Caddys))
	closed := map[netip.Prefix]closing{}
	var renewed time.Time
	failed := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case h := <-lists:
			now := time.Now()
			known[h.from].learn(h.list, now, &o)
			o.warn(known)
			next := o.union(known, now)
			o.tell(closed, next, now)
			renew := failed || now.Sub(renewed) >= o.Lease/4
			if err := w.keep(next, now, renew); err != nil {
				failed = true // the next time it begins anew
				o.say("nftables: %v", err)
				continue
			}
			if renew {
				renewed = now
			}
			failed, closed = false, next
		}
	}
}

// heard is a list of one of the Caddys.
type heard struct {
	from int
	list *List
}

// Times of asking. The wait is so short that a list can be missed once before the lease is over.
const (
	least = 500 * time.Millisecond // from one question to the next,
	each  = 10 * time.Microsecond  // and for each address more, since Caddy works for them
	pause = time.Second            // after an error
)

// follow asks a Caddy again and again, and passes on each list, also the same again.
func (o *Options) follow(ctx context.Context, i int, lists chan<- heard) {
	last := new(List)
	failing := false
	for ctx.Err() == nil {
		next := time.After(least + time.Duration(len(last.Addresses))*each)
		late := time.AfterFunc(o.Lease, func() { o.say("%s: has not answered for %s; what it blocks is open", o.Caddys[i].Name, o.Lease) })
		list, err := o.Caddys[i].Ask(last.Version, o.Lease/3)
		failing = !late.Stop() || failing
		if (err != nil) != failing {
			failing = err != nil
			if failing {
				o.say("%s: %s; what it blocks opens within %s", o.Caddys[i].Name, strings.TrimSpace(err.Error()), o.Lease)
			} else {
				o.say("%s: answers again", o.Caddys[i].Name)
			}
		}
		if err != nil {
			next = time.After(pause)
		} else {
			if list != nil {
				last = list
			}
			select {
			case lists <- heard{i, last}:
			case <-ctx.Done():
			}
		}
		select {
		case <-next:
		case <-ctx.Done():
		}
	}
}

// learn takes a list of a Caddy. What another process of it had in its list stays until its lease is over: the Caddy has started again, and learns of those
// who come who is under a penalty.
func (f *followed) learn(list *List, now time.Time, o *Options) {
	next := make(map[netip.Prefix]closing)
	own := ownAddresses()
	for i := range list.Addresses {
		a := &list.Addresses[i]
		network, ok := o.fits(a, own)
		if !ok || !a.Until.After(now) {
			continue
		}
		end := now.Add(o.Lease)
		if a.Until.Before(end) {
			end = a.Until
		}
		if before, there := next[network]; !there || before.end.Before(end) {
			next[network] = closing{end: end, why: a.Reason + " of " + a.Rule + " until " + a.Until.Format(time.RFC3339)}
		}
	}
	process, _, _ := strings.Cut(list.Version, "-")
	for network, c := range f.closed {
		c.former = c.former || process != f.process
		if _, there := next[network]; !there && c.former && c.end.After(now) {
			next[network] = c
		}
	}
	f.process, f.closed, f.rules = process, next, list.Rules
}

// warn says which of the rules that are named no Caddy has, once each time it has none.
func (o *Options) warn(known []followed) {
	var all []string
	for i := range known {
		if known[i].process == "" {
			return // which may have it
		}
		all = append(all, known[i].rules...)
	}
	for _, rule := range o.Rules {
		has := slices.Contains(all, rule)
		if !has && !slices.Contains(o.lacking, rule) {
			o.say("warning: --rule %s: there is no such rule whose key is an address alone; there are: %s", rule, strings.Join(all, ", "))
			o.lacking = append(o.lacking, rule)
		} else if has {
			o.lacking = slices.DeleteFunc(o.lacking, func(one string) bool { return one == rule })
		}
	}
}

// special are networks that are no client's, or whose networks of 64 bits are many clients'.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // shared by the clients of a provider
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/32"),        // IPv4 in other clothes
	netip.MustParsePrefix("64:ff9b::/32"), // NAT64: all of IPv4 is in one network
	netip.MustParsePrefix("2001::/32"),    // Teredo: all clients of a server are in one network
	netip.MustParsePrefix("fec0::/10"),
}

// fits returns what is kept out for an address: of IPv6 its network of 64 bits. ok is false if it must not be.
func (o *Options) fits(a *Address, own []netip.Addr) (network netip.Prefix, ok bool) {
	address, err := netip.ParseAddr(a.Address)
	if err != nil || !a.Peer || a.Spare != "" || len(o.Rules) > 0 && !slices.Contains(o.Rules, a.Rule) {
		return network, false
	}
	address = address.Unmap().WithZone("")
	if !address.IsGlobalUnicast() || address.IsPrivate() {
		return network, false
	}
	network = netip.PrefixFrom(address, min(address.BitLen(), 64)).Masked()
	return network, !slices.ContainsFunc(own, network.Contains) && !slices.ContainsFunc(special, network.Overlaps) && !slices.ContainsFunc(o.Except, network.Overlaps)
}

// ownAddresses returns those of this machine.
func ownAddresses() []netip.Addr {
	var list []netip.Addr
	all, _ := net.InterfaceAddrs() // else there are none
	for _, one := range all {
		if n, ok := one.(*net.IPNet); ok {
			if a, ok := netip.AddrFromSlice(n.IP); ok {
				list = append(list, a.Unmap())
			}
		}
	}
	return list
}

// union returns what any of the Caddys blocks: of too many, those whose end is the latest.
func (o *Options) union(known []followed, now time.Time) map[netip.Prefix]closing {
	all := make(map[netip.Prefix]closing)
	for i := range known {
		for network, c := range known[i].closed {
			if c.end.After(now) && c.end.After(all[network].end) {
				all[network] = c
			}
		}
	}
	if len(all) <= Most {
		return all
	}
	networks := slices.SortedFunc(maps.Keys(all), func(a, b netip.Prefix) int {
		return cmp.Or(all[b].end.Compare(all[a].end), a.Addr().Compare(b.Addr()))
	})
	for _, network := range networks[Most:] {
		delete(all, network)
	}
	return all
}

// mostTold is how many lines are written of one list.
const mostTold = 20

// tell writes what is closed and opened.
func (o *Options) tell(before, after map[netip.Prefix]closing, now time.Time) {
	var lines []string
	for network, c := range after {
		if was, there := before[network]; !there || !was.end.After(now) {
			lines = append(lines, "close "+shown(network)+": "+c.why)
		}
	}
	for network := range before {
		if _, there := after[network]; !there {
			lines = append(lines, "open "+shown(network))
		}
	}
	slices.Sort(lines)
	would := ""
	if o.Dry {
		would = "would "
	}
	for _, line := range lines[:min(len(lines), mostTold)] {
		o.say("%s%s", would, line)
	}
	if len(lines) > mostTold {
		o.say("and %d more; %d in all", len(lines)-mostTold, len(after))
	}
}

func shown(network netip.Prefix) string {
	if network.IsSingleIP() {
		return network.Addr().String()
	}
	return network.String()
}

// say writes a line.
func (o *Options) say(format string, values ...any) {
	_, _ = fmt.Fprintf(o.Out, format+"\n", values...)
}
