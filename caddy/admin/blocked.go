package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/core/exception"
	"github.com/proxyweir/weir/core/match"
)

// blockedAnswer is the answer of /rate_limit/blocked.
type blockedAnswer struct {
	Version   string           `json:"version"` // its ETag; what is in front of the first "-" is the process
	Since     time.Time        `json:"since"`   // when this process has begun to remember addresses
	Full      bool             `json:"full,omitempty"`
	Rules     []string         `json:"rules"` // that can be in the list
	Addresses []blockedAddress `json:"addresses"`
}

// blockedAddress is an address whose requests a rule rejects.
type blockedAddress struct {
	Address string    `json:"address"` // or a network that somebody has blocked, and of which no request has come since
	Rule    string    `json:"rule"`
	Reason  string    `json:"reason"` // "penalty" or "block"
	Until   time.Time `json:"until"`
	Peer    bool      `json:"peer"`            // a connection came from the address
	Spare   string    `json:"spare,omitempty"` // why a firewall must leave it alone
}

// blockedEndpoint has the methods of /rate_limit/blocked, which is no endpoint like the others: it can be text, and wait.
var blockedEndpoint = endpoint{name: "blocked", methods: reading}

const longestBlockedWait = time.Minute

// lookAfter is how often a request that waits looks at what people have decided, which other nodes may have changed, and at what is over.
const lookAfter = 250 * time.Millisecond

// serveBlocked lists the addresses whose requests are rejected under a penalty or a block. With wait it waits until the list is another than the one that
// If-None-Match names.
func serveBlocked(w http.ResponseWriter, r *http.Request) error {
	if err := blockedEndpoint.check(w, r); err != nil {
		return err
	}
	if err := checkQuery(r, "format", "wait"); err != nil {
		return err
	}
	asText, err := wantsText(r)
	if err != nil {
		return err
	}
	var wait time.Duration
	if text := r.URL.Query().Get("wait"); text != "" {
		if wait, err = caddy.ParseDuration(text); err != nil || wait < 0 || wait > longestBlockedWait {
			return adminError(http.StatusBadRequest, "wait %q: must be a duration from 0s to 1m, such as 30s", text)
		}
	}
	known := strings.Trim(strings.TrimPrefix(r.Header.Get("If-None-Match"), "W/"), `"`)
	over := time.NewTimer(wait)
	defer over.Stop()
	look := time.NewTicker(lookAfter)
	defer look.Stop()
	for {
		a := current()
		if a == nil {
			return adminError(http.StatusNotFound, "the configuration in force has no rate_limit")
		}
		list := allExceptions(a)
		version, changed := a.Blocked.Ask(list)
		if version != known {
			answer := blockedOf(a, list)
			answer.Version = version
			return answer.write(w, asText)
		}
		select {
		case <-look.C:
		case <-changed:
		case <-r.Context().Done():
			return nil
		case <-a.Ctx.Done(): // Caddy stops, or has another configuration, whose admin endpoint may be another
			return notModified(w, known)
		case <-over.C:
			return notModified(w, known)
		}
	}
}

func notModified(w http.ResponseWriter, version string) error {
	w.Header().Set("ETag", `"`+version+`"`)
	w.WriteHeader(http.StatusNotModified)
	return nil
}

// wantsText reports whether the answer is to be text: as format says, or else the Accept field.
func wantsText(r *http.Request) (bool, error) {
	switch format := r.URL.Query().Get("format"); format {
	case "json", "text":
		return format == "text", nil
	case "":
		accept := strings.ToLower(strings.Join(r.Header.Values("Accept"), ","))
		text, other := strings.Index(accept, "text/plain"), strings.Index(accept, "application/json")
		return text >= 0 && (other < 0 || text < other), nil
	default:
		return false, adminError(http.StatusBadRequest, "format %q: must be json or text", format)
	}
}

