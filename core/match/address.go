package match

import (
	"encoding/binary"
	"net/netip"
	"sort"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/words"
)

// ReadAddress reads an IP address as proxies write it: 192.0.2.7 and 2001:db8::1, also with a port (192.0.2.7:443, [2001:db8::1]:443), in
// brackets, in the quotes of RFC 7239 and with blanks around it. It returns the zero Addr for any other text, such as unknown or _hidden. An
// IPv4-mapped IPv6 address is its IPv4 address, and a zone is left out.
//
// All code of rules that takes a text for an address calls it, or CleanAddress, or Prefixes.Mask.
func ReadAddress(text string) netip.Addr {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		ip = dressedAddress(text)
	}
	return ip.Unmap().WithZone("")
}

// CleanAddress returns the address that ReadAddress reads, in its shortest spelling, and any other text as it is.
func CleanAddress(text string) string {
	var whole Prefixes
	return whole.Mask(text)
}

// Dress has the bytes of which a text has at least one if it has no blanks around it and CleanAddress changes it.
const Dress = `:["`

// dressedAddress is ReadAddress of a text that is not an address alone.
func dressedAddress(text string) netip.Addr {
	var none netip.Addr
	host := strings.TrimSpace(text)
	if len(host) > 1 && host[0] == '"' && host[len(host)-1] == '"' {
		host = strings.TrimSpace(host[1 : len(host)-1])
	}
	port := ""
	if strings.HasPrefix(host, "[") {
		end := strings.IndexByte(host, ']')
		if end < 0 {
			return none
		}
		port = host[end+1:]
		host = host[1:end]
	} else if i := strings.IndexByte(host, ':'); i >= 0 && strings.LastIndexByte(host, ':') == i {
		port = host[i:]
		host = host[:i]
	}
	isPort := port == "" || port[0] == ':' && (strings.HasPrefix(port, ":_") || strings.Trim(port[1:], "0123456789") == "")
	if !isPort {
		return none
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return none
	}
	return ip
}

