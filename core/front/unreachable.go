package front

import "github.com/proxyweir/weir/core/ruleset"

// mostUnreachable is the most values of a descriptor that are reported.
const mostUnreachable = 10

// Unreachable is a value in rule files that no request has, since hosts, methods and paths are looked up in their canonical spelling.
type Unreachable struct {
	Key string // of the entry whose value it is
	Why string
}

// UnreachableValues returns the values of a domain that descriptors look up and no request has. unreachable says why an entry of a
// descriptor, both given by their places, cannot have a value; "": it may have it.
func UnreachableValues(domain *ruleset.Domain, descriptors []Descriptor, unreachable func(line, entry int, value string) string) []Unreachable {
	var list []Unreachable
	for line, one := range descriptors {
		keys := make([]string, 0, len(one))
		for i := range one {
			keys = append(keys, one[i].Key)
		}
		told := 0
		for i := range one {
			if !one[i].Source.Rewrites() {
				continue
			}
			for _, value := range domain.Values(keys, i) {
				if told == mostUnreachable {
					break
				}
				why := unreachable(line, i, value)
				if why != "" && !hasAnother(descriptors, line, i, value, unreachable) {
					told++
					list = append(list, Unreachable{Key: keys[i], Why: why})
				}
			}
		}
	}
	return list
}

// hasAnother reports whether a descriptor other than that of a line has the same keys up to one, and may have the value there, or whether an
// earlier one has, which is reported already.
func hasAnother(descriptors []Descriptor, line, last int, value string, unreachable func(line, entry int, value string) string) bool {
	for j := range descriptors {
		if j == line || !sameKeys(descriptors[line], descriptors[j], last) {
			continue
		}
		if j < line || !descriptors[j][last].Source.Rewrites() || unreachable(j, last, value) == "" {
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
