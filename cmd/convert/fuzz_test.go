package convert

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Whatever a file has, it is converted or refused: nothing panics, and rules that are printed load.
func FuzzConvert(f *testing.F) {
	examples, _ := filepath.Glob("testdata/*.txt")
	for _, example := range examples {
		_, names, texts := parts(f, example)
		for from := range peers {
			if strings.HasPrefix(filepath.Base(example), from) {
				f.Add(from, texts[names[0]])
			}
		}
	}
	f.Fuzz(func(t *testing.T, from, text string) {
		p, known := peers[from]
		if !known || len(text) > 10_000 || strings.Contains(text, "include") { // which would read files of this machine
			return
		}
		started := time.Now()
		for _, to := range p.targets {
			file := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			c := &conversion{from: from, to: to}
			out, err := c.run([]string{file}, nil)
			if err == nil && len(c.rules) > 0 && to == "rules" {
				rulesOf(t, out)
			}
		}
		if time.Since(started) > 10*time.Second {
			t.Errorf("takes %v", time.Since(started))
		}
	})
}
