package report

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/proxyweir/weir/core/describe"
)

// rejectionLog chooses which of a rule's rejections are logged: in each interval the first of each key, up to mostLogged. At the
// interval's end, one line has the number of the others. So a flood makes only a few lines a minute, and no rejection goes
// unreported.
type rejectionLog struct {
	delays   bool // it is of requests that a shadow would delay, not of rejections
	level    zapcore.Level
	off      bool
	interval time.Duration
	zone     string
	logger   *zap.Logger
	after    func(time.Duration, func()) *time.Timer
	now      func() time.Time

	mu     sync.Mutex
	timer  *time.Timer // ends the interval; nil: no interval has begun
	begun  time.Time   // when the interval began
	keys   []uint64    // hashes of the keys that were logged in the interval
	others int64       // rejections in the interval that were not logged
	ended  bool        // the log has ended; the few requests that were still under way are all logged
}

// mostLogged is how many rejections of a rule are logged in an interval.
const mostLogged = 50

const defaultLogInterval = time.Minute

// begin prepares the log of a handler's rule.
func (l *rejectionLog) begin(how Config, zone string) {
	level, err := zapcore.ParseLevel(how.Level) // "" is info
	l.level, l.off = level, err != nil          // "off" is no level of zapcore
	l.interval = cmp.Or(how.Interval, defaultLogInterval)
	l.zone = zone
	l.logger = how.Logger
	l.after = time.AfterFunc
	l.now = time.Now
}

// admit reports whether to log a rejection of a key. If not, it counts the rejection.
func (l *rejectionLog) admit(key string) bool {
	if l.off || !l.logger.Core().Enabled(l.level) {
		return false
	}
	hash := describe.HashOf(key)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended { // a request that came before the end: no later line would count it
		return true
	}
	if l.timer == nil {
		l.timer = l.after(l.interval, func() { l.rotate(l.interval) })
		l.begun = l.now()
	}
	if len(l.keys) >= mostLogged || slices.Contains(l.keys, hash) {
		l.others++
		return false
	}
	l.keys = append(l.keys, hash)
	return true
}

// rotate ends an interval, of the given length, and logs how many other rejections it had.
func (l *rejectionLog) rotate(lasted time.Duration) {
	l.mu.Lock()
	others := l.others
	l.others = 0
	l.keys = l.keys[:0]
	l.timer = nil
	l.mu.Unlock()
	if others > 0 && l.delays {
		l.logger.Log(l.level, "more requests were delayed in shadow; their keys are logged already, or are past the number that is logged",
			zap.String("zone", l.zone), zap.Int64("delays_not_logged", others), zap.Duration("interval", lasted))
	} else if others > 0 {
		l.logger.Log(l.level, "more requests exceeded the rate limit; their keys are logged already, or are past the number that is logged",
			zap.String("zone", l.zone), zap.Int64("rejections_not_logged", others), zap.Duration("interval", lasted))
	}
}

// end logs what was not logged yet, and ends the log.
func (l *rejectionLog) end() {
	l.mu.Lock()
	if l.timer != nil {
		l.timer.Stop()
	}
	l.ended = true
	lasted := min(l.now().Sub(l.begun), l.interval)
	l.mu.Unlock()
	l.rotate(lasted)
}

// Config is how a handler reports on its rules.
type Config struct {
	Logger   *zap.Logger
	Level    string        // of rejections, as it is written
	Interval time.Duration // by which the log is sampled; 0 is the default
	LogKey   bool
}
