package core

import (
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

func TestResponseCostsAreWrittenInOneForm(t *testing.T) {
	for _, c := range []struct{ text, want, path string }{
		{"bytes", "bytes", ""},
		{"header x-cost", "header X-Cost", ""},
		{" trailer\tgrpc-cost ", "trailer Grpc-Cost", ""},
		{"json cost", "json cost", "cost"},
		{"json usage.total_tokens", "json usage.total_tokens", "usage|total_tokens"},
		{"json choices.0.x-y", "json choices.0.x-y", "choices|0|x-y"},
		{"json 'a.b'.c.'total tokens'", "json 'a.b'.c.'total tokens'", "a.b|c|total tokens"},
		{"json 'usage'.'é'", "json usage.'é'", "usage|é"},
		{"json " + strings.Repeat("a.", 15) + strings.Repeat("b", 128), "json " + strings.Repeat("a.", 15) + strings.Repeat("b", 128), strings.Repeat("a|", 15) + strings.Repeat("b", 128)},
	} {
		for _, list := range [][]string{{c.text}, strings.Fields(c.text), {c.want}} {
			cost, err := ParseResponseCost(list)
			if err != nil {
				t.Errorf("%q: %v", list, err)
				continue
			}
			must.Equal(t, cost.String(), c.want, "%q is written", list)
			must.Equal(t, strings.Join(cost.Path(), "|"), c.path, "the path of %q", list)
			must.Equal(t, strings.HasPrefix(c.want, strings.TrimSpace(cost.Kind()+" "+cost.Name())), true, "%q: the kind is %s, the name %s", list, cost.Kind(), cost.Name())
		}
	}
}

func TestResponseCostsThatAreWrittenWronglyAreRefused(t *testing.T) {
	kinds := " must be header and a field, trailer and a field, json and a path, or bytes"
	field := " must have the name of one field, such as header X-Cost"
	path := " must have keys with dots between them, such as json usage.total_tokens; a key with other characters than letters, digits, _ and - stands in single quotes, such as json 'a.b'.c"
	for _, c := range []struct{ text, want string }{
		{"", `"":` + kinds},
		{"body x", `"body x":` + kinds},
		{"headers X-Cost", `"headers X-Cost":` + kinds + " (did you mean header?)"},
		{"bytes 5", `"bytes 5":` + kinds + " (did you mean bytes?)"},
		{"header", `"header":` + field},
		{"header X-A X-B", `"header X-A X-B":` + field},
		{"header X:A", `"header X:A":` + field},
		{"trailer", `"trailer": must have the name of one field, such as trailer X-Cost`},
		{"json", `"json":` + path},
		{"json .a", `"json .a":` + path},
		{"json a.", `"json a.":` + path},
		{"json a..b", `"json a..b":` + path},
		{"json a b", `"json a b":` + path},
		{"json $.a", `"json $.a":` + path},
		{"json a[0]", `"json a[0]":` + path},
		{"json ''", `"json ''":` + path},
		{"json 'a", `"json 'a":` + path},
		{"json 'a'b", `"json 'a'b":` + path},
		{"json '\xff'", `"json '\xff'":` + path},
		{"json " + strings.Repeat("a.", 16) + "a", `"json ` + strings.Repeat("a.", 16) + `a": has 17 keys; at most 16 are possible`},
		{"json " + strings.Repeat("a", 129), `"json ` + strings.Repeat("a", 129) + `": has a key of 129 bytes; at most 128 are possible`},
	} {
		if cost, err := ParseResponseCost([]string{c.text}); err == nil || err.Error() != "cost_response "+c.want || cost != nil {
			t.Errorf("%q:\n got %v\nwant cost_response %s", c.text, err, c.want)
		}
	}
}
