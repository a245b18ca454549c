package ruleset

// Fields returns the names of the fields of each kind of map in a rule file, in the order in which they are shown: of "file", "rule",
// "match", "tiers", "override", "candidate", "descriptor", "rate_limit" and "replaces", an item of that list. The maps match: headers and tiers:
// limits are not among them, since their keys are not fields.
func Fields() map[string][]string {
	return map[string][]string{
		"file":       append([]string(nil), fileFields...),
		"rule":       append([]string(nil), ruleFields...),
		"match":      append([]string(nil), matchFields...),
		"tiers":      append([]string(nil), tiersFields...),
		"override":   append([]string(nil), overrideFields...),
		"candidate":  append([]string(nil), candidateFields...),
		"descriptor": append([]string(nil), descriptorFields...),
		"rate_limit": append([]string(nil), rateLimitFields...),
		"replaces":   {"name"},
	}
}
