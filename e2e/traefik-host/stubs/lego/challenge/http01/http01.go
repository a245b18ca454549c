// Package http01 has the path of the challenge by HTTP.
package http01

import "time"

// PathPrefix is routed by Traefik where HTTP-01 is configured.
const PathPrefix = "/.well-known/acme-challenge/"

// ChallengeOption is what Traefik names.
type ChallengeOption func()

// SetDelay does nothing.
func SetDelay(time.Duration) ChallengeOption { return func() {} }
