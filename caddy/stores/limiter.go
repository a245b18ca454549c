package stores

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/metrics"
	"github.com/proxyweir/weir/core/rate"
	"github.com/proxyweir/weir/redis"
)

// Limiter is a core.Limiter, with what logs and metrics report about its store.
type Limiter struct {
	*core.Limiter
	Store    string          // "memory", "redis", or the name of another module
	Redis    *redis.Store    // nil: the store is no Redis
	Settings *redisSettings  // of that Redis
	Storage  *SharedStorage  // nil: the store is not over a storage
	times    *rate.Durations // of its decisions
	trouble  *troubleLog     // nil: the store cannot fail
}

// NewLimiter returns a limiter over a store of that name.
func NewLimiter(store core.Store, name string) *Limiter {
	return &Limiter{Limiter: core.NewLimiter(store), Store: name, times: decisionTimesOf(name)}
}

// Counters names the store such that two limiters of one name have the same counters, and those of two names have not.
func (l *Limiter) Counters() string {
	if l.Settings == nil || l.Settings.Client.Cluster { // whose nodes can be named differently
		return l.Store
	}
	c := l.Settings.Client
	return fmt.Sprintf("%s %s%s, database %d, prefix %q", l.Store, strings.Join(slices.Sorted(slices.Values(c.Addresses)), " "), c.MasterName, c.Database, cmp.Or(l.Settings.Store.Prefix, redis.DefaultPrefix))
}

// WarnOf logs what is unwise about a rule in the limiter's store.
func (l *Limiter) WarnOf(r *core.Rule) {
	if l.Storage == nil {
		return
	}
	if advice := l.Storage.Store.Advice(r); advice != "" {
		storageLog().Warn(advice, zap.String("rule", r.Name()))
	}
}

// Failed logs that the store has failed; see troubleLog.
func (l *Limiter) Failed(err error) {
	if err != nil && l.trouble != nil {
		l.trouble.failed(err)
	}
}

// Charge decides on checks, charges them, and measures the time that this takes. It returns the time of the decision in seconds since the
// Unix epoch. It counts and logs a failure.
func (l *Limiter) Charge(checks []core.Check, v *core.Verdict) (at int64, err error) {
	began := time.Now()
	err = l.Decide(checks, false, v)
	rate.Observe(l.times, time.Since(began))
	if err != nil {
		metrics.Count(StoreErrors, metrics.StoreErrors, redis.ErrorKind(err))
		l.Failed(err)
	}
	return began.Unix(), err
}

// TakeBack takes reservations back, and logs a failure.
func (l *Limiter) TakeBack(reservations []core.Reservation) { l.Failed(l.Leave(reservations)) }

// Settle settles reservations by the status of the response, and logs a failure.
func (l *Limiter) Settle(reservations []core.Reservation, status int) {
	l.Failed(l.Finish(reservations, status))
}

// What belongs to no rule exists once in a process, so that it survives reloads.
var (
	decisionTimes sync.Map // by the name of the store: *rate.Durations
	StoreErrors   = metrics.NewCounts(metrics.StoreErrors)
)

// decisionTimesOf returns the histogram for the decisions in a store.
func decisionTimesOf(store string) *rate.Durations {
	d, _ := decisionTimes.LoadOrStore(store, rate.NewDurations())
	return d.(*rate.Durations)
}

// AddDecisions adds how long the decisions of stores took, and how often they have failed.
func AddDecisions(p *metrics.Page) {
	decisionTimes.Range(func(store, d any) bool {
		metrics.AddDecisions(p, store.(string), d.(*rate.Durations))
		return true
	})
	metrics.Each(p, metrics.StoreErrors, metrics.Read(StoreErrors))
}

// troubleLog logs when a store begins to fail, and when it has not failed for a while: two lines, however many calls fail. Refusals
// by the server, such as for a missing permission, get one line for each rule and reason, since the server may accept calls for
// other rules.
type troubleLog struct {
	server string
	logger func() *zap.Logger
	after  func(time.Duration, func()) *time.Timer

	mu       sync.Mutex
	failing  bool // a failure was logged, and look waits for its end
	reported bool // a failure that is no refusal was logged
	again    bool // a call has failed since the last look
	failures int64
	refusals map[string]bool // the refusals that were logged since the trouble began
}

// mostRefusals is how many refusals are logged during one trouble.
const mostRefusals = 100

// quietFor is how long no call may fail before the trouble is over.
const quietFor = 10 * time.Second

func newTroubleLog(server string) *troubleLog {
	return &troubleLog{server: server, logger: redisLog, after: time.AfterFunc}
}

// failed logs a failure. It ignores a server that is known to be down: the breaker has logged that.
func (t *troubleLog) failed(err error) {
	if errors.Is(err, redis.ErrUnavailable) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failures++
	t.again = true
	if errors.Is(err, redis.ErrRefused) {
		text := err.Error()
		if t.refusals[text] || len(t.refusals) == mostRefusals {
			return
		}
		if t.refusals == nil {
			t.refusals = make(map[string]bool)
		}
		t.refusals[text] = true
	} else if t.reported {
		return
	} else {
		t.reported = true
	}
	if !t.failing {
		t.failing = true
		t.after(quietFor, t.look)
	}
	t.logger().Error("Redis fails to decide; such requests go by their zones' on_error", zap.String("server", t.server), zap.Error(err))
}

// look checks whether the trouble is over.
func (t *troubleLog) look() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.again {
		t.again = false
		t.after(quietFor, t.look)
		return
	}
	t.logger().Info("Redis has not failed to decide for a while", zap.String("server", t.server), zap.Int64("failures", t.failures))
	t.failing = false
	t.reported = false
	t.failures = 0
	t.refusals = nil
}
