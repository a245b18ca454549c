//go:build !linux

package main

import (
	"errors"
	"syscall"
)

func endWithParent() *syscall.SysProcAttr { return nil }

func comeFirst() error { return errors.New("is known on Linux only") }

func asUsual(start func() error) error { return start() }