// ParseNetwork reads a network in CIDR notation, or a single address as ReadAddress does. An IPv4-mapped IPv6 address counts as IPv4.
func ParseNetwork(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		ip := ReadAddress(s)
		if !ip.IsValid() {
			return netip.Prefix{}, words.Wrong("", strconv.Quote(s), " must be an address or a network such as 10.0.0.0/8%s", networkHint(s))
		}
		return netip.PrefixFrom(ip, ip.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, words.Wrong("", strconv.Quote(s), " must be an address or a network such as 10.0.0.0/8%s", networkHint(s))
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, words.Wrong("", strconv.Quote(s), " mixes IPv4 and IPv6 addresses")
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// networkHint says what to write in place of a text that people take for a network; "": it looks like none.
func networkHint(text string) string {
	base, bits, _ := strings.Cut(strings.Trim(text, " \t\"[]"), "/")
	switch {
	case text == "private_ranges":
		return "; that word is for except of Caddy: write 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, fd00::/8, 127.0.0.0/8 and ::1"
	case text == "localhost":
		return "; names are not looked up: write 127.0.0.0/8 and ::1"
	case text == "*" || text == "all" || text == "any":
		return "; all addresses are 0.0.0.0/0 and ::/0"
	}
	if from, to, found := strings.Cut(base, "-"); found && ReadAddress(from).IsValid() && (ReadAddress(to).IsValid() || isDigits(to)) {
		return "; it is a range: write the networks that make it up"
	}
	base = strings.Trim(base, "[]")
	octets := strings.Split(base, ".")
	known := 0
	for i := range octets {
		plain := strings.TrimLeft(octets[i], "0")
		switch {
		case octets[i] == "*" || octets[i] == "x":
			octets[i] = "0"
		case !isDigits(octets[i]) || len(plain) > 3:
			known = -100
		default:
			known++
			octets[i] = plain
			if plain == "" {
				octets[i] = "0"
			}
		}
	}
	if known < 1 || len(octets) > 4 {
		if p, err := netip.ParsePrefix(base + "/" + bits); err == nil {
			return "; write " + p.Masked().String()
		}
		return ""
	}
	for len(octets) < 4 {
		octets = append(octets, "0")
	}
	ip, err := netip.ParseAddr(strings.Join(octets, "."))
	if err != nil {
		return ""
	}
	if mask := ReadAddress(bits); mask.IsValid() && mask.Is4() {
		bits = strconv.Itoa(bitsOf(mask))
	}
	if bits == "" && known < 4 {
		bits = strconv.Itoa(8 * known)
	}
	if bits == "" {
		return "; write " + ip.String()
	}
	p, err := netip.ParsePrefix(ip.String() + "/" + bits)
	if err != nil {
		return ""
	}
	return "; write " + p.Masked().String()
}

func isDigits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// bitsOf returns the bits that are set in a mask such as 255.255.0.0; -1 if they are not its first.
func bitsOf(mask netip.Addr) int {
	n := 0
	ended := false
	for _, b := range mask.AsSlice() {
		for bit := 7; bit >= 0; bit-- {
			set := b>>bit&1 == 1
			if set && ended {
				return -1
			}
			ended = !set
			if set {
				n++
			}
		}
	}
	return n
}

// Networks is a set of addresses: "", and then for each of its ranges the last address before it ("": there is none) and the last in it, in ascending
// order. Each is an address as 16 bytes, where IPv4 addresses are IPv4-mapped ones. So a binary search finds a text, and that is compiled code under an
// interpreter, too: of the texts an odd number is below an address that is not in the set, an even number below one that is, and none below "", which is
// no address. nil is the empty set. It is immutable.
type Networks []string

// NewNetworks returns the addresses of a list of networks, as ParseNetwork returns them.
func NewNetworks(list []netip.Prefix) Networks {
	ranges := make([]string, 0, len(list))
	for i := range list {
		ranges = appendRanges(ranges, list[i])
	}
	sort.Strings(ranges)
	var n Networks
	for _, one := range ranges {
		before := previous(one[:addressBytes])
		end := previous(one[addressBytes:])
		last := len(n) - 1
		if last < 0 {
			n = append(n, "", before, end)
		} else if before > n[last] {
			n = append(n, before, end)
		} else if end > n[last] {
			n[last] = end
		}
	}
	return n
}

// previous returns the address before one, or before beyond; "": there is none.
func previous(address string) string {
	if address == beyond {
		return beyond[:addressBytes]
	}
	high, low := binary.BigEndian.Uint64([]byte(address[:8])), binary.BigEndian.Uint64([]byte(address[8:]))
	if high == 0 && low == 0 {
		return ""
	}
	if low == 0 {
		high--
	}
	return string(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, high), low-1))
}

const addressBytes = 16

// beyond is behind all addresses.
const beyond = "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"

// appendRanges appends the ranges of a network: where one begins and where it ends. An IPv6 network in which the IPv4-mapped addresses lie has two,
// since these are no part of it.
func appendRanges(ranges []string, p netip.Prefix) []string {
	start, end := bounds(p)
	if p.Addr().Is4() || end <= mapped || start >= beyondMapped {
		return append(ranges, start+end)
	}
	if start < mapped {
		ranges = append(ranges, start+mapped)
	}
	if end > beyondMapped {
		ranges = append(ranges, beyondMapped+end)
	}
	return ranges
}

// mapped is the first of the IPv4-mapped addresses, and beyondMapped the first behind them.
const (
	mapped       = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x00\x00\x00\x00"
	beyondMapped = "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00"
)

// bounds returns the first address of a network, and the first behind it, as Networks has addresses.
func bounds(p netip.Prefix) (start, end string) {
	first := p.Addr().As16()
	high, low := binary.BigEndian.Uint64(first[:8]), binary.BigEndian.Uint64(first[8:])
	start = string(first[:])
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += 96
	}
	if bits > 64 {
		low += 1 << (128 - bits)
		if low == 0 {
			high++
		}
	} else {
		high += 1 << (64 - bits) // of ::/0 nothing, which is the same
	}
	if high == 0 && low == 0 {
		end = beyond
		return start, end
	}
	end = string(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, high), low))
	return start, end
}

// Contains reports whether an address, which must not be the zero Addr, is in a set.
func Contains(n Networks, ip netip.Addr) bool {
	address := ip.As16()
	i := sort.SearchStrings(n, string(address[:]))
	return i > 0 && i&1 == 0
}

