// Package page is the page that shows the rules of a running Caddy: it is served by the admin API, and by `caddy rate-limit page`.
package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"sync"

	"github.com/caddyserver/caddy/v2"
)

// Path is where the page is. The paths of the API that it asks are beside it.
const Path = "/rate_limit/"

//go:embed page.html
var embeddedPage []byte

// served is what is sent of the page, and the Content-Security-Policy that goes with it.
type served struct {
	body   []byte
	policy string
}

// whole is the same for all, and made when it is first asked for.
var whole = sync.OnceValue(func() served {
	// As browsers read it before they hash it, if a checkout has made other line ends of the file's.
	body := bytes.ReplaceAll(embeddedPage, []byte("\r\n"), []byte("\n"))
	// Nothing but the page's own style and script has effect, and the API beside it is all that can be reached. What is shown has names
	// that clients choose: the browser refuses to parse text as HTML, too, where it knows Trusted Types.
	return served{body, "default-src 'none'; connect-src 'self'; style-src '" + hashOf(body, "style") + "'; script-src '" +
		hashOf(body, "script") + "'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'"}
})

// hashOf returns the hash by which a Content-Security-Policy allows the one element of a name: that of the text between its tags.
func hashOf(html []byte, element string) string {
	_, rest, _ := bytes.Cut(html, []byte("\n<"+element+">"))
	text, _, _ := bytes.Cut(rest, []byte("</"+element+">"))
	sum := sha256.Sum256(text)
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

// Serve answers with the page that shows what the API has: the rates of rules, their keys, the state of stores.
func Serve(w http.ResponseWriter, r *http.Request) error {
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
	h.Set("Referrer-Policy", "same-origin") // Caddy's admin endpoint goes by the Referer of requests that have no Origin
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(whole().body) // the browser has gone
	return nil
}
