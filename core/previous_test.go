package core

import (
	"testing"

	"github.com/proxyweir/weir/core/rate"
)

func TestTheDecisionsOfTwoLimitsBecomeOne(t *testing.T) {
	for name, c := range map[string]struct{ d, previous, want rate.Decision }{
		"the previous has less": {rate.Decision{Allowed: true, Limit: 9, Remaining: 5, ResetAfter: 8, MoreAfter: 2}, rate.Decision{Allowed: true, Limit: 5, Remaining: 3, ResetAfter: 4, MoreAfter: 1},
			rate.Decision{Allowed: true, Limit: 9, Remaining: 3, ResetAfter: 8, MoreAfter: 1}},
		"it has more": {rate.Decision{Allowed: true, Limit: 9, Remaining: 2, ResetAfter: 3, MoreAfter: 2}, rate.Decision{Allowed: true, Limit: 5, Remaining: 3, ResetAfter: 4, MoreAfter: 1},
			rate.Decision{Allowed: true, Limit: 9, Remaining: 2, ResetAfter: 4, MoreAfter: 2}},
		"as many": {rate.Decision{Allowed: true, Limit: 9, Remaining: 3, MoreAfter: 2}, rate.Decision{Allowed: true, Limit: 5, Remaining: 3, MoreAfter: 7},
			rate.Decision{Allowed: true, Limit: 9, Remaining: 3, MoreAfter: 7}},
		"as many, unknown when more": {rate.Decision{Allowed: true, Limit: 9, Remaining: 3, MoreAfter: 2}, rate.Decision{Allowed: true, Limit: 3, Remaining: 3},
			rate.Decision{Allowed: true, Limit: 9, Remaining: 3}},
		"the previous is tolerant, and late": {rate.Decision{Allowed: true, Limit: 9, Remaining: 3}, rate.Decision{Allowed: true, Soft: true, Limit: 3, Delay: 4},
			rate.Decision{Allowed: true, Soft: true, Limit: 9, Delay: 4}},
		"the previous rejects": {rate.Decision{Allowed: true, Limit: 9, Remaining: 3, MoreAfter: 2, Delay: 3, Soft: true}, rate.Decision{Limit: 5, RetryAfter: 6, ResetAfter: 7},
			rate.Decision{Limit: 9, RetryAfter: 6, ResetAfter: 7}},
		"the new one rejects": {rate.Decision{Limit: 9, RetryAfter: 6, ResetAfter: 7}, rate.Decision{Allowed: true, Limit: 5, Remaining: 2, ResetAfter: 9, MoreAfter: 3, Delay: 2, Soft: true},
			rate.Decision{Limit: 9, RetryAfter: 6, ResetAfter: 9}},
		"both reject": {rate.Decision{Limit: 9, RetryAfter: 6, Penalty: true}, rate.Decision{Limit: 5, RetryAfter: 8}, rate.Decision{Limit: 9, RetryAfter: 8, Penalty: true}},
		"one forever": {rate.Decision{Limit: 9, RetryAfter: rate.Never}, rate.Decision{Limit: 5, RetryAfter: 8}, rate.Decision{Limit: 9, RetryAfter: rate.Never}},
	} {
		got := c.d
		merge(&got, &c.previous)
		if got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
