//go:build !linux

package redistest

import (
	"errors"
	"os"
	"syscall"
)

// Pause, Resume and WithClock need Linux.
const (
	sigstop = syscall.Signal(-1)
	sigcont = syscall.Signal(-1)
)

func endWithParent() *syscall.SysProcAttr { return nil }

func mapFile(*os.File, int) ([]byte, error) {
	return nil, errors.New("a clock that can be set needs Linux")
}

func unmapFile([]byte) error { return nil }
