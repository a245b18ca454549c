package regions

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"
)

// What regions must agree on each tells the others: its courier writes it to the region's log, as a mark of a rule that there is not. Versions before this overlook it.

// ruleOfTerms is the rule of such marks.
const ruleOfTerms = 0x7465726d73

// termsLast is how long a mark of terms is true, in microseconds; it is told again when half of that is over.
const termsLast = 60_000_000

// newsLast is how long nodes go by what their courier has said of settings. A courier that takes over has found them again by then.
const newsLast = 6 * time.Second

// parts of the key of a mark: the share in millionths, and digests of home and of the regions' names.
const (
	ofShare = 1 << 24
	ofHome  = 1 << 16
)

// terms returns the key of the mark that tells the settings.
func (s *Settings) terms() uint64 {
	names := append([]string{s.Region}, s.Names()...)
	sort.Strings(names)
	return (digest(strings.Join(names, " "))*ofHome+digest(s.Home)%ofHome)*ofShare + uint64(s.Part()*1e6+0.5)
}

func digest(text string) uint64 {
	sum := sha256.Sum256([]byte(text))
	return uint64(binary.BigEndian.Uint32(sum[:4]) >> 8)
}

func shareOf(terms uint64) float64 { return float64(terms%ofShare) / 1e6 }

// text returns the settings that all nodes of a region must have in common.
func (s *Settings) text() string {
	text := "region " + s.Region + ", peers " + strings.Join(s.Names(), " ")
	if s.Home != "" {
		text += ", home " + s.Home
	}
	return text + ", share " + strconv.FormatFloat(s.Part(), 'g', 4, 64)
}

// heard returns how settings contradict each other, as a node knows that has heard its courier: the courier's settings in a line, and what it says of other regions.
func (s *Settings) heard(document string) string {
	of, differs, _ := strings.Cut(document, "\n")
	if own := s.text(); document != "" && of != own {
		return "another proxy at this region's Redis has " + of + ", and this one has " + own + ": write the same in all proxies of a region"
	}
	return differs
}

// differs says how the settings contradict what other regions have told, by their names; "": they do not. strange are the regions in whose Redis is the log of another one.
func (s *Settings) differs(told map[string]uint64, strange []string) string {
	own := s.terms()
	var list []string
	sum := s.Part()
	shares := s.Region + " " + strconv.FormatFloat(sum, 'g', 4, 64)
	for _, name := range s.Names() {
		terms, has := told[name]
		if !has {
			continue
		}
		share := shareOf(terms)
		sum += share
		shares += ", " + name + " " + strconv.FormatFloat(share, 'g', 4, 64)
		if terms/ofShare/ofHome != own/ofShare/ofHome {
			list = append(list, name+" has other regions than "+strings.Join(append([]string{s.Region}, s.Names()...), ", ")+": write all others into the peers of each, under the same names")
		} else if s.Home != "" && terms/ofShare != own/ofShare {
			list = append(list, name+" has another home than "+s.Home+": write the same in all regions")
		} else if s.Home != "" && terms != own {
			list = append(list, fmt.Sprintf("%s has share %.4g, and this region %.4g: beside home, write the same in all regions", name, share, s.Part()))
		}
	}
	for _, name := range strange {
		list = append(list, "the Redis that peers give for "+name+" has what another region tells, and nothing of "+name+": write the address of "+name+", or the name that it has as its own region")
	}
	if sum > 1.001 {
		list = append(list, fmt.Sprintf("shares add up to %.4g (%s), and regions that are cut off from each other admit as much of the limit: make it 1", sum, shares))
	}
	return strings.Join(list, "; ")
}
