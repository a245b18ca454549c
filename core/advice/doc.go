// Package advice is what a proxy knows of advice: the documents in which an advisor says what limits it would set, the gates that keep advice from doing
// harm, and the poller that fetches documents. docs/advice.openapi.yaml is the contract with advisors.
//
// Configured limits are the truth. Advice deviates from them within bounds, by steps, and until it expires; and in the full gates, which are the
// default, it can only loosen, and only while the proxy itself sees that its service is healthy. So an advisor that is wrong, slow, dead or hostile
// costs next to nothing.
//
//   - document.go, read.go, json.go: a document, and what is refused
//   - digest.go, signature.go, serial.go: for which rules it was made, by whom, and whether it is newer than the last
//   - settings.go, rule.go, gates.go: one adaptable rule: what is in force, and why
//   - state.go: all rules of a proxy; an adapter asks it once a second
//   - client.go, exchange.go: the poller
//
// An adapter makes a State of its adaptable rules, and a Poller that gives the state what it gets. Each second it calls State.Turn with what
// adaptive.AdviceConditions returns, and puts in force what that has changed: another limit of the same period, with another number, burst or algorithm.
// After a reload it makes a state from the one before, and calls Turn before its rules come into force. Of the poller's goroutine nothing reaches a
// request.
//
// It knows no proxy and no store, and runs compiled and interpreted. Times are in microseconds since the Unix epoch, and arguments.
package advice
