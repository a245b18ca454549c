package e2e

import "syscall"

// endWithParent makes a process end with the test's, which may end without cleaning up, by a panic or a timeout.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
