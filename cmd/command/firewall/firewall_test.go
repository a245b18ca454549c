package firewall

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// said collects lines.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(line)
}

var noon = time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)

// listed returns a list of peers that are blocked for an hour.
func listed(version string, addresses ...string) *List {
	l := &List{Version: version}
	for _, a := range addresses {
		l.Addresses = append(l.Addresses, Address{Address: a, Rule: "login", Reason: "penalty", Until: noon.Add(time.Hour), Peer: true})
	}
	return l
}

// keptOut returns what is kept out, and for how long.
func keptOut(o *Options, known []followed, now time.Time) string {
	var list []string
	for network, c := range o.union(known, now) {
		list = append(list, fmt.Sprint(shown(network), " ", c.end.Sub(now)))
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func TestOnlyAddressesThatAClientMayHaveAreKeptOut(t *testing.T) {
	o := Options{Lease: 10 * time.Second, Except: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/28"), netip.MustParsePrefix("2001:db8:7::99/128")}}
	for address, want := range map[string]string{
		"198.51.100.7": "198.51.100.7", "::ffff:198.51.100.7": "198.51.100.7", "2001:db8::1:2": "2001:db8::/64", "2002:c633:6407::1": "2002:c633:6407::/64",
		"203.0.113.9": "", "203.0.113.16": "203.0.113.16", "2001:db8:7::1": "",
		"127.0.0.1": "", "::1": "", "10.1.2.3": "", "172.16.0.1": "", "192.168.1.1": "", "fd00::1": "", "169.254.1.1": "", "fe80::1": "", "fe80::1%eth0": "", "fec0::1": "",
		"0.0.0.0": "", "0.1.2.3": "", "::": "", "100.64.0.1": "", "192.0.0.8": "", "224.0.0.1": "", "ff02::1": "", "255.255.255.255": "", "240.0.0.1": "",
		"64:ff9b::c633:6407": "", "64:ff9b:1::1": "", "2001:0:c633:6407::1": "", "::c633:6407": "",
		"198.51.100.0/24": "", "": "", "shop.example": "",
	} {
		network, ok := o.fits(&Address{Address: address, Peer: true}, nil)
		got := ""
		if ok {
			got = shown(network)
		}
		must.Equal(t, got, want, "%s", address)
	}
	own := []netip.Addr{netip.MustParseAddr("198.51.100.7"), netip.MustParseAddr("2001:db8::1")}
	for _, a := range []Address{
		{Address: "198.51.100.7", Peer: true}, {Address: "2001:db8::2", Peer: true}, {Address: "198.51.100.8"}, {Address: "198.51.100.8", Peer: true, Spare: "trusted proxy"},
	} {
		if _, ok := o.fits(&a, own); ok {
			t.Errorf("%+v is kept out", a)
		}
	}
	o.Rules = []string{"login"}
	_, ok := o.fits(&Address{Address: "198.51.100.8", Peer: true, Rule: "pages"}, nil)
	must.Equal(t, ok, false, "another rule")
}

func TestWhatIsKeptOutEndsByItself(t *testing.T) {
	o := Options{Lease: 10 * time.Second}
	known := make([]followed, 2)
	l := listed("a-1", "198.51.100.1", "2001:db8::1", "2001:db8::2")
	l.Addresses[0].Until = noon.Add(4 * time.Second)
	l.Addresses = append(l.Addresses, Address{Address: "198.51.100.9", Peer: true, Until: noon}) // is over
	known[0].learn(l, noon, &o)
	must.Equal(t, keptOut(&o, known, noon), "198.51.100.1 4s, 2001:db8::/64 10s", "a lease, or until the block ends")
	known[0].learn(l, noon.Add(3*time.Second), &o)
	must.Equal(t, keptOut(&o, known, noon.Add(3*time.Second)), "198.51.100.1 1s, 2001:db8::/64 10s", "the same list again")
	known[1].learn(listed("b-1", "198.51.100.1", "198.51.100.2"), noon, &o)
	must.Equal(t, keptOut(&o, known, noon), "198.51.100.1 10s, 198.51.100.2 10s, 2001:db8::/64 13s", "by another Caddy, too")
	known[0].learn(listed("a-2"), noon, &o)
	must.Equal(t, keptOut(&o, known, noon), "198.51.100.1 10s, 198.51.100.2 10s", "what one does not block any more")
	known[1].learn(listed("c-1", "198.51.100.3"), noon.Add(time.Second), &o)
	must.Equal(t, keptOut(&o, known, noon.Add(time.Second)), "198.51.100.1 9s, 198.51.100.2 9s, 198.51.100.3 10s", "after a restart")
	known[1].learn(listed("c-1", "198.51.100.3"), noon.Add(2*time.Second), &o)
	must.Equal(t, keptOut(&o, known, noon.Add(2*time.Second)), "198.51.100.1 8s, 198.51.100.2 8s, 198.51.100.3 10s", "when that one has spoken again")
	known[1].learn(listed("c-1"), noon.Add(3*time.Second), &o)
	must.Equal(t, keptOut(&o, known, noon.Add(3*time.Second)), "198.51.100.1 7s, 198.51.100.2 7s", "and has unblocked one")
	must.Equal(t, keptOut(&o, known, noon.Add(13*time.Second)), "", "when nobody has spoken for a lease")
}

func TestOfTooManyThoseThatEndLastAreKeptOut(t *testing.T) {
	o := Options{Lease: time.Minute}
	f := followed{closed: make(map[netip.Prefix]closing)}
	first := netip.MustParseAddr("198.18.0.0")
	for i, a := 0, first; i < Most+2; i, a = i+1, a.Next() {
		f.closed[netip.PrefixFrom(a, 32)] = closing{end: noon.Add(time.Duration(i+1) * time.Millisecond)}
	}
	all := o.union([]followed{f}, noon)
	must.Equal(t, len(all), Most, "how many")
	_, there := all[netip.PrefixFrom(first, 32)]
	must.Equal(t, there, false, "that of the one that ends first")
}

func TestARuleThatNoCaddyHasIsWarnedOf(t *testing.T) {
	var out said
	o := Options{Rules: []string{"login", "logn"}, Out: &out}
	known := make([]followed, 2)
	with := func(rules ...string) *List { return &List{Version: "a-1", Rules: rules} }
	known[0].learn(with("pages"), noon, &o)
	o.warn(known)
	must.Equal(t, out.text.String(), "", "before all have spoken")
	known[1].learn(with("login"), noon, &o)
	o.warn(known)
	o.warn(known)
	line := "warning: --rule logn: there is no such rule whose key is an address alone; there are: pages, login\n"
	must.Equal(t, out.text.String(), line)
	known[1].learn(with("login", "logn"), noon, &o)
	o.warn(known)
	known[1].learn(with("login"), noon, &o)
	o.warn(known)
	must.Equal(t, out.text.String(), line+line, "when it is gone again")
}

func TestADryRunSaysWhatItWouldDo(t *testing.T) {
	var out said
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	l := listed("a-1")
	for i := range mostTold + 5 {
		l.Addresses = append(l.Addresses, Address{Address: fmt.Sprint("198.51.100.", 100+i), Rule: "login", Reason: "penalty", Until: time.Now().Add(time.Hour), Peer: true})
	}
	turn := 0
	ask := func(version string, _ time.Duration) (*List, error) {
		switch turn++; turn {
		case 1:
			return l, nil
		case 2:
			must.Equal(t, version, "a-1", "what it has")
			return nil, errors.New("connection refused")
		case 3:
			return &List{Version: "a-2", Addresses: l.Addresses[1:]}, nil
		}
		stop()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	must.Succeed(t, Run(ctx, Options{Caddys: []Caddy{{"here", ask}}, Lease: time.Minute, Dry: true, Out: &out}))
	out.mu.Lock()
	defer out.mu.Unlock()
	for _, want := range []string{"would close 198.51.100.100: penalty of login until 20", "and 5 more; 25 in all", "here: connection refused; what it blocks opens within 1m0s", "here: answers again", "would open 198.51.100.100\n"} {
		must.Contain(t, out.text.String(), want)
	}
	if strings.Contains(out.text.String(), "198.51.100.124") {
		t.Error("it writes a line for each of many")
	}
}

// Defect found: of a Caddy that takes the question and is silent, nothing was said.
func TestTheFirewallSaysThatACaddyIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out said
		ctx, stop := context.WithCancel(t.Context())
		turn := 0
		ask := func(string, time.Duration) (*List, error) {
			if turn++; turn == 1 {
				time.Sleep(20 * time.Second) // of the bubble
			} else {
				stop()
			}
			return listed("a-1"), nil
		}
		must.Succeed(t, Run(ctx, Options{Caddys: []Caddy{{"here", ask}}, Lease: 15 * time.Second, Dry: true, Out: &out}))
		out.mu.Lock()
		defer out.mu.Unlock()
		must.Equal(t, out.text.String(), "here: has not answered for 15s; what it blocks is open\nhere: answers again\n")
	})
}
