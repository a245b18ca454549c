package core

import "net/http"

// Answer is what requests are answered with that a rule rejects, in place of the default. It is read only once the rule is in use.
type Answer struct {
	Status   int    // never 0
	Type     string // the media type of Body; "": what Body looks like
	Body     string // "": the text that a rule without an Answer has
	File     string // where Body is read from; "": nowhere
	Location string // where clients are redirected to; "": nowhere
	Close    bool   // the connection is closed
}

// Complete reports whether the answer leaves nothing to others, such as the error routes of a site. a may be nil.
func (a *Answer) Complete() bool {
	return a != nil && (a.File != "" || a.Body != "" || a.Location != "")
}

// PlainStatus returns the status of the answer for clients that are not redirected. a may be nil.
func (a *Answer) PlainStatus() int {
	if a == nil || a.Location != "" {
		return http.StatusTooManyRequests
	}
	return a.Status
}
