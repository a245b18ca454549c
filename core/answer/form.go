package answer

import (
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
	"github.com/proxyweir/weir/core/words"
)

// Form is another form of the X-RateLimit fields.
type Form struct {
	prefix string              // in place of X-RateLimit
	names  map[string]string   // of standardNames, in this form
	now    func() (unix int64) // in microseconds: Reset is a second of the Unix epoch; nil: it is the seconds from now
}

// standardNames are the X-RateLimit fields, as http.Header has them.
var standardNames = []string{memory.HeaderLimit, memory.HeaderRemaining, memory.HeaderReset, memory.HeaderXRetryAfter, headerSoft}

const standardPrefix = "X-RateLimit"

// ResetWords are what header_reset may be.
var ResetWords = []string{"seconds", "epoch"}

const longestPrefix = 64

// SetForm reads header_prefix and header_reset of a configuration; "" is the default of each. The error begins with the setting.
func SetForm(f *Fields, prefix, reset string) error {
	if err := words.CheckWord("header_reset", reset, ResetWords); err != nil {
		return err
	}
	if prefix != "" && (!words.IsToken(prefix) || strings.HasSuffix(prefix, "-") || len(prefix) > longestPrefix) {
		return words.Wrong("header_prefix", strconv.Quote(prefix), "must be what the names of header fields begin with, up to %d characters without a dash at the end: X-Acme is for X-Acme-Limit, X-Acme-Remaining and X-Acme-Reset", longestPrefix)
	}
	for _, said := range [][2]string{{"header_prefix", prefix}, {"header_reset", reset}} {
		if said[1] != "" && !f.XRateLimit {
			return words.Wrong(said[0], strconv.Quote(said[1]), "has no effect where headers leaves out x_ratelimit; add that, or remove it")
		}
	}
	if prefix == "" {
		prefix = standardPrefix
	}
	if prefix == standardPrefix && reset != "epoch" {
		return nil
	}
	form := &Form{prefix: prefix, names: make(map[string]string)}
	for _, name := range standardNames {
		form.names[name] = textproto.CanonicalMIMEHeaderKey(prefix + name[len(standardPrefix):])
	}
	if reset == "epoch" {
		form.now = func() int64 { return time.Now().UnixMicro() }
	}
	f.Form = form
	return nil
}

// LimitName returns the name of X-RateLimit-Limit in the form of the fields.
func LimitName(f Fields) string {
	if f.Form == nil {
		return memory.HeaderLimit
	}
	return f.Form.nameOf(memory.HeaderLimit)
}

// Names returns the names of all fields that clients are told their quota by, in the order of the manual. Retry-After is one of them.
func Names(f Fields) []string {
	list := []string{"Retry-After"}
	if f.IETF {
		list = append(list, "RateLimit", "RateLimit-Policy")
	}
	if f.XRateLimit {
		prefix := standardPrefix
		if f.Form != nil {
			prefix = f.Form.prefix
		}
		for _, name := range standardNames {
			list = append(list, prefix+name[len(standardPrefix):])
		}
	}
	return list
}

// writeInForm is WriteHeaders for fields of another form.
func writeInForm(h http.Header, f Fields, checks []core.Check, v *core.Verdict) {
	form := f.Form
	f.Form = nil
	as := http.Header{} // what WriteHeaders sees of earlier handlers, and writes
	for _, name := range []string{memory.HeaderRateLimit, memory.HeaderPolicy, memory.HeaderLimit, memory.HeaderRemaining} {
		if values, ok := h[form.nameOf(name)]; ok {
			as[name] = values
		}
	}
	WriteHeaders(as, f, checks, v)
	if form.now != nil && as[memory.HeaderReset] != nil {
		at := form.now() + core.Reported(checks, v).Decision.ResetAfter
		as[memory.HeaderReset] = []string{strconv.FormatInt(seconds(at), 10)}
	}
	for name, values := range as {
		h[form.nameOf(name)] = values
	}
}

// nameOf returns the name that a header field has in the form.
func (f *Form) nameOf(name string) string {
	if own, ok := f.names[name]; ok {
		return own
	}
	return name
}
