package ratelimit_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

func makePipe(path string) error { return syscall.Mkfifo(path, 0o600) }

// reads returns a function that says how often a file was opened since.
func reads(t *testing.T, path string) func() int {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if _, err := syscall.InotifyAddWatch(fd, path, syscall.IN_OPEN|syscall.IN_CLOSE); err != nil {
		t.Fatal(err)
	}
	opened := 0
	buffer := make([]byte, 64<<10)
	return func() int {
		for {
			n, err := syscall.Read(fd, buffer)
			if err != nil || n <= 0 {
				return opened
			}
			for at := 0; at+syscall.SizeofInotifyEvent <= n; {
				if binary.NativeEndian.Uint32(buffer[at+4:])&syscall.IN_OPEN != 0 {
					opened++
				}
				at += syscall.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buffer[at+12:]))
			}
		}
	}
}

// In a busy folder, such as one with logs, the rules are not read all the time.
func TestOtherFilesInTheFolderDoNotMakeCaddyReadTheRules(t *testing.T) {
	s := startFiles(t, strings.Replace(byFiles(""), "1s", "1h", 1), "a.yaml", rulesOf(versionOf(1)))
	opened := reads(t, filepath.Join(s.dir, "rules", "a.yaml"))
	s.awaitVersion(1)
	other, err := os.Create(filepath.Join(s.dir, "rules", "busy.log"))
	must.Succeed(t, err)
	defer other.Close()
	begun, events := time.Now(), 0
	for ; time.Since(begun) < 2*time.Second || events < 10_000; events += 6 {
		if _, err := other.WriteString("line\n"); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(s.dir, "rules", fmt.Sprintf("busy.log.%d", events))
		must.Succeed(t, os.WriteFile(name, nil, 0o600))
		must.Succeed(t, os.Rename(name, name+".gz"))
		must.Succeed(t, os.Remove(name+".gz"))
	}
	// Two at the start, until the watcher has seen that the files have not changed; the others are for an overflowing queue.
	if n := opened(); n > 6 {
		t.Errorf("the file was read %d times during %d events", n, events)
	} else {
		t.Logf("read %d times during %d events", n, events)
	}
	s.said(0, saysTaken, saysRefused, saysRestored) // nothing has changed
	// A change is still noticed.
	s.put("a.yaml", rulesOf(versionOf(2)))
	s.awaitVersion(2)
}
