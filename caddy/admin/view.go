package admin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/proxyweir/weir/caddy/adapt"
	"github.com/proxyweir/weir/caddy/deferred"
	"github.com/proxyweir/weir/caddy/protect"
	"github.com/proxyweir/weir/caddy/report"
	"github.com/proxyweir/weir/caddy/stores"
	"github.com/proxyweir/weir/caddy/syntax"
	"github.com/proxyweir/weir/core/describe"
	"github.com/proxyweir/weir/core/excepted"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/words"
)

var (
	reading = []string{http.MethodGet, http.MethodHead}
	writing = []string{http.MethodPost}
)

func isJSON(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(mediaType), "application/json")
}

func adminError(status int, format string, v ...any) error {
	return caddy.APIError{HTTPStatus: status, Err: fmt.Errorf(format, v...)}
}

// longestBody is the longest request body that is read, in bytes.
const longestBody = 1 << 20

// readBody reads a request's JSON body. It refuses unknown fields, and anything after the object.
func readBody(r *http.Request, into any) error {
	body, err := readWhole(r)
	if err != nil {
		return err
	}
	return parseBody(body, into)
}

// readWhole reads a request's body.
func readWhole(r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, longestBody))
	if err == nil && !utf8.Valid(body) { // JSON would take other texts for it, and keys that are not meant
		err = errors.New("must be UTF-8")
	}
	if err != nil {
		err = adminError(http.StatusBadRequest, "the request's body: %w", err)
	}
	return body, err
}

func parseBody(body []byte, into any) error {
	err := syntax.UnmarshalStrict(body, into)
	if err == nil && !json.Valid(body) {
		err = errors.New("unexpected text after the object")
	}
	if err != nil {
		return adminError(http.StatusBadRequest, "the request's body: %w", err)
	}
	return nil
}

// ruleNamed returns the rule that a request names.
func ruleNamed(a *View, label string) (*report.ActiveRule, error) {
	if label == "" {
		return nil, adminError(http.StatusBadRequest, "rule: is missing; write a name that /rate_limit/rules has")
	}
	subjects := a.Rules()
	i := slices.IndexFunc(subjects, func(s *report.ActiveRule) bool { return s.Label == label })
	if i >= 0 {
		return subjects[i], nil
	}
	hint := ""
	if near := words.Nearest(label, report.LabelsOf(subjects)); near != "" {
		hint = fmt.Sprintf(" (did you mean %s?)", near)
	}
	return nil, adminError(http.StatusNotFound, "rule %q: there is none of that name%s", label, hint)
}

// keyOf returns the key that a request names, either by its parts or by the id that a list of top keys, or of exceptions, has for it.
func keyOf(s *report.ActiveRule, parts []string, id string) (string, error) {
	if id == "" {
		key, err := s.Keys.Of(parts)
		if err != nil {
			return "", adminError(http.StatusBadRequest, "%w", err)
		}
		return key, nil
	}
	if len(parts) > 0 {
		return "", adminError(http.StatusBadRequest, "key and id are mutually exclusive: remove one")
	}
	now := time.Now().Unix()
	for _, list := range [][]report.TopKey{s.Stats.TopRequests.List(now), s.Stats.TopRejections.List(now)} {
		for _, k := range list {
			if !k.Cut && describe.IdOf(s.Label, k.Key) == id {
				return k.Key, nil
			}
		}
	}
	for _, t := range s.Tables() {
		for _, e := range t.List() {
			if e.Rule == s.Label && describe.IdOf(s.Label, string(e.Key)) == id {
				return string(e.Key), nil
			}
		}
	}
	return "", adminError(http.StatusNotFound, "id %q: is none of the rule's top keys any more, nor of its exceptions; name the key by its parts", id)
}

// checkQuery refuses unknown parameters, so that a misspelt one is not silently ignored, and duplicates. Only "key" may be
// repeated, once for each part of the key.
func checkQuery(r *http.Request, known ...string) error {
	for name, values := range r.URL.Query() {
		if len(known) == 0 {
			return adminError(http.StatusBadRequest, "parameter %q: this takes none", name)
		}
		if err := words.CheckWord("parameter", name, known); err != nil {
			return adminError(http.StatusBadRequest, "%w", err)
		}
		if len(values) > 1 && name != "key" {
			return adminError(http.StatusBadRequest, "parameter %q: duplicate; keep one", name)
		}
	}
	return nil
}

// View is a configuration in force, as the API sees it.
type View struct {
	Rules        func() []*report.ActiveRule
	Limiters     []*stores.Limiter  // of the handlers
	Guards       []*protect.Guarded // each once
	Queues       []*deferred.Deferral
	Memory       *memory.Store
	Blocked      *report.BlockedAddresses
	Passing      *excepted.Table // what people have decided that ends with the process; nil: a file keeps it
	Adapting     *adapt.Controller
	AdviceSource *adapt.Source // nil: there is no advisor
	Files        *FilesAnswer  // nil: there are no rule files
	Ctx          caddy.Context

	// Trusted returns the networks of all servers' trusted proxies; known is false if they cannot be found out.
	Trusted func() (networks []netip.Prefix, known bool)
}

// current returns the configuration in force; nil: it has no rate_limit. Who has the configurations sets it.
var current func() *View

// Show has the API show what f returns.
func Show(f func() *View) { current = f }

// FilesAnswer says whether the rules in force are those of the rule files on disk.
type FilesAnswer struct {
	Successful bool      `json:"successful"`
	Loaded     time.Time `json:"loaded"` // when rule files last came into force
}
