package advice

import (
	"context"
	"fmt"
	"math/rand"
	"net/http"
	"sync"
	"time"
)

// The bounds of a poller's interval, and its default.
const (
	DefaultInterval = 10 * time.Second
	LeastInterval   = time.Second
	MostInterval    = time.Hour
)

// PollerConfig is what a Poller is made of.
type PollerConfig struct {
	Source   Source
	Interval time.Duration // from the end of an exchange to the next one; 0 means DefaultInterval

	// Digest returns the digest of the proxy's rules.
	Digest func() string

	// Take takes the body of a document and its signature, and returns why it is refused; nil: it is not.
	Take func(body []byte, signature string, now int64) *Refusal

	// Refuse is told that no document came.
	Refuse func(refusal *Refusal, now int64)

	// May says whether it is this node that polls, before each exchange; nil: it is.
	May func() bool

	// Now returns the time in microseconds since the epoch, and Wait waits for so long, or until the context ends; nil: the machine's clock.
	Now  func() int64
	Wait func(ctx context.Context, d time.Duration)
}

// Poller asks an advisor for documents, again and again. NewPoller makes it, Start starts it.
//
// After a failure, and a document that is refused, it waits for twice as long as before, up to eight intervals or a minute, whichever is more. Each wait is longer by up to a fifth, by chance, so that the nodes
// of a fleet do not ask at the same time; and none is shorter than the interval.
type Poller struct {
	config PollerConfig
	client *http.Client
	cancel context.CancelFunc
	ended  chan struct{}

	mu     sync.Mutex
	health Health

	// For the goroutine alone.
	tag    string // of the last document that was not refused
	digest string // that it came for
	failed int    // exchanges in a row
}

// Health is how a poller gets on.
type Health struct {
	Polls     int64    // exchanges that have ended
	Failures  int64    // in a row
	SucceedAt int64    // when the last exchange ended that brought a document that was taken, or no news; microseconds since the epoch; 0: none
	FailedAt  int64    // the same of one that did not
	Refusal   *Refusal // of that one
	Elsewhere bool     // another node polls
}

// NewPoller makes a poller.
func NewPoller(c PollerConfig) (*Poller, error) {
	if err := CheckSource(&c.Source); err != nil {
		return nil, err
	}
	if c.Interval == 0 {
		c.Interval = DefaultInterval
	}
	if c.Interval < LeastInterval || c.Interval > MostInterval {
		return nil, fmt.Errorf("interval %s: must be from %s to %s", c.Interval, LeastInterval, MostInterval)
	}
	if c.Now == nil {
		c.Now = func() int64 { return time.Now().UnixMicro() }
	}
	if c.Wait == nil {
		c.Wait = Wait
	}
	return &Poller{config: c, client: newClient(&c.Source)}, nil
}

// Wait waits for so long, or until the context ends. (Code that runs interpreted has no select.)
func Wait(ctx context.Context, d time.Duration) {
	limited, cancel := context.WithTimeout(ctx, d)
	<-limited.Done()
	cancel()
}

// Start starts polling. Call it once.
func (p *Poller) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.ended = make(chan struct{})
	go run(p, ctx)
}

// Stop stops polling. It cuts an exchange off, and returns when nothing of the poller runs any more.
func (p *Poller) Stop() {
	if p.cancel == nil {
		return
	}
	p.cancel()
	<-p.ended
	p.client.CloseIdleConnections()
}

func run(p *Poller, ctx context.Context) {
	defer close(p.ended)
	for ctx.Err() == nil {
		Poll(ctx, p)
		if ctx.Err() != nil {
			return
		}
		if p.Health().Elsewhere { // that node may be gone any time
			p.config.Wait(ctx, time.Second)
			continue
		}
		p.config.Wait(ctx, pause(p.config.Interval, p.failed, rand.Float64())) //nolint:gosec // spreads nodes, keeps no secret
	}
}

// pause returns how long to wait after so many failures in a row. chance is from 0 to 1.
func pause(interval time.Duration, failed int, chance float64) time.Duration {
	longest := 8 * interval
	if longest < time.Minute {
		longest = time.Minute
	}
	d := interval
	for i := 0; i < failed && d < longest; i++ {
		d *= 2
	}
	if d > longest {
		d = longest
	}
	return d + time.Duration(chance*float64(d)/5)
}

// Poll makes one exchange, unless another node does. The poller's goroutine calls it; tests call it without one.
func Poll(ctx context.Context, p *Poller) {
	defer func() {
		if v := recover(); v != nil { // an interpreted program has no other recover, and would end the proxy
			note(p, refuse(Unavailable, "polling panicked: %v", v))
		}
	}()
	if p.config.May != nil && !p.config.May() {
		p.mu.Lock()
		p.health.Elsewhere = true
		p.mu.Unlock()
		p.failed = 0
		return
	}
	digest := p.config.Digest()
	if digest != p.digest {
		p.tag = ""
		p.digest = digest
	}
	a, refusal := fetch(ctx, p.client, &p.config.Source, digest, p.tag)
	if ctx.Err() != nil {
		return // stopped
	}
	if refusal != nil {
		p.config.Refuse(refusal, p.config.Now())
	} else if a.body != nil {
		p.tag = ""
		if refusal = p.config.Take(a.body, a.signature, p.config.Now()); refusal == nil {
			p.tag = a.tag
		}
	}
	note(p, refusal)
}

// note notes how an exchange went.
func note(p *Poller, refusal *Refusal) {
	now := p.config.Now()
	p.failed++
	if refusal == nil {
		p.failed = 0
	}
	p.mu.Lock()
	p.health.Elsewhere = false
	p.health.Polls++
	p.health.Failures = int64(p.failed)
	if refusal == nil {
		p.health.SucceedAt = now
	} else {
		p.health.FailedAt = now
		p.health.Refusal = refusal
	}
	p.mu.Unlock()
}

// Health returns how the poller gets on. It may be called at any time.
func (p *Poller) Health() Health {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.health
}
