package ruleset

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
)

// FileDomain is a domain of Envoy's ratelimit service in a file.
type FileDomain struct {
	Name        string
	Descriptors []*Descriptor
	Count       int // of descriptors, at all depths
	Limits      int // of those that have a limit, or are unlimited

	Line, Column int // of the name

	unheeded []unheeded
}

// unheeded is a field that is accepted without the effect that it has in Envoy's service, and the place where the file first has it. (Not
// its Node: of types in a circle only those of an earlier file can be taken.)
type unheeded struct {
	field        string
	line, column int // 0: not known
}

// unheededFields are the fields that are accepted without effect, and why.
var unheededFields = map[string]string{
	"detailed_metric": "no value of a request is ever the label of a metric",
	"value_to_metric": "no value of a request is ever the label of a metric",
	"quota_mode":      "the limit rejects like any other; Envoy's service rejects a request when all its limits with quota_mode are exceeded",
	"metadata":        "it is for Envoy, which routes requests by it",
}

// Descriptor is one entry of a tree of descriptors.
type Descriptor struct {
	Key            string
	Value          string // "" stands for any; a * in it for any text, also none
	Limit          *rate.Limit
	Unlimited      bool
	Blocks         bool // the limit is no request at all
	Name           string
	Replaces       []string
	Shadow         bool
	ShareThreshold bool
	Line           int
	Descriptors    []*Descriptor
}

var (
	descriptorFields = []string{"key", "value", "rate_limit", "descriptors", "shadow_mode", "detailed_metric", "share_threshold", "quota_mode", "value_to_metric", "metadata"}
	rateLimitFields  = []string{"unit", "requests_per_unit", "unlimited", "name", "replaces"}
	unitNames        = []string{"second", "minute", "hour", "day", "week", "month", "year"}
	unitLengths      = []time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour, 365 * 24 * time.Hour}
)

// domain reads a domain and its descriptors; either may be missing.
func (d *decoder) domain(root, name, descriptors *Node) *FileDomain {
	domain := &FileDomain{}
	if name == nil {
		d.fail(descriptors, "descriptors: have no domain; write domain: and a name beside them")
	} else {
		domain.Name = d.needed(name, "domain")
		domain.Line = name.Line
		domain.Column = name.Column
	}
	if descriptors == nil { // a domain that limits nothing yet
		return domain
	}
	domain.Descriptors = d.descriptors(domain, descriptors, begin(domain.Name))
	return domain
}

// descriptors reads a list of descriptors. path is what leads to them, for messages.
func (d *decoder) descriptors(domain *FileDomain, n *Node, path string) []*Descriptor {
	if n.Kind != List {
		d.fail(n, fmt.Sprintf("descriptors: must be a list, each item with a dash in front: - key: …, not %s", n.Kind.String()))
		return nil
	}
	list := make([]*Descriptor, 0, len(n.Items))
	lines := make(map[string]int)
	for _, item := range n.Items {
		if item.Kind != Map {
			d.fail(item, fmt.Sprintf("descriptors: an item must be a map with a key, not %s", item.Kind.String()))
			continue
		}
		one := d.descriptor(domain, item, path)
		pair := string(match.AppendKeyPart(match.AppendKeyPart(nil, one.Key), one.Value))
		if first := lines[pair]; first > 0 && one.Key != "" {
			d.fail(item, fmt.Sprintf("descriptor %q: duplicate, first in line %d; keep one", shorten(pathTo(path, one)), first))
		}
		lines[pair] = item.Line
		list = append(list, one)
	}
	return list
}

// pathTo returns a descriptor's path as Envoy's service writes it: if it is too long for a name or a message, only the beginning,
// since thousands of descriptors may be below it.
func pathTo(path string, one *Descriptor) string {
	if len(path) >= longestPath {
		return path
	}
	path += "." + begin(one.Key)
	if one.Value != "" {
		path += "_" + begin(one.Value)
	}
	return begin(path)
}

const longestPath = 200

func begin(s string) string {
	if len(s) > longestPath {
		return s[:longestPath]
	}
	return s
}

// descriptor reads one descriptor and what is below it.
func (d *decoder) descriptor(domain *FileDomain, n *Node, path string) *Descriptor {
	f := d.fields(n, "a descriptor", descriptorFields)
	domain.Count++
	one := &Descriptor{Line: n.Line}
	if f["key"] == nil {
		d.fail(n, "the descriptor has no key; write key: and the name of what it tells apart")
	} else {
		one.Key = d.needed(f["key"], "key")
	}
	if v := f["value"]; v != nil && (v.Kind != String || v.Value != "") { // an empty one is none, as there
		one.Value = d.text(v, "value")
	}
	if strings.IndexByte(one.Key, '*') >= 0 {
		d.fail(f["key"], fmt.Sprintf("key %q: a * is for values, not for keys", shorten(one.Key)))
	}
	in := fmt.Sprintf("descriptor %q: ", shorten(pathTo(path, one)))
	one.Shadow = d.boolean(f["shadow_mode"], in+"shadow_mode")
	for _, field := range []string{"detailed_metric", "value_to_metric", "quota_mode"} {
		if d.boolean(f[field], in+field) {
			domain.notHeeded(field, f[field])
		}
	}
	if m := f["metadata"]; m != nil && m.Kind != Map {
		d.fail(m, fmt.Sprintf("%smetadata: must be a map, not %s", in, m.Kind.String()))
	} else if m != nil && len(m.Members) > 0 {
		domain.notHeeded("metadata", m)
	}
	one.ShareThreshold = d.boolean(f["share_threshold"], in+"share_threshold")
	if one.ShareThreshold && !isWildcard(one.Value) {
		d.fail(f["share_threshold"], in+"share_threshold: only descriptors with a wildcard share a limit between values; write a value with a * in it")
	}
	if f["rate_limit"] != nil {
		d.rateLimit(domain, one, f["rate_limit"], in)
	}
	if f["descriptors"] != nil {
		one.Descriptors = d.descriptors(domain, f["descriptors"], pathTo(path, one))
	}
	return one
}

