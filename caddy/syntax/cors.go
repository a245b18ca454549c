package syntax

import (
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// CORS says which pages of other origins may read what a handler answers in place of the service. What the service answers to them is its own
// affair.
type CORS struct {
	// The origins of the pages: scheme, host and port, such as `https://app.example.com`. `https://*.example.com` is every name one level
	// below, and `*` is every origin.
	Origins []string `json:"origins"`

	// Whether pages may read answers to requests that they send with cookies or other credentials. Not with the origin `*`.
	Credentials bool `json:"credentials,omitempty"`
}

// Read reads cors <origin>... [{ credentials }].
func (c *CORS) Read(d *caddyfile.Dispenser) error {
	c.Origins = d.RemainingArgs()
	_, err := ReadBlock(d, "cors", []Setting{{Word: "credentials", To: &c.Credentials}}, nil)
	return err
}

// UnmarshalJSON reads cors as strictly as a zone.
func (c *CORS) UnmarshalJSON(data []byte) error {
	type plain CORS
	return UnmarshalPart("cors", data, (*plain)(c))
}
