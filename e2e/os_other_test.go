//go:build !linux

package e2e

import (
	"errors"
	"syscall"
)

func endWithParent() *syscall.SysProcAttr { return nil }

// ownNetwork is for Linux alone.
func ownNetwork() *syscall.SysProcAttr { return endWithParent() }

func loopbackUp() error { return errors.ErrUnsupported }
