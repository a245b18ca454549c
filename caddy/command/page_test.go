package command

import (
	"io"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func TestThePagesServerGoesByTheNamesOfWhereItListens(t *testing.T) {
	for _, test := range []struct {
		listen, at string
		takes      []string
		refuses    []string
	}{
		{"localhost", "127.0.0.1:2020", []string{"localhost:2020", "LOCALHOST:2020", "127.0.0.1:2020", "[::1]:2020"},
			[]string{"", "localhost", "localhost:2019", "127.0.0.2:2020", "evil.example:2020", "localhost.evil.example:2020", "localhost:2020.evil.example", "192.0.2.1:2020"}},
		{"localhost", "127.0.0.1:80", []string{"localhost", "127.0.0.1", "[::1]"}, []string{"localhost:8080", "evil.example"}},
		{"box.lan", "192.0.2.1:2020", []string{"box.lan:2020", "192.0.2.1:2020"}, []string{"localhost:2020", "evil.example:2020", "192.0.2.2:2020"}},
		{"::1", "[::1]:2020", []string{"[::1]:2020", "localhost:2020"}, []string{"[::2]:2020"}},
		{"localhost", "0.0.0.0:2020", []string{"localhost:2020", "192.0.2.1:2020", "[2001:db8::1]:2020"}, []string{"evil.example:2020", "192.0.2.1:2019", "192.0.2.1"}},
		{"localhost", "[::]:2020", []string{"localhost:2020", "192.0.2.1:2020"}, []string{"evil.example:2020"}},
	} {
		at := netip.MustParseAddrPort(test.at)
		s := &pageServer{hosts: hostsOf(test.listen, at), anyAddress: at.Addr().IsUnspecified(), port: at.Port()}
		for _, host := range append(slices.Clone(test.takes), test.refuses...) {
			if want := slices.Contains(test.takes, host); s.goesBy(host) != want {
				t.Errorf("at %s: host %q: %v, want %v", test.at, host, !want, want)
			}
		}
	}
}

func TestAnAddressThatOtherMachinesReachIsWarnedOf(t *testing.T) {
	for at, warns := range map[string]bool{"127.0.0.1:2020": false, "127.9.9.9:2020": false, "[::1]:2020": false, "[::ffff:127.0.0.1]:2020": false,
		"0.0.0.0:2020": true, "[::]:2020": true, "192.0.2.1:2020": true, "[2001:db8::1]:2020": true} {
		if text := exposure(netip.MustParseAddrPort(at)); (text != "") != warns || warns && !strings.HasPrefix(text, "warning: "+at+" is not for this machine alone") {
			t.Errorf("%s: %q", at, text)
		}
	}
}

func TestThePagesServerTakesPathsOfOneWordBesideThePage(t *testing.T) {
	for _, test := range []struct {
		path string
		want bool
	}{
		{"/", true}, {"/rate_limit", true}, {"/rate_limit/", true}, {"/rate_limit/rules", true}, {"/rate_limit/block?rule=a", true},
		{"/config/", false}, {"/load", false}, {"/stop", false}, {"/rate_limits", false}, {"/RATE_LIMIT/rules", false}, {"//rate_limit/rules", false},
		{"/rate_limit/../config/", false}, {"/rate_limit/%2e%2e/config/", false}, {"/rate_limit/..%2fconfig", false}, {"/rate_limit/%72ules", false},
		{"/rate_limit/rules/", false}, {"/rate_limit/rules/x", false}, {"/rate_limit//rules", false}, {`/rate_limit/..\config`, false},
		{"/rate_limit/rules;x", false}, {"/rate_limit/rules%00", false}, {"http://evil.example/rate_limit/rules", false}, {"*", false},
	} {
		u, err := url.ParseRequestURI(test.path)
		if err != nil {
			t.Fatal(err)
		}
		if got := ofThePage(u); got != test.want {
			t.Errorf("%s: %v, want %v", test.path, got, test.want)
		}
	}
}

func TestAnAdminAddressIsAHostAndPortOrASocket(t *testing.T) {
	for admin, good := range map[string]bool{
		"localhost:2019": true, "tcp/127.0.0.1:2019": true, ":2019": true, "[::1]:2019": true, "unix//run/caddy.sock": true, "unix//run/caddy.sock|0220": true,
		"localhost": false, "localhost:0": false, "localhost:2019-2020": false, "http://localhost:2019": false, "udp/localhost:2019": false, "fd/3": false,
		"unixgram//run/caddy.sock": false, "": false, "localhost:port": false,
	} {
		_, err := forwardTo(admin, io.Discard)
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), "host:port or unix//path is wanted") {
			t.Errorf("%q: %v", admin, err)
		}
	}
}
