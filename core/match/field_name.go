package match

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/words"
)

// headerName returns the canonical name of a header field. The error says why no request has it.
func headerName(name string) (string, error) {
	if !words.IsToken(name) {
		return "", words.Wrong("", strconv.Quote(name), " cannot be the name of a header field")
	}
	if strings.HasPrefix(strings.ToUpper(name), "HTTP_") {
		return "", words.Wrong("", strconv.Quote(name), " is a variable of CGI; write the field itself, %s", http.CanonicalHeaderKey(strings.Replace(name[5:], "_", "-", -1)))
	}
	name = http.CanonicalHeaderKey(name)
	if name == "Transfer-Encoding" || name == "Trailer" {
		return "", words.Wrong("", name, "is not among the fields of a request, since the proxy takes it out")
	}
	return name, nil
}

// checkFieldName says why no request has a cookie or a parameter with that name.
func checkFieldName(kind, name string) error {
	if kind == "cookie" && !words.IsToken(name) {
		return words.Wrong("", "", "%q cannot be the name of a cookie", name)
	}
	if kind == "query" && (name == "" || strings.ContainsAny(name, "?&=#")) {
		return words.Wrong("", strconv.Quote(name), "must have the name of the parameter alone, such as query:token")
	}
	return nil
}
