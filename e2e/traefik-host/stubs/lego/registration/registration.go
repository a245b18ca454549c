// Package registration has what an account is asked for with.
package registration

// RegisterEABOptions asks for one with credentials from elsewhere.
type RegisterEABOptions struct {
	TermsOfServiceAgreed bool
	Kid                  string
	HmacEncoded          string
}

// RegisterOptions asks for one without.
type RegisterOptions struct{ TermsOfServiceAgreed bool }
