package main

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/proxyweir/weir/experiment/simulation"
)

// run is what a run is made of. Runs of the same situation, sigma and seed get the same requests, whatever the arm.
type run struct {
	Situation string  `json:"situation"`
	Sigma     float64 `json:"sigma"` // 0: exponential service times; else log-normal ones, as simulation.New has it
	Seed      uint64  `json:"seed"`
	Arm       string  `json:"arm"`
}

func (r run) String() string {
	return fmt.Sprintf("%s, sigma %v, seed %d, %s", r.Situation, r.Sigma, r.Seed, r.Arm)
}

// result is what a run has come to. It counts the requests of the event, not those of the calm before it. Shares are in per cent, times in
// milliseconds.
type result struct {
	run
	Legitimate int     `json:"legitimate"` // requests of legitimate clients, without second tries
	Good       float64 `json:"good"`       // the share of them that was answered within a second of the first try, or of the second
	GoodAgain  float64 `json:"good_again"` // the part of that share which the second tries make
	TurnedAway int     `json:"turned_away"`
	Refused    int     `json:"refused"`
	Left       int     `json:"left"`
	P50        float64 `json:"p50"` // of the answers to legitimate clients that came in time
	P95        float64 `json:"p95"`
	Abuse      float64 `json:"abuse"`               // the share of the other requests that the service got
	Simulated  float64 `json:"simulated,omitempty"` // Good in the simulation; 0 if that does not have the arm

	Lag        float64        `json:"lag"`         // by how much a request was sent late, at most
	ServiceLag float64        `json:"service_lag"` // by how much the service was late with an answer
	Failed     map[string]int `json:"failed,omitempty"`
	Disturbed  bool           `json:"disturbed,omitempty"`
	Profile    []moment       `json:"profile,omitempty"`
}

// moment is a second of a run.
type moment struct {
	Second     int                `json:"second"` // since the beginning of the event
	Legitimate int                `json:"legitimate"`
	Good       int                `json:"good"`
	TurnedAway int                `json:"turned_away"`
	Left       int                `json:"left"`
	Refused    int                `json:"refused"`
	Guard      map[string]float64 `json:"guard,omitempty"` // its metrics, at the beginning of the second
}

// mostLag is by how much a request or an answer may be late; beyond it the machine has disturbed the run.
const mostLag = 50 * time.Millisecond

// settings are those of all runs.
type settings struct {
	calm, length float64 // seconds
	watch        bool    // profiles are wanted
}

// prepared is what runs of the same situation, sigma and seed share.
type prepared struct {
	situation *simulation.Situation
	requests  []request
}

func prepare(r run, o settings) (prepared, error) {
	p, err := pieceOf(r.Situation)
	if err != nil {
		return prepared{}, err
	}
	s := p.cut(r.Seed, r.Sigma, o.calm, o.length)
	return prepared{s, requestsOf(s, r.Seed)}, nil
}

// play plays a run.
func play(ctx context.Context, r run, with prepared, o settings) (result, error) {
	s := with.situation
	folder, err := os.MkdirTemp("", "experiment")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(folder)
	v, err := newService(s)
	if err != nil {
		return result{}, err
	}
	defer v.stop()
	front, err := startProxy(folder, r.Arm, v.address())
	if err != nil {
		return result{}, err
	}
	if _, err := scrape(ctx, front.metrics); err != nil { // which waits until Caddy serves
		return result{}, fmt.Errorf("%w: %v", err, front.stop())
	}
	l := newLoad(front.address, s.Clients)
	begin := time.Now().Add(100 * time.Millisecond)
	v.beginAt(begin)
	var watching sync.WaitGroup
	watched, stop := context.WithCancel(ctx)
	seen := map[int]map[string]float64{}
	if o.watch {
		watching.Go(func() { watch(watched, front.metrics, begin.Add(seconds(s.Begin)), seen) })
	}
	attempts := l.play(ctx, begin, with.requests)
	stop()
	watching.Wait()
	if err := front.stop(); err != nil {
		return result{}, err
	}
	if err := ctx.Err(); err != nil {
		return result{}, err
	}
	found := summarize(r, attempts)
	found.Lag, found.ServiceLag = float64(l.latest.Load())/1e6, float64(v.latest.Load())/1e6
	found.Disturbed = l.latest.Load() > int64(mostLag) || v.latest.Load() > int64(mostLag)
	if len(l.errors) > 0 {
		found.Failed = l.errors
	}
	if o.watch {
		found.Profile = profileOf(attempts, s.Begin, seen)
	}
	return found, nil
}

