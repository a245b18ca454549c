package ruleset

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/words"
)

// unixPeer is the address of a connection through a Unix socket.
const unixPeer = "@"

// setKey reads the sources of the key.
func (c *compiler) setKey() {
	key := c.text.Lists["key"]
	if len(key) == 0 {
		key = []string{"client_ip"}
	}
	for i, text := range match.Joined(key) {
		source, err := match.ParseKey(strings.TrimSpace(text))
		if err != nil {
			c.fail(hinted(words.Of(err), text), "key", strconv.Itoa(i))
			continue
		}
		c.addPart(source)
	}
	c.rule.spec = keySpec(c.rule.Parts, c.rule.prefixes)
}

// addPart adds a part to the key.
func (c *compiler) addPart(source match.Source) {
	c.rule.Parts = append(c.rule.Parts, partOf(source))
}

// partOf returns the part of a key that is that source.
func partOf(source match.Source) Part {
	return Part{Source: source, Address: source.String() == "client_ip", Masked: source.MayHoldAddress()}
}

// setTemplate reads the key in the proxy's own language.
func (c *compiler) setTemplate() {
	text := strings.Join(c.text.Lists["key"], " ")
	made, err := c.in.Template(text)
	if err != nil {
		c.fail(words.Of(err).Within("key", strconv.Quote(text)))
		return
	}
	for _, source := range made.Sources {
		c.addPart(source)
	}
	c.rule.Static = made.Static
	c.rule.spec = keySpec(c.rule.Parts, c.rule.prefixes)
	if made.Own {
		c.rule.spec = text + prefixSpec(c.rule.prefixes)
	}
}

// source reads the source of one value. what names it in messages.
func (c *compiler) source(text string) (match.Source, error) {
	if c.in.Template == nil {
		return match.ParseSource(text)
	}
	made, err := c.in.Template(text)
	if err == nil {
		err = OnlyOfKey(made.Sources)
	}
	if err != nil {
		return match.Source{}, words.Of(err).Within("source", strconv.Quote(text))
	}
	if len(made.Sources) == 0 {
		return match.Source{}, words.Wrong("source", strconv.Quote(text), "has no placeholder, so that it is the same for all; write one such as {http.auth.user.plan}")
	}
	return made.Source, nil
}

// OnlyOfKey refuses sources that are only for keys.
func OnlyOfKey(sources []match.Source) error {
	for i := range sources {
		if sources[i].Alternatives() != nil {
			return words.Wrong("", "", "%s is only for the key of a `rule`; write one source here", sources[i].String())
		}
	}
	return nil
}

// setTier reads the source of tiers.
func (c *compiler) setTier() {
	source, right := c.chooser("tiers", "tier is read from, such as header:X-Plan")
	if !right {
		return
	}
	for _, tier := range One(c.text, "tiers").Pairs["limits"] {
		if tier.Name == AnyTier {
			continue
		}
		_, err := source.Canonicalize(tier.Name)
		isAddress := match.ReadAddress(tier.Name).IsValid()
		_, notNetwork := match.ParseNetwork(tier.Name)
		if !isAddress && (source.IsAddress() || notNetwork == nil) {
			err = words.Wrong("", strconv.Quote(tier.Name), "must be an address, since the tier is one; overrides with a prefix beside them are for networks")
		}
		if err != nil {
			c.failIn("tiers", "", words.Of(err), "tiers", "limits", tier.Name)
		}
		c.rule.tierOfAddress = c.rule.tierOfAddress || isAddress && !source.Rewrites()
	}
}

// chooser reads the source of what chooses a request's limit: that of the rule's object field. such ends what is said of none.
func (c *compiler) chooser(field, such string) (source match.Source, right bool) {
	text := strings.TrimSpace(One(c.text, field).Texts["source"])
	if text == "" {
		c.failIn(field, "", words.Wrong("source", "", "is missing; write what the "+such), field)
		return source, false
	}
	source, err := c.source(text)
	if err != nil {
		m := words.Of(err).Named("source")
		if c.in.Template == nil {
			m = hinted(m, text)
		}
		c.failIn(field, "", m, field, "source")
		return source, false
	}
	if source.Static() {
		c.failIn(field, "", words.Wrong("source", strconv.Quote(text), "is the same for all requests; write what their "+such))
		return source, false
	}
	c.rule.tier = &source
	if source.ClientChooses() {
		kind, name, _ := strings.Cut(source.String(), ":")
		if kind == "unverified_jwt_claim" {
			c.rule.Advice = append(c.rule.Advice, words.Wrong(field, "", "anybody can write the claim %s, so that clients can choose their own limit; take it from what verifies the token, or refuse forged tokens in front", name))
			return source, true
		}
		c.rule.Advice = append(c.rule.Advice, words.Wrong(field, "", "the %s %s is what the client sends, so that it can choose its own limit; have the proxy set it to what it knows, or delete it from requests", kind, name))
	}
	return source, true
}

