//go:build gc
// +build gc

package redis

import (
	"os"
	"strings"
	"testing"
)

// The express way is there twice, since an interpreter has no inlining, and who does not watch is to pay nothing.
func TestTheWatchedExpressWayIsTheExpressWay(t *testing.T) {
	plain := bodyOf(t, "store_express.go", "func (e *express) ServeHTTP")
	watched := bodyOf(t, "store_express_watched.go", "func (o *watchedExpress) ServeHTTP")
	for _, own := range []string{
		"\t\te                *express\n\t\tpath             string\n",
		"\tpath = r.URL.Path\n\tif path == o.path || path == o.other {\n\t\to.aside.ServeHTTP(w, r)\n\t\treturn\n\t}\n",
		"\tif atomic.AddInt64(o.turn, 1)%core.TimedShare == 1 {\n\t\tserveTimed(o, w, r)\n\t\treturn\n\t}\n\te = o.express\n",
		"\t\tif key != \"\" && key[0] == '[' && e.direct {\n\t\t\to.indirect.ServeHTTP(w, r)\n\t\t\treturn\n\t\t}\n",
		"\tatomic.AddInt64(o.allowed, 1)\n",
	} {
		if strings.Count(watched, own) != 1 {
			t.Errorf("the watched way does not have\n%s", own)
		}
		watched = strings.Replace(watched, own, "", 1)
	}
	if plain != watched {
		t.Errorf("without what is watched it is\n%s\nand the other\n%s", watched, plain)
	}
}

// bodyOf returns what is in a function of a file.
func bodyOf(t *testing.T, file, begin string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), begin)
	if !found {
		t.Fatalf("%s does not have %s", file, begin)
	}
	_, after, _ = strings.Cut(after, "{\n")
	body, _, _ := strings.Cut(after, "\n}\n")
	return body
}
