// Package lego stands in for the ACME client: every call that would ask an authority fails.
package lego

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"time"

	"github.com/go-acme/lego/v5/acme"
	"github.com/go-acme/lego/v5/certificate"
	"github.com/go-acme/lego/v5/challenge"
	"github.com/go-acme/lego/v5/challenge/dns01"
	"github.com/go-acme/lego/v5/challenge/http01"
	"github.com/go-acme/lego/v5/challenge/tlsalpn01"
	"github.com/go-acme/lego/v5/registration"
)

// The authorities that Traefik has as defaults.
const (
	DirectoryURLLetsEncrypt        = "https://acme-v02.api.letsencrypt.org/directory"
	DirectoryURLLetsEncryptStaging = "https://acme-staging-v02.api.letsencrypt.org/directory"
)

var errNoACME = errors.New("ACME is left out of this build")

// CertificateConfig is part of Config.
type CertificateConfig struct{ Timeout time.Duration }

// Config is what Traefik sets before it asks for a client.
type Config struct {
	CADirURL    string
	UserAgent   string
	HTTPClient  *http.Client
	Certificate CertificateConfig
}

// NewConfig returns an empty one.
func NewConfig(any) *Config { return &Config{} }

type certifier struct{}

func (certifier) Obtain(context.Context, certificate.ObtainRequest) (*certificate.Resource, error) {
	return nil, errNoACME
}

func (certifier) Renew(context.Context, certificate.Resource, *certificate.RenewOptions) (*certificate.Resource, error) {
	return nil, errNoACME
}

type challenger struct{}

func (challenger) SetDNS01Provider(challenge.Provider, ...dns01.ChallengeOption) error {
	return errNoACME
}

func (challenger) SetHTTP01Provider(challenge.Provider, ...http01.ChallengeOption) error {
	return errNoACME
}

func (challenger) SetTLSALPN01Provider(challenge.Provider, ...tlsalpn01.ChallengeOption) error {
	return errNoACME
}

type registrar struct{}

func (registrar) Register(context.Context, registration.RegisterOptions) (*acme.ExtendedAccount, error) {
	return nil, errNoACME
}

func (registrar) RegisterWithExternalAccountBinding(context.Context, registration.RegisterEABOptions) (*acme.ExtendedAccount, error) {
	return nil, errNoACME
}

// Client has the methods that Traefik calls. There never is one, as NewClient fails.
type Client struct {
	Certificate  certifier
	Challenge    challenger
	Registration registrar
}

// NewClient fails.
func NewClient(*Config) (*Client, error) { return nil, errNoACME }

// CreateCertPool fails.
func CreateCertPool([]string, bool) (*x509.CertPool, error) { return nil, errNoACME }
