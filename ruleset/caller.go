package ruleset

// OfTheCaller reports whether the rule's keys and limits are the same whatever path and method a client asks for, so that the client
// can ask how it stands by any request.
func OfTheCaller(r *Rule) bool {
	for i := range r.Parts {
		if isOfRequest(r.Parts[i].Source.String()) {
			return false
		}
	}
	return r.tier == nil || !isOfRequest(r.tier.String())
}

// isOfRequest reports whether a source tells what is asked for, and not who asks.
func isOfRequest(source string) bool { return source == "path" || source == "method" }
