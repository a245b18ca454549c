// Package certificate has what certificates are asked for with.
package certificate

import "github.com/go-acme/lego/v5/certcrypto"

// Resource is a certificate that was issued.
type Resource struct {
	ID          string
	Domains     []string
	PrivateKey  []byte
	Certificate []byte
}

// ObtainRequest asks for a new certificate.
type ObtainRequest struct {
	Domains          []string
	Bundle           bool
	EmailAddresses   []string
	Profile          string
	PreferredChain   string
	EnableCommonName bool
	KeyType          certcrypto.KeyType
}

// RenewOptions asks for a certificate again.
type RenewOptions struct {
	Bundle           bool
	EmailAddresses   []string
	Profile          string
	PreferredChain   string
	EnableCommonName bool
}