// blockedOf returns the list, by address and rule. list is what people have decided.
func blockedOf(a *View, list []exception.Exception) *blockedAnswer {
	answer := &blockedAnswer{Rules: []string{}, Addresses: []blockedAddress{}}
	spared := sparing(a)
	rules := make(map[string]*report.ActiveRule)
	for _, s := range a.Rules() {
		if s.Rule != nil && report.AddressOf(s.Rule) != nil && !s.Shadow {
			rules[s.Label] = s
			answer.Rules = append(answer.Rules, s.Label)
		}
	}
	add := func(s *report.ActiveRule, network netip.Prefix, until int64, reason string, peer bool) {
		one := blockedAddress{Address: network.String(), Rule: s.Label, Reason: reason, Until: time.UnixMicro(until).UTC(), Peer: peer, Spare: spared(network)}
		if network.IsSingleIP() {
			one.Address = network.Addr().String()
		}
		answer.Addresses = append(answer.Addresses, one)
	}
	seen := make(map[[2]string]bool) // the rules and keys of blocks
	known, since, full := a.Blocked.List()
	answer.Since, answer.Full = since.UTC(), full
	for _, one := range known {
		s := rules[one.Rule]
		if s == nil || !one.Block && !s.HasPenalty() {
			continue // of a configuration before
		}
		reason := "penalty"
		if one.Block {
			reason = exception.Block
			seen[[2]string{one.Rule, one.Key}] = true
		}
		add(s, netip.PrefixFrom(one.Address, one.Address.BitLen()), one.Until, reason, one.Peer)
	}
	for i := range list {
		e := &list[i]
		s := rules[e.Rule]
		if e.Kind != exception.Block || seen[[2]string{e.Rule, string(e.Key)}] || s == nil {
			continue
		}
		if network, err := match.ParseNetwork(string(e.Key)); err == nil {
			add(s, network, e.Until, exception.Block, false)
		}
	}
	slices.SortFunc(answer.Addresses, func(a, b blockedAddress) int {
		return cmp.Or(strings.Compare(a.Address, b.Address), strings.Compare(a.Rule, b.Rule))
	})
	return answer
}

// sparing returns a function that says why a firewall must leave a network alone; "": it need not. Of IPv6 it asks for the whole network of 64 bits.
func sparing(a *View) func(netip.Prefix) string {
	trusted, known := a.Trusted()
	type exempting struct {
		rule string
		by   *match.Matcher
	}
	var exempt []exempting
	for _, s := range a.Rules() {
		for _, one := range append([]*report.ActiveRule{s}, s.Also...) {
			if one.Rule != nil && one.Rule.Matcher != nil && one.Rule.Excepts {
				exempt = append(exempt, exempting{s.Label, one.Rule.Matcher})
			}
		}
	}
	return func(network netip.Prefix) string {
		if !known {
			return "it is not known which proxies are trusted"
		}
		if network.Addr().Is6() && network.Bits() > 64 {
			network = netip.PrefixFrom(network.Addr(), 64).Masked()
		}
		for _, proxies := range trusted {
			if proxies.Overlaps(network) {
				return "trusted proxy"
			}
		}
		for _, e := range exempt {
			if e.by.ExceptsSome(network) {
				return fmt.Sprintf("the rule %s exempts it", e.rule)
			}
		}
		return ""
	}
}

// write writes the answer as JSON, or as text: a line for each address and rule.
func (b *blockedAnswer) write(w http.ResponseWriter, asText bool) error {
	w.Header().Set("ETag", `"`+b.Version+`"`)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Vary", "Accept")
	if !asText {
		w.Header().Set("Content-Type", "application/json")
		return json.NewEncoder(w).Encode(b)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	var text strings.Builder
	for _, one := range b.Addresses {
		from := "other"
		if one.Spare != "" {
			from = "spare"
		} else if one.Peer {
			from = "peer"
		}
		_, _ = fmt.Fprintf(&text, "%s %s %s %s %s\n", one.Address, from, one.Until.Format(time.RFC3339), one.Reason, one.Rule)
	}
	_, err := io.WriteString(w, text.String())
	return err
}
