package describe

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/ruleset"
)

// Table lists the rules of a configuration: one row for each limit of each rule.
type Table []Row

// Row is one limit. Empty fields are shown as dashes.
type Row struct {
	Site      string // the hosts of the site, or the addresses that its server listens on
	Rule      string // with its namespace
	Covers    string // which requests, in words
	Key       string
	Limit     string // as it is written
	Algorithm string
	Notes     string // what else the rule does, and to whom the limit applies
	File      string // and line, of a rule file

	shadow   bool
	overflow []string // the rule's overflow policy, in a few words
}

// Write writes the table.
func (t Table) Write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	head := Row{Site: "SITE", Rule: "RULE", Covers: "COVERS", Key: "KEY", Limit: "LIMIT", Algorithm: "ALGORITHM", Notes: "NOTES", File: "FILE"}
	for _, r := range append(Table{head}, t...) {
		cells := []string{r.Site, r.Rule, r.Covers, r.Key, r.Limit, r.Algorithm, r.Notes, r.File}
		for i := range cells {
			if cells[i] == "" {
				cells[i] = "-"
			}
		}
		if _, err := fmt.Fprintln(w, strings.Join(cells, "\t")); err != nil {
			return err
		}
	}
	return w.Flush()
}

// Place is where in a configuration rules are.
type Place struct {
	Site   string // as in a Row; "": any
	Routes string // which of its requests reach the rules, in words; "": all
}

// Row returns the description of a rule there, without its limit. name has the namespace.
func (p Place) Row(name, covers, key string) Row {
	if p.Routes != "" {
		covers = strings.TrimSuffix(p.Routes+"; "+covers, "; ")
	}
	return Row{Site: cmp.Or(p.Site, "any"), Rule: name, Covers: cmp.Or(covers, "all"), Key: key}
}

// AddRule adds a row for each limit of a rule.
func (t *Table) AddRule(row Row, r *ruleset.Rule, text *ruleset.RuleText) {
	row.shadow, row.overflow = r.Shadow, OverflowNotes(text)
	t.add(row, r.Limits.Own(), "")
	if tiers := ruleset.One(text, "tiers"); tiers != nil {
		for _, tier := range tiers.Pairs["limits"] {
			if tier.Name != ruleset.AnyTier {
				t.add(row, r.Limits.Of(ruleset.TierFor(r, tier.Name), ""), fmt.Sprintf("tier %s of %s", tier.Name, tiers.Texts["source"]))
			}
		}
	}
	for _, o := range text.Objects["overrides"] {
		t.add(row, r.Limits.Of("", ruleset.KeyFor(r, o.Lists["key"])), "key "+strings.Join(o.Lists["key"], " "))
	}
}

// AddSet adds the rules of files, without those of descriptors.
func (t *Table) AddSet(at Place, namespace string, set *ruleset.Set) {
	i := 0
	for _, file := range set.Files {
		for _, r := range file.Rules {
			rule := set.Rules[i]
			i++
			key := "client_ip"
			if len(r.Lists["key"]) > 0 {
				key = strings.Join(match.Joined(r.Lists["key"]), " ")
			}
			row := at.Row(metrics.LabelOf(namespace, r.Name), coverage(ruleset.One(&r.RuleText, "match")), key)
			row.File = file.Name
			if r.Line > 0 {
				row.File = fmt.Sprintf("%s:%d", file.Name, r.Line)
			}
			t.AddRule(row, rule, &r.RuleText)
		}
	}
}

// coverage describes which requests a rule covers.
func coverage(covered *ruleset.Object) string {
	if covered == nil {
		return ""
	}
	m := ruleset.MatchOf(covered)
	var parts []string
	add := func(word string, values []string) {
		if len(values) > 0 {
			parts = append(parts, word+" "+strings.Join(values, ","))
		}
	}
	add("method", m.Methods)
	add("host", m.Hosts)
	add("path", m.Paths)
	add("path prefix", m.PathPrefixes)
	for _, of := range []struct {
		word   string
		values map[string]string
	}{{"header", m.Headers}, {"query", m.Query}, {"cookie", m.Cookies}} {
		for _, name := range slices.Sorted(maps.Keys(of.values)) {
			parts = append(parts, of.word+" "+name+"="+of.values[name])
		}
	}
	add("except", m.ExceptIPs)
	return strings.Join(parts, "; ")
}

// AddDescriptors adds the limits of the descriptors of a file's domain.
func (t *Table) AddDescriptors(at Place, namespace string, file *ruleset.File, domain *ruleset.Domain) {
	rules := domain.Rules()
	var walk func(list []*ruleset.Descriptor, path []string)
	walk = func(list []*ruleset.Descriptor, path []string) {
		for _, d := range list {
			entry := d.Key
			if d.Value != "" {
				entry += "=" + d.Value
			}
			here := append(slices.Clone(path), entry)
			row := at.Row("", "descriptor "+strings.Join(here, ", "), "")
			row.File = fmt.Sprintf("%s:%d", file.Name, d.Line)
			if d.Unlimited {
				t.add(row, nil, "")
			} else if d.Limit != nil {
				row.Rule, row.shadow = metrics.LabelOf(namespace, rules[0].Name()), rules[0].Shadow
				t.add(row, rules[0], "")
				rules = rules[1:]
			}
			walk(d.Descriptors, here)
		}
	}
	walk(file.Domain.Descriptors, nil)
}

// add adds a row for one limit of a rule; a nil limit is unlimited. whose says to whom it applies, unless that is everyone.
func (t *Table) add(r Row, limit *core.Rule, whose string) {
	r.Limit, r.Algorithm = WrittenLimit(limit)
	var notes []string
	if whose != "" {
		notes = append(notes, whose)
	}
	if r.shadow {
		notes = append(notes, "shadow")
	}
	if limit != nil {
		notes = append(append(notes, r.overflow...), LimitNotes(limit)...)
	}
	r.Notes = strings.Join(notes, ", ")
	*t = append(*t, r)
}
