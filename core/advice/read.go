package advice

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/core/words"
)

// Read reads a document, and refuses what is wrong whatever a proxy's rules are and whenever it comes. Of several things that are wrong it tells
// the one whose reason comes first in Reasons.
func Read(body []byte) (*Document, *Refusal) { return readFor(body, MaxRules) }

// valuesOf is more than a document has values besides its rules, and than each of these has.
const valuesOf = 24

// readFor is Read for documents with so many rules, or for 1,000 if that is more.
func readFor(body []byte, rules int) (*Document, *Refusal) {
	if rules < 1000 {
		rules = 1000
	}
	if len(body) > MaxBytes {
		return nil, refuse(TooLarge, "over %d bytes", MaxBytes)
	}
	root, err := parseJSON(body, valuesOf+valuesOf*rules)
	if err != nil {
		return nil, refuse(Malformed, "%v", err)
	}
	r := &reader{}
	d := readDocument(r, root)
	for _, refusal := range []*Refusal{r.malformed, r.version, r.unknown, r.value} {
		if refusal != nil {
			return nil, refusal
		}
	}
	return d, nil
}

// reader keeps the first thing that is wrong for each reason.
type reader struct {
	malformed, version, unknown, value *Refusal
}

func (r *reader) isMalformed(path, must string) {
	if r.malformed == nil {
		r.malformed = refuse(Malformed, "%s: %s", path, must)
	}
}

func (r *reader) isWrong(path, has, must string) {
	if r.value == nil {
		r.value = refuse(BadValue, "%s %s: must be %s", path, shortly(has), must)
	}
}

// members returns the members of an object, in the order of names, which are those that it may have; nil where it has not got one.
func (r *reader) members(n *node, path, names string) []*node {
	known := strings.Fields(names)
	found := make([]*node, len(known))
	if n.kind != isObj {
		r.isMalformed(path, "is a "+n.kind+", and must be an object")
		return found
	}
	for i, name := range n.names {
		is := indexOf(known, name)
		if is >= 0 {
			found[is] = n.values[i]
		} else if r.unknown == nil {
			r.unknown = refuse(UnknownField, "%s: known are %s", join(path, name), strings.Join(known, ", "))
		}
	}
	return found
}

func indexOf(list []string, s string) int {
	for i := range list {
		if list[i] == s {
			return i
		}
	}
	return -1
}

// must reports whether a value is there and is of a kind.
func (r *reader) must(n *node, path, kind string) bool {
	if n == nil {
		r.isMalformed(path, "is missing")
		return false
	}
	if n.kind != kind {
		r.isMalformed(path, "is a "+n.kind+", and must be a "+kind)
		return false
	}
	return true
}

func (r *reader) text(n *node, path string) string {
	if !r.must(n, path, isText) {
		return ""
	}
	return n.text
}

// integer reads a number without fraction and exponent.
func (r *reader) integer(n *node, path string, least, most int64) int64 {
	if !r.must(n, path, isNum) {
		return 0
	}
	if strings.Trim(n.text, "-0123456789") != "" {
		r.isMalformed(path, "is "+shortly(n.text)+", and must be written without fraction and exponent")
		return 0
	}
	i, err := strconv.ParseInt(n.text, 10, 64)
	if err != nil || i < least || i > most {
		r.isWrong(path, n.text, "from "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10))
		return 0
	}
	return i
}

// number reads a number from least to most.
func (r *reader) number(n *node, path string, least, most float64) float64 {
	if !r.must(n, path, isNum) {
		return 0
	}
	f, err := strconv.ParseFloat(n.text, 64)
	if err != nil || f < least || f > most {
		r.isWrong(path, n.text, "from "+strconv.FormatFloat(least, 'g', -1, 64)+" to "+strconv.FormatFloat(most, 'g', -1, 64))
		return 0
	}
	return f + 0 // no minus zero
}

func (r *reader) time(n *node, path string) time.Time {
	text := r.text(n, path)
	t, err := time.Parse(time.RFC3339, text)
	// Parse also takes an hour of one digit, and a comma for the point.
	if n != nil && (err != nil || len(text) < len("2006-01-02T15:04:05Z") || text[13] != ':' || strings.Contains(text, ",")) {
		r.isWrong(path, text, "a time as 2026-11-22T10:00:00Z")
	}
	return t.UTC()
}

