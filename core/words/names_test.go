package words

import (
	"strings"
	"testing"
)

func TestNamesAreCheckedToTheByte(t *testing.T) {
	for _, name := range []string{"a", "A.b-c_9", strings.Repeat("z", 64)} {
		if err := CheckName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", "a b", "a\"", "a|b", "é", strings.Repeat("a", 65)} {
		if err := CheckName(name); err == nil || !strings.HasSuffix(err.Error(), ": must be 1 to 64 of A-Z a-z 0-9 _ . -") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
