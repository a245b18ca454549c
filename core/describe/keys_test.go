package describe

import (
	"regexp"
	"strings"
	"testing"

	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/tools/must"
)

// A value that may be a credential is shortened; an address or a network nobody has as one.
func TestAddressesAreShownWhereCredentialsAreNot(t *testing.T) {
	hash := regexp.MustCompile(`#[0-9a-f]{8}`)
	shown := func(f KeyForm, key string) string { return hash.ReplaceAllString(strings.Join(f.Show(key), " "), "#") }
	first := KeyForm{Names: []string{"first"}, Secret: []bool{true}}
	descriptor := KeyForm{Names: []string{"descriptor"}, Secret: []bool{true}, Free: true}
	for _, c := range []struct {
		form      KeyForm
		key, want string
	}{
		{first, "client_ip=198.51.100.90", "client_ip=198.51.100.90"},
		{first, "client_ip=2001:db8::/64", "client_ip=2001:db8::/64"},
		{first, "header:X-Api-Key=sk-12345678", "head…#"},
		{first, "header:X-Api-Key=10.0.0.1", "head…#"},
		{first, "session=secret; ip=10.0.0.1", "sess…#"},
		{first, "198.51.100.90", "198.51.100.90"},
		{descriptor, "198.51.100.90", "198.51.100.90"},
		{descriptor, "sk-1234567890", "sk-…#"},
		{descriptor, string(match.AppendKeyPart(match.AppendKeyPart(nil, "sk-1234567890"), "198.51.100.90")), "sk-…# 198.51.100.90"},
	} {
		must.Equal(t, shown(c.form, c.key), c.want, c.key)
	}
}
