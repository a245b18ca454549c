package traefik

import (
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core/metrics"
)

// writeMetrics returns the metrics of the process in Prometheus's text format, version 0.0.4.
func (g *registry) writeMetrics() []byte {
	s := g.observe()
	p := metrics.NewPage()
	now := time.Now().UnixMicro()
	leased := false
	for _, r := range s.rules {
		r.look(s)
		metrics.AddRule(p, &r.of, now)
		leased = leased || r.of.Units != metrics.Absent
	}
	if s.inMemory {
		metrics.AddDecisions(p, "memory", g.metrics.memory)
	}
	if s.redis {
		metrics.AddDecisions(p, "redis", g.metrics.redis)
	}
	metrics.Each(p, metrics.StoreErrors, metrics.Read(g.metrics.failures))
	names := make([]string, 0, len(s.breakers))
	for name := range s.breakers {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		metrics.Add(p, metrics.BreakerOpen, oneIf(s.breakers[name]), name)
	}
	if leased {
		metrics.Each(p, metrics.LeaseRequests, s.leases.Requests())
		metrics.Each(p, metrics.LeaseCalls, s.leases.Calls())
	}
	if s.syncs.Rounds > 0 {
		metrics.Add(p, metrics.SyncAge, float64(s.syncs.Age)/1e6)
	}
	metrics.Add(p, metrics.MaxKeys, float64(s.maxKeys))
	metrics.Add(p, metrics.Evictions, float64(s.evicted))
	metrics.AddAdvice(p, g.adviceNow(s.advised), g.unixNow())
	for _, one := range s.guards {
		addGuard(p, one, guardNow(g))
	}
	return text(p)
}

// look fills in what a rule of a snapshot is at.
func (r *series) look(s *snapshot) {
	r.of.Waiting = atomic.LoadInt64(&r.of.Meter.Waiting)
	r.of.Keys = metrics.Absent
	if r.inMemory {
		r.of.Keys = r.keys(s.memory)
	}
	r.of.Units = metrics.Absent
	if units, leased := s.leases.HeldOf(r.inRedis); leased {
		r.of.Units = units
	}
	r.of.Own = r.of.Configured
	if r.of.Own != nil && r.all != nil && atomic.LoadInt32(&r.all.Moved) != 0 {
		r.of.Own = r.all.InForce().Own()
	}
}

// adviceNow returns the advice of engines, as metrics show it; nothing of those that have not begun yet.
func (g *registry) adviceNow(engines []*engine) []metrics.Advice {
	g.advices.Lock()
	defer g.advices.Unlock()
	var list []metrics.Advice
	for _, e := range engines {
		a := e.advising
		if a.board == nil {
			continue
		}
		polls := a.polls
		if a.poller != nil {
			polls += a.poller.Health().Polls
		}
		list = append(list, metrics.Advice{Board: a.board, Polls: polls, Applies: e.advisor.Apply})
	}
	return list
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// text writes a page.
func text(p *metrics.Page) []byte {
	b := make([]byte, 0, 65536)
	for _, f := range metrics.Families {
		list := metrics.Of(p, f)
		if len(list) == 0 {
			continue
		}
		b = append(b, "# HELP "+f.Name+" "+f.Help+"\n# TYPE "+f.Name+" "+f.Kind+"\n"...)
		for _, s := range list {
			b = appendSeries(b, f, s)
		}
	}
	return b
}

func appendSeries(b []byte, f *metrics.Family, s *metrics.Series) []byte {
	labels := ""
	before := "{"
	for i, value := range s.Labels {
		labels += before + f.Labels[i].Name + `="` + escaped.Replace(value) + `"`
		before = ","
	}
	if f.Kind == "histogram" {
		return appendHistogram(b, f.Name, labels, s)
	}
	if s.Values != nil {
		last := metrics.Last(f)
		begin := f.Name + labels + before + last.Name + `="`
		for i, n := range s.Values {
			b = append(b, begin+last.Values[i]+`"} `+strconv.FormatInt(n, 10)+"\n"...)
		}
		return b
	}
	if labels != "" {
		labels += "}"
	}
	return append(b, f.Name+labels+" "+number(s.Value)+"\n"...)
}

// escaped escapes the value of a label.
var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func appendHistogram(b []byte, name, labels string, s *metrics.Series) []byte {
	for i, n := range s.Within {
		b = append(b, name+"_bucket"+labels+`,le="`+number(s.Bounds[i])+`"} `+strconv.FormatInt(n, 10)+"\n"...)
	}
	count := strconv.FormatInt(s.Count, 10)
	b = append(b, name+"_bucket"+labels+`,le="+Inf"} `+count+"\n"...)
	b = append(b, name+"_sum"+labels+"} "+number(s.Value)+"\n"...)
	return append(b, name+"_count"+labels+"} "+count+"\n"...)
}

// number writes a number as Prometheus's own libraries do, but whole ones with all digits.
func number(n float64) string {
	if whole := int64(n); n < 1e15 && float64(whole) == n {
		return strconv.FormatInt(whole, 10)
	}
	return strconv.FormatFloat(n, 'g', -1, 64)
}
