//go:build gc
// +build gc

package memory

// Yaegi leaves this file out, as it does compiled_test.go: it cannot fuzz.

import (
	"encoding/binary"
	"math/rand"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/tools/must"
)

func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{"100/1m", "5/0s", "-1/1m", "1e99/1m", "100", "100/m", "1000/day", "3/1d12h", "1/65535d2562047h", "/", "1/1d-1ns"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var c rate.LimitConfig
		if err := rate.ParseLimit(s, &c); err != nil {
			if !strings.HasPrefix(err.Error(), "limit ") {
				t.Errorf("%q: the error does not say its subject: %v", s, err)
			}
			return
		}
		l, err := rate.NewLimit(c)
		if err != nil {
			t.Fatalf("%q is read, and refused: %v", s, err)
		}
		// A limit's text is read as the same limit.
		written, _, _ := strings.Cut(l.String(), " ")
		var again rate.LimitConfig
		if err := rate.ParseLimit(written, &again); err != nil || again != c {
			t.Errorf("%q is written %q, which is %+v, not %+v: %v", s, written, again, c, err)
		}
	})
}

func FuzzParseCounted(f *testing.F) {
	for _, s := range []string{"401", "4xx", "401,403", "2xx 5XX 101", "99", "600", "4x", "", ",", "١٠١", "+401"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := core.ParseCounted([]string{text})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "count") {
				t.Errorf("%q: the error does not say its subject: %v", text, err)
			}
			return
		}
		again, err := core.ParseCounted(strings.Split(s.String(), ","))
		if err != nil || again.String() != s.String() {
			t.Fatalf("%q is written %q, which is read as %v, %v", text, s, again, err)
		}
		for code := -1; code < 700; code++ {
			if s.Has(code) != again.Has(code) || s.Has(code) && (code < 101 || code > 101 && code < 200 || code > 599) {
				t.Fatalf("%q has %d: %v; what it is written as: %v", text, code, s.Has(code), again.Has(code))
			}
		}
	})
}

func FuzzParsePeriod(f *testing.F) {
	for _, s := range []string{"10s", "1m30s", "7d", "1d12h", "s", "d", "366d", "1ms", "999us", "-1m", "1.5d", "1d1d", "0", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := rate.ParsePeriod(s)
		if err == nil && (d < rate.MinPeriod || d > rate.MaxPeriod || d%time.Microsecond != 0) {
			t.Errorf("%q: %s", s, d)
		}
		if err != nil && d != 0 {
			t.Errorf("%q: %s and %v", s, d, err)
		}
		if again, err2 := rate.ParsePeriod(rate.FormatPeriod(d)); err == nil && (again != d || err2 != nil) {
			t.Errorf("%q is written %q, which is %s: %v", s, rate.FormatPeriod(d), again, err2)
		}
	})
}

// FuzzDecide reads a limit and a history of requests from bytes, and compares every decision with the oracle's.
func FuzzDecide(f *testing.F) {
	r := rand.New(rand.NewSource(1))
	for algorithm := byte(0); algorithm < 6; algorithm++ {
		for i := 0; i < 8; i++ {
			seed := make([]byte, 120)
			r.Read(seed)
			seed[0] = algorithm
			f.Add(seed)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func() int64 { // reads a number of up to 56 bits from three bytes, so that small and large ones are equally likely
			var b [3]byte
			n := copy(b[:], data)
			data = data[n:]
			return int64(binary.LittleEndian.Uint16(b[:])) << (b[2] % 40)
		}
		kind := next()
		n := numbers{algorithm: rate.TokenBucket}
		if kind%6 > 0 {
			n.algorithm = rate.Algorithm(kind % 6)
		} else {
			n.interval = true
		}
		most := int64(rate.MaxRequests)
		if n.algorithm == rate.SlidingWindowLog {
			most = 5000
		}
		n.requests = 1 + next()%most
		n.period = 1000 + next()%(int64(rate.MaxPeriod/time.Microsecond)-999)
		if n.algorithm == rate.TokenBucket || n.algorithm == rate.LeakyBucket {
			n.burst = 1 + next()%most
		}
		if n.algorithm == rate.LeakyBucket {
			n.maxDelay = 1 + next()%3600_000_000
		}
		if !legal(&n) {
			return
		}
		h := newHistory(rand.New(rand.NewSource(kind)), n, &tally{})
		h.now = 1_700_000_000_000_000
		must.Succeed(t, h.open())
		for len(data) > 0 {
			flags := next()
			step := next()
			if flags&1 != 0 {
				step = -step
			}
			if h.now += step; h.now < 1_000_000_000_000 || h.now > 8_000_000_000_000_000 {
				h.now = 1_700_000_000_000_000
			}
			h.edge = true
			d, err := h.step(1+next()%(2*most), flags&6 == 6)
			must.Succeed(t, err)
			if d.Remaining < 0 || d.Remaining > d.Limit || d.ResetAfter < 0 || d.Delay < 0 || d.RetryAfter < rate.Never || d.Allowed != (d.RetryAfter == 0) {
				t.Fatalf("%+v", d)
			}
		}
	})
}
