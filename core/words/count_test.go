package words

import (
	"strings"
	"testing"
)

func TestParseCountTakesDigitsAlone(t *testing.T) {
	if n, err := ParseCount("1000000000", 1_000_000_000); n != 1_000_000_000 || err != nil {
		t.Error(n, err)
	}
	for _, s := range []string{"", "0", "-1", "+1", "1_000", "0x10", "1 ", "1000000001", "٣"} {
		if n, err := ParseCount(s, 1_000_000_000); err == nil || n != 0 || !strings.Contains(err.Error(), "must be a whole number from 1 to 1000000000") {
			t.Errorf("%q: %d, %v", s, n, err)
		}
	}
}