// hinted returns the mistake of a source, and says why a placeholder is refused.
func hinted(m *words.Mistake, text string) *words.Mistake {
	if own := strings.Trim(strings.TrimSpace(text), "{}"); strings.HasPrefix(own, "http.rate_limit.") {
		m.And("; the form in braces is Caddy's: write %s", strings.TrimPrefix(own, "http.rate_limit."))
	} else if strings.HasPrefix(strings.TrimSpace(text), "{") {
		m.And("; placeholders are Caddy's alone: `have request_header set a field to it, and take header:NAME`")
	}
	return m
}

// keySpec returns the parts of a key for the rule's identity. It is the same for the same key in all proxies, whose defaults differ. So
// if no part is an address by itself, it leaves out the standard prefixes.
func keySpec(parts []Part, p match.Prefixes) string {
	spec := ""
	masked := false
	address := false
	for i := range parts {
		if i > 0 {
			spec += " "
		}
		spec += parts[i].Source.String()
		masked = masked || parts[i].Masked
		address = address || mayBeAddress(&parts[i])
	}
	if p.IPv4 == 0 { // which leaves addresses whole, too
		p.IPv4 = Standard.IPv4
	}
	if !masked || !address && p == Standard {
		return spec
	}
	return spec + prefixSpec(p)
}

// prefixSpec returns a key's prefixes for the rule's identity. It leaves out a prefix that keeps addresses whole.
func prefixSpec(p match.Prefixes) string {
	if p.IPv4 == 32 {
		p.IPv4 = 0
	}
	if p.IPv6 == 128 {
		p.IPv6 = 0
	}
	if p.IPv4+p.IPv6 == 0 {
		return ""
	}
	return " /" + strconv.Itoa(p.IPv4) + " /" + strconv.Itoa(p.IPv6)
}

// SameKey reports whether two rules have the same key for every request. The same spec is not enough: it leaves out the standard prefixes.
func SameKey(a, b *Rule) bool {
	return a.spec == b.spec && a.Static == b.Static && a.bare == b.bare && a.prefixes.IPv4 == b.prefixes.IPv4 && a.prefixes.IPv6 == b.prefixes.IPv6
}

// isAddress reports whether a part is an address and nothing else.
func isAddress(part *Part) bool {
	return part.Address || part.Source.String() == "remote_ip"
}

// mayBeAddress reports whether a part is an address, or may be one of a source that is an address and nothing else.
func mayBeAddress(part *Part) bool {
	found := isAddress(part)
	for _, source := range part.Source.Alternatives() {
		found = found || source.IsAddress()
	}
	return found
}

// TierFor returns the tier of requests whose tier source has that value, written as in tiers.
func TierFor(r *Rule, value string) string {
	if r.tier == nil {
		return value
	}
	spelt, err := r.tier.Canonicalize(value)
	if err != nil {
		return value
	}
	if r.tierOfAddress {
		return match.CleanAddress(spelt)
	}
	return spelt
}

// KeyFor returns the key of requests whose parts of it have these values, written as in overrides.
func KeyFor(r *Rule, values []string) string {
	spelt := make([]string, len(values))
	if len(r.Parts) == 0 {
		return r.Static
	}
	for i := range r.Parts {
		one, err := spell(r, &r.Parts[i], values[i])
		if err != nil {
			one = values[i]
		}
		spelt[i] = one
	}
	return join(spelt)
}

// Named returns the value of requests for a part of a rule's key, given as a person writes it and not checked yet. The error says why no
// request has it, and what would be accepted.
func Named(r *Rule, part int, value string) (string, error) { return spell(r, &r.Parts[part], value) }

// join returns the key of several values.
func join(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	var key []byte
	for i := range values {
		key = match.AppendKeyPart(key, values[i])
	}
	return string(key)
}

