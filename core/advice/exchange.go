package advice

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// ConfigHeader is the header field of a request that has the Digest of the proxy's rules.
const ConfigHeader = "Weir-Config"

// Source is where a proxy gets its advice.
type Source struct {
	URL   string // http or https, such as https://advisor.internal:8787/v1/advice
	Fleet string // "": none
	Token string // "": none

	// TLS has the authorities that the advisor's certificate must be by, and the proxy's own certificate; nil: those of the system, and none.
	TLS *tls.Config

	// Timeout is for a whole exchange, from the connection to the last byte of the body; 0 means DefaultTimeout.
	Timeout time.Duration
}

// DefaultTimeout is the default of Source.Timeout.
const DefaultTimeout = 2 * time.Second

// mostTag is how long an ETag may be that is sent back.
const mostTag = 256

// CheckSource says what is wrong with a source.
func CheckSource(s *Source) error {
	u, err := url.Parse(s.URL)
	if err != nil {
		return fmt.Errorf("advisor %q: %w", s.URL, err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("advisor %q: must be a URL with http or https and a host", s.URL)
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("advisor %q: must be a URL without user, query and fragment; the fleet and the token have settings of their own", s.URL)
	}
	if s.Timeout < 0 {
		return fmt.Errorf("timeout %s: must be more than 0", s.Timeout)
	}
	if strings.ContainsAny(s.Token, "\r\n") {
		return fmt.Errorf("token: must be one line")
	}
	return nil
}

// newClient returns a client for one source. Each exchange has a connection of its own, so that none is left when it ends.
func newClient(s *Source) *http.Client {
	transport := &http.Transport{
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10, TLSClientConfig: s.TLS,
	}
	return &http.Client{
		Transport: transport,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}

// answer is what an advisor has answered.
type answer struct {
	body      []byte // nil: the document is the one with that tag
	signature string
	tag       string // a strong ETag, or ""
}

// fetch asks an advisor once. tag is that of the document that the proxy has; "": it has none.
func fetch(ctx context.Context, client *http.Client, s *Source, digest, tag string) (answer, *Refusal) {
	var a answer
	timeout := s.Timeout
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	address := s.URL
	if s.Fleet != "" {
		address += "?fleet=" + url.QueryEscape(s.Fleet)
	}
	request, err := http.NewRequestWithContext(limited, http.MethodGet, address, nil)
	if err != nil {
		return a, refuse(Unavailable, "%v", err)
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set(ConfigHeader, digest)
	request.Header.Set("User-Agent", "weir")
	if tag != "" {
		request.Header.Set("If-None-Match", tag)
	}
	if s.Token != "" {
		request.Header.Set("Authorization", "Bearer "+s.Token)
	}
	response, err := client.Do(request)
	if err != nil {
		return a, refuse(Unavailable, "%s", cause(err, limited, timeout))
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	if response.StatusCode == http.StatusNotModified && tag != "" {
		return a, nil
	}
	if response.StatusCode != http.StatusOK {
		return a, refuse(Unavailable, "status %d%s", response.StatusCode, hint(response.StatusCode))
	}
	if encoding := response.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return a, refuse(Unavailable, "the answer is encoded, as %s", shortly(encoding))
	}
	if response.ContentLength > MaxBytes {
		return a, refuse(TooLarge, "%d bytes: must be at most %d", response.ContentLength, MaxBytes)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, MaxBytes+1))
	if err != nil {
		return a, refuse(Unavailable, "%s", cause(err, limited, timeout))
	}
	a.body = body
	a.signature = response.Header.Get(SignatureHeader)
	if etag := response.Header.Get("ETag"); len(etag) >= 2 && len(etag) <= mostTag && etag[0] == '"' && etag[len(etag)-1] == '"' {
		a.tag = etag
	}
	return a, nil
}

// cause returns why an exchange has failed.
func cause(err error, limited context.Context, timeout time.Duration) string {
	if limited.Err() == context.DeadlineExceeded { //nolint:errorlint // a context wraps nothing
		return "no answer within " + timeout.String()
	}
	text := err.Error()
	if at, is := err.(*url.Error); is { //nolint:errorlint // as Do returns it; without the URL
		text = at.Err.Error()
	}
	const most = 300
	if len(text) > most {
		text = text[:most]
	}
	return text
}

// hint returns what a status means.
func hint(status int) string {
	switch {
	case status == http.StatusNotModified:
		return ": not modified since a document that was not asked for"
	case status >= 300 && status < 400:
		return ": redirects are not followed"
	case status == http.StatusUnauthorized:
		return ": the token is wrong"
	case status == http.StatusNotFound:
		return ": the advisor does not know the fleet, or the path"
	case status == http.StatusConflict:
		return ": the advisor knows other rules; make its advisor.yaml and the rules here agree"
	case status == http.StatusServiceUnavailable:
		return ": the advisor has nothing yet"
	}
	return ""
}
