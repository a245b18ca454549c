package core

import (
	"testing"

	"github.com/proxyweir/weir/core/rate"
)

func mustLimit(t testing.TB, c rate.LimitConfig) *rate.Limit {
	l, err := rate.NewLimit(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
