package traefik

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/traefik/config"
)

// addressing determines the address of a request's client, as Traefik's ipStrategy does:
//
//   - with a depth it is the one at that place of X-Forwarded-For, counted from the right; none if the list is shorter;
//   - with excluded networks it is the rightmost of the list that is in none of them; none if all are in one;
//   - else it is the connection's.
//
// It reads addresses as match.ReadAddress does. A text of the list that is none, such as unknown, is taken as it is. If a request has the field
// several times, the list goes through all of them. (Traefik itself reads the first alone, which is the client's own behind a proxy that adds
// another.) The zero value takes the connection's address.
type addressing struct {
	depth    int
	excluded match.Networks
	subnet   int // bits of the networks that IPv6 addresses are masked to; 0: they are not masked
}

const forwardedFor = "X-Forwarded-For"

// newAddressing reads an ipStrategy. field is its name in messages.
func newAddressing(field string, s *config.IPStrategy) (addressing, error) {
	depth, subnet, excluded, err := config.ReadStrategy(field, s)
	a := addressing{depth: depth, subnet: subnet}
	if err != nil {
		return a, err
	}
	a.excluded = match.NewNetworks(excluded)
	return a, nil
}

// direct reports whether the client's address is the connection's, unmasked.
func (a *addressing) direct() bool { return a.depth == 0 && a.excluded == nil && a.subnet == 0 }

// clientAddress returns the address of a request's client as match.CleanAddress does, "" if the strategy finds none.
func clientAddress(a *addressing, r *http.Request) string {
	address := ""
	if a.depth > 0 {
		list := forwardedList(r)
		if len(list) < a.depth {
			return ""
		}
		address = strings.TrimSpace(list[len(list)-a.depth])
	} else if a.excluded != nil {
		return firstNotExcluded(a.excluded, forwardedList(r))
	} else {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			return r.RemoteAddr
		}
		address = host
	}
	if strings.ContainsAny(address, match.Dress) {
		address = match.CleanAddress(address)
	}
	if a.subnet > 0 {
		return networkOf(address, a.subnet)
	}
	return address
}

// forwardedList returns the items of a request's X-Forwarded-For.
func forwardedList(r *http.Request) []string {
	return strings.Split(strings.Join(r.Header[forwardedFor], ","), ",")
}

// clientGetter returns a function that returns clientAddress, and passes addresses that have a byte of match.Dress through the function dressed;
// nil: it returns them as match.CleanAddress does.
func clientGetter(a *addressing, dressed func(value string) string) func(r *http.Request) string {
	if dressed == nil {
		dressed = match.CleanAddress
	}
	if a.depth == 1 && a.subnet == 0 {
		return func(r *http.Request) string {
			fields := r.Header[forwardedFor]
			if len(fields) == 0 {
				return ""
			}
			list := fields[len(fields)-1]
			list = strings.TrimSpace(list[strings.LastIndexByte(list, ',')+1:])
			if !strings.ContainsAny(list, match.Dress) {
				return list
			}
			return dressed(list)
		}
	}
	if a.direct() {
		return func(r *http.Request) string {
			host, _, err := net.SplitHostPort(r.RemoteAddr)
			if err != nil {
				host = r.RemoteAddr
			}
			if strings.IndexByte(host, ':') < 0 {
				return host
			}
			return dressed(host)
		}
	}
	return func(r *http.Request) string {
		address := clientAddress(a, r)
		if strings.IndexByte(address, ':') < 0 {
			return address
		}
		return dressed(address)
	}
}

// firstNotExcluded returns the rightmost of a list that lies in none of the networks. A text that is not an address lies in none.
func firstNotExcluded(excluded match.Networks, list []string) string {
	for i := len(list) - 1; i >= 0; i-- {
		text := strings.TrimSpace(list[i])
		if text == "" {
			continue
		}
		ip := match.ReadAddress(text)
		if !ip.IsValid() {
			return text
		}
		if !match.Contains(excluded, ip) {
			return ip.String()
		}
	}
	return ""
}

// networkOf returns the first address of the network, of so many bits, in which an IPv6 address lies, and any other text unchanged.
func networkOf(address string, bits int) string {
	ip, err := netip.ParseAddr(address)
	if err != nil || !ip.Is6() {
		return address
	}
	network, _ := ip.Prefix(bits) // which there is, of 1 to 128
	return network.Addr().String()
}
