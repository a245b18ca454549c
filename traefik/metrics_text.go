package traefik

import (
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/redis"
)

// writeMetrics returns the metrics of the process in Prometheus's text format, version 0.0.4.
func (g *registry) writeMetrics() []byte {
	s := g.observe()
	b := make([]byte, 0, 4096+1024*len(s.rules))
	b = appendRequests(b, s)
	b = appendCompared(b, s)
	b = appendDurations(b, s, g.metrics)
	b = appendFamily(b, "weir_store_errors_total", "counter", "Failures of the store in Redis, by kind.")
	for i := range failureKinds {
		b = appendSample(b, `weir_store_errors_total{kind="`+failureKinds[i]+`"} `, atomic.LoadInt64(&g.metrics.failures[i]))
	}
	b = appendBreakers(b, s)
	b = appendMemory(b, s)
	b = appendLeases(b, s)
	if s.syncs.Rounds > 0 {
		b = appendFamily(b, redis.SyncAge, "gauge", redis.SyncAgeHelp)
		b = append(b, redis.SyncAge+" "+inSeconds(time.Duration(s.syncs.Age)*time.Microsecond)+"\n"...)
	}
	b = appendNumbers(b, s, "weir_penalties_total", "counter", "Keys that were blocked for exceeding a rule's limit.", func(r *series) int64 {
		if !r.penalties {
			return isNot
		}
		return atomic.LoadInt64(&r.meter.penalty)
	})
	b = appendNumbers(b, s, "weir_waiting", "gauge", "Requests that wait now until a rule's limit admits them.", func(r *series) int64 {
		return atomic.LoadInt64(&r.meter.waiting)
	})
	b = appendNumbers(b, s, "weir_limit", "gauge", "Requests that a rule's own limit allows in a period, or that may be under way at a time.", ownLimit)
	b = appendNumbers(b, s, "weir_limit_configured", "gauge", "The same as weir_limit, as the configuration has it, whatever advice has made of it.", configuredLimit)
	b = appendPeriods(b, s)
	b = appendAdvice(b, g.adviceNow(s.advised), g.unixNow())
	return appendGuards(b, s, guardNow(g))
}

// isNot is the value of a number that a rule does not have.
const isNot = -1

// appendNumbers appends a family with one number for each rule that has it.
func appendNumbers(b []byte, s *snapshot, name, kind, help string, of func(r *series) int64) []byte {
	begun := false
	for _, r := range s.rules {
		n := of(r)
		if n == isNot {
			continue
		}
		if !begun {
			begun = true
			b = appendFamily(b, name, kind, help)
		}
		b = appendSample(b, name+`{rule="`+r.meter.label+`"} `, n)
	}
	return b
}

// appendFamily appends the HELP and TYPE lines of a family.
func appendFamily(b []byte, name, kind, help string) []byte {
	b = append(b, "# HELP "+name+" "+help+"\n# TYPE "+name+" "...)
	b = append(b, kind...)
	return append(b, '\n')
}

// appendSample appends a sample: series is its name with its labels, and a space.
func appendSample(b []byte, series string, value int64) []byte {
	b = append(b, series...)
	b = strconv.AppendInt(b, value, 10)
	return append(b, '\n')
}

func appendRequests(b []byte, s *snapshot) []byte {
	b = appendFamily(b, "weir_requests_total", "counter", "Requests that a rule covered, by outcome.")
	for _, r := range s.rules {
		begin := `weir_requests_total{rule="` + r.meter.label + `",outcome="`
		for i := range front.OutcomeNames {
			b = appendSample(b, begin+front.OutcomeNames[i]+`"} `, atomic.LoadInt64(&r.meter.requests[i]))
		}
	}
	return b
}

func appendCompared(b []byte, s *snapshot) []byte {
	begun := false
	for _, r := range s.rules {
		if !r.candidate {
			continue
		}
		if !begun {
			begun = true
			b = appendFamily(b, "weir_candidate_decisions_total", "counter", "Requests that a rule with a candidate covered, by the decisions of its limit and of the candidate.")
		}
		begin := `weir_candidate_decisions_total{rule="` + r.meter.label + `",`
		for i := range front.ComparisonWords {
			decided := `limit="` + front.ComparisonWords[i][0] + `",candidate="` + front.ComparisonWords[i][1] + `"} `
			b = appendSample(b, begin+decided, atomic.LoadInt64(&r.meter.compared[i]))
		}
	}
	return b
}

const durationName = "weir_decision_duration_seconds"

var durationHelp = "How long decisions take, by the store. One decision in " + strconv.Itoa(core.TimedShare) + " is timed and counted here: the proportions are those of all."

