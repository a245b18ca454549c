package exception

import (
	"encoding/json"
	"errors"
	"fmt"
	"sort"
)

// The kinds of exceptions.
const (
	Limit  = "limit"
	Block  = "block"
	Forget = "forget" // what nodes remember of the key is no longer true: it lasts some seconds, and is not listed
)

// Exception is what somebody has decided for a key of a rule. Times are in microseconds since the Unix epoch, of the store's clock. It is immutable.
type Exception struct {
	Rule  string `json:"rule"` // with its namespace
	Key   []byte `json:"key"`  // as requests have it
	Kind  string `json:"kind"`
	Limit string `json:"limit,omitempty"` // as ruleset.NewException reads it
	Made  int64  `json:"made"`
	Until int64  `json:"until"`
	Note  string `json:"note,omitempty"`
	By    string `json:"by,omitempty"`
}

// Bounds of what a table holds.
const (
	Most         = 2000 // exceptions
	LongestNote  = 500  // bytes, of Note
	LongestBy    = 100  // bytes, of By
	mostDocument = 16 << 20
)

// id identifies what an exception is about: a later one takes its place.
func (e *Exception) id() string { return e.Kind + "\n" + e.Rule + "\n" + string(e.Key) }

// With returns a list with an exception in the place of the one before it about the same.
func With(list []Exception, e Exception) []Exception {
	return append(Without(list, e.Kind, e.Rule, string(e.Key)), e)
}

// Without returns a list without the exception of that kind for a key of a rule.
func Without(list []Exception, kind, rule, key string) []Exception {
	var kept []Exception
	for i := range list {
		if list[i].Kind != kind || list[i].Rule != rule || string(list[i].Key) != key {
			kept = append(kept, list[i])
		}
	}
	return kept
}

// Find returns the exception of that kind for a key of a rule; nil: there is none.
func Find(list []Exception, kind, rule, key string) *Exception {
	var none *Exception
	for i := range list {
		if list[i].Kind == kind && list[i].Rule == rule && string(list[i].Key) == key {
			return &list[i]
		}
	}
	return none
}

// Lasting returns those of a list that are not over.
func Lasting(list []Exception, now int64) []Exception {
	var kept []Exception
	for i := range list {
		if list[i].Until > now {
			kept = append(kept, list[i])
		}
	}
	return kept
}

// ErrDamaged is wrapped by the errors about what is kept and is no list of exceptions. It adds nothing to their text.
var ErrDamaged = errors.New("")

// document is how a list is kept.
type document struct {
	Exceptions []Exception `json:"exceptions"`
}

// Write returns a list as it is kept.
func Write(list []Exception) ([]byte, error) {
	sorted := append([]Exception(nil), list...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].id() < sorted[j].id() })
	return json.Marshal(document{Exceptions: sorted})
}

// Read reads what Write has written; nothing is an empty list.
func Read(text []byte) ([]Exception, error) {
	var d document
	if len(text) == 0 {
		return d.Exceptions, nil
	}
	if len(text) > mostDocument {
		return d.Exceptions, fmt.Errorf("%w%d bytes are more than exceptions take", ErrDamaged, len(text))
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return d.Exceptions, fmt.Errorf("%w%s", ErrDamaged, err.Error())
	}
	return d.Exceptions, nil
}
