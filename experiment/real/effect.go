package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/experiment/origin"
	"github.com/proxyweir/weir/experiment/simulation"
)

// A cell of this name measures how long it takes from when an advisor has new advice until a proxy decides by it. Its arm is "interval 10s", which is how
// often proxies ask. Its file is no cell's, but a table: see effect.
const effectScenario = "effect"

// intervalWord begins the arms of such cells.
const intervalWord = "interval "

// intervals are those that are measured: the least, and the default.
var intervals = []time.Duration{advice.DefaultInterval, advice.LeastInterval}

const (
	changesOfRun = 20
	everyProbe   = 10 * time.Millisecond // a request to each proxy, of which it says by which limit it was decided
	configured   = 400                   // requests a second of a client, before advice: far more than the probes

	algorithmOfEffects = "sliding_window_counter" // whose answers name the limit itself, and not what a bucket holds
)

// Within this time a change is in force everywhere, or it is not at all: an interval, the fifth by which the product may make it longer, three seconds until
// all proxies on one Redis take a document, and a second in which a limit stays after the last step.
func settled(interval time.Duration) time.Duration { return interval*6/5 + 4*time.Second }

// change is one of the advice.
type change struct {
	at       time.Duration // since the run has begun
	from, to int64         // requests in ten seconds
}

// changesOf draws the changes of a run: when they come, and what they say. They lie so far apart that each can be in force before the next one.
func changesOf(run uint64, interval time.Duration) []change {
	r := rand.New(rand.NewPCG(run, uint64(interval)))
	first := simulation.Requests(configured, simulation.PeriodOfClient)
	list := make([]change, changesOfRun)
	at, limit := time.Duration(0), first
	for i := range list {
		at += settled(interval) + time.Duration(r.Float64()*float64(interval/10+time.Second/2))
		by := 0.2 + 0.7*r.Float64() // doublings; within a step of the rule, which is 100 %
		if r.IntN(2) == 0 {
			by = -by
		}
		to := math.Round(float64(limit) * math.Exp2(by))
		if to > float64(2*first) || to < float64(first)/2 {
			to = math.Round(float64(limit) * math.Exp2(-by))
		}
		list[i] = change{at, limit, int64(to)}
		limit = int64(to)
	}
	return list
}

// sighting is the first answer of a proxy that was decided by a new limit.
type sighting struct {
	limit  int64
	before time.Time // when the last request was sent that was decided by the former limit
	at     time.Time // when the answer came
}

// effect is a line of the table: how long a change took until a proxy decided by it.
type effect struct {
	change  int // from 1 on
	at      time.Duration
	proxy   string
	from    int64
	to      int64
	took    bool          // it came before the next change
	delay   time.Duration // from publication to the first answer
	sharper time.Duration // by how much the delay may be shorter
}

// effectsOf finds for each change when it was in force in a proxy, given when the changes were published.
func effectsOf(proxy string, changes []change, published []time.Time, seen []sighting) []effect {
	list := make([]effect, len(published))
	for i, at := range published {
		list[i] = effect{change: i + 1, at: changes[i].at, proxy: proxy, from: changes[i].from, to: changes[i].to}
		for _, s := range seen {
			if s.limit == changes[i].to && s.at.After(at) && (i+1 == len(published) || s.at.Before(published[i+1])) {
				list[i].took, list[i].delay, list[i].sharper = true, s.at.Sub(at), s.at.Sub(s.before)
				break
			}
		}
	}
	return list
}

// probe asks a proxy by which limit it decides, until the context ends, and returns when that became another one.
func probe(ctx context.Context, address string, client int) (seen []sighting, err error) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: addressOf(client)}}
	of := &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableCompression: true}, Timeout: 10 * time.Second}
	defer of.CloseIdleConnections()
	var before time.Time
	last := int64(0)
	for next := time.Now(); sleepUntil(ctx, next); next = later(next.Add(everyProbe), time.Now()) {
		sent := time.Now()
		limit, err := limitBy(ctx, of, address)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return nil, err
		}
		if limit == 0 {
			continue
		}
		if limit != last && last != 0 {
			seen = append(seen, sighting{limit, before, time.Now()})
		}
		last, before = limit, sent
	}
	return seen, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// limitBy returns the limit by which a proxy decides a request; 0 if it lets it pass without one, since its Redis is late.
