// Package rate holds limits and the algorithms, as pure functions: (limit, state, time, cost) to (state, decision). It also has what the nodes of a fleet lease
// of a limit, and what they tell each other, without any input or output.
package rate
