package front

import "github.com/proxyweir/weir/ruleset"

// mostUnmet is how many values of a descriptor are spoken of.
const mostUnmet = 10

// Unmet is a value in rule files that no request has: hosts, methods and paths are looked up in one spelling.
type Unmet struct {
	Key string // of the entry whose value it is
	Why string
}

// UnmetValues returns the values of a domain that no request has for what descriptors look up there. unmet says why an entry of a
// descriptor, by their places, has no such value; "": it may have it.
func UnmetValues(domain *ruleset.Domain, descriptors []Descriptor, unmet func(line, entry int, value string) string) []Unmet {
	var list []Unmet
	for line, one := range descriptors {
		keys := make([]string, 0, len(one))
		for i := range one {
			keys = append(keys, one[i].Key)
		}
		told := 0
		for i := range one {
			if !one[i].Source.Respells() {
				continue
			}
			for _, value := range domain.Values(keys, i) {
				if told == mostUnmet {
					break
				}
				why := unmet(line, i, value)
				if why != "" && !hasAnother(descriptors, line, i, value, unmet) {
					told++
					list = append(list, Unmet{Key: keys[i], Why: why})
				}
			}
		}
	}
	return list
}

// hasAnother reports whether another descriptor than that of a line has the same keys up to one, and may have the value there; or one in
// front, which has been spoken of.
func hasAnother(descriptors []Descriptor, line, last int, value string, unmet func(line, entry int, value string) string) bool {
	for j := range descriptors {
		if j == line || !sameKeys(descriptors[line], descriptors[j], last) {
			continue
		}
		if j < line || !descriptors[j][last].Source.Respells() || unmet(j, last, value) == "" {
			return true
		}
	}
	return false
}

// sameKeys reports whether two descriptors have the same keys up to one.
func sameKeys(a, b Descriptor, last int) bool {
	for i := 0; i <= last; i++ {
		if i >= len(b) || a[i].Key != b[i].Key {
			return false
		}
	}
	return true
}
