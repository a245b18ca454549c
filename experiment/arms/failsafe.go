package arms

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/failsafe-go/failsafe-go/priority"
)

func init() {
	caddy.RegisterModule(new(Failsafe))
	httpcaddyfile.RegisterHandlerDirective("failsafe", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		f := new(Failsafe)
		return f, f.UnmarshalCaddyfile(h.Dispenser)
	})
}

// Failsafe is failsafe-go's adaptive limiter, with that library's defaults except for what its fields say.
type Failsafe struct {
	// How many requests may be under way: at least, at most, and in the beginning.
	Min     uint `json:"min"`
	Max     uint `json:"max"`
	Initial uint `json:"initial"`

	// "reject" turns away what is over the limit, which is the default; "queue" has it wait, and "fair" has it wait and turns away those first
	// that have used most of the service's time in the last 10 seconds.
	Over string `json:"over,omitempty"`

	// How long a request waits at most, with "queue" and "fair"; 0: as long as its client does.
	Wait time.Duration `json:"wait,omitempty"`

	limiter permits
}

// permits is what all limiters of the library have.
type permits interface {
	AcquirePermit(context.Context) (adaptivelimiter.Permit, error)
	AcquirePermitWithMaxWait(context.Context, time.Duration) (adaptivelimiter.Permit, error)
}

// CaddyModule implements caddy.Module.
func (*Failsafe) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.failsafe", New: func() caddy.Module { return new(Failsafe) }}
}

// UnmarshalCaddyfile implements caddyfile.Unmarshaler: failsafe <min> <max> <initial> [reject|queue|fair [<wait>]].
func (f *Failsafe) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	args := d.RemainingArgs()
	if len(args) < 3 || len(args) > 5 {
		return d.ArgErr()
	}
	for i, to := range []*uint{&f.Min, &f.Max, &f.Initial} {
		n, err := strconv.ParseUint(args[i], 10, 31)
		if err != nil || n < 1 {
			return d.Errf("failsafe: %q: must be a number from 1", args[i])
		}
		*to = uint(n)
	}
	if len(args) > 3 {
		f.Over = args[3]
	}
	if len(args) > 4 {
		wait, err := time.ParseDuration(args[4])
		if err != nil {
			return d.Errf("failsafe: %v", err)
		}
		f.Wait = wait
	}
	return nil
}

// Provision implements caddy.Provisioner.
func (f *Failsafe) Provision(ctx caddy.Context) error {
	if f.Min < 1 || f.Min > f.Initial || f.Initial > f.Max {
		return fmt.Errorf("failsafe: limits %d, %d and %d: must be the least, the greatest, and one between them", f.Min, f.Max, f.Initial)
	}
	b := adaptivelimiter.NewBuilder[any]().WithLimits(f.Min, f.Max, f.Initial)
	switch f.Over {
	case "fair":
		p := adaptivelimiter.NewPrioritizerBuilder().WithUsageTracker(priority.NewUsageTracker(10*time.Second, 4096)).Build()
		p.ScheduleCalibrations(ctx, time.Second)
		f.limiter = b.BuildPrioritized(p)
	case "queue":
		f.limiter = b.WithQueueing(2, 3).Build() // the factors that the fair one has by default
	case "", "reject":
		f.limiter = b.Build()
	default:
		return fmt.Errorf("failsafe: %q: must be reject, queue or fair", f.Over)
	}
	return nil
}

// ServeHTTP implements caddyhttp.MiddlewareHandler. Like the library's own executor, it leaves out of the measurement what was canceled.
func (f *Failsafe) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	permit, err := f.acquire(r)
	if err != nil {
		return caddyhttp.Error(http.StatusServiceUnavailable, err)
	}
	defer func() {
		if r.Context().Err() != nil {
			permit.Drop()
		} else {
			permit.Record()
		}
	}()
	return next.ServeHTTP(w, r)
}

func (f *Failsafe) acquire(r *http.Request) (adaptivelimiter.Permit, error) {
	ctx := r.Context()
	if f.Over == "fair" {
		client, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			return nil, err
		}
		ctx = priority.ContextWithUser(priority.Medium.AddTo(ctx), client)
	}
	if f.Wait == 0 && (f.Over == "queue" || f.Over == "fair") {
		return f.limiter.AcquirePermit(ctx)
	}
	return f.limiter.AcquirePermitWithMaxWait(ctx, f.Wait)
}