// NeedsAddress reports whether the rule needs the client's address.
func NeedsAddress(r *Rule) bool {
	for i := range r.Parts {
		if r.Parts[i].Source.NeedsClient() {
			return true
		}
	}
	return r.Excepts || r.tier != nil && r.tier.String() == "client_ip"
}

// OfAddress reports whether the rule's decision depends on the address of the connection.
func OfAddress(r *Rule) bool {
	for i := range r.Parts {
		if r.Parts[i].Source.OfAddress() {
			return true
		}
	}
	return NeedsAddress(r) || r.tier != nil && r.tier.OfAddress()
}

// Plain reports whether all of the rule's requests cost 1 under one limit.
func Plain(r *Rule) bool {
	return r.Cost == 1 && !r.Asks && r.Limits.Single()
}

// Whole reports whether the rule's key is the client's whole IPv4 address.
func Whole(r *Rule) bool {
	return len(r.Parts) == 1 && r.Parts[0].Address && r.prefixes.IPv4 == 32
}

// KeyOf returns a request's key, and whether any part of it was missing. A key of one part is its value; of several, the values
// with their lengths, so that no client can forge another's key. buffer is for those, and may be nil. address is the client's.
func KeyOf(rule *Rule, r *http.Request, address string, buffer []byte) (key string, missing bool) {
	if len(rule.Parts) == 0 {
		return rule.Static, false
	}
	if len(rule.Parts) == 1 {
		key = ValueOf(rule, &rule.Parts[0], r, address)
		missing = key == ""
		return key, missing
	}
	buffer = buffer[:0]
	for i := range rule.Parts {
		value := ValueOf(rule, &rule.Parts[i], r, address)
		missing = missing || value == ""
		buffer = match.AppendKeyPart(buffer, value)
	}
	key = string(buffer)
	return key, missing
}

// KeyFunc returns a function that returns a request's key as KeyOf does, or "" if a part of it is missing: of several, the client's address, or any if such
// requests do not share a counter. A function that is made for
// one rule costs an interpreter less. address returns a function for the client's address, which passes addresses that have a byte of
// match.Dress through the function dressed; nil: it returns them as match.CleanAddress does.
func KeyFunc(rule *Rule, address func(dressed func(value string) string) func(r *http.Request) string) func(r *http.Request) string {
	parts := make([]func(r *http.Request) string, len(rule.Parts))
	needed := make([]bool, len(rule.Parts)) // without these there is no key
	for i := range rule.Parts {
		parts[i] = partFunc(rule, &rule.Parts[i], address)
		needed[i] = rule.SkipMissing || rule.RejectMissing || rule.Parts[i].Address
	}
	switch len(parts) {
	case 0:
		return func(r *http.Request) string { return rule.Static }
	case 1:
		return parts[0]
	case 2:
		return pairFunc(parts[0], parts[1], needed[0], needed[1])
	}
	return func(r *http.Request) string {
		key := ""
		for i, part := range parts {
			value := part(r)
			if value == "" && needed[i] {
				return ""
			}
			key += strconv.Itoa(len(value)) + ":" + value // as match.AppendKeyPart
		}
		return key
	}
}

// NoKey returns what a function of KeyFunc returns of a request without a key. If such requests share the counter of the key "", then that is a text
// which is hardly ever a key.
func NoKey(rule *Rule) string {
	if len(rule.Parts) == 1 && !rule.Parts[0].Address && !rule.SkipMissing && !rule.RejectMissing {
		return "\x00"
	}
	return ""
}

// pairFunc is KeyFunc for a key of two parts.
func pairFunc(first, second func(r *http.Request) string, needsFirst, needsSecond bool) func(r *http.Request) string {
	return func(r *http.Request) string {
		a := first(r)
		b := second(r)
		if a == "" && needsFirst || b == "" && needsSecond {
			return ""
		}
		return strconv.Itoa(len(a)) + ":" + a + strconv.Itoa(len(b)) + ":" + b
	}
}

// partFunc is KeyFunc for one part of a key.
func partFunc(rule *Rule, part *Part, address func(dressed func(value string) string) func(r *http.Request) string) func(r *http.Request) string {
	if part.Source.Alternatives() != nil {
		return firstFunc(rule, part.Source, address)
	}
	var dressed func(value string) string
	masked := part.Masked && !(part.Address && rule.bare)
	if masked && !rule.masksIPv4 {
		dressed = rule.prefixes.Mask
	}
	found := part.Source.Getter(dressed)
	if part.Address {
		found = address(dressed)
	}
	if !masked || !rule.masksIPv4 {
		return found
	}
	mask := rule.prefixes.Mask
	return func(r *http.Request) string { return mask(found(r)) }
}

