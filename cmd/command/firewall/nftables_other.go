//go:build !linux

package firewall

import (
	"errors"
	"runtime"
)

func newWall([]uint16) (wall, error) {
	return nil, errors.New("firewall: needs nftables, which Linux has and " + runtime.GOOS + " has not; --dry-run says what would be done")
}
