package syntax

import (
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// Defect found: the admin API silently blocked values that no request has, and overrides silently accepted them.
func TestWrittenValuesThatNoRequestHasAreRefused(t *testing.T) {
	const segment, host = "must be one segment of a path, such as the login of /login, and has no slash", "must be one host, such as shop.example"
	for _, c := range []struct{ placeholder, value, want string }{
		{"uri.path.0", "/login", segment}, {"uri.path.0", "a/b", segment}, {"uri.path.1", "..", segment}, {"uri.path.0", "a%20b", "must be written decoded, without %20"},
		{"orig_uri.path.0", "/login", segment},
		{"uri.path.file", "/Index.html", segment}, {"uri.path.file.base", "/Index", segment},
		{"uri.path.file.ext", "html", "must be the last extension of a file with its dot, such as .html"}, {"uri.path.file.ext", "..html", "must be the last extension of a file with its dot, such as .html"}, {"uri.path.file.ext", ".tar.gz", "must be the last extension of a file with its dot, such as .html"},
		{"uri.path.dir", "/a", "must be a directory of a path, which begins and ends with /"}, {"uri.path.dir", "a/", "must be a directory of a path, which begins and ends with /"},
		{"uri.path", "/a%20b", "must be written decoded, without %20"}, {"uri.path", "a", "must be a path, which begins with /"}, {"orig_uri.path", "/a%2Fb", "must be written decoded, without %2F"},
		{"host.labels.1", "b.test", "must be one label of a host, such as the shop of shop.example, and has no dot"}, {"host.labels.0", "a b", "must be one label of a host, such as the shop of shop.example, and has no dot"},
		{"host", "https://c.test", "must be a host, and is a URL; write c.test"}, {"host", "a b", host}, {"host", "*.example.com", host}, {"host", ".", host},
		{"host", "example.com/login", "must be a host such as shop.example, without a path"},
		{"hostport", "https://c.test:80", "must be a host, and is a URL; write c.test"}, {"hostport", "a b:80", host}, {"tls.server_name", "*.example.com", host},
		{"uri", "login", "must be a path, which begins with /"}, {"uri_escaped", "login", "must be a path, which begins with /"}, {"uri.path_escaped", "login", "must be a path, which begins with /"},
		{"remote.port", "x", "must be a port, 1 to 65535"}, {"remote.port", "70000", "must be a port, 1 to 65535"}, {"remote.port", "65536", "must be a port, 1 to 65535"}, {"remote.port", "0", "must be a port, 1 to 65535"}, {"remote.port", "080", "must be a port, 1 to 65535"},
		{"scheme", "HTTPS", "must be http or https"},
	} {
		k, err := NewTemplate("{http.request." + c.placeholder + "}")
		must.Succeed(t, err)
		if _, err := k.Sources[0].Canonicalize(c.value); err == nil || !strings.HasSuffix(err.Error(), ": "+c.want) || !strings.HasPrefix(err.Error(), `"`) {
			t.Errorf("%s %q: %v, want %s", c.placeholder, c.value, err, c.want)
		}
	}
	for _, c := range []struct{ placeholder, value, want string }{
		{"uri.path.file.base", "/", "/"}, {"uri.path.dir", "/", "/"}, {"uri.path", "*", "*"}, {"host.labels.0", "::1", "::1"}, {"host", "[::1]:80", "::1"},
		{"remote.port", "65535", "65535"}, {"scheme", "https", "https"}, {"port", "x", "x"}, {"uri.path.0", "...", "..."}, {"uri.path.file.ext", ".", "."},
		{"uri", "/a%2520b", "/a%2520b"}, {"uri_escaped", "%2Fa%252520b", "%2Fa%252520b"}, {"uri.path_escaped", "%2Fa%2520b", "%2Fa%2520b"},
	} {
		k, err := NewTemplate("{http.request." + c.placeholder + "}")
		must.Succeed(t, err)
		if got, err := k.Sources[0].Canonicalize(c.value); err != nil || got != c.want {
			t.Errorf("%s %q: %q, %v; want %q", c.placeholder, c.value, got, err, c.want)
		}
	}
}
