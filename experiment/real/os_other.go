//go:build !linux

package main

import (
	"errors"
	"os"
	"syscall"
	"time"
)

func endWithParent() *syscall.SysProcAttr { return nil }

func comeFirst() error { return errors.New("is known on Linux only") }

func pause(*os.Process, bool) error { return errors.New("a process can be paused on Linux only") }

func usageOf(int) (on, waited time.Duration, resident int64, err error) {
	return 0, 0, 0, errors.New("is known on Linux only")
}

func asUsual(start func() error) error { return start() }
