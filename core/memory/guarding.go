package memory

import "net/http"

// Guarding is what a fast path does for a guard, besides deciding: it lets requests pass by the guard that get a ticket, as Gauge of package guard
// describes it. All of its fields must be set. Requests whose decision is timed ask for no ticket: they go to Next of the ServeConfig, which is guarded, too.
type Guarding struct {
	Word                  *int64 // the guard's
	Take, Leave, NoTicket int64  // what is added to it at the beginning and the end, and what says that there was no ticket: of package guard

	Ticketed   http.Handler // gets the requests that have a ticket; they are under way until it returns
	Unticketed http.Handler // gets those that have none; if such a request may have one, Take is still to be subtracted from the word
}
