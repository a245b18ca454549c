package words

import (
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

func TestNearestIsTheWordThatWasMeant(t *testing.T) {
	known := []string{"token_bucket", "leaky_bucket", "limit", "burst", "key"}
	for _, c := range []struct{ word, want string }{
		{"token_bucket", "token_bucket"}, {"tokenbucket", "token_bucket"}, {"TOKEN_BUCKET", "token_bucket"}, {"leeky_bucket", "leaky_bucket"},
		{"limits", "limit"}, {"limt", "limit"}, {"brust", "burst"}, {"bursts", "burst"}, {"kye", "key"}, {"keys", "key"},
		{"window", ""}, {"algorithm", ""}, {"", ""}, {"x", ""},
	} {
		must.Equal(t, Nearest(c.word, known), c.want, "%q", c.word)
	}
	must.Equal(t, Nearest("abc", nil), "", "of no words")
}

func TestDistanceIsLevenshteins(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0},
	} {
		must.Equal(t, distance(c.a, c.b, 10), c.want, "%q and %q", c.a, c.b)
	}
	if got := distance("abcdef", "", 3); got <= 3 {
		t.Errorf("what is too far apart is %d, want more than 3", got)
	}
}
