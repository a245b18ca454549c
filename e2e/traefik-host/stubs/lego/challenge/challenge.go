// Package challenge has what answers an authority's challenge.
package challenge

import "context"

// Provider is implemented by Traefik for HTTP-01 and TLS-ALPN-01.
type Provider interface {
	Present(ctx context.Context, domain, token, keyAuth string) error
	CleanUp(ctx context.Context, domain, token, keyAuth string) error
}
