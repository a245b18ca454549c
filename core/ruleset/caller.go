package ruleset

// OfTheCaller reports whether the rule's keys and limits do not depend on the path and method of the request, so that the client
// can ask for its quota by any request.
func OfTheCaller(r *Rule) bool {
	for i := range r.Parts {
		if r.Parts[i].Source.OfRequest() {
			return false
		}
	}
	return r.tier == nil || !r.tier.OfRequest()
}
