package yaml

import (
	"fmt"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core/ruleset"
)

// BenchmarkLoad is what a file costs from its bytes to the set that is put in force.
func BenchmarkLoad(b *testing.B) {
	const many = 10_000
	var rules, descriptors strings.Builder
	rules.WriteString("rules:\n")
	descriptors.WriteString("domain: d\ndescriptors:\n")
	for i := 0; i < many; i++ {
		fmt.Fprintf(&rules, "  - name: r%d\n    match:\n      path_prefixes: [/v1/p%d]\n    key: [client_ip, header:X-User]\n    limit: 100/1m\n    algorithm: token_bucket\n    burst: 200\n", i, i)
		fmt.Fprintf(&descriptors, "  - key: tenant\n    value: t%d\n    rate_limit:\n      unit: minute\n      requests_per_unit: 100\n", i)
	}
	for _, c := range []struct{ name, text string }{{"10000 rules", rules.String()}, {"10000 descriptors", descriptors.String()}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(c.text)))
			b.ReportAllocs()
			for i := 0; i < b.N; i++ {
				root, problems := Parse("f", []byte(c.text))
				if problems != nil {
					b.Fatal(problems)
				}
				f, problems := ruleset.Decode("f", root)
				if problems != nil {
					b.Fatal(problems)
				}
				if _, err := ruleset.NewSet([]*ruleset.File{f}, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
