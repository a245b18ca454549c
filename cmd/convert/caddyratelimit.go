package convert

import (
	"bytes"
	"fmt"
	"regexp"
)

var (
	unneeded = regexp.MustCompile(`(?m)^[ \t]*(?:disable_metrics|order[ \t]+rate_limit[ \t].*)[ \t]*\n`)
	refused  = regexp.MustCompile("(?m)^[ \t]*(?:events[ \t]+0$|sweep_interval[ \t]+[0-9.]+[mµun]s|zone[ \t]+[\"`]).*$")
)

// caddyRateLimit converts a Caddyfile with caddy-ratelimit: nearly all of it stays as it is.
func caddyRateLimit(c *conversion, file string, written []byte) error {
	if c.text != "" || bytes.HasPrefix(bytes.TrimSpace(written), []byte("{\"")) {
		return fmt.Errorf("one Caddyfile at a time; JSON loads as it is, but for disable_metrics")
	}
	leave := func(lines *regexp.Regexp, why, instead string) {
		for _, at := range lines.FindAllIndex(written, -1) {
			c.leave(file, 1+bytes.Count(written[:at[0]], []byte("\n")), string(bytes.TrimSpace(written[at[0]:at[1]])), why, instead)
		}
	}
	leave(unneeded, "Weir has an order of its own, early, and no series for keys", "the line is left out; write an order again only if the limit must run later")
	leave(refused, "Weir refuses it", "caddy validate says what it takes")
	c.text = "# From a Caddyfile with caddy-ratelimit. Build Caddy with Weir and without caddy-ratelimit, and run caddy validate.\n" +
		"# docs/from-caddy-ratelimit.md has what differs: a request that one zone rejects costs the other zones nothing.\n" + string(unneeded.ReplaceAll(written, nil))
	return nil
}
