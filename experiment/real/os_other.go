//go:build !linux

package main

import (
	"errors"
	"os"
	"syscall"
)

func endWithParent() *syscall.SysProcAttr { return nil }

func comeFirst() error { return errors.New("is known on Linux only") }

func pause(*os.Process, bool) error { return errors.New("a process can be paused on Linux only") }

func asUsual(start func() error) error { return start() }