// containsAll reports whether all addresses of a network are in a set.
func containsAll(n Networks, p netip.Prefix) bool {
	start, end := bounds(p)
	i := sort.SearchStrings(n, start)
	return i > 0 && i&1 == 0 && n[i] >= previous(end)
}

// containsSome reports whether any address of a network is in a set.
func containsSome(n Networks, p netip.Prefix) bool {
	start, end := bounds(p)
	i := sort.SearchStrings(n, start)
	if i > 0 && i&1 == 0 {
		return true
	}
	return i > 0 && i < len(n) && n[i] < previous(end) // the next range begins behind n[i]
}

// Prefixes says to networks of how many bits the addresses in a key are masked. Zero leaves them whole. IPv4 is at most 32, IPv6 at most 128.
type Prefixes struct {
	IPv4, IPv6 int
}

// Key returns the key of clients that a configuration names by an address, or by the network in CIDR notation that shares a key. The
// error says why no client has such a key, and what would be accepted.
func (p Prefixes) Key(text string) (string, error) {
	if ReadAddress(text).IsValid() {
		return p.Mask(text), nil
	}
	network, err := ParseNetwork(text)
	if err != nil {
		return "", words.Wrong("", strconv.Quote(text), "must be an address, such as 192.0.2.7%s%s", p.orNetwork(), networkHint(text))
	}
	key := p.Mask(network.Addr().String())
	if network.IsSingleIP() || key == network.String() {
		return key, nil
	}
	if network.Bits() == 0 {
		return "", words.Wrong("", strconv.Quote(text), "is no client, but all; what holds for all is the rule's limit itself; name one, such as %s", p.Mask(someAddress(network)))
	}
	field := "ipv6_prefix"
	most := p.IPv6
	if network.Addr().Is4() {
		field = "ipv4_prefix"
		most = p.IPv4
	}
	if most == 0 {
		most = network.Addr().BitLen()
	}
	if network.Bits() > most {
		return "", words.Wrong("", strconv.Quote(text), "is a part of %s, which is counted as one (`"+field+"` %d)", key, most)
	}
	if most == network.Addr().BitLen() {
		return "", words.Wrong("", strconv.Quote(text), "is no client: each of its addresses is counted by itself; name one, or count by such networks (`"+field+"` %d)", network.Bits())
	}
	return "", words.Wrong("", strconv.Quote(text), "is no client: it is counted by smaller networks, such as %s (`"+field+"` %d); name one, or count by larger ones (`"+field+"` %d)", key, most, network.Bits())
}

// someAddress returns an example address of a network's address family.
func someAddress(network netip.Prefix) string {
	if network.Addr().Is4() {
		return "192.0.2.7"
	}
	return "2001:db8::7"
}

// orNetwork says which networks are accepted in place of an address.
func (p Prefixes) orNetwork() string {
	var networks []string
	for _, address := range []string{"192.0.2.7", "2001:db8::7"} {
		if network := p.Shared(address); network != "" {
			networks = append(networks, network)
		}
	}
	if len(networks) == 0 {
		return ""
	}
	return ", or a network such as " + strings.Join(networks, " or ")
}

// Shared returns the network whose addresses all have the key of value, an address or a network of one address; "" if value is not an
// address, or has a key of its own.
func (p Prefixes) Shared(address string) string {
	if strings.IndexByte(address, '/') >= 0 {
		network, err := ParseNetwork(address)
		if err != nil || !network.IsSingleIP() {
			return ""
		}
		address = network.Addr().String()
	}
	if !ReadAddress(address).IsValid() {
		return ""
	}
	key := p.Mask(address)
	if strings.IndexByte(key, '/') < 0 {
		return ""
	}
	return key
}

// Mask returns the network of an address ("192.0.2.0/24"), or the address in its shortest form if its address family is not masked. It reads
// addresses as ReadAddress does. Any other text is returned as it is.
func (p Prefixes) Mask(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		if ip = dressedAddress(address); !ip.IsValid() {
			return address
		}
	}
	ip = ip.Unmap().WithZone("")
	bits := p.IPv6
	if ip.Is4() {
		bits = p.IPv4
	}
	if bits == 0 || bits == ip.BitLen() {
		return ip.String()
	}
	network, err := ip.Prefix(bits)
	if err != nil {
		return address
	}
	return network.String()
}
