package must

import (
	"errors"
	"testing"
)

// ended is a test that notes how it ends.
type ended struct {
	testing.TB
	with []any
}

func (e *ended) Helper()            {}
func (e *ended) Fatal(words ...any) { e.with = words }

func TestAnErrorEndsTheTest(t *testing.T) {
	e, broken := &ended{}, errors.New("it broke")
	Succeed(e, nil)
	if e.with != nil {
		t.Errorf("without an error it ends with %v", e.with)
	}
	if Succeed(e, broken); len(e.with) != 1 || e.with[0] != broken {
		t.Errorf("at an error it ends with %v", e.with)
	}
}
