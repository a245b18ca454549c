package config

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/adaptive"
	"github.com/proxyweir/weir/core/advice"
	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// AdvisorSettings is a middleware's advisor, checked.
type AdvisorSettings struct {
	Source      advice.Source
	Interval    time.Duration
	Apply       bool
	Gates       string
	WarmUp      int64 // microseconds
	Key         ed25519.PublicKey
	Audit       string // "": none
	Fingerprint string // a hash: it has secrets in it
}

// Advice returns what in the settings has no effect, or not the likely one. adaptable: there may be a rule with adapt.
func (s *AdvisorSettings) Advice(adaptable bool) []string {
	var list []string
	if !adaptable {
		list = append(list, "advisor: has no effect, since no rule has adapt; write adapt into the rules that advice may change")
	}
	if s.Gates == advice.Bounds {
		list = append(list, "advisor: gates bounds lets advice lower limits, and raise them under overload; gates full checks it by what Traefik itself sees")
	}
	return list
}

// ReadAdvisor reads an advisor, with the values from the environment and from files; nil: there is none.
func ReadAdvisor(value interface{}) (*AdvisorSettings, error) {
	var (
		none  *AdvisorSettings
		given Advisor
	)
	if value == nil { // as for most
		return none, nil
	}
	present, err := decodeObject("advisor", value, &given)
	if err != nil || !present {
		return none, err
	}
	texts := []struct {
		name  string
		value *string
	}{
		{"url", &given.URL}, {"mode", &given.Mode}, {"fleet", &given.Fleet}, {"token", &given.Token}, {"publicKey", &given.PublicKey},
		{"gates", &given.Gates}, {"audit", &given.Audit},
	}
	for i := range texts {
		if texts[i].name != "token" {
			*texts[i].value = strings.TrimSpace(*texts[i].value)
		}
		if err = resolve(texts[i].name, texts[i].value); err != nil {
			return none, fmt.Errorf("advisor: %w", err)
		}
	}
	var t ClientTLS
	secure, err := decodeObject("tls", given.TLS, &t)
	if err != nil {
		return none, fmt.Errorf("advisor: %w", err)
	}
	s := &AdvisorSettings{Audit: given.Audit}
	if err = s.check(&given, secure); err != nil {
		return none, err
	}
	s.Source.URL = given.URL
	s.Source.Fleet = given.Fleet
	s.Source.Token = given.Token
	var contents []byte
	if secure {
		contents, err = s.secure(&t)
	}
	if err == nil {
		err = advice.CheckSource(&s.Source)
	}
	if err != nil {
		return none, fmt.Errorf("advisor: %w", err)
	}
	pem, err := s.complete(&given)
	if err != nil {
		return none, fmt.Errorf("advisor: %w", err)
	}
	given.TLS = nil // it may be written in several ways
	text, err := json.Marshal(given)
	if err != nil {
		return none, err
	}
	digest := sha256.New()
	digest.Write(text)
	digest.Write(contents)
	digest.Write(pem)
	s.Fingerprint = string(digest.Sum(nil))
	return s, nil
}

// check checks the settings, and reads those that are no texts.
func (s *AdvisorSettings) check(given *Advisor, secure bool) error {
	var in ruleset.Settings
	s.Interval = in.Duration("interval", given.Interval, adaptive.LeastAdvisorInterval, adaptive.MostAdvisorInterval, adaptive.DefaultAdvisorInterval)
	s.Source.Timeout = in.Duration("timeout", given.Timeout, adaptive.LeastAdvisorTimeout, adaptive.MostAdvisorTimeout, adaptive.DefaultAdvisorTimeout)
	warmUp := in.Duration("warmUp", given.WarmUp, front.LeastWarmUp, front.MostWarmUp, 0)
	if in.Err != nil {
		return fmt.Errorf("advisor: %w", in.Err)
	}
	if given.URL == adaptive.BuiltinAdvisor {
		return errors.New("advisor: url builtin: the Traefik plugin has no advisor in it; run caddy rate-limit advisor, and write its address, such as https://advisor.internal:8787/v1/advice")
	}
	c := adaptive.AdvisorConfig{URL: given.URL, Mode: given.Mode, Fleet: given.Fleet, Token: given.Token, Gates: given.Gates,
		Interval: s.Interval, Timeout: s.Source.Timeout, WarmUp: warmUp, PublicKey: given.PublicKey, TLS: secure}
	if err := adaptive.CheckAdvisor(&c, false); err != nil {
		return InWords(words.Of(err))
	}
	if warmUp == 0 {
		warmUp = adaptive.DefaultAdvisorWarmUp
	}
	s.WarmUp = warmUp.Microseconds()
	s.Apply = given.Mode == "apply"
	s.Gates = given.Gates
	if s.Gates == "" {
		s.Gates = adaptive.AdvisorGates[0]
	}
	return nil
}

// secure reads how to connect by TLS, and returns the contents of the files for that.
func (s *AdvisorSettings) secure(t *ClientTLS) ([]byte, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	config, contents, err := loadTLS(config, "ca", "clientCertificate", "clientKey", certificates{t.CA, t.ClientCertificate, t.ClientKey, false})
	if err != nil {
		return contents, fmt.Errorf("tls: %w", err)
	}
	s.Source.TLS = config
	contents = append(contents, t.ServerName...)
	return contents, nil
}

// complete reads the advisor's public key, and returns the text of its file. It checks that the audit file can be written.
func (s *AdvisorSettings) complete(given *Advisor) ([]byte, error) {
	var pem []byte
	var err error
	if given.PublicKey != "" {
		pem, err = readFile(given.PublicKey)
		if err != nil {
			return pem, fmt.Errorf("publicKey: %w", err)
		}
		s.Key, err = advice.ParsePublicKey(pem)
		if err != nil {
			return pem, fmt.Errorf("publicKey %s: %w", given.PublicKey, err)
		}
	}
	if s.Audit != "" {
		if err := adaptive.CheckAudit(s.Audit); err != nil {
			return pem, err
		}
	}
	return pem, nil
}
