package ruleset

// Object is what is written of an object of the Schema, by the names of its fields: numbers, durations and the like are texts still, and
// what is not said is missing, or "".
type Object struct {
	Texts map[string]string   // the fields of one value
	Lists map[string][]string // of several
	Pairs map[string][]Pair   // of values by names of their own, in the order in which they are written
}

// Pair is a value with its name: a header field's, or the limit of a tier.
type Pair struct {
	Name, Value string
}

// RuleText is a rule as it is written. Compile says what is wrong with it.
type RuleText struct {
	Name string
	Object
	Objects map[string][]*Object // those in it, by the field: of match, tiers and candidate there is one at most
}

// SetText notes the value of a field.
func SetText(o *Object, field, value string) {
	if o.Texts == nil {
		o.Texts = make(map[string]string)
	}
	o.Texts[field] = value
}

// SetList notes the values of a field.
func SetList(o *Object, field string, values []string) {
	if o.Lists == nil {
		o.Lists = make(map[string][]string)
	}
	o.Lists[field] = values
}

// SetPairs notes the values of a field with their names.
func SetPairs(o *Object, field string, values []Pair) {
	if o.Pairs == nil {
		o.Pairs = make(map[string][]Pair)
	}
	o.Pairs[field] = values
}

// AddObject notes an object of a field.
func AddObject(t *RuleText, field string, o *Object) {
	if t.Objects == nil {
		t.Objects = make(map[string][]*Object)
	}
	t.Objects[field] = append(t.Objects[field], o)
}

// One returns the object of a field that has one at most; nil: there is none.
func One(t *RuleText, field string) *Object {
	list := t.Objects[field]
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// Only returns a rule without a name that says the same of some fields, and nothing of others.
func Only(t *RuleText, fields ...string) *RuleText {
	some := &RuleText{}
	for _, field := range fields {
		if text := t.Texts[field]; text != "" {
			SetText(&some.Object, field, text)
		}
		if list, said := t.Lists[field]; said {
			SetList(&some.Object, field, list)
		}
	}
	return some
}

// Unlimited is written for a limit where there is none: requests that it holds for are not counted.
const Unlimited = "unlimited"

// AnyTier is the name of the tier for all values that have no other.
const AnyTier = "*"

// FieldError says what is wrong with one field of a RuleText.
type FieldError struct {
	Path []string // where it is: the field, and in it the member's name or the item's place
	Text string   // which begins with the field
}

// Error returns the text.
func (e *FieldError) Error() string { return e.Text }
