package ruleset

// OfTheCaller reports whether the rule's keys and limits do not depend on the path and method of the request, so that the client
// can ask for its quota by any request.
func OfTheCaller(r *Rule) bool {
	for i := range r.Parts {
		if isOfRequest(r.Parts[i].Source.String()) {
			return false
		}
	}
	return r.tier == nil || !isOfRequest(r.tier.String())
}

// isOfRequest reports whether a source describes the request, and not its client.
func isOfRequest(source string) bool { return source == "path" || source == "method" }
