package traefik

// Advisor is who gives advice on the limits of rules that have adapt: a service that forecasts their demand. Advice is checked by what Traefik
// itself sees of the traffic, moves a limit within its bounds only, and expires. No request waits for it. Texts may refer to other places, as
// those of Redis.
type Advisor struct {
	// The address that advice is fetched from, such as https://advisor.internal:8787/v1/advice. Required.
	URL string `json:"url,omitempty" yaml:"url,omitempty"`

	// observe, the default: what would change is logged and counted, and nothing changes. apply: limits change.
	Mode string `json:"mode,omitempty" yaml:"mode,omitempty"`

	// How often advice is fetched: from 1s to 1h. The default is 10s.
	Interval string `json:"interval,omitempty" yaml:"interval,omitempty"`

	// How long fetching may take: from 10ms to 1m. The default is 2s.
	Timeout string `json:"timeout,omitempty" yaml:"timeout,omitempty"`

	// The name by which the advisor knows the proxies that this middleware is one of. The default is none.
	Fleet string `json:"fleet,omitempty" yaml:"fleet,omitempty"`

	// What is sent as Authorization: Bearer. The default is nothing.
	Token string `json:"token,omitempty" yaml:"token,omitempty"`

	// A file with the advisor's Ed25519 public key in PEM. Advice without its signature is refused. The default is that advice needs none.
	PublicKey string `json:"publicKey,omitempty" yaml:"publicKey,omitempty"`

	// How Traefik connects to an address of https. An empty object is enough if the system trusts the advisor's CA.
	TLS interface{} `json:"tls,omitempty" yaml:"tls,omitempty"`

	// How much traffic of a rule the guard must have seen before advice on it is followed: from 10s to 720h. The default is 24h.
	WarmUp string `json:"warmUp,omitempty" yaml:"warmUp,omitempty"`

	// What Traefik checks before it follows advice. full, the default: a limit never falls below the configured one, and only rises while the
	// guard sees a healthy service and no few keys make much of the demand. bounds: floor, ceiling, step and expiry alone.
	Gates string `json:"gates,omitempty" yaml:"gates,omitempty"`

	// A file that gets a line of JSON for each change of a limit. The default is none.
	Audit string `json:"audit,omitempty" yaml:"audit,omitempty"`
}
