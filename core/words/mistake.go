package words

import (
	"errors"
	"fmt"
	"strings"
)

// Mistake is what is wrong with one setting, as a value. It has the names that rule files have; each configuration writes its own sentence
// from it, by In. The zero value is not valid: Wrong makes one.
type Mistake struct {
	Path []string // the setting, and in it the member's name or the item's place; see Where

	// At leads to what is wrong: `tiers: "pro": limit "100"` is the objects around a setting, and the setting with its value.
	At []Part

	// Says is what is wrong and what would be right. It tells kinds of mistakes apart: what differs among those of one kind are Args, of
	// fmt's verbs in it. Names of settings, and whatever else configurations say in their own way, are in backquotes. It follows a colon,
	// unless it begins with a space.
	Says string
	Args []interface{} // of predeclared types: an interpreter formats no others here

	Meant string // what was probably meant in place of the value, see Guess; "": unknown
}

// Part is a setting and its value as a sentence quotes it. Either may be "".
type Part struct {
	Name, Value string
}

// Wrong returns what is wrong with a setting, or with its value alone.
func Wrong(name, value, says string, args ...interface{}) *Mistake {
	m := &Mistake{Says: says, Args: args}
	if name+value != "" {
		m.At = []Part{{name, value}}
	}
	return m
}

// Of returns the Mistake that an error is or wraps. Of any other error it makes one.
func Of(err error) *Mistake {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if m, is := e.(*Mistake); is { //nolint:errorlint // the interpreter has no errors.As
			return m
		}
	}
	return &Mistake{Says: "%s", Args: []interface{}{err.Error()}}
}

// Within returns the mistake as one inside of an object or value.
func (m *Mistake) Within(name, value string) *Mistake {
	inner := *m
	if name+value != "" {
		inner.At = append([]Part{{name, value}}, m.At...)
	}
	return &inner
}

// Named returns the mistake with another name for the first of its parts.
func (m *Mistake) Named(name string) *Mistake {
	other := *m
	other.At = append([]Part(nil), m.At...)
	other.At[0].Name = name
	return &other
}

// Guess adds what was probably meant; "" is nothing.
func (m *Mistake) Guess(word string) *Mistake {
	if word != "" {
		m.Meant = word
		m.And(" (did you mean %s?)", word)
	}
	return m
}

// And goes on with the sentence.
func (m *Mistake) And(says string, args ...interface{}) *Mistake {
	m.Says += says
	m.Args = append(m.Args, args...)
	return m
}

// Where returns the Path, or if there is none the names in At.
func (m *Mistake) Where() []string {
	path := m.Path
	for i := 0; i < len(m.At) && len(m.Path) == 0; i++ {
		if m.At[i].Name != "" {
			path = append(path, m.At[i].Name)
		}
	}
	return path
}

// Error writes the mistake in the words of rule files.
func (m *Mistake) Error() string { return m.In(func(name string) string { return name }) }

// In writes the mistake in the words of a configuration: name returns its name for a setting, or for something else in backquotes.
func (m *Mistake) In(name func(string) string) string {
	var parts []string
	for i := range m.At {
		parts = append(parts, strings.TrimSpace(name(m.At[i].Name)+" "+m.At[i].Value))
	}
	says := strings.Split(m.Says, "`")
	for i := 1; i < len(says); i += 2 {
		says[i] = name(says[i])
	}
	said := fmt.Sprintf(strings.Join(says, ""), m.Args...)
	if strings.HasPrefix(m.Says, " ") {
		return strings.Join(parts, ": ") + said
	}
	return strings.Join(append(parts, said), ": ")
}
