package traefik

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/proxyweir/weir/match"
	"github.com/proxyweir/weir/ruleset"
)

// addressing determines the address of a request's client, as Traefik's ipStrategy does:
//
//   - with a depth it is the one at that place of X-Forwarded-For, counted from the right; none if the list is shorter;
//   - with excluded networks it is the rightmost of the list that is in none of them; none if all are in one;
//   - else it is the connection's.
//
// If a request has the field several times, the first counts. The zero value takes the connection's address.
type addressing struct {
	depth    int
	excluded []netip.Prefix
	subnet   int // bits of the networks that IPv6 addresses are masked to; 0: they are not masked
}

const forwardedFor = "X-Forwarded-For"

// newAddressing reads an ipStrategy. field is its name in messages.
func newAddressing(field string, s *IPStrategy) (addressing, error) {
	var a addressing
	var in ruleset.Settings
	a.depth = int(in.Number("depth", s.Depth, 0, 1000, 0))
	a.subnet = int(in.Number("ipv6Subnet", s.IPv6Subnet, 1, 128, 0))
	if in.Err != nil {
		return a, fmt.Errorf("%s: %w", field, in.Err)
	}
	for _, text := range trimmed(s.ExcludedIPs) {
		network, err := match.ParseNetwork(text)
		if err != nil {
			return a, fmt.Errorf("%s: excludedIPs: %w", field, err)
		}
		a.excluded = append(a.excluded, network)
	}
	return a, nil
}

// direct reports whether the client's address is the connection's, unmasked.
func (a *addressing) direct() bool { return a.depth == 0 && len(a.excluded) == 0 && a.subnet == 0 }

// clientAddress returns the address of a request's client, "" if the strategy finds none.
func clientAddress(a *addressing, r *http.Request) string {
	address := ""
	if a.depth > 0 {
		list := strings.Split(r.Header.Get(forwardedFor), ",")
		if len(list) < a.depth {
			return ""
		}
		address = strings.TrimSpace(list[len(list)-a.depth])
	} else if len(a.excluded) > 0 {
		return firstNotExcluded(a.excluded, strings.Split(r.Header.Get(forwardedFor), ","))
	} else {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			return r.RemoteAddr
		}
		address = host
	}
	if a.subnet > 0 {
		return networkOf(address, a.subnet)
	}
	return address
}

// clientGetter returns a function that returns clientAddress, and passes addresses that have a colon through the function colon; nil: it
// leaves them as they are.
func clientGetter(a *addressing, colon func(value string) string) func(r *http.Request) string {
	if a.depth == 1 && a.subnet == 0 {
		return func(r *http.Request) string {
			list := r.Header.Get(forwardedFor)
			list = strings.TrimSpace(list[strings.LastIndexByte(list, ',')+1:])
			if colon == nil || strings.IndexByte(list, ':') < 0 {
				return list
			}
			return colon(list)
		}
	}
	return func(r *http.Request) string {
		address := clientAddress(a, r)
		if colon == nil || strings.IndexByte(address, ':') < 0 {
			return address
		}
		return colon(address)
	}
}

// firstNotExcluded returns the rightmost of a list that lies in none of the networks. A text that is not an address lies in none.
func firstNotExcluded(excluded []netip.Prefix, list []string) string {
	for i := len(list) - 1; i >= 0; i-- {
		text := strings.TrimSpace(list[i])
		if text == "" {
			continue
		}
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return text
		}
		ip = ip.Unmap().WithZone("")
		found := false
		for j := range excluded {
			found = found || excluded[j].Contains(ip)
		}
		if !found {
			return text
		}
	}
	return ""
}

// networkOf returns the first address of the network, of so many bits, in which an IPv6 address lies, and any other text
// unchanged. Here, as for Traefik, an IPv4-mapped address is an IPv6 address.
func networkOf(address string, bits int) string {
	ip, err := netip.ParseAddr(address)
	if err != nil || !ip.Is6() {
		return address
	}
	network, _ := ip.Prefix(bits) // which there is, of 1 to 128
	return network.Addr().String()
}
