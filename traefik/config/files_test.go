//go:build gc
// +build gc

package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

func TestARenewedCertificateIsAnotherSetting(t *testing.T) {
	path := t.TempDir() + "/ca.pem"
	prints := make(map[string]bool)
	for i := 0; i < 2; i++ {
		contents, err := os.ReadFile(redistest.NewCertificates(t).CAFile)
		must.Succeed(t, err)
		writeFile(t, path, string(contents))
		var s StoreSettings
		must.Succeed(t, s.setRedis(object{"address": "a:1", "tls": object{"ca": path}}))
		prints[s.Redis.Fingerprint] = true
	}
	must.Equal(t, len(prints), 2, "a store goes on with the certificates that there were")
}

// A device or a pipe may have no end: reading one would take Traefik's memory, or hold up its configuration.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe")
	must.Succeed(t, syscall.Mkfifo(pipe, 0o600))
	large := filepath.Join(folder, "large")
	must.Succeed(t, os.WriteFile(large, make([]byte, largestFile+1), 0o600))
	for name, want := range map[string]string{pipe: "is not a regular file", "/dev/zero": "is not a regular file", folder: "is not a regular file", large: "has at most"} {
		for _, store := range []object{
			{"redis": object{"address": "127.0.0.1:1", "password": "file:" + name}},
			{"redis": object{"address": "127.0.0.1:1", "tls": object{"ca": name}}},
		} {
			_, err := ReadStore(&Config{Store: store})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v, want %q", store, err, want)
			}
		}
	}
	link := filepath.Join(folder, "link")
	secret := filepath.Join(folder, "secret")
	must.Succeed(t, os.WriteFile(secret, []byte("x\n"), 0o600))
	must.Succeed(t, os.Symlink(secret, link))
	if text, err := readFile(link); err != nil || string(text) != "x\n" {
		t.Errorf("by a link: %q, %v", text, err)
	}
}

func TestTheManualHasWhatIsRefused(t *testing.T) {
	page, err := os.ReadFile("../../docs/traefik.md")
	must.Succeed(t, err)
	_, table, found := strings.Cut(string(page), "\n### Not in this version\n")
	for word := range refusedRedis {
		if !found || !strings.Contains(strings.ToLower(table), "`"+word+"`") {
			t.Errorf("%s is missing", word)
		}
	}
}