const (
	documentFields = "version serial config issued_at effective_at expires_at model rules abstained"
	modelFields    = "name horizon_seconds skill_vs_last"
	ruleFields     = "rule reason limit above confidence impact forecast"
	limitFields    = "requests burst algorithm"
	aboveFields    = "requests_per_second limit for"
	forecastFields = "mean lower upper quantile"
)

func readDocument(r *reader, root *node) *Document {
	d := &Document{Version: Version}
	m := r.members(root, "the document", documentFields)
	if r.malformed != nil {
		return d
	}
	readVersion(r, m[0])
	d.Serial = r.integer(m[1], "serial", 1, MaxSerial)
	d.Config = r.text(m[2], "config")
	if m[2] != nil && !isDigest(d.Config) {
		r.isWrong("config", d.Config, "sha256: and 64 of 0-9 and a-f")
	}
	d.IssuedAt = r.time(m[3], "issued_at")
	d.EffectiveAt = r.time(m[4], "effective_at")
	d.ExpiresAt = r.time(m[5], "expires_at")
	if m[6] == nil {
		r.isMalformed("model", "is missing")
	} else {
		readModel(r, m[6], &d.Model)
	}
	if !r.must(m[7], "rules", isList) {
		return d
	}
	if len(m[7].values) > MaxRules {
		r.isWrong("rules", strconv.Itoa(len(m[7].values)), "at most "+strconv.Itoa(MaxRules))
	}
	d.Rules = make([]Rule, len(m[7].values))
	seen := make(map[string]bool)
	for i := range d.Rules {
		path := "rules[" + strconv.Itoa(i) + "]"
		readRule(r, m[7].values[i], path, &d.Rules[i])
		if r.malformed != nil {
			return d
		}
		label := d.Rules[i].Rule
		if seen[label] {
			r.isWrong(path+".rule", label, "another than that of the rules before")
		}
		seen[label] = true
	}
	if m[8] != nil {
		readAbstained(r, m[8], seen, d)
	}
	return d
}

func readAbstained(r *reader, n *node, seen map[string]bool, d *Document) {
	if !r.must(n, "abstained", isList) {
		return
	}
	if len(n.values) > MaxRules {
		r.isWrong("abstained", strconv.Itoa(len(n.values)), "at most "+strconv.Itoa(MaxRules))
	}
	d.Abstained = make([]Abstained, len(n.values))
	for i := range d.Abstained {
		path := "abstained[" + strconv.Itoa(i) + "]"
		m := r.members(n.values[i], path, "rule reason")
		if r.malformed != nil {
			return
		}
		label := r.label(m[0], path+".rule")
		d.Abstained[i].Rule = label
		d.Abstained[i].Reason = r.reason(m[1], path+".reason")
		if seen[label] {
			r.isWrong(path+".rule", label, "another than that of the rules before")
		}
		seen[label] = true
	}
}

func readVersion(r *reader, n *node) {
	if !r.must(n, "version", isNum) {
		return
	}
	if strings.Trim(n.text, "-0123456789") != "" {
		r.isMalformed("version", "must be written without fraction and exponent")
	}
	if n.text != strconv.Itoa(Version) {
		r.version = refuse(BadVersion, "version %s: must be %d", shortly(n.text), Version)
	}
}

func isDigest(s string) bool {
	const prefix = "sha256:"
	return len(s) == len(prefix)+64 && strings.HasPrefix(s, prefix) && strings.Trim(s[len(prefix):], "0123456789abcdef") == ""
}

func readModel(r *reader, n *node, to *Model) {
	m := r.members(n, "model", modelFields)
	to.Name = r.text(m[0], "model.name")
	printable := len(to.Name) >= 1 && len(to.Name) <= 64
	for i := 0; i < len(to.Name) && printable; i++ {
		printable = to.Name[i] >= ' ' && to.Name[i] <= '~'
	}
	if m[0] != nil && !printable {
		r.isWrong("model.name", to.Name, "1 to 64 printable letters of ASCII")
	}
	to.HorizonSeconds = r.integer(m[1], "model.horizon_seconds", 1, MaxHorizon)
	if m[2] == nil || m[2].kind != isNull {
		skill := r.number(m[2], "model.skill_vs_last", -math.MaxFloat64, 1)
		to.SkillVsLast = &skill
	}
}

// label reads a rule's label.
func (r *reader) label(n *node, path string) string {
	label := r.text(n, path)
	namespace, name, found := strings.Cut(label, "/")
	if !found {
		name = namespace
	}
	if words.CheckName(namespace) != nil || words.CheckName(name) != nil {
		r.isWrong(path, label, "the name of a rule, or <namespace>/<name>")
	}
	return label
}

