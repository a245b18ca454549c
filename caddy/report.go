package ratelimit

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/proxyweir/weir/core"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Of a zone's rejections this many a second are written to the log. The next line says how many were left out.
const loggedPerSecond = 10

// provisionLog gives the zone a logger that samples.
func (z *Zone) provisionLog(logger *zap.Logger) {
	unlogged := new(atomic.Int64)
	count := zapcore.SamplerHook(func(entry zapcore.Entry, decision zapcore.SamplingDecision) {
		if decision&zapcore.LogDropped != 0 && entry.Message == errExceeded.Error() {
			unlogged.Add(1)
		}
	})
	z.unlogged = unlogged
	z.logger = logger.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(c, time.Second, loggedPerSecond, 0, count)
	}))
}

// report writes a rejection to the log and emits its event.
func (h *Handler) report(r *http.Request, zone *Zone, v *core.Verdict) {
	wait := time.Duration(0)
	if v.RetryAfter != core.Never {
		wait = time.Duration(v.RetryAfter) * time.Microsecond
	}
	h.log(r, zone, errExceeded.Error(), wait)
	if h.events.ShouldEmit("rate_limit_exceeded") {
		h.events.Emit(h.ctx, "rate_limit_exceeded", map[string]any{
			"zone":      zone.rule.Name(),
			"wait":      wait,
			"remote_ip": core.HostOf(r.RemoteAddr),
			"client_ip": clientAddress(r),
		})
	}
}

// reportShadows writes to the log what shadow zones would have rejected.
func (h *Handler) reportShadows(r *http.Request, q *inquiry) {
	for i := range q.checks {
		if d := &q.checks[i].Decision; !d.Allowed && q.zones[i].rule.Shadow() {
			h.log(r, q.zones[i], "rate limit exceeded in shadow", time.Duration(max(d.RetryAfter, 0))*time.Microsecond)
		}
	}
}

// log writes a line on a request that is over a zone's limit, unless there have been enough of them this second. The query
// of the URI is left out: it may hold secrets, or the key.
func (h *Handler) log(r *http.Request, zone *Zone, message string, wait time.Duration) {
	c := zone.logger.Check(zapcore.InfoLevel, message)
	if c == nil {
		return
	}
	id, _ := replacerOf(r).GetString("http.request.uuid")
	path, _, _ := strings.Cut(r.RequestURI, "?")
	fields := []zap.Field{
		zap.String("zone", zone.rule.Name()),
		zap.Duration("wait", wait),
		zap.String("client_ip", clientAddress(r)),
		zap.String("method", r.Method),
		zap.String("host", r.Host),
		zap.String("uri", path),
		zap.String("request_id", id),
	}
	if trace, ok := caddyhttp.GetVar(r.Context(), "trace_id").(string); ok {
		fields = append(fields, zap.String("trace_id", trace))
	}
	if h.LogKey {
		fields = append(fields, zap.String("key", zone.key.readable(r)))
	}
	if message == errExceeded.Error() {
		if n := zone.unlogged.Swap(0); n > 0 {
			fields = append(fields, zap.Int64("rejections_not_logged", n))
		}
	}
	c.Write(fields...)
}

// clientAddress returns the client's address as Caddy knows it, behind trusted proxies not the peer's.
func clientAddress(r *http.Request) string {
	if ip, ok := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string); ok && ip != "" {
		return ip
	}
	return core.HostOf(r.RemoteAddr)
}

// noteMissing warns, at the first request without a key, of the two cases that are a slip of the configuration: a placeholder
// that nothing provides, and a key of who is authenticated where nobody is yet.
func (z *Zone) noteMissing(h *Handler, r *http.Request) {
	if !z.warned.CompareAndSwap(false, true) {
		return
	}
	fields := []zap.Field{zap.String("zone", z.rule.Name()), zap.String("key", z.Key)}
	if z.key.needsAuthentication {
		h.logger.Warn("the zone's key is empty for a request that nobody has authenticated; does rate_limit run before authentication?", fields...)
	}
	for _, part := range z.key.parts {
		if strings.HasPrefix(part.name, "http.auth.") || strings.HasPrefix(part.name, "http.regexp.") {
			continue // which are there only sometimes
		}
		if _, known := replacerOf(r).Get(part.name); !known {
			h.logger.Warn("the zone's key has a placeholder that nothing provides, so it is empty for every request",
				append(fields, zap.String("placeholder", part.name))...)
		}
	}
}
