package simulation

import (
	"math"
	"math/rand/v2"
)

// Policy is what stands in front of the service behind the limits of clients.
type Policy interface {
	// Admit says whether a client's request goes to the service, which it is asked once for each request at its time.
	Admit(t float64, client int) bool

	// RetryAfter is when a client may come again whose request Admit has just not let pass, in seconds.
	RetryAfter() float64

	// Rejected says that a client's limit has rejected its request.
	Rejected(t float64, client int)

	// Answered says that a request that was admitted at begun has its answer, or that the service has refused it.
	Answered(t, begun float64, failed bool)

	// Left says that the client of a request that was admitted at begun has left. The service does not notice.
	Left(t, begun float64)
}

// Patient is a Policy that has requests wait for a while before it turns them away.
type Patient interface {
	Policy

	// Wait is how long, in seconds.
	Wait() float64

	// AdmitWaiting is Admit for a request that has waited for a while.
	AdmitWaiting(t float64, client int) bool
}

// looks is how often a request that waits is looked at, in seconds.
const looks = 0.002

// Outcome is what has come of a situation's event.
type Outcome struct {
	Good     float64 // of the legitimate requests, those that were answered in time, in per cent
	Rejected float64 // of all attempts of legitimate clients, those that a limit or the policy turned away, in per cent
	Away     float64 // of all attempts of legitimate clients, those that the policy turned away, in per cent: a part of Rejected
	Abuse    float64 // of the illegitimate ones, those that reached the service, in per cent
	Refused  float64 // of what reached the service, what that refused, in per cent
	Mean     float64 // of the times of the answers to legitimate clients, also of those that came too late, in seconds
	P95, P99 float64
	Changes  float64 // of limits, by an Adviser, an hour
}

type underWay struct {
	begun float64
	left  bool // at the end: its client
}

// attempt is one that a client makes.
type attempt struct {
	asked  float64 // when its request was sent first
	came   float64 // when it was sent
	client int
	second bool    // it is a second try
	work   float64 // as Arrival has it
	passed bool    // the limits have allowed it
	until  float64 // it waits for a policy that is Patient, and no longer than this; 0: it does not
}

// Slots are the workers of the service, with one queue: first come, first served. The zero value is idle.
type Slots struct {
	free [Workers]float64
	cpu  cpu
}

// Take returns when a request that comes at t is answered, or that it is refused. work is how long the service works on it at its usual speed.
func (v *Slots) Take(s *Situation, t, work float64) (end float64, refused bool) {
	first := 0
	for i := range v.free {
		if v.free[i] < v.free[first] {
			first = i
		}
	}
	start := math.Max(t, v.free[first])
	if start-t > Queue {
		return 0, true
	}
	slowness := s.Slowness(start)
	if s.Background != nil {
		slowness *= v.cpu.begin(s.Background, start)
	}
	end = start + work*slowness
	v.free[first] = end
	return end, false
}

