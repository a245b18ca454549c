// Package progress shows how far a long command has come: a bar with the time left on a terminal, and a line now and then elsewhere.
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// Bar shows how many of all parts are done. New makes it. It is safe for concurrent use.
type Bar struct {
	to       io.Writer
	terminal bool
	all      int

	mu    sync.Mutex
	done  int
	begun time.Time
	shown time.Time
}

// New returns the bar of so many parts, which begin now.
func New(to *os.File, all int) *Bar {
	info, err := to.Stat()
	return &Bar{to: to, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, all: all, begun: time.Now()}
}

// Done counts a part that is done.
func (b *Bar) Done() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.done++
	now := time.Now()
	if !b.terminal && b.done < b.all && now.Sub(b.shown) < time.Minute || b.terminal && now.Sub(b.shown) < 100*time.Millisecond && b.done < b.all {
		return
	}
	b.shown = now
	line := Line(b.done, b.all, now.Sub(b.begun))
	if b.terminal {
		line = "\r\x1b[K" + line
		if b.done == b.all {
			line += "\n"
		}
	} else {
		line += "\n"
	}
	fmt.Fprint(b.to, line)
}

// Say writes a line above the bar.
func (b *Bar) Say(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	line := fmt.Sprintf(format, args...) + "\n"
	if b.terminal {
		line = "\r\x1b[K" + line
	}
	fmt.Fprint(b.to, line)
}

// Line is what a bar shows after a time in which some of all parts were done.
func Line(done, all int, passed time.Duration) string {
	const width = 30
	filled := 0
	if all > 0 {
		filled = width * done / all
	}
	left := "?"
	if done > 0 {
		left = (passed * time.Duration(all-done) / time.Duration(done)).Round(time.Second).String()
	}
	return fmt.Sprintf("[%s%s] %d of %d, %s left", strings.Repeat("#", filled), strings.Repeat(".", width-filled), done, all, left)
}