// notHeeded notes a field that has no effect here, if it is the first of its kind.
func (domain *FileDomain) notHeeded(field string, n *Node) {
	for i := range domain.unheeded {
		if domain.unheeded[i].field == field {
			return
		}
	}
	domain.unheeded = append(domain.unheeded, unheeded{field: field, line: n.Line, column: n.Column})
}

// rateLimit reads a descriptor's limit.
func (d *decoder) rateLimit(domain *FileDomain, one *Descriptor, n *Node, in string) {
	domain.Limits++
	f := d.fields(n, "rate_limit", rateLimitFields)
	if n.Kind != Map {
		return
	}
	one.Name = d.text(f["name"], in+"name")
	if f["replaces"] != nil {
		d.replaces(one, f["replaces"], in)
	}
	one.Unlimited = d.boolean(f["unlimited"], in+"unlimited")
	if u := f["unlimited"]; u != nil && u.Kind != Boolean { // which was said already
		return
	}
	unit := f["unit"]
	if one.Unlimited {
		if f["requests_per_unit"] != nil { // as there, it does not matter then
			_, _ = d.requests(f["requests_per_unit"], in)
		}
		if unit != nil {
			d.fail(unit, in+"unit and unlimited: true are mutually exclusive: remove one")
		}
		return
	}
	if unit == nil {
		d.fail(n, fmt.Sprintf("%srate_limit: has no unit; write one of %s", in, strings.Join(unitNames, ", ")))
		return
	}
	period := d.unit(unit, in)
	if f["requests_per_unit"] == nil {
		// Envoy's service takes it for 0, and rejects all: nobody means that by leaving it out.
		d.fail(n, in+"rate_limit: has no requests_per_unit; write how many requests a unit has, 0 to reject all")
		return
	}
	requests, ok := d.requests(f["requests_per_unit"], in)
	if !ok || period == 0 {
		return
	}
	one.Blocks = requests == 0
	if one.Blocks {
		requests = 1
	}
	terms := strconv.FormatInt(requests, 10) + "/" + period.String()
	limit := d.limits[terms]
	if limit == nil {
		made, err := rate.NewLimit(rate.LimitConfig{Algorithm: rate.FixedWindow, Requests: requests, Period: period})
		if err != nil {
			d.fail(n, in+err.Error())
			return
		}
		limit = made
		d.limits[terms] = limit
	}
	one.Limit = limit
}

// unit reads a unit in upper or lower case, as Envoy's service does; 0: it is not a unit.
func (d *decoder) unit(n *Node, in string) time.Duration {
	text := d.text(n, in+"unit")
	for i, name := range unitNames {
		if name == strings.ToLower(text) {
			return unitLengths[i]
		}
	}
	if text != "" {
		err := words.CheckWord("unit", shorten(text), unitNames)
		d.fail(n, in+err.Error())
	}
	return 0
}

// requests reads a number of requests.
func (d *decoder) requests(n *Node, in string) (requests int64, ok bool) {
	text := d.text(n, in+"requests_per_unit")
	requests, err := strconv.ParseInt(text, 10, 64)
	octal := len(text) > 1 && text[0] == '0' // to Envoy's YAML
	if err != nil || octal || requests < 0 || requests > rate.MaxRequests {
		if text != "" {
			d.fail(n, fmt.Sprintf("%srequests_per_unit %q: must be a whole number from 0, which rejects all, to %d; for more write unlimited: true", in, shorten(text), rate.MaxRequests))
		}
		return 0, false
	}
	return requests, true
}

// replaces reads the names of the limits that this one replaces.
func (d *decoder) replaces(one *Descriptor, n *Node, in string) {
	if n.Kind != List {
		d.fail(n, in+"replaces: must be a list, each item with a dash in front: - name: …")
		return
	}
	for _, item := range n.Items {
		f := d.fields(item, "replaces", []string{"name"})
		if item.Kind != Map {
			continue
		}
		if f["name"] == nil {
			d.fail(item, in+"replaces: has no name; write the name of the limit that gives way")
			continue
		}
		name := d.needed(f["name"], in+"replaces: name")
		if name == one.Name && name != "" {
			d.fail(f["name"], fmt.Sprintf("%sreplaces: %q is the name of this limit, which cannot replace itself", in, shorten(name)))
		}
		one.Replaces = append(one.Replaces, name)
	}
}

// boolean reads true or false.
func (d *decoder) boolean(n *Node, field string) bool {
	if n == nil {
		return false
	}
	text := d.text(n, field)
	if n.Kind == Boolean {
		return strings.ToLower(text) == "true"
	}
	if text != "" {
		d.fail(n, fmt.Sprintf("%s %q: must be true or false", field, shorten(text)))
	}
	return false
}
