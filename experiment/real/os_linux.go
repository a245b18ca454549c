package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endWithParent makes a process end with this one.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// pause stops a process where it is, or lets it go on.
func pause(p *os.Process, off bool) error {
	if off {
		return p.Signal(unix.SIGSTOP)
	}
	return p.Signal(unix.SIGCONT)
}

// usageOf returns what a process has used so far: the time of its threads on a core, and the time in which they were ready to run and had none; and how
// much memory it has now, in bytes. What threads that have ended used is not in it; those of a Go program hardly ever end.
func usageOf(pid int) (on, waited time.Duration, resident int64, err error) {
	folder := filepath.Join("/proc", strconv.Itoa(pid))
	threads, err := filepath.Glob(filepath.Join(folder, "task", "*", "schedstat"))
	if err != nil {
		return 0, 0, 0, err
	}
	for _, name := range threads {
		text, err := os.ReadFile(name)
		var a, b int64
		if err == nil {
			_, err = fmt.Sscan(string(text), &a, &b)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) { // it may just have ended
			return 0, 0, 0, err
		}
		on, waited = on+time.Duration(a), waited+time.Duration(b)
	}
	text, err := os.ReadFile(filepath.Join(folder, "statm"))
	if err != nil {
		return 0, 0, 0, err
	}
	var all, pages int64
	if _, err := fmt.Sscan(string(text), &all, &pages); err != nil {
		return 0, 0, 0, err
	}
	return on, waited, pages * int64(os.Getpagesize()), nil
}

// usual is how this process was scheduled when it began; nil: it still is.
var usual *unix.SchedAttr

// comeFirst has the threads of this process run before those of all others, since in the world the clients and the service have machines of their own.
// It wants the rights of root. What this process starts by asUsual has no such precedence.
func comeFirst() error {
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return err
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads { // those that they start inherit it
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		if err := unix.SchedSetAttr(id, &unix.SchedAttr{Policy: unix.SCHED_RR, Priority: 1}, 0); err != nil && err != unix.ESRCH {
			return err
		}
	}
	usual = before
	return nil
}

// asUsual calls a function that starts a process, which is scheduled as this one was before comeFirst.
func asUsual(start func() error) error {
	if usual == nil {
		return start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	first, err := unix.SchedGetAttr(0, 0)
	if err != nil {
		return err
	}
	attr := *usual
	if err := unix.SchedSetAttr(0, &attr, 0); err != nil {
		return err
	}
	defer func() { _ = unix.SchedSetAttr(0, first, 0) }()
	return start()
}