func appendDurations(b []byte, s *snapshot, p *processMetrics) []byte {
	if !s.inMemory && !s.redis {
		return b
	}
	b = appendFamily(b, durationName, "histogram", durationHelp)
	if s.inMemory {
		b = appendHistogram(b, "memory", p.memory)
	}
	if s.redis {
		b = appendHistogram(b, "redis", p.redis)
	}
	return b
}

func appendHistogram(b []byte, store string, d *core.Durations) []byte {
	counts, sum := d.Read()
	begin := durationName + `_bucket{store="` + store + `",le="`
	for i := range core.DurationBounds {
		b = appendSample(b, begin+inSeconds(time.Duration(core.DurationBounds[i]))+`"} `, counts[i])
	}
	all := counts[len(counts)-1]
	b = appendSample(b, begin+`+Inf"} `, all)
	b = append(b, durationName+`_sum{store="`+store+`"} `+inSeconds(sum)+"\n"...)
	return appendSample(b, durationName+`_count{store="`+store+`"} `, all)
}

// inSeconds writes a duration as Prometheus's own libraries do.
func inSeconds(d time.Duration) string { return strconv.FormatFloat(float64(d)/1e9, 'g', -1, 64) }

// escaped escapes the value of a label. (Names of rules and namespaces do not need it.)
var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func appendBreakers(b []byte, s *snapshot) []byte {
	if len(s.breakers) == 0 {
		return b
	}
	b = appendFamily(b, "weir_breaker_open", "gauge", "Whether the circuit breaker of a Redis server is open, so that it gets no requests: 1, or 0 if it is closed.")
	names := make([]string, 0, len(s.breakers))
	for name := range s.breakers {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		open := int64(0)
		if s.breakers[name] {
			open = 1
		}
		b = appendSample(b, `weir_breaker_open{server="`+escaped.Replace(name)+`"} `, open)
	}
	return b
}

func appendMemory(b []byte, s *snapshot) []byte {
	b = appendNumbers(b, s, "weir_keys", "gauge", "Keys of a rule in memory.", func(r *series) int64 {
		if !r.inMemory {
			return isNot
		}
		return r.keys(s.memory)
	})
	b = appendFamily(b, "weir_max_keys", "gauge", "How many keys the memory holds at most, of all rules.")
	b = appendSample(b, "weir_max_keys ", int64(s.maxKeys))
	b = appendFamily(b, "weir_evictions_total", "counter", "Keys that were evicted from memory while they still counted, since it was full.")
	return appendSample(b, "weir_evictions_total ", s.evicted)
}

// appendLeases appends the metrics of leases, if any rule is leased.
func appendLeases(b []byte, s *snapshot) []byte {
	without := len(b)
	b = appendNumbers(b, s, redis.LeaseUnits.Name, "gauge", redis.LeaseUnits.Help, func(r *series) int64 {
		units, leased := s.leases.HeldOf(r.inRedis)
		if !leased {
			return isNot
		}
		return units
	})
	if len(b) == without {
		return b
	}
	b = appendOutcomes(b, redis.LeaseRequests, s.leases.Requests())
	return appendOutcomes(b, redis.LeaseCalls, s.leases.Calls())
}

func appendOutcomes(b []byte, m redis.LeaseMetric, list []redis.LeaseCount) []byte {
	b = appendFamily(b, m.Name, "counter", m.Help)
	for i := range list {
		b = appendSample(b, m.Name+`{outcome="`+list[i].Outcome+`"} `, list[i].N)
	}
	return b
}

// ownLimit returns the requests of a rule's own limit in force. A rule that limits only some values or keys has none.
func ownLimit(r *series) int64 {
	if r.own != nil && r.all != nil && atomic.LoadInt32(&r.all.Moved) != 0 {
		return r.all.InForce().Own().Limit().Requests()
	}
	return configuredLimit(r)
}

// configuredLimit is ownLimit of the configured limit.
func configuredLimit(r *series) int64 {
	if r.own == nil {
		return isNot
	}
	if r.own.Blocks() {
		return 0
	}
	return r.own.Limit().Requests()
}

// appendPeriods appends the periods of the rules' own limits.
func appendPeriods(b []byte, s *snapshot) []byte {
	begun := false
	now := time.Now().UnixMicro()
	for _, r := range s.rules {
		if r.own == nil || r.own.Limit().InFlight() {
			continue
		}
		if !begun {
			begun = true
			b = appendFamily(b, "weir_limit_period_seconds", "gauge", "The period of a rule's own limit; of the calendar, the day, week or month that it is.")
		}
		period := r.own.Limit().Period()
		if w := r.own.Limit().Windows(now); w != nil {
			period = w[2] - w[1]
		}
		b = append(b, `weir_limit_period_seconds{rule="`+r.meter.label+`"} `+inSeconds(time.Duration(period)*time.Microsecond)+"\n"...)
	}
	return b
}
