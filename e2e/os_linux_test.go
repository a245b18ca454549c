package e2e

import (
	"os"
	"syscall"
	"unsafe"
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

// loopbackUp turns on the loopback interface of a network of its own.
func loopbackUp() error {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(socket)
	request := struct { // struct ifreq
		name  [16]byte
		flags uint16
		_     [22]byte
	}{[16]byte{'l', 'o'}, syscall.IFF_UP, [22]byte{}}
	if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, uintptr(socket), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request))); failed != 0 {
		return failed
	}
	return nil
}
