// Package regions lets regions, each with a Redis of its own, keep to limits together: rules with `regions eventual`. No request waits for another region.
//
// Within a region nodes tell each other through its Redis what they admit: see package eventual, and package logs. One of them, which the region elects, is its
// Courier. Once an interval it
//
//   - reads what the nodes of its region have told, and appends the sums to the region's log in its own Redis;
//   - reads the logs of the other regions in theirs;
//   - and appends what is new there to logs among those of its nodes, as if each region were one more node.
//
// So the nodes do what they do without regions. All numbers are absolute, and only grow while their slots last. So it makes no difference whether something is
// read once or several times, whether two couriers are at work for a moment, or how many come one after the other: a new one begins with what the logs say.
//
// # A region that is cut off
//
// A region that cannot be read counts as if it used what this region's share leaves: each unit that is admitted here takes 1/share units of the limit. For some
// intervals it counts as at its last known rate, if that is more. What is presumed so is set off against what the region tells when it can be read again.
//
// # The bound
//
// What a node has admitted the nodes of another region know after S + R + R + S + D at most: S is the interval of consistency eventual, R that of regions eventual, and D
// the time that all calls on the way take. So, as package eventual says, the state exceeds the limit by at most what came to all nodes in twice S + R, and D.
package regions

import (
	"crypto/sha256"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/words"
	"github.com/proxyweir/weir/redis"
)

// Settings are the settings of a store's regions, as users write them. The zero value has none.
type Settings struct {
	Region string            // the name of the store's own
	Peers  map[string]string // the addresses of the other regions' Redis, by the regions' names
	Share  float64           // the part of a limit that this region keeps to while it does not hear from others; 0 means an equal one
	Home   string            // the region that lends units under rules with regions lease; "": none does
}

// MostPeers is how many other regions there may be.
const MostPeers = 50

// Used reports whether anything is set.
func (s *Settings) Used() bool {
	return s.Region != "" || len(s.Peers) > 0 || s.Share != 0 || s.Home != ""
}

// Names returns the names of the other regions, sorted.
func (s *Settings) Names() []string {
	names := make([]string, 0, len(s.Peers))
	for name := range s.Peers {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}

// Check says what is wrong with the settings of a store with that configuration.
func (s *Settings) Check(own redis.ClientConfig) error {
	if !s.Used() {
		return nil
	}
	if s.Region == "" {
		return words.Wrong("region", "", "is missing beside peers, home or share; write the name of this region, such as eu")
	}
	if len(s.Peers) == 0 {
		return words.Wrong("peers", "", "is missing beside region; write the other regions and the addresses of their Redis, such as us 10.1.0.1:6379")
	}
	if len(s.Peers) > MostPeers {
		return words.Wrong("peers", strconv.Itoa(len(s.Peers)), "must be at most %d", MostPeers)
	}
	names := append([]string{s.Region}, s.Names()...)
	for i, name := range names {
		setting := "peers"
		if i == 0 {
			setting = "region"
		}
		if len(name) > 32 || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
			return words.Wrong(setting, strconv.Quote(name), "a name of a region has 1 to 32 of a-z 0-9 _ -")
		}
	}
	if address, is := s.Peers[s.Region]; is {
		return words.Wrong("peers", strconv.Quote(s.Region), "is this region itself, with the address %q; peers are the others", withoutPassword(address))
	}
	if _, is := s.Peers[s.Home]; s.Home != "" && s.Home != s.Region && !is {
		return words.Wrong("home", strconv.Quote(s.Home), "is neither this region nor a peer; it is one of %s", strings.Join(names, ", "))
	}
	if n := len(s.Peers) + 1; s.Home != "" && s.Share*float64(n) >= 1 {
		return words.Wrong("share", strconv.FormatFloat(s.Share, 'g', -1, 64), "times %d regions leaves nothing for home to lend; each region has the same share, such as %.1g", n, 0.3/float64(n))
	}
	if s.Share < 0 || s.Share > 1 {
		return words.Wrong("share", strconv.FormatFloat(s.Share, 'g', -1, 64), "must be above 0, and at most 1")
	}
	if err := own.Complete(); err != nil {
		return err
	}
	place := func(c *redis.ClientConfig) string { return c.Addresses[0] + " " + strconv.Itoa(c.Database) }
	seen := map[string]string{place(&own): s.Region}
	for _, name := range s.Names() {
		peer := s.peer(own, name)
		if err := peer.Complete(); err != nil {
			return words.Of(err).Within("peers", strconv.Quote(name))
		}
		if other := seen[place(&peer)]; other != "" {
			return words.Wrong("peers", strconv.Quote(name), "has the same Redis as %q; each region has its own (an Active-Active database with one address for all is not supported: it loses counts)", other)
		}
		seen[place(&peer)] = name
	}
	return nil
}

// Clients returns the configurations of clients for the other regions' Redis, in the order of Names: that of the store's own, with another address.
func (s *Settings) Clients(own redis.ClientConfig) []redis.ClientConfig {
	list := make([]redis.ClientConfig, 0, len(s.Peers))
	for _, name := range s.Names() {
		list = append(list, s.peer(own, name))
	}
	return list
}

func (s *Settings) peer(own redis.ClientConfig, name string) redis.ClientConfig {
	c := own
	c.Addresses = []string{s.Peers[name]}
	c.PoolSize = 1
	return c
}

func withoutPassword(address string) string {
	if at := strings.LastIndex(address, "@"); at >= 0 {
		return "…" + address[at:]
	}
	return address
}

// Part returns the share that this region keeps to; 0: there are no regions.
func (s *Settings) Part() float64 {
	if !s.Used() {
		return 0
	}
	if s.Share > 0 {
		return s.Share
	}
	return 1 / float64(len(s.Peers)+1)
}

// ofRegion begins the names of regions' logs; those of nodes are random.
const ofRegion = "regions:"

// logName returns the name of a region's log.
func logName(region string) string {
	sum := sha256.Sum256([]byte("region\n" + region))
	return ofRegion + string(sum[:8])
}

func isNode(name string) bool { return !strings.HasPrefix(name, ofRegion) }

// Stats says how a region hears of others.
type Stats struct {
	Used    bool // there are rules that hold across regions
	Differs bool // regions have settings that contradict each other
	Leads   bool // this node is the courier; the rest is zero otherwise
	Peers   []PeerStats
}

// PeerStats says how a region hears of another.
type PeerStats struct {
	Name  string
	Age   time.Duration // since it was read last
	Cut   bool          // it could not be read for so long that its counts are presumed
	Ahead time.Duration // how far its Redis's clock is ahead of this region's, about
	Units int64         // the most that one key was probably admitted there and is not known of here yet
}

// Merge returns the numbers of several stores together: of each region those that are worse.
func Merge(list []Stats) Stats {
	var sum Stats
	for _, one := range list {
		sum.Used = sum.Used || one.Used
		sum.Leads = sum.Leads || one.Leads
		sum.Differs = sum.Differs || one.Differs
		for _, p := range one.Peers {
			at := len(sum.Peers)
			for i := range sum.Peers {
				if sum.Peers[i].Name == p.Name {
					at = i
				}
			}
			if at == len(sum.Peers) {
				sum.Peers = append(sum.Peers, p)
			} else if p.Age > sum.Peers[at].Age {
				sum.Peers[at] = p
			}
		}
	}
	return sum
}