// firstFunc is partFunc for the first of several sources.
func firstFunc(rule *Rule, source match.Source, address func(dressed func(value string) string) func(r *http.Request) string) func(r *http.Request) string {
	labels := source.Labels()
	found := make([]func(r *http.Request) string, len(labels))
	for i, one := range source.Alternatives() {
		part := partOf(one)
		found[i] = partFunc(rule, &part, address)
	}
	return func(r *http.Request) string {
		for i := range found {
			value := found[i](r)
			if value != "" {
				return labels[i] + value
			}
		}
		return ""
	}
}

// ValueOf returns the value of a part of a rule's key, with addresses masked. The client's address is as match.CleanAddress returns it.
func ValueOf(rule *Rule, part *Part, r *http.Request, address string) string {
	if part.Address {
		if !rule.bare && (rule.masksIPv4 || strings.IndexByte(address, ':') >= 0) { // Mask leaves others as they are
			return rule.prefixes.Mask(address)
		}
		return address
	}
	value := part.Source.Value(r, address)
	if part.Masked && (rule.masksIPv4 || strings.ContainsAny(value, match.Dress)) {
		return masked(rule, part, value)
	}
	return value
}

// masked returns a value of a part with its address masked, if it may be one.
func masked(rule *Rule, part *Part, value string) string {
	of, label, rest, _ := part.Source.Chosen(value)
	if !of.MayHoldAddress() {
		return value
	}
	return label + rule.prefixes.Mask(rest)
}

// spell returns a value from a configuration for a part of a key as ValueOf spells it. The error says why no request has it.
func spell(rule *Rule, part *Part, value string) (string, error) {
	of, label, rest, ok := part.Source.Chosen(value)
	if !ok && value != "" {
		return "", part.Source.Unlabelled(value)
	}
	if label != "" {
		chosen := partOf(of)
		spelt, err := spell(rule, &chosen, rest)
		return label + spelt, err
	}
	if isAddress(part) {
		if value == "" || value == unixPeer {
			return value, nil
		}
		return rule.prefixes.Key(value)
	}
	spelt, err := part.Source.Canonicalize(value)
	if err != nil || !part.Masked {
		return spelt, err
	}
	if _, network := match.ParseNetwork(spelt); network == nil {
		return rule.prefixes.Key(spelt)
	}
	return spelt, err
}

// LimitOf returns the core rule for a request with that key; nil: none, the request is not counted.
func LimitOf(rule *Rule, r *http.Request, address, key string) *core.Rule {
	if rule.tier == nil {
		return rule.Active.Of("", key)
	}
	return rule.Active.Of(TierOf(rule, r, address), key)
}

// TierSource returns what the rule's tiers are read from; nil: it has none.
func TierSource(rule *Rule) *match.Source { return rule.tier }

// TierFunc returns a function that returns TierOf; nil: there are no tiers, or they are read from the client's address.
func TierFunc(rule *Rule) func(r *http.Request) string {
	var none func(r *http.Request) string
	if rule.tier == nil || rule.tier.String() == "client_ip" {
		return none
	}
	if rule.tierOfAddress {
		return rule.tier.Getter(match.CleanAddress)
	}
	return rule.tier.Getter(func(value string) string { return value })
}

// TierOf returns the tier of a request; "": the rule has no tiers.
func TierOf(rule *Rule, r *http.Request, address string) string {
	if rule.tier == nil {
		return ""
	}
	value := rule.tier.Value(r, address)
	if rule.tierOfAddress && strings.ContainsAny(value, match.Dress) {
		return match.CleanAddress(value)
	}
	return value
}

// ofOneAddress says why a single address cannot have a limit: it shares its counter with all of its network. nil: it can.
func ofOneAddress(address string, p match.Prefixes) error {
	network := p.Shared(address)
	if network == "" {
		return nil
	}
	field := "ipv6_prefix"
	if strings.IndexByte(network, ':') < 0 {
		field = "ipv4_prefix"
	}
	bits := network[strings.IndexByte(network, '/')+1:]
	return words.Wrong("", strconv.Quote(address), "has one counter with all of %s (`"+field+"` %s), so that this would be their limit, too; write %s if that is meant, else count by addresses", network, bits, network)
}
