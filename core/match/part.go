package match

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/words"
)

// taker returns for a kind of sources that is prepared once, and for its name, a function that takes the value from a request, and the name as it is
// written in full. For all other kinds take is nil.
func taker(kind, name string) (take func(r *http.Request) string, full string, err error) {
	switch kind {
	case "header":
		take = fieldTaker(name)
	case "path_segment":
		take, err = segmentTaker(name)
	case "path_regexp":
		take, err = regexpTaker(name)
	case "unverified_jwt_claim":
		return claimTaker(name)
	case "client_cert":
		take, err = certificateTaker(name)
	}
	return take, name, err
}

// fieldTaker returns a function that takes a header field whose values have one spelling; nil: of others the value is as it is sent.
func fieldTaker(name string) func(r *http.Request) string {
	switch name {
	case "Host":
		return func(r *http.Request) string { return plainHost(HostOf(r.Host)) }
	case "Authorization", "Proxy-Authorization":
		return func(r *http.Request) string { return spellCredentials(strings.Join(r.Header[name], ",")) }
	}
	return nil
}

// schemes has the usual spelling of the schemes of credentials that have more capitals than the first letter.
var schemes = map[string]string{"apikey": "ApiKey", "aws4-hmac-sha256": "AWS4-HMAC-SHA256", "dpop": "DPoP", "gnap": "GNAP", "hoba": "HOBA", "ntlm": "NTLM", "oauth": "OAuth", "scram-sha-1": "SCRAM-SHA-1",
	"scram-sha-256": "SCRAM-SHA-256"}

// spellCredentials returns credentials with the usual spelling of their scheme and one space behind it, since services take "bearer  x" for "Bearer x" (RFC
// 9110, section 11.1).
func spellCredentials(value string) string {
	if strings.HasPrefix(value, "Bearer ") && !strings.HasPrefix(value, "Bearer  ") && !strings.HasPrefix(value, "Bearer \t") { // the most common case
		return value
	}
	end := strings.IndexAny(value, " \t")
	if end <= 0 {
		return value
	}
	scheme := strings.ToLower(value[:end])
	usual := schemes[scheme]
	if usual == "" {
		usual = strings.ToUpper(scheme[:1]) + scheme[1:]
	}
	return usual + " " + strings.Trim(value[end:], " \t")
}

// mostSegments is the highest number of a segment.
const mostSegments = 100

// segmentTaker returns a function that takes a segment of the path in its canonical spelling.
func segmentTaker(number string) (func(r *http.Request) string, error) {
	n, err := words.ParseCount(number, mostSegments)
	if err != nil {
		return nil, words.Wrong("", "", "must have the number of a segment, from 1 to %d: path_segment:2 is the acme of /orders/acme", mostSegments)
	}
	place := int(n) - 1
	return func(r *http.Request) string { return Segment(CleanPath(r.URL.Path), place) }, nil
}

// Segment returns the segment of a path with number n, where the first segment is 0; "" if there is none.
func Segment(path string, n int) string {
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	if n >= len(segments) {
		return ""
	}
	return segments[n]
}

// SpellSegment normalizes a piece of a path without a slash: a segment, or a file name.
func SpellSegment(value string) (string, error) {
	if strings.Contains(value, "/") || value == "." || value == ".." {
		return "", words.Wrong("", strconv.Quote(value), "must be one segment of a path, such as the login of /login, and has no slash")
	}
	return SpellDecoded(value)
}

// SpellDecoded accepts a piece of a path, which is normalized if it is in lower case and not escaped.
func SpellDecoded(value string) (string, error) {
	if escape := EscapeIn(value); escape != "" {
		return "", words.Wrong("", strconv.Quote(value), "must be written decoded, without %s", escape)
	}
	return strings.ToLower(value), nil
}

// EscapeIn returns the first percent-encoded byte of a text, such as %20; "" if there is none.
func EscapeIn(text string) string {
	for i := 0; i+2 < len(text); i++ {
		if text[i] == '%' && isHex(text[i+1]) && isHex(text[i+2]) {
			return text[i : i+3]
		}
	}
	return ""
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// longestRegexp is the longest regular expression, in bytes.
const longestRegexp = 500

// regexpTaker returns a function that takes what the one group of a regular expression finds in the path in its canonical spelling, which is in
// lower case; so the expression is for both cases.
func regexpTaker(text string) (func(r *http.Request) string, error) {
	if len(text) > longestRegexp {
		return nil, words.Wrong("", "", "has %d bytes; a regular expression may have %d", len(text), longestRegexp)
	}
	compiled, err := regexp.Compile("(?i)" + text)
	if err != nil {
		return nil, words.Wrong("", "", "is no regular expression: %s", strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	if compiled.NumSubexp() != 1 {
		return nil, words.Wrong("", "", "has %d groups, and must have one, which is the value: path_regexp:^/t/([^/]+); a group that is not is written (?:…)", compiled.NumSubexp())
	}
	return func(r *http.Request) string {
		found := compiled.FindStringSubmatch(CleanPath(r.URL.Path))
		if len(found) < 2 {
			return ""
		}
		return found[1]
	}, nil
}

// certificateFields are the names of a certificate's fields.
var certificateFields = []string{"fingerprint", "subject", "common_name", "issuer", "serial", "dns", "uri"}

// certificateTaker returns a function that takes a field of the client's certificate, if the proxy has verified it.
func certificateTaker(field string) (func(r *http.Request) string, error) {
	if !contains(certificateFields, field) {
		m := words.OneOf("", "", field, certificateFields)
		m.Says = "the field " + m.Says
		return nil, m
	}
	return func(r *http.Request) string {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			return ""
		}
		return certificateField(r.TLS.VerifiedChains[0][0], field)
	}, nil
}

// certificateField returns a field of a certificate: of names that it may have several of, the first.
func certificateField(c *x509.Certificate, field string) string {
	switch field {
	case "fingerprint":
		sum := sha256.Sum256(c.Raw)
		return hex.EncodeToString(sum[:])
	case "subject":
		return c.Subject.String()
	case "common_name":
		return c.Subject.CommonName
	case "issuer":
		return c.Issuer.String()
	case "serial":
		return c.SerialNumber.String()
	case "dns":
		if len(c.DNSNames) > 0 {
			return strings.ToLower(c.DNSNames[0])
		}
	case "uri":
		if len(c.URIs) > 0 {
			return c.URIs[0].String()
		}
	}
	return ""
}
