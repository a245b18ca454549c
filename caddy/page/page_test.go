package page

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyweir/weir/tools/must"
)

// getPage calls Serve with a method and a path.
func getPage(method, path string) (*httptest.ResponseRecorder, error) {
	w := httptest.NewRecorder()
	return w, Serve(w, httptest.NewRequest(method, path, nil))
}

func TestThePageIsServedWithAPolicyThatAllowsNothingButItself(t *testing.T) {
	w, err := getPage(http.MethodGet, Path)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Content-Type":           "text/html; charset=utf-8",
		"Cache-Control":          "no-store",
		"Referrer-Policy":        "same-origin",
		"X-Content-Type-Options": "nosniff",
	} {
		must.Equal(t, w.Header().Get(name), want, "%s", name)
	}
	policy := w.Header().Get("Content-Security-Policy")
	hash := `'sha256-[A-Za-z0-9+/]{43}='`
	if !regexp.MustCompile(`^default-src 'none'; connect-src 'self'; style-src ` + hash + `; script-src ` + hash +
		`; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; ` +
		`require-trusted-types-for 'script'; trusted-types 'none'$`).MatchString(policy) {
		t.Errorf("Content-Security-Policy: %s", policy)
	}
	if empty := hashOf([]byte("\n<style></style>"), "style"); strings.Contains(policy, empty) {
		t.Errorf("the policy has the hash of nothing: %s", policy)
	}
	if !bytes.Equal(w.Body.Bytes(), whole().body) || !bytes.HasPrefix(w.Body.Bytes(), []byte("<!doctype html>")) {
		t.Errorf("the body begins with %.60q", w.Body)
	}
}

func TestThePageHasOneStyleAndOneScriptAndNothingFromOutside(t *testing.T) {
	html := string(whole().body)
	for _, tag := range []string{"<style", "<script", "\n<style>", "\n<script>", "</style>", "</script>"} {
		if n := strings.Count(html, tag); n != 1 {
			t.Errorf("%q is there %d times, want 1", tag, n)
		}
	}
	for name, refused := range map[string]string{
		"an address outside":          `(?i)(src|href|url|action)\s*[=(]\s*["']?\s*(https?:|//)`,
		"an inline handler":           `(?i)<[^>]*\son[a-z]+\s*=`,
		"a style attribute":           `(?i)<[^>]*\sstyle\s*=`,
		"text that is parsed as HTML": `innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|setHTMLUnsafe|srcdoc`,
		"text that is run":            `\beval\b|new Function|set(Timeout|Interval)\(\s*["'` + "`]",
		"a window's own dialog":       `\b(window\.)?(confirm|alert|prompt)\((["'` + "`]|$)",
		"an import":                   `@import|\bimport\s*[({"']`,
		"a path from the root":        `(ask|fetch)\(\s*["'` + "`]/",
	} {
		must.Equal(t, regexp.MustCompile(refused).FindString(html), "", "the page has %s", name)
	}
}

func TestThePageIsAtItsOwnPathAlone(t *testing.T) {
	for _, test := range []struct {
		method, path string
		status       int
	}{
		{http.MethodHead, Path, 0},
		{http.MethodPost, Path, http.StatusMethodNotAllowed},
		{http.MethodDelete, Path, http.StatusMethodNotAllowed},
		{http.MethodGet, Path + "nosuch", http.StatusNotFound},
		{http.MethodGet, "/rate_limit", http.StatusNotFound},
	} {
		_, err := getPage(test.method, test.path)
		var answer caddy.APIError
		if errors.As(err, &answer); answer.HTTPStatus != test.status {
			t.Errorf("%s %s: %v, want status %d", test.method, test.path, err, test.status)
		}
	}
}

func TestLineEndsOfACheckoutDoNotChangeTheHashes(t *testing.T) {
	if bytes.Contains(whole().body, []byte("\r")) {
		t.Error("what is sent has a carriage return, which a browser leaves out before it hashes")
	}
}
