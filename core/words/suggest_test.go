package words

import "testing"

func TestNearestIsTheWordThatWasMeant(t *testing.T) {
	known := []string{"token_bucket", "leaky_bucket", "limit", "burst", "key"}
	for _, c := range []struct{ word, want string }{
		{"token_bucket", "token_bucket"}, {"tokenbucket", "token_bucket"}, {"TOKEN_BUCKET", "token_bucket"}, {"leeky_bucket", "leaky_bucket"},
		{"limits", "limit"}, {"limt", "limit"}, {"brust", "burst"}, {"bursts", "burst"}, {"kye", "key"}, {"keys", "key"},
		{"window", ""}, {"algorithm", ""}, {"", ""}, {"x", ""},
	} {
		if got := Nearest(c.word, known); got != c.want {
			t.Errorf("%q: %q, want %q", c.word, got, c.want)
		}
	}
	if got := Nearest("abc", nil); got != "" {
		t.Errorf("of no words: %q", got)
	}
}

func TestDistanceIsLevenshteins(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0},
	} {
		if got := distance(c.a, c.b, 10); got != c.want {
			t.Errorf("%q and %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
	if got := distance("abcdef", "", 3); got <= 3 {
		t.Errorf("what is too far apart is %d, want more than 3", got)
	}
}
