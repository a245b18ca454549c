// Package dns01 has the options of the challenge by DNS; none does anything.
package dns01

import (
	"strings"
	"time"
)

// Options, Client and ChallengeOption are what Traefik names.
type (
	Options         struct{ RecursiveNameservers []string }
	Client          struct{}
	ChallengeOption func()
)

// NewClient returns a client that asks nobody.
func NewClient(*Options) *Client { return &Client{} }

// SetDefaultClient does nothing.
func SetDefaultClient(*Client) {}

// CondOptions does nothing.
func CondOptions(bool, ...ChallengeOption) ChallengeOption { return func() {} }

// DisableAuthoritativeNssPropagationRequirement does nothing.
func DisableAuthoritativeNssPropagationRequirement() ChallengeOption { return func() {} }

// DisableRecursiveNSsPropagationRequirement does nothing.
func DisableRecursiveNSsPropagationRequirement() ChallengeOption { return func() {} }

// PropagationWait does nothing.
func PropagationWait(time.Duration, bool) ChallengeOption { return func() {} }

// UnFqdn returns a name without the dot at its end.
func UnFqdn(s string) string { return strings.TrimSuffix(s, ".") }
