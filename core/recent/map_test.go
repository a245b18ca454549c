package recent_test

import (
	"testing"

	"github.com/proxyweir/weir/core/recent"
)

type value struct{ n uint64 }

func TestAMapHasTheKeysThatWereUsedLast(t *testing.T) {
	const most = 100
	var m recent.Map[value]
	if m.Find(1) != nil {
		t.Error("an empty map has a key")
	}
	for key := uint64(0); key < 1000; key++ {
		if v := m.Use(key, most); v.n != 0 {
			t.Fatalf("key %d is new, and has the value of %d", key, v.n)
		}
		m.Use(key, most).n = key
		if n := len(m.Young) + len(m.Old); n > 2*most {
			t.Fatalf("%d keys after %d, want %d at most", n, key+1, 2*most)
		}
		for back := uint64(0); back < most && back <= key; back++ {
			if v := m.Find(key - back); v == nil || v.n != key-back {
				t.Fatalf("the key before the last %d: %v", back, v)
			}
		}
		if key >= 2*most && m.Find(key-2*most) != nil {
			t.Fatalf("after %d the key %d before it is still there", key, 2*most)
		}
	}
}

func TestAKeyThatIsUsedAgainStaysAndOthersAreNotForgottenForIt(t *testing.T) {
	const most = 10
	var m recent.Map[value]
	for key := uint64(0); key < 2*most; key++ {
		m.Use(key, most).n = key
	}
	for i := 0; i < 3; i++ { // the young ones
		for key := uint64(most); key < 2*most; key++ {
			m.Use(key, most)
		}
	}
	if v := m.Find(0); v == nil || len(m.Young) != most || len(m.Old) != most {
		t.Fatalf("%v, %d young and %d old keys", v, len(m.Young), len(m.Old))
	}
	if v := m.Use(0, most); v.n != 0 || m.Find(1) != nil || m.Find(most) == nil {
		t.Errorf("an old key that is used is not the only young one: %v, %v, %v", v, m.Find(1), m.Find(most))
	}
	first := m.Find(most)
	if m.Use(most, most) != first {
		t.Error("an old key that is used has a new value")
	}
	m.Delete(0)
	m.Delete(most)
	if m.Find(0) != nil || m.Find(most) != nil {
		t.Error("a key that was deleted is still there")
	}
}
