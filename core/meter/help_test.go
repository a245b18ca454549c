package meter

import (
	"net/http"
	"testing"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/tools/must"
)

// meterOf returns a Meter with sources as they are written.
func meterOf(t testing.TB, sources ...string) *Meter {
	t.Helper()
	var list []*core.ResponseCost
	for _, text := range sources {
		source, err := core.ParseResponseCost([]string{text})
		must.Succeed(t, err)
		list = append(list, source)
	}
	return New(list)
}

// headerOf returns a header with the names and values of pairs.
func headerOf(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// unknown is a cost that is not known.
const unknown = -1

// costAt returns the cost that a source says, or unknown.
func costAt(m *Meter, i int) int64 {
	units, known := m.Cost(i)
	if !known {
		return unknown
	}
	return units
}
