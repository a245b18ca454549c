package redistest

import (
	"os"
	"syscall"
)

const (
	sigstop = syscall.SIGSTOP
	sigcont = syscall.SIGCONT
)

// endWithParent makes a process end with the test's process, which may end without cleanup: by a panic or a timeout.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// mapFile maps the first bytes of a file into memory, shared.
func mapFile(f *os.File, size int) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

func unmapFile(b []byte) error {
	return syscall.Munmap(b)
}
