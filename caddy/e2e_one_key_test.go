package ratelimit_test

import "testing"

// If all zones of a handler have the same key, it is made once for each request. Defect found: a zone without any key, and one
// whose prefixes are not part of its identity, got the key of the zone next to them.
func TestEachZoneOfAHandlerHasItsOwnKey(t *testing.T) {
	for name, zones := range map[string]string{
		"beside one without a key": "zone a {\nevents 100\nwindow 366d\n}\nzone b {\nkey {header.X-Key}\nlimit 1/366d\n}",
		"behind one that masks no addresses": "zone a {\nkey {header.X-Key}\nlimit 100/366d\n}\n" +
			"zone b {\nkey {header.X-Key}\nipv6_prefix 64\nlimit 1/366d\n}",
	} {
		t.Run(name, func(t *testing.T) {
			s := startSite(t, "rate_limit {\n"+zones+"\n}\nrespond ok")
			s.admit(1, "/", "X-Key", "2001:db8:0:1::1")
			s.reject("/", "X-Key", "2001:db8:0:1::1")
			s.admit(1, "/", "X-Key", "2001:db8:0:2::1")
			if name == "beside one without a key" {
				s.admit(1, "/", "X-Key", "2001:db8:0:1::2")
			} else {
				s.reject("/", "X-Key", "2001:db8:0:1::2") // the same network as the first
			}
		})
	}
}
