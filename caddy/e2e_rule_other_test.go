//go:build !linux

package ratelimit_test

import "errors"

func makePipe(string) error { return errors.ErrUnsupported }
