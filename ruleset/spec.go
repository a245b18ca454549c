package ruleset

// Spec returns what the rule's key is made of, as KeySpec has it: rules with the same have the same key for every request.
func Spec(r *Rule) string { return KeySpec(r.Parts, r.prefixes) }