// Run plays a situation. The seed is that of the second tries. An Adviser may move the limits; nil: they stay.
func Run(s *Situation, limits Limits, p Policy, adviser Adviser, seed uint64) Outcome {
	r := rand.New(rand.NewPCG(seed, 0xa9a1))
	var upstream Slots
	var waiting queue[attempt]
	var open queue[underWay]
	var answers []float64
	keys := keysOf(s.Clients)
	shared, nodes := newLimiter(1), [2]*limiter{newLimiter(0.5), newLimiter(0.5)}
	set := func(l Limits) {
		shared.set(l)
		for _, n := range nodes {
			n.set(l)
		}
	}
	set(limits)
	var legitimate, good, attempts, rejected, away, abuse, admitted, refused, reached, changes float64
	retry := func(t float64, a attempt) {
		if !a.second && r.IntN(2) == 0 {
			t += 0.5 + r.Float64()
			waiting.push(t, attempt{asked: a.asked, came: t, client: a.client, second: true})
		}
	}
	insist := func(t float64, a attempt, retryAfter float64) {
		if s.Insists == 0 || a.client >= s.Legitimate || a.second || r.Float64() >= s.Insists {
			return
		}
		if t += 0.5 + r.Float64(); r.IntN(2) == 0 {
			t += retryAfter
		}
		waiting.push(t, attempt{asked: a.asked, came: t, client: a.client, second: true})
	}
	asked, nextAdvice := 0, math.Inf(1)
	if adviser != nil {
		nextAdvice = adviser.Interval()
	}
	told, isTold := p.(Told)
	nextTold := toldEach
	for i := 0; i < len(s.Arrivals) || len(waiting) > 0; {
		var t float64
		var a attempt
		if len(waiting) > 0 && (i == len(s.Arrivals) || waiting[0].at <= s.Arrivals[i].At) {
			if t, a = waiting.pop(); a.work == 0 {
				a.work = s.ServiceTime(r)
			}
		} else {
			t = s.Arrivals[i].At
			a = attempt{asked: t, came: t, client: int(s.Arrivals[i].Client), work: s.Arrivals[i].Service}
			i++
		}
		for len(open) > 0 && open[0].at <= t {
			end, u := open.pop()
			if u.left {
				p.Left(end, u.begun)
			} else {
				p.Answered(end, u.begun, false)
			}
		}
		for ; isTold && t >= nextTold; nextTold += toldEach {
			told.Tell(nextTold, upstream.Load(nextTold))
		}
		for t >= nextAdvice {
			if l := adviser.Advise(nextAdvice, asked); l != limits {
				limits = l
				set(l)
				changes++
			}
			asked = 0
			nextAdvice += adviser.Interval()
		}
		isLegitimate := a.client < s.Legitimate
		inEvent := a.asked >= s.Begin && a.asked < s.End
		if a.came == t { // and it has not waited
			asked++
			if inEvent {
				if !isLegitimate {
					abuse++
				} else {
					attempts++
					if !a.second {
						legitimate++
					}
				}
			}
		}
		ok, retryAfter := true, 0.0
		if !a.passed {
			by := shared
			if s.Outage != "" && t >= s.StoreLost && t < s.Back {
				if by = nodes[r.IntN(2)]; s.Outage == "open" {
					by = nil
				}
			}
			if by != nil {
				var wait float64
				if wait, ok = by.take(t, keys[a.client]); !ok {
					p.Rejected(t, a.client)
					retryAfter = wait
				} else if wait > 0 {
					a.passed = true
					waiting.push(t+wait, a)
					continue
				}
			}
			a.passed = true
		}
		if ok && isLegitimate && t-a.came >= Patience { // it has left while it waited for a limit
			retry(t, a)
			continue
		}
		allowed := ok // by the limits
		if ok {
			// What an admission by the limits has charged stays charged: the guard comes behind them.
			if a.until > 0 {
				ok = p.(Patient).AdmitWaiting(t, a.client)
			} else {
				ok = p.Admit(t, a.client)
			}
			if patient, waits := p.(Patient); !ok && waits {
				if a.until == 0 {
					a.until = t + patient.Wait()
				}
				if t+looks <= a.until {
					waiting.push(t+looks, a)
					continue
				}
			}
			if !ok {
				retryAfter = p.RetryAfter()
			}
		}
		if !ok {
			insist(t, a, retryAfter)
			if inEvent && isLegitimate {
				rejected++
				if allowed {
					away++
				}
			}
			continue
		}
		if inEvent {
			reached++
			if !isLegitimate {
				admitted++
			}
		}
		end, isRefused := upstream.Take(s, t, a.work)
		if isRefused {
			p.Answered(t, t, true)
			if inEvent {
				refused++
			}
			if isLegitimate {
				retry(t, a)
				if inEvent {
					answers = append(answers, Queue)
				}
			}
			continue
		}
		leaves := isLegitimate && end-a.came > Patience
		if leaves {
			open.push(a.came+Patience, underWay{t, true})
		} else {
			open.push(end, underWay{t, false})
		}
		if !isLegitimate {
			continue
		}
		if inEvent {
			answers = append(answers, end-a.came)
		}
		if leaves {
			retry(a.came+Patience, a)
		} else if inEvent {
			good++
		}
	}
	mean := 0.0
	for _, a := range answers {
		mean += a / float64(len(answers))
	}
	return Outcome{
		Good: share(good, legitimate), Rejected: share(rejected, attempts), Away: share(away, attempts), Abuse: share(admitted, abuse),
		Refused: share(refused, reached), Mean: mean, P95: quantile(answers, .95), P99: quantile(answers, .99), Changes: changes / s.Length * 3600,
	}
}

func share(n, all float64) float64 { return 100 * n / math.Max(1, all) }
