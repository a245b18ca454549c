package traefik

import (
	"fmt"
	"sort"
)

// report is what the log says of a rule once a minute. It sums up all engines of its middleware in that minute, since those that
// ended at a reload have counted for a part of it, too.
type report struct {
	middleware string
	rule       string
	shadowed   int64 // requests that it would have rejected as a shadow
	delayed    int64 // and those that it would have made wait
	requests   int64 // those on which its limit and its candidate were compared
	stricter   int64
	laxer      int64
}

// line is one of the log's.
type line struct {
	middleware string
	message    string
	warns      bool // else it only informs
}

// reportShadows writes to the log what shadow rules would have rejected, and how candidates would have decided differently, since it
// was last called.
func (g *registry) reportShadows() {
	for _, l := range g.takeReports() {
		if l.warns {
			warn(l.middleware, l.message)
		} else {
			inform(l.middleware, l.message)
		}
	}
}

// takeReports returns the lines that reportShadows writes, and resets the counts.
func (g *registry) takeReports() []line {
	reports := make(map[string]*report)
	for _, e := range g.engines {
		e.inForce().addTo(reports, e.name)
	}
	order := make([]string, 0, len(reports))
	for id := range reports {
		order = append(order, id)
	}
	sort.Strings(order)
	var lines []line
	for _, id := range order {
		r := reports[id]
		if r.shadowed > 0 {
			lines = append(lines, line{r.middleware, fmt.Sprintf("rule %q, a shadow, would have rejected %d requests in the last minute", r.rule, r.shadowed), true})
		}
		if r.delayed > 0 {
			lines = append(lines, line{r.middleware, fmt.Sprintf("rule %q, a shadow, would have delayed %d requests in the last minute", r.rule, r.delayed), true})
		}
		if r.stricter+r.laxer > 0 {
			text := fmt.Sprintf("rule %q, of %d requests in the last minute: the candidate would have rejected %d that the limit allowed, and allowed %d that it rejected",
				r.rule, r.requests, r.stricter, r.laxer)
			lines = append(lines, line{r.middleware, text, false})
		}
	}
	return lines
}

// addTo adds the counts of a set to the reports, and resets them.
func (s *ruleSet) addTo(reports map[string]*report, middleware string) {
	for name, t := range s.tallies {
		id := middleware + "\n" + name
		r := reports[id]
		if r == nil {
			r = &report{middleware: middleware, rule: name}
			reports[id] = r
		}
		r.shadowed += t.shadowed.Swap(0)
		r.delayed += t.delayed.Swap(0)
		r.requests += t.requests.Swap(0)
		r.stricter += t.stricter.Swap(0)
		r.laxer += t.laxer.Swap(0)
	}
}
