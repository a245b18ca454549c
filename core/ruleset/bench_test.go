//go:build gc
// +build gc

package ruleset

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// sizes are how many there are, and of how many of those requests come: as many look-ups that are all of the same ten stay in the
// processor's cache, and others do not.
var sizes = []struct{ many, asked int }{{10, 10}, {10_000, 10}, {10_000, 10_000}}

func BenchmarkLookup(b *testing.B) {
	for _, size := range sizes {
		many := size.many
		f, problems := decoded(manyDescriptors(many))
		if len(problems) > 0 {
			b.Fatal(problems)
		}
		s, err := NewSet([]*File{f}, "")
		must.Succeed(b, err)
		entries := make([][]Entry, size.asked)
		for i := range entries {
			entries[i] = []Entry{{"tenant", strconv.Itoa(i * (many / size.asked))}, {"user", "alice"}}
		}
		b.Run(strconv.Itoa(size.asked)+" of "+strconv.Itoa(many), func(b *testing.B) {
			b.ReportAllocs()
			var l Lookup
			for i := 0; i < b.N; i++ {
				l.Begin()
				l.Add(s.Domains[0], entries[i%size.asked])
				l.Finish()
				if len(l.Found) != 1 {
					b.Fatal("not found")
				}
			}
		})
	}
}

func BenchmarkCovering(b *testing.B) {
	for _, by := range []struct {
		name string
		what func(i int) string
		ask  func(r *http.Request, i int)
	}{
		{"paths", byPath, func(r *http.Request, i int) { r.URL.Path = "/p" + strconv.Itoa(i) }},
		{"prefixes", byPrefix, func(r *http.Request, i int) { r.URL.Path = "/v1/p" + strconv.Itoa(i) + "/users/5" }},
		{"hosts", byHost, func(r *http.Request, i int) { r.Host = "h" + strconv.Itoa(i) + ".example.com" }},
		{"headers", byHeader, func(r *http.Request, i int) { r.Header["X-Tenant"] = []string{strconv.Itoa(i)} }},
	} {
		for _, size := range sizes {
			many := size.many
			f, problems := decoded(manyRules(many, by.what))
			if len(problems) > 0 {
				b.Fatal(problems)
			}
			s, err := NewSet([]*File{f}, "")
			must.Succeed(b, err)
			requests := make([]*http.Request, size.asked)
			for i := range requests {
				requests[i] = &http.Request{Method: "GET", Host: "example.com", URL: &url.URL{Path: "/"}, Header: http.Header{"Accept": {"*/*"}, "User-Agent": {"x"}}}
				by.ask(requests[i], i*(many/size.asked))
			}
			b.Run(by.name+"/"+strconv.Itoa(size.asked)+" of "+strconv.Itoa(many), func(b *testing.B) {
				b.ReportAllocs()
				var into []int
				for i := 0; i < b.N; i++ {
					r := requests[i%size.asked]
					into = s.Covering(r, into[:0])
					n := 0
					for _, at := range into {
						if s.Rules[at].Matcher.Covers(r, "192.0.2.1") {
							n++
						}
					}
					if n != 1 {
						b.Fatalf("%d rules cover request %d", n, i%size.asked)
					}
				}
			})
		}
	}
}

// BenchmarkLoad is of JSON; package yaml has its own.
func BenchmarkLoad(b *testing.B) {
	for _, c := range []struct{ name, text string }{
		{"10000 rules", manyRules(10_000, byPrefix)},
		{"10000 descriptors", manyDescriptors(10_000)},
	} {
		b.Run(c.name, func(b *testing.B) {
			for i := 0; i < b.N; i++ {
				f, problems := decoded(c.text)
				if len(problems) > 0 {
					b.Fatal(strings.Join(problems, "\n"))
				}
				if _, err := NewSet([]*File{f}, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
