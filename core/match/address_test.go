package match

import (
	"math/rand"
	"net/netip"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

func TestReadAddressReadsWhatProxiesWrite(t *testing.T) {
	for text, want := range map[string]string{
		"203.0.113.9": "203.0.113.9", "203.0.113.9:50123": "203.0.113.9", "203.0.113.9:": "203.0.113.9", " 203.0.113.9 ": "203.0.113.9",
		"\"203.0.113.9:50123\"": "203.0.113.9", "\"203.0.113.9\"": "203.0.113.9", "[203.0.113.9]:80": "203.0.113.9", "203.0.113.9:_port": "203.0.113.9",
		"2001:db8::1": "2001:db8::1", "2001:DB8:0::1": "2001:db8::1", "[2001:db8::1]": "2001:db8::1", "[2001:db8::1]:443": "2001:db8::1",
		"\"[2001:db8::1]:443\"": "2001:db8::1", "\"[2001:db8::1]:_x\"": "2001:db8::1", "\t[2001:DB8::1]": "2001:db8::1",
		"fe80::1%eth0": "fe80::1", "[fe80::1%25eth0]:80": "fe80::1",
		"::ffff:10.0.0.1": "10.0.0.1", "[::ffff:10.0.0.1]:80": "10.0.0.1", "::ffff:a00:1": "10.0.0.1",
	} {
		if got := ReadAddress(text); !got.IsValid() || got.String() != want {
			t.Errorf("%q: %s, want %s", text, got.String(), want)
		}
		must.Equal(t, CleanAddress(text), want, "%q, cleaned", text)
	}
	for _, text := range []string{
		"", " ", "unknown", "_hidden", "\"_hidden\"", "_hidden:80", "010.0.0.1", "10.0.0", "10.0.0.0/8", "203.0.113.9:http", "203.0.113.9:80:80", "[2001:db8::1", "2001:db8::1]", "[2001:db8::1]443",
		"[]", "[]:80", ":80", "\"", "\"\"", "\"203.0.113.9", "shop.example:80", "@", "203.0.113.9, 203.0.113.10", "for=203.0.113.9",
	} {
		if got := ReadAddress(text); got.IsValid() {
			t.Errorf("%q: %s", text, got.String())
		}
		must.Equal(t, CleanAddress(text), text, "%q, cleaned", text)
	}
}

func TestParseNetworkReadsAddressesAndNetworks(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"10.0.0.0/8", "10.0.0.0/8"}, {"10.1.2.3/8", "10.0.0.0/8"}, {"10.1.2.3", "10.1.2.3/32"}, {"::1", "::1/128"},
		{"2001:db8::1/32", "2001:db8::/32"}, {"::ffff:10.1.2.3", "10.1.2.3/32"}, {"::ffff:10.1.2.3/104", "10.0.0.0/8"},
		{"203.0.113.9:443", "203.0.113.9/32"}, {"[2001:db8::1]", "2001:db8::1/128"},
		{"fe80::1%eth0", "fe80::1/128"}, {"0.0.0.0/0", "0.0.0.0/0"},
	} {
		if got, err := ParseNetwork(c.text); err != nil || got.String() != c.want {
			t.Errorf("%s: %s, %v", c.text, got.String(), err)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"", `"" must be an address or a network such as 10.0.0.0/8`},
		{"10.0.0.0/", `"10.0.0.0/" must be an address or a network such as 10.0.0.0/8; write 10.0.0.0`},
		{"10.0.0/8", `"10.0.0/8" must be an address or a network such as 10.0.0.0/8; write 10.0.0.0/8`},
		{"010.0.0.1", `"010.0.0.1" must be an address or a network such as 10.0.0.0/8; write 10.0.0.1`},
		{"010.000.0.0/8", `"010.000.0.0/8" must be an address or a network such as 10.0.0.0/8; write 10.0.0.0/8`},
		{"10.*", `"10.*" must be an address or a network such as 10.0.0.0/8; write 10.0.0.0/8`},
		{"192.168.1.*", `"192.168.1.*" must be an address or a network such as 10.0.0.0/8; write 192.168.1.0/24`},
		{"10.0.0.0/255.255.0.0", `"10.0.0.0/255.255.0.0" must be an address or a network such as 10.0.0.0/8; write 10.0.0.0/16`},
		{"10.0.0.0/255.0.255.0", `"10.0.0.0/255.0.255.0" must be an address or a network such as 10.0.0.0/8`},
		{"10.0.0.1-10.0.0.9", `"10.0.0.1-10.0.0.9" must be an address or a network such as 10.0.0.0/8; it is a range: write the networks that make it up`},
		{"[2001:db8::]/32", `"[2001:db8::]/32" must be an address or a network such as 10.0.0.0/8; write 2001:db8::/32`},
		{" 10.0.0.0/8", `" 10.0.0.0/8" must be an address or a network such as 10.0.0.0/8; write 10.0.0.0/8`},
		{"private_ranges", `"private_ranges" must be an address or a network such as 10.0.0.0/8; that word is for except of Caddy: write 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16, fd00::/8, 127.0.0.0/8 and ::1`},
		{"*", `"*" must be an address or a network such as 10.0.0.0/8; all addresses are 0.0.0.0/0 and ::/0`},
		{"shop.example", `"shop.example" must be an address or a network such as 10.0.0.0/8`},
		{"1.2.3.4.5", `"1.2.3.4.5" must be an address or a network such as 10.0.0.0/8`},
		{"::ffff:10.0.0.0/8", `"::ffff:10.0.0.0/8" mixes IPv4 and IPv6 addresses`},
	} {
		if _, err := ParseNetwork(c.text); err == nil || err.Error() != c.want {
			t.Errorf("%q:\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

// The set has the same addresses as a list of the networks, however they overlap.
func TestNetworksHaveWhatAListOfThemHas(t *testing.T) {
	random := rand.New(rand.NewSource(7))
	address := func() netip.Addr {
		b := [16]byte{10: 0xff, 11: 0xff, 12: byte(random.Intn(3)), 13: byte(random.Intn(4)), 14: byte(random.Intn(3)), 15: byte(random.Intn(256))}
		if random.Intn(2) == 0 {
			b[10], b[11] = 0, byte(random.Intn(3)) // beside the IPv4-mapped addresses
			b[9] = byte(random.Intn(2))
		}
		return netip.AddrFrom16(b).Unmap()
	}
	rounds := 300
	if interpreted {
		rounds = 10
	}
	for round := 0; round < rounds; round++ {
		var list []netip.Prefix
		for i := random.Intn(12); i >= 0; i-- {
			ip := address()
			p, err := ip.Prefix(ip.BitLen() - random.Intn(28))
			if random.Intn(20) == 0 {
				p, err = ip.Prefix(random.Intn(9))
			}
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, p.Masked())
		}
		set := NewNetworks(list)
		for i := 0; i < 40; i++ {
			ip := address()
			want := false
			for _, p := range list {
				want = want || p.Contains(ip)
			}
			if Contains(set, ip) != want {
				t.Fatalf("%v: %s: must be %v", list, ip, want)
			}
			p, _ := ip.Prefix(ip.BitLen() - random.Intn(9))
			all, some := true, false
			for a := p.Addr(); p.Contains(a) && a.IsValid(); a = a.Next() {
				all = all && Contains(set, a)
				some = some || Contains(set, a)
			}
			if containsAll(set, p) != all {
				t.Fatalf("%v: all of %s: must be %v", list, p, all)
			}
			if containsSome(set, p) != some {
				t.Fatalf("%v: some of %s: must be %v", list, p, some)
			}
		}
	}
}
