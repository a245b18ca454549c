package simulation

import (
	"math"
	"math/rand/v2"
)

// Policy is what stands in front of the service behind the limits of clients.
type Policy interface {
	// Admit says whether a client's request goes to the service, which it is asked once for each request at its time.
	Admit(t float64, client int) bool

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

// Limits are those of the static configuration: of each client, and of all together, in requests a second, with a burst of two seconds.
type Limits struct{ Client, All float64 }

// Tuned are limits that fit the situation as well as one can who knows it: a quarter more than the largest client has ever sent.
func (s *Situation) Tuned() Limits { return Limits{Client: 1.25 * s.Largest, All: 0.9 * Capacity} }

// Outcome is what has come of a situation's event, in per cent.
type Outcome struct {
	Good     float64 // of the legitimate requests, those that were answered in time
	Rejected float64 // of all attempts of legitimate clients
	Abuse    float64 // of the illegitimate ones, those that reached the service
	P95      float64 // seconds, of the answers to legitimate clients
}

type underWay struct {
	begun float64
	left  bool // at the end: its client
}

type again struct {
	asked  float64
	client int
	until  float64 // it waits for a policy that is Patient, and no longer than this; 0: it is a second try
	work   float64
	tried  bool // it was a second try before it waited
}

// bucket is a token bucket with a burst of two seconds, of ten requests at least.
type bucket struct{ used, at float64 }

func (b *bucket) drained(t, rate float64) float64 { return math.Max(0, b.used-(t-b.at)*rate) }

// Slots are the workers of the service, with one queue: first come, first served. The zero value is idle.
type Slots struct{ free [Workers]float64 }

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
	end = start + work*s.Slowness(start)
	v.free[first] = end
	return end, false
}

// Run plays a situation. The seed is that of the second tries.
func Run(s *Situation, l Limits, p Policy, seed uint64) Outcome {
	r := rand.New(rand.NewPCG(seed, 0xa9a1))
	var upstream Slots
	var tries queue[again]
	var open queue[underWay]
	var answers []float64
	nodes := [3][]bucket{make([]bucket, s.Clients), make([]bucket, s.Clients), make([]bucket, s.Clients)}
	var all [3]bucket
	var legitimate, good, attempts, rejected, abuse, admitted float64
	retry := func(t float64, client int, asked float64, second bool) {
		if !second && r.IntN(2) == 0 {
			tries.push(t+0.5+r.Float64(), again{asked: asked, client: client})
		}
	}
	for i := 0; i < len(s.Arrivals) || len(tries) > 0; {
		var t, asked, work, until float64
		var client int
		second := len(tries) > 0 && (i == len(s.Arrivals) || tries[0].at <= s.Arrivals[i].At)
		if second {
			var a again
			t, a = tries.pop()
			asked, client, until = a.asked, a.client, a.until
			if work = a.work; until == 0 {
				work = s.ServiceTime(r)
			} else {
				second = a.tried
			}
		} else {
			a := s.Arrivals[i]
			i++
			t, asked, client, work = a.At, a.At, int(a.Client), a.Service
		}
		for len(open) > 0 && open[0].at <= t {
			end, u := open.pop()
			if u.left {
				p.Left(end, u.begun)
			} else {
				p.Answered(end, u.begun, false)
			}
		}
		isLegitimate := client < s.Legitimate
		inEvent := asked >= s.Begin && asked < s.End
		if inEvent && until == 0 {
			if !isLegitimate {
				abuse++
			} else {
				attempts++
				if !second {
					legitimate++
				}
			}
		}
		node, part := 0, 1.0
		if s.Outage != "" && t >= s.StoreLost && t < s.Back {
			node, part = 1+r.IntN(2), 2
			if s.Outage == "open" {
				node = -1
			}
		}
		ok := true
		if node >= 0 && until == 0 {
			rate, total := l.Client/part, l.All/part
			one, sum := &nodes[node][client], &all[node]
			used, of := one.drained(t, rate), sum.drained(t, total)
			ok = used+1 <= math.Max(10, 2*rate) && of+1 <= 2*total
			if ok {
				*one, *sum = bucket{used + 1, t}, bucket{of + 1, t}
			} else {
				*one, *sum = bucket{used, t}, bucket{of, t}
				p.Rejected(t, client)
			}
		}
		if ok {
			// What an admission by the limits has charged stays charged: the guard comes behind them.
			if until > 0 {
				ok = p.(Patient).AdmitWaiting(t, client)
			} else {
				ok = p.Admit(t, client)
			}
			if patient, waits := p.(Patient); !ok && waits {
				if until == 0 {
					until = t + patient.Wait()
				}
				if t+looks <= until {
					tries.push(t+looks, again{asked: asked, client: client, until: until, work: work, tried: second})
					continue
				}
			}
		}
		if !ok {
			if isLegitimate && inEvent {
				rejected++
			}
			continue
		}
		if !isLegitimate && inEvent {
			admitted++
		}
		end, refused := upstream.Take(s, t, work)
		if refused {
			p.Answered(t, t, true)
			if isLegitimate {
				retry(t, client, asked, second)
				if inEvent {
					answers = append(answers, Queue)
				}
			}
			continue
		}
		came := t
		if until > 0 {
			came = until - p.(Patient).Wait()
		}
		leaves := isLegitimate && end-came > Patience
		if leaves {
			open.push(came+Patience, underWay{t, true})
		} else {
			open.push(end, underWay{t, false})
		}
		if !isLegitimate {
			continue
		}
		if inEvent {
			answers = append(answers, end-came)
		}
		if leaves {
			retry(came+Patience, client, asked, second)
		} else if inEvent {
			good++
		}
	}
	return Outcome{
		Good: 100 * good / math.Max(1, legitimate), Rejected: 100 * rejected / math.Max(1, attempts), Abuse: 100 * admitted / math.Max(1, abuse),
		P95: quantile(answers, .95),
	}
}
