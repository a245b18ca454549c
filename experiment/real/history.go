package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/proxyweir/weir/experiment/simulation"
)

// daysOfHistory is how many days a Prometheus has of a scenario before the cell begins.
const daysOfHistory = 14

// everyHistory is how many seconds lie between two values of a history.
const everyHistory = 10

// counted is what a proxy would have counted in ten seconds.
type counted struct {
	requests int
	keys     []int   // how many keys asked for at most 1, 2, 4 and so on, in the order of demandBounds
	active   int     // keys with a request
	top      float64 // the part of the ten keys with the most
}

// demandBounds are those of weir_key_demand.
var demandBounds = func() []int {
	var list []int
	for n := 1; n <= 16384; n *= 2 {
		list = append(list, n)
	}
	return list
}()

var (
	histories   = map[string][][]counted{}
	historiesMu sync.Mutex
)

// historyOf returns the days of a scenario, which are the same for all its cells.
func historyOf(p scenario) ([][]counted, error) {
	historiesMu.Lock()
	defer historiesMu.Unlock()
	if days, ok := histories[p.name]; ok {
		return days, nil
	}
	var days [][]counted
	for number := range daysOfHistory {
		arrivals, length, err := p.day(number)
		if err != nil {
			return nil, err
		}
		days = append(days, countedOf(arrivals, length))
	}
	histories[p.name] = days
	return days, nil
}

func countedOf(arrivals []simulation.Arrival, length float64) []counted {
	windows := make([]map[int32]int, int(length/everyHistory))
	for i := range windows {
		windows[i] = map[int32]int{}
	}
	for _, a := range arrivals {
		if i := int(a.At / everyHistory); i < len(windows) {
			windows[i][a.Client]++
		}
	}
	var list []counted
	for _, w := range windows {
		c := counted{keys: make([]int, len(demandBounds)), active: len(w)}
		var demands []int
		for _, n := range w {
			c.requests += n
			demands = append(demands, n)
			for i, bound := range demandBounds {
				if n <= bound {
					c.keys[i]++
				}
			}
		}
		slices.Sort(demands)
		most := 0
		for _, n := range demands[max(0, len(demands)-10):] {
			most += n
		}
		c.top = float64(most) / float64(max(1, c.requests))
		list = append(list, c)
	}
	return list
}

// openMetrics writes days in the format of OpenMetrics, as a proxy would have told them with a rule of that label. They end where, on the day of the
// cell, it is the time ends of the day: so many seconds, which are now.
func openMetrics(days [][]counted, label string, ends float64, now time.Time) string {
	var all []counted
	for _, day := range days {
		all = append(all, day...)
	}
	today := min(int(ends/everyHistory), len(days[0]))
	all = append(all, days[len(days)-1][:today]...) // of today, what yesterday had
	var requests, active, top, sums strings.Builder
	buckets := make([]strings.Builder, len(demandBounds)+1)
	counts := make([]int, len(demandBounds)+1)
	total := 0
	labels := fmt.Sprintf(`job="proxy",instance="history",rule=%q`, label)
	begin := now.Add(-time.Duration(len(all)*everyHistory) * time.Second).Unix()
	for i, c := range all {
		at := strconv.FormatInt(begin+int64(i*everyHistory), 10)
		total += c.requests
		fmt.Fprintf(&requests, "weir_requests_total{outcome=\"allowed\",%s} %d %s\n", labels, total, at)
		fmt.Fprintf(&active, "weir_active_keys{%s} %d %s\n", labels, c.active, at)
		fmt.Fprintf(&top, "weir_top_keys_share{keys=\"10\",%s} %.4f %s\n", labels, c.top, at)
		fmt.Fprintf(&sums, "weir_key_demand_sum{%s} %d %s\n", labels, total, at)
		for j := range buckets {
			bound := "+Inf"
			if j < len(demandBounds) {
				counts[j] += c.keys[j]
				bound = strconv.Itoa(demandBounds[j]) + ".0"
			} else {
				counts[j] += c.active
			}
			fmt.Fprintf(&buckets[j], "weir_key_demand_bucket{le=%q,%s} %d %s\n", bound, labels, counts[j], at)
		}
	}
	var b strings.Builder
	b.WriteString("# TYPE weir_key_demand histogram\n")
	for j := range buckets {
		b.WriteString(buckets[j].String())
	}
	b.WriteString(sums.String())
	fmt.Fprintf(&b, "# TYPE weir_requests counter\n%s# TYPE weir_active_keys gauge\n%s# TYPE weir_top_keys_share gauge\n%s# EOF\n", requests.String(), active.String(), top.String())
	return b.String()
}
