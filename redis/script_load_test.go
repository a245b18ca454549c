//go:build gc
// +build gc

package redis

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/proxyweir/weir/redis/redistest"
)

// A server loads the file of each script, under the SHA-1 that the Store uses.
func TestAServerCompilesEveryScript(t *testing.T) {
	server := redistest.Start(t)
	for _, s := range scripts {
		source, err := os.ReadFile(filepath.Join(goldens(), s.name+".lua"))
		if err != nil {
			t.Fatal(err)
		}
		if sum := server.MustDo(t, "SCRIPT", "LOAD", string(source)).Text; sum != s.SHA1 {
			t.Errorf("%s: %q, want %s", s.name, sum, s.SHA1)
		}
	}
}
