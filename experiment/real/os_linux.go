package main

import "syscall"

// endWithParent makes a process end with this one.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
