package adaptive

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/words"
)

// BuiltinAdvisor is the URL of the advisor that runs inside the proxy.
const BuiltinAdvisor = "builtin"

// The words of an advisor's settings. The first of each list is the default.
var (
	AdvisorModes = []string{"observe", "apply"}
	AdvisorGates = []string{"full", "bounds"}
)

// The bounds and defaults of an advisor's durations.
const (
	DefaultAdvisorInterval, LeastAdvisorInterval, MostAdvisorInterval = 10 * time.Second, time.Second, time.Hour
	DefaultAdvisorTimeout, LeastAdvisorTimeout, MostAdvisorTimeout    = 2 * time.Second, 10 * time.Millisecond, time.Minute
	DefaultAdvisorWarmUp                                              = 24 * time.Hour
)

// AdvisorConfig has the settings of an advisor, as a proxy's configuration has them; what is not set is zero.
type AdvisorConfig struct {
	URL, Mode, Fleet, Token, Gates string
	Interval, Timeout, WarmUp      time.Duration
	PublicKey                      string // a file
	TLS                            bool   // there are settings of TLS
}

// CheckAdvisor says what is wrong with an advisor's settings, as a words.Mistake with the names of Caddy. builtin says whether the proxy has an advisor of
// its own.
func CheckAdvisor(c *AdvisorConfig, builtin bool) error {
	if err := checkAdvisor(c, builtin); err != nil {
		return words.Of(err).Within("advisor", "")
	}
	return nil
}

func checkAdvisor(c *AdvisorConfig, builtin bool) error {
	if err := checkAdvisorURL(c.URL, builtin); err != nil {
		return err
	}
	if err := words.CheckWord("mode", c.Mode, AdvisorModes); err != nil {
		return err
	}
	if err := words.CheckWord("gates", c.Gates, AdvisorGates); err != nil {
		return err
	}
	for _, d := range []struct {
		word        string
		value       time.Duration
		least, most time.Duration
		text        string
	}{
		{"interval", c.Interval, LeastAdvisorInterval, MostAdvisorInterval, "from 1s to 1h"},
		{"timeout", c.Timeout, LeastAdvisorTimeout, MostAdvisorTimeout, "from 10ms to 1m"},
		{"warm_up", c.WarmUp, front.LeastWarmUp, front.MostWarmUp, "from 10s to 720h"},
	} {
		if d.value != 0 && (d.value < d.least || d.value > d.most) {
			return words.Wrong(d.word, d.value.String(), "must be a duration %s", d.text)
		}
	}
	for _, s := range []struct {
		word string
		has  bool
	}{
		{"fleet", c.Fleet != ""}, {"token", c.Token != ""}, {"public_key", c.PublicKey != ""}, {"tls", c.TLS}, {"interval", c.Interval != 0}, {"timeout", c.Timeout != 0},
	} {
		if s.has && c.URL == BuiltinAdvisor {
			return words.Wrong(s.word, "", "has no effect with advisor builtin, which is asked over no connection; remove it")
		}
	}
	if c.TLS && strings.HasPrefix(strings.ToLower(c.URL), "http:") {
		return words.Wrong("tls", "", "has no effect with an address of http; write https, or remove it")
	}
	if c.Gates == "bounds" && c.WarmUp != 0 {
		return words.Wrong("warm_up", "", "has no effect with gates bounds; remove it")
	}
	return nil
}

func checkAdvisorURL(text string, builtin bool) error {
	or := ""
	if builtin {
		or = ", or builtin"
	}
	const such = "write one such as https://advisor.internal:8787/v1/advice"
	if text == "" {
		return words.Wrong("url", "", "is missing; %s%s", such, or)
	}
	if text == BuiltinAdvisor && builtin {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil && strings.Contains(text, "@"): // which may be a password
		return words.Wrong("url", "", "is no address of HTTP; %s%s", such, or)
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return words.Wrong("url", strconv.Quote(text), "must be an address of HTTP; %s%s", such, or)
	case u.User != nil:
		return words.Wrong("url", "", "has a user or password in it; write token instead")
	case u.Fragment != "" || strings.Contains(text, "#"):
		return words.Wrong("url", strconv.Quote(text), "has a fragment, which is never sent; remove it")
	case u.RawQuery != "":
		return words.Wrong("url", "", "has a query; the fleet and the token have settings of their own")
	}
	return nil
}