// reason reads the advisor's reason for what it says of a rule.
func (r *reader) reason(n *node, path string) string {
	reason := r.text(n, path)
	if reason == "" || len(reason) > 32 || strings.Trim(reason, "abcdefghijklmnopqrstuvwxyz_") != "" {
		r.isWrong(path, reason, "1 to 32 of a-z and _")
	}
	return reason
}

func readRule(r *reader, n *node, path string, to *Rule) {
	m := r.members(n, path, ruleFields)
	to.Rule = r.label(m[0], path+".rule")
	to.Reason = r.reason(m[1], path+".reason")
	if m[2] == nil && m[3] == nil {
		r.isMalformed(path, "limit or above is missing")
	}
	if m[2] != nil {
		to.Limit = readLimit(r, m[2], path+".limit")
	}
	if m[3] != nil {
		to.Above = readAbove(r, m[3], path+".above")
	}
	if m[4] != nil {
		confidence := r.number(m[4], path+".confidence", 0, 1)
		to.Confidence = &confidence
	}
	if m[5] != nil {
		of := r.members(m[5], path+".impact", "baseline_keys")
		to.Impact = &Impact{BaselineKeys: r.number(of[0], path+".impact.baseline_keys", 0, 1)}
	}
	if m[6] != nil {
		to.Forecast = readForecast(r, m[6], path+".forecast")
	}
}

func readLimit(r *reader, n *node, path string) *Limit {
	m := r.members(n, path, limitFields)
	to := &Limit{Requests: r.integer(m[0], path+".requests", 1, MaxNumber)}
	if m[1] != nil {
		to.Burst = r.integer(m[1], path+".burst", 1, MaxNumber)
	}
	if m[2] != nil {
		to.Algorithm = r.text(m[2], path+".algorithm")
		if _, err := rate.ParseAlgorithm(to.Algorithm); err != nil {
			r.isWrong(path+".algorithm", to.Algorithm, "one of "+strings.Join(rate.AlgorithmNames, ", "))
		}
	}
	return to
}

func readAbove(r *reader, n *node, path string) *Above {
	m := r.members(n, path, aboveFields)
	to := &Above{RequestsPerSecond: r.number(m[0], path+".requests_per_second", 0, MaxNumber)}
	if m[0] != nil && to.RequestsPerSecond == 0 {
		r.isWrong(path+".requests_per_second", m[0].text, "more than 0")
	}
	to.Limit = r.text(m[1], path+".limit")
	if _, _, ok := readRate(to.Limit); !ok {
		r.isWrong(path+".limit", to.Limit, "<requests>/<duration from 1s to 1h>, such as 2/1s")
	}
	to.For = r.text(m[2], path+".for")
	if _, ok := readDuration(to.For); !ok {
		r.isWrong(path+".for", to.For, "a duration from 1s to 1h, such as 5m")
	}
	return to
}

func readForecast(r *reader, n *node, path string) *Forecast {
	m := r.members(n, path, forecastFields)
	to := &Forecast{
		Mean: r.number(m[0], path+".mean", 0, MaxDemand), Lower: r.number(m[1], path+".lower", 0, MaxDemand),
		Upper: r.number(m[2], path+".upper", 0, MaxDemand), Quantile: r.number(m[3], path+".quantile", 0, 1),
	}
	if to.Lower > to.Mean || to.Mean > to.Upper {
		r.isWrong(path+".mean", strconv.FormatFloat(to.Mean, 'g', -1, 64), "from lower to upper")
	}
	if m[3] != nil && (to.Quantile == 0 || to.Quantile == 1) {
		r.isWrong(path+".quantile", m[3].text, "between 0 and 1")
	}
	return to
}

// readRate reads "<requests>/<duration>".
func readRate(s string) (requests, period int64, ok bool) {
	number, rest, found := strings.Cut(s, "/")
	if !found {
		return 0, 0, false
	}
	requests, err := words.ParseCount(number, MaxNumber)
	if err != nil {
		return 0, 0, false
	}
	period, ok = readDuration(rest)
	return requests, period, ok
}

// readDuration reads a duration from 1s to 1h, in microseconds, as rules write them.
func readDuration(s string) (int64, bool) {
	d, err := time.ParseDuration(s)
	if err != nil || s[0] == '+' || d%time.Microsecond != 0 {
		return 0, false
	}
	micros := int64(d / time.Microsecond)
	return micros, micros >= leastAbove && micros <= mostAbove
}