// simulated returns what the simulation finds of the same requests; 0 for arms that it does not have.
func simulated(s *simulation.Situation, r run) float64 {
	var policy simulation.Policy
	switch r.Arm {
	case "none":
		policy = simulation.None{}
	case "cap":
		policy = &simulation.Cap{Most: 48}
	case "guard":
		policy = simulation.NewGuarded(128)
	default:
		return 0
	}
	return simulation.Run(s, simulation.Limits{}, policy, nil, r.Seed).Good
}

// summarize counts what has become of the requests of the event.
func summarize(r run, attempts []attempt) result {
	found := result{run: r}
	var good, again, abuse, reached int
	var times []float64
	for _, a := range attempts {
		if !a.of.counted {
			continue
		}
		if !a.of.legitimate {
			abuse++
			if a.what == answered || a.what == refused {
				reached++
			}
			continue
		}
		if !a.again {
			found.Legitimate++
		}
		switch a.what {
		case answered:
			good++
			times = append(times, float64(a.took.Microseconds())/1e3)
			if a.again {
				again++
			}
		case turnedAway:
			found.TurnedAway++
		case refused:
			found.Refused++
		case left:
			found.Left++
		}
	}
	found.Good, found.GoodAgain, found.Abuse = share(good, found.Legitimate), share(again, found.Legitimate), share(reached, abuse)
	slices.Sort(times)
	if n := len(times); n > 0 {
		found.P50, found.P95 = times[n/2], times[n*95/100]
	}
	return found
}

// share returns n of all, in per cent, to a thousandth.
func share(n, all int) float64 {
	if all == 0 {
		return 0
	}
	return math.Round(1e5*float64(n)/float64(all)) / 1e3
}

// profileOf counts by seconds of the time at which requests were to be sent first, beside what was seen of the guard.
func profileOf(attempts []attempt, begin float64, seen map[int]map[string]float64) []moment {
	bySecond := map[int]*moment{}
	for _, a := range attempts {
		if !a.of.legitimate {
			continue
		}
		second := int(math.Floor(a.of.at.Seconds() - begin))
		m := bySecond[second]
		if m == nil {
			m = &moment{Second: second, Guard: seen[second]}
			bySecond[second] = m
		}
		if !a.again {
			m.Legitimate++
		}
		switch a.what {
		case answered:
			m.Good++
		case turnedAway:
			m.TurnedAway++
		case left:
			m.Left++
		case refused:
			m.Refused++
		}
	}
	var list []moment
	for _, m := range bySecond {
		list = append(list, *m)
	}
	slices.SortFunc(list, func(a, b moment) int { return a.Second - b.Second })
	return list
}

// watch reads a proxy's metrics each second.
func watch(ctx context.Context, address string, begin time.Time, seen map[int]map[string]float64) {
	for second := int(math.Ceil(time.Since(begin).Seconds())); ; second++ {
		if !sleepUntil(ctx, begin.Add(time.Duration(second)*time.Second)) {
			return
		}
		if values, err := scrape(ctx, address); err == nil {
			seen[second] = values
		}
	}
}

// scrape returns the metrics of the guard, by their names without what all of them begin with.
func scrape(ctx context.Context, address string) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return nil, err
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics: %s", response.Status)
	}
	values := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		name, guards := strings.CutPrefix(name, "weir_guard_")
		if n, err := strconv.ParseFloat(value, 64); guards && err == nil {
			values[strings.ReplaceAll(name, `guard="",`, "")] = n
		}
	}
	return values, nil
}
