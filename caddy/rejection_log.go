package ratelimit

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// rejectionLog chooses which of a rule's rejections are written to the log: in an interval the first of each key, up to
// mostLogged of them. When the interval ends one line says how many others there were. So a flood is some lines a minute, and no
// rejection is lost.
type rejectionLog struct {
	level    zapcore.Level
	off      bool
	interval time.Duration
	zone     string
	logger   *zap.Logger
	after    func(time.Duration, func()) *time.Timer
	now      func() time.Time

	mu     sync.Mutex
	timer  *time.Timer // ends the interval; nil: none has begun
	begun  time.Time   // the interval
	keys   []uint64    // those that have been logged in it
	others int64       // rejections in it that have not
	ended  bool        // each rejection is logged, of which there are no more than requests were under way
}

// mostLogged is how many rejections of a rule are logged in an interval.
const mostLogged = 50

const defaultLogInterval = time.Minute

// begin makes the log of a handler's rule ready.
func (l *rejectionLog) begin(h *Handler, zone string) {
	level, err := zapcore.ParseLevel(h.LogLevel) // "" is info
	l.level, l.off = level, err != nil           // "off" is none of the levels
	l.interval = cmp.Or(time.Duration(h.LogInterval), defaultLogInterval)
	l.zone = zone
	l.logger = h.logger
	l.after = time.AfterFunc
	l.now = time.Now
}

// admit reports whether a rejection of a key is to be logged; else it has counted it.
func (l *rejectionLog) admit(key string) bool {
	if l.off || !l.logger.Core().Enabled(l.level) {
		return false
	}
	hash := topHash(key)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended { // a request that came before the end is over the limit after it: nobody would tell of it later
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

// turn ends an interval, which has lasted so long, and says what else there was in it.
func (l *rejectionLog) rotate(lasted time.Duration) {
	l.mu.Lock()
	others := l.others
	l.others = 0
	l.keys = l.keys[:0]
	l.timer = nil
	l.mu.Unlock()
	if others > 0 {
		l.logger.Log(l.level, "more requests exceeded the rate limit, of keys in the log already or past the number that is logged",
			zap.String("zone", l.zone), zap.Int64("rejections_not_logged", others), zap.Duration("interval", lasted))
	}
}

// end says what was not said yet, and ends the log.
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
