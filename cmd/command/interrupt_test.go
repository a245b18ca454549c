package command

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestAReplayThatIsInterruptedSaysSo(t *testing.T) {
	dir := t.TempDir()
	rules, log := filepath.Join(dir, "limits.yaml"), filepath.Join(dir, "access.log")
	for name, text := range map[string]string{rules: "rules: [{name: a, limit: 1/1m}]", log: `192.0.2.1 - - [22/Nov/2026:00:06:23 +0000] "GET / HTTP/1.1" 200 5`} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	o := replayOptions{source: source{rules: []string{rules}}, html: filepath.Join(dir, "report.html")}
	if err := o.run(ctx, []string{log}, nil, io.Discard, io.Discard); err == nil || err.Error() != "interrupted" {
		t.Errorf("%v, want that it was interrupted", err)
	}
	if files, _ := os.ReadDir(dir); len(files) != 2 {
		t.Errorf("%v are left behind", files)
	}
}
