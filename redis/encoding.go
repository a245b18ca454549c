package redis

import (
	"encoding/binary"
	"math"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
)

// appendArgument appends a rule's part of a script's argument, for a request that costs 1: see rule in scripts/decision.lua. windows are the bounds of the
// calendar's windows, of a limit that has a calendar.
func appendArgument(b []byte, r *core.Rule, peek bool, windows []int64) []byte {
	l := r.Limit
	x, y := algorithmOf(l).numbers(l)
	b = append(b, byte(l.Algorithm), byte(oneIf(r.CountRejected)), byte(oneIf(r.Shadow)), byte(oneIf(peek)))
	b = appendDouble(b, 1) // the cost
	b = appendDouble(b, l.Requests)
	b = appendDouble(b, l.Period)
	b = appendDouble(b, x)
	b = appendDouble(b, y)
	for _, w := range windows {
		b = appendDouble(b, w)
	}
	return b
}

// costAt is the offset of the cost in the bytes that appendArgument appends.
const costAt = 4

// withCost returns an argument that appendArgument has made, with another cost.
func withCost(argument string, cost int64) string {
	b := []byte(argument)
	putDouble(b[costAt:], cost)
	return string(b)
}

func appendDouble(b []byte, n int64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(n)))
}

func putDouble(b []byte, n int64) { binary.LittleEndian.PutUint64(b, math.Float64bits(float64(n))) }

func oneIf(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// longest is longer than any time that the scripts reply with, in microseconds: two hundred years.
const longest = 200 * 366 * 24 * 3600 * 1_000_000

// readDecision reads one rule's four numbers of a reply. It returns false if they are out of range.
func readDecision(r *core.Rule, reply []int64, d *rate.Decision) bool {
	remaining, wait, reset, more := reply[0], reply[1], reply[2], reply[3]
	if remaining > r.Limit.Quota || remaining < -1-r.Limit.Quota || wait < rate.Never || wait > longest || reset < 0 || reset > longest || more < 0 || more > longest {
		return false
	}
	*d = rate.Decision{Allowed: remaining >= 0, Limit: r.Limit.Quota, Remaining: remaining, ResetAfter: reset}
	if d.Allowed {
		d.MoreAfter = more
		d.Delay = wait
	} else {
		d.Remaining = -1 - remaining
		d.RetryAfter = wait
	}
	return true
}
