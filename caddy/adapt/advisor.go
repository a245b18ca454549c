package adapt

import (
	"crypto/ed25519"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/adaptive"
	"github.com/proxyweir/weir/core/advice"
)

// Advisor is who gives advice on the limits of zones and rules that have `adapt`: a service that forecasts their demand. Advice is checked by
// Caddy's own view of the traffic, moves a limit within its bounds only, and expires. No request waits for it.
//
// All texts may have global placeholders such as `{env.WEIR_ADVISOR_TOKEN}`.
type Advisor struct {
	// The address that advice is fetched from, such as `https://advisor.internal:8787/v1/advice`; or `builtin`, for an advisor inside Caddy
	// that learns from what Caddy itself sees. Required.
	URL string `json:"url,omitempty"`

	// `observe`, the default: what would change is logged, shown and counted, and nothing changes. `apply`: limits change.
	Mode string `json:"mode,omitempty"`

	// How often advice is fetched: from 1s to 1h; the default is 10s.
	Interval caddy.Duration `json:"interval,omitempty"`

	// How long fetching may take: from 10ms to 1m; the default is 2s.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// The name by which the advisor knows the proxies that this Caddy is one of. The default is none.
	Fleet string `json:"fleet,omitempty"`

	// What is sent as `Authorization: Bearer`. The default is nothing.
	Token string `json:"token,omitempty"`

	// A file with the advisor's Ed25519 public key in PEM. Advice without its signature is refused. The default is that advice needs none.
	PublicKey string `json:"public_key,omitempty"`

	// How Caddy connects to an address of https. An empty object is enough if the system trusts the advisor's CA.
	TLS *stores.ClientTLS `json:"tls,omitempty"`

	// How much traffic of a rule Caddy must have seen before advice on it is followed: from 10s to 720h; the default is 24h.
	WarmUp caddy.Duration `json:"warm_up,omitempty"`

	// What Caddy checks before it follows advice. `full`, the default: a limit never falls below the configured one, and only rises while the
	// guard sees a healthy service and no few keys make much of the demand. `bounds`: floor, ceiling, step and expiry alone.
	Gates string `json:"gates,omitempty"`

	// A file that gets a line of JSON for each change of a limit. The default is none.
	Audit string `json:"audit,omitempty"`

	source       advice.Source
	key          ed25519.PublicKey // nil: none
	fleet, audit string            // with the values of placeholders
	logger       *zap.Logger
	refused      string // why documents are refused; "": they are not
}

// Read reads advisor <url> [{ ... }].
func (a *Advisor) Read(d *caddyfile.Dispenser) error {
	line := d.Token()
	args := d.RemainingArgs()
	if len(args) != 1 {
		return d.Errf("advisor: takes one address, such as https://advisor.internal:8787/v1/advice, or builtin, not %d", len(args))
	}
	a.URL = args[0]
	if _, err := syntax.ReadBlock(d, "advisor", a.settings(), nil); err != nil {
		return err
	}
	if err := a.check(); err != nil && !syntax.HasPlaceholder(a.URL) {
		return syntax.ErrorAt(line, err)
	}
	return nil
}

// settings returns the lines that the block may have.
func (a *Advisor) settings() []syntax.Setting {
	return []syntax.Setting{
		syntax.WordTo("mode", &a.Mode, adaptive.AdvisorModes...),
		syntax.DurationTo("interval", &a.Interval, "1s", "1h"),
		syntax.DurationTo("timeout", &a.Timeout, "10ms", "1m"),
		{Word: "fleet", To: &a.Fleet},
		{Word: "token", To: &a.Token},
		{Word: "public_key", To: &a.PublicKey},
		{Word: "tls", To: func(d *caddyfile.Dispenser) error {
			a.TLS = new(stores.ClientTLS)
			return a.TLS.Read(d, "advisor: tls")
		}},
		syntax.DurationTo("warm_up", &a.WarmUp, "10s", "720h"),
		syntax.WordTo("gates", &a.Gates, adaptive.AdvisorGates...),
		{Word: "audit", To: &a.Audit},
	}
}

// check says what is wrong with the settings.
func (a *Advisor) check() error {
	c := adaptive.AdvisorConfig{URL: a.URL, Mode: a.Mode, Fleet: a.Fleet, Token: a.Token, Gates: a.Gates,
		Interval: time.Duration(a.Interval), Timeout: time.Duration(a.Timeout), WarmUp: time.Duration(a.WarmUp), PublicKey: a.PublicKey, TLS: a.TLS != nil}
	return adaptive.CheckAdvisor(&c, true)
}

// UnmarshalJSON reads an advisor's settings as strictly as the app's.
func (a *Advisor) UnmarshalJSON(data []byte) error {
	type plain Advisor
	return syntax.UnmarshalPart("advisor", data, (*plain)(a))
}
