//go:build gc
// +build gc

package redis

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
)

// A server loads each script, under the SHA-1 that the Store uses, and compiles each file as it stands.
func TestAServerCompilesEveryScript(t *testing.T) {
	server := redistest.Start(t)
	for _, s := range scripts {
		if sum := server.MustDo(t, "SCRIPT", "LOAD", s.Source).Text; sum != s.SHA1 {
			t.Errorf("%s: %q, want %s", s.name, sum, s.SHA1)
		}
	}
	files, err := filepath.Glob("scripts/*.lua")
	if err != nil || len(files) < 20 {
		t.Fatalf("files %q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := server.Do("SCRIPT", "LOAD", string(text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