func limitBy(ctx context.Context, client *http.Client, address string) (int64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return 0, err
	}
	r.Host = host
	r.Header.Set(workHeader, "0")
	answer, err := client.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return 0, err
	}
	if answer.StatusCode == http.StatusOK && answer.Header.Get("X-RateLimit-Limit") == "" {
		return 0, nil
	}
	limit, err := strconv.ParseInt(answer.Header.Get("X-RateLimit-Limit"), 10, 64)
	if err != nil || answer.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s answers %s, with a limit of %q", address, answer.Status, answer.Header.Get("X-RateLimit-Limit"))
	}
	return limit, nil
}

// publish has an advisor say each change in its time, and waits until the last one is settled. It returns when each was published.
func publish(ctx context.Context, by *played, changes []change, begin time.Time, last time.Duration) (published []time.Time) {
	for _, c := range changes {
		if !sleepUntil(ctx, begin.Add(c.at)) {
			return published
		}
		published = append(published, time.Now())
		by.say(map[string]int64{"shop/client": c.to})
	}
	sleepUntil(ctx, time.Now().Add(last))
	return published
}

// playEffect plays a run of changes together with other cells.
func playEffect(ctx context.Context, c cell, o settings, t *together) (*record, error) {
	started, ended := sync.OnceFunc(t.starting.Done), sync.OnceFunc(t.playing.Done)
	defer started()
	defer ended()
	a, err := armOf(c.Arm)
	if err != nil {
		return nil, err
	}
	changes := o.changesOf(c, a.interval)
	folder, err := os.MkdirTemp("", "experiment")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	with := &plan{arm: a, limits: simulation.Limits{Client: configured}, algorithm: c.Algorithm}
	calm := &simulation.Situation{Slowness: func(float64) float64 { return 1 }}
	of := &site{folder: folder}
	if _, err := of.start(ctx, with, scenario{}, calm, newLoad(nil, 1)); err != nil {
		return nil, errors.Join(err, of.stop())
	}
	started()
	t.starting.Wait()
	probing, stop := context.WithCancel(ctx)
	seen, failed := make([][]sighting, len(of.proxies)), make([]error, len(of.proxies))
	var probes sync.WaitGroup
	for i, front := range of.proxies {
		probes.Go(func() { seen[i], failed[i] = probe(probing, front.address, i) })
	}
	published := publish(ctx, of.played, changes, time.Now(), settled(a.interval))
	stop()
	probes.Wait()
	r := &record{cell: c, Origin: o.origin, effects: []effect{}}
	for i := range of.proxies {
		r.effects = append(r.effects, effectsOf(of.programs[i].name, changes, published, seen[i])...)
	}
	ended()
	t.playing.Wait()
	return r, errors.Join(errors.Join(failed...), of.stop(), ctx.Err())
}

// changesOf draws those of a cell: all, or those that come in the seconds that are to be played.
func (o settings) changesOf(c cell, interval time.Duration) []change {
	list := changesOf(c.Pair, interval)
	for n, one := range list {
		if o.length > 0 && one.at > seconds(o.length) {
			return list[:n]
		}
	}
	return list
}

// takesEffect returns how long such a cell takes, nearly.
func (o settings) takesEffect(c cell) time.Duration {
	a, err := armOf(c.Arm)
	if err != nil {
		return 0
	}
	took := about + settled(a.interval)
	if list := o.changesOf(c, a.interval); len(list) > 0 {
		took += list[len(list)-1].at
	}
	return took
}

// tookEffect returns how many of a cell's changes were in force before the next one, each counted in each proxy.
func (r *record) tookEffect() (n int) {
	for _, e := range r.effects {
		if e.took {
			n++
		}
	}
	return n
}

// tableOfEffects is a cell's file: comma-separated values, with the origin before them.
func tableOfEffects(from origin.Origin, c cell, list []effect) []byte {
	var text bytes.Buffer
	interval, _ := time.ParseDuration(strings.TrimPrefix(c.Arm, intervalWord))
	fmt.Fprintf(&text, "# %s\ninterval_s,run,change,at_s,proxy,from,to,delay_ms,within_ms\n", from)
	for _, e := range list {
		delay, sharper := "", ""
		if e.took {
			delay, sharper = fmt.Sprint(milliseconds(e.delay)), fmt.Sprint(milliseconds(e.sharper))
		}
		fmt.Fprintf(&text, "%v,%d,%d,%.3f,%s,%d,%d,%s,%s\n", interval.Seconds(), c.Pair, e.change, e.at.Seconds(), e.proxy, e.from, e.to, delay, sharper)
	}
	return text.Bytes()
}

// fileOfEffects is its name, in a folder beside that of the cells.
func (c cell) fileOfEffects(folder string) string {
	return filepath.Join(filepath.Dir(folder), effectScenario, fmt.Sprintf("%s.%d.csv", strings.ReplaceAll(c.Arm, " ", "_"), c.Pair))
}
