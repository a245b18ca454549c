// Package page is the page with the rules of a running Caddy. The admin API, `caddy rate-limit page` and rate_limit_page serve it.
package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"sync"

	"github.com/caddyserver/caddy/v2"
)

// Path is the path of the page. The endpoints of the API that it calls are next to it.
const Path = "/rate_limit/"

//go:embed page.html
var embeddedPage []byte

// served is the page's content, and the Content-Security-Policy for it.
type served struct {
	body   []byte
	policy string
}

// whole is made on its first use, and is the same for all requests.
var whole = sync.OnceValue(func() served {
	// A checkout may have CRLF line ends. Browsers normalize those before they compute the hash.
	body := bytes.ReplaceAll(embeddedPage, []byte("\r\n"), []byte("\n"))
	// The policy permits only the page's own style and script, and requests only to its own origin, where the API is. The page
	// shows names that clients choose: so in browsers with Trusted Types it also forbids parsing text as HTML.
	return served{body, "default-src 'none'; connect-src 'self'; style-src '" + hashOf(body, "style") + "'; script-src '" +
		hashOf(body, "script") + "'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'"}
})

// hashOf returns the hash by which a Content-Security-Policy allows the only element of a name. It is the hash of the text between
// the element's tags.
func hashOf(html []byte, element string) string {
	_, rest, _ := bytes.Cut(html, []byte("\n<"+element+">"))
	text, _, _ := bytes.Cut(rest, []byte("</"+element+">"))
	sum := sha256.Sum256(text)
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Serve answers with the page.
func Serve(w http.ResponseWriter, r *http.Request) error {
	return serve(w, r, whole().body)
}

// ServeReadOnly answers with the page as it is where the API only reads: it shows no actions, and sends GET requests alone.
func ServeReadOnly(w http.ResponseWriter, r *http.Request) error {
	return serve(w, r, readOnly())
}

// readOnly is the page's content for ServeReadOnly. Style and script, and so their hashes, are those of the whole page.
var readOnly = sync.OnceValue(func() []byte {
	return bytes.Replace(whole().body, []byte("<html lang=\"en\">"), []byte("<html lang=\"en\" class=\"read-only\">"), 1)
})

func serve(w http.ResponseWriter, r *http.Request, body []byte) error {
	if r.URL.Path != Path {
		return caddy.APIError{HTTPStatus: http.StatusNotFound, Message: "there is nothing at this path; the page is at " + Path}
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return caddy.APIError{HTTPStatus: http.StatusMethodNotAllowed, Message: "the page takes GET and HEAD alone, not " + r.Method}
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", whole().policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // Caddy's admin endpoint checks the Referer of requests without an Origin
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(body) // fails if the browser has gone
	return nil
}

// SetDataFields sets the header fields of every answer but the page. They say that the answer is data, not a page, and for no other site.
func SetDataFields(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// Refuse answers with an error, as Caddy's admin endpoint writes them. If err is no caddy.APIError the status is 500.
func Refuse(w http.ResponseWriter, err error) {
	answer := caddy.APIError{HTTPStatus: http.StatusInternalServerError, Message: err.Error()}
	if errors.As(err, &answer) && answer.Message == "" && answer.Err != nil {
		answer.Message = answer.Err.Error()
	}
	SetDataFields(w.Header())
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(answer.HTTPStatus)
	_ = json.NewEncoder(w).Encode(answer) // fails if the browser has gone
}
