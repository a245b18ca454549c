// Package transition holds which limits of a rule are active. Others may take the place of the configured ones while requests come
// under the rule: by a reload, by a rule file, or at run time.
//
// Where only numbers change, the new limits go on with the counters of the old ones. Where the algorithm or the period
// changes, the new limits have counters of their own, and a client that has used its quota up would get another. So a transition
// begins: until it is over, a request must pass the previous limit, too, and is charged to both.
//
// Why no client gains by it. Let a limit's bound for a time W be the most that it allows within any W; and let the transition
// begin at T, and last for D. All that is allowed before T+D is charged to the previous limit, which has allowed it. All that is
// allowed from T on is charged to the new limit, which has allowed it. A time of at most D does not reach from before T to after
// T+D. So it lies in one of the two parts, and what is allowed within it is at most the larger of the two bounds. This needs nothing of the
// algorithms but that each keeps to its own bound, and it holds for several transitions at once. D is the longest time for which
// one of the limits makes a promise: see rate.Limit.Memory. (Over longer times, each transition gives at most what one limit allows at
// once: there the previous limit is forgotten.)
//
// A transition is longer by the time for which what the previous limit alone has allowed may still depart: its max_delay, and
// slack.
//
// Each node has its own transitions, by its own clock. A node that learns of the new limits later has its transition later; until then
// it charges the previous limit alone, as it would before T.
//
// The way through it: a handler finds the rule that Active.Of names, and where Active.Generation is not 0, it puts what Active.Previous returns
// into the check. The limiter asks about all of them at once, and merges the decisions.
package transition
