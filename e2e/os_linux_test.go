package e2e

import (
	"os"
	"syscall"
)

// endWithParent makes a process end with the test's, which may end without cleaning up, by a panic or a timeout.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// ownNetwork is endWithParent for a process that gets a network of its own, in which it may set up a firewall.
func ownNetwork() *syscall.SysProcAttr {
	how := endWithParent()
	how.Cloneflags = syscall.CLONE_NEWNET
	if os.Getuid() != 0 { // it is root there
		how.Cloneflags |= syscall.CLONE_NEWUSER
		how.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		how.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return how
}
