package redistest

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

// clock is the time of a server: eight bytes in a file that both processes map into memory.
type clock struct {
	shim, file string

	mu  sync.Mutex
	mem []byte // nil after the test
}

// realTime is the value in the file with which a server uses the real time.
const realTime = math.MinInt64

// newClock makes the file, and the library that reads it, in the server's folder.
func newClock(t testing.TB, dir string) *clock {
	t.Helper()
	c := &clock{shim: filepath.Join(dir, "clock.so"), file: filepath.Join(dir, "clock")}
	library, err := shim()
	if err != nil {
		t.Fatal(err)
	}
	if err = os.WriteFile(c.shim, library, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(c.file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err = f.Truncate(8); err != nil {
		t.Fatal(err)
	}
	if c.mem, err = mapFile(f, 8); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	c.set(realTime)
	return c
}

// set stores the time atomically: a server reads the old time or the new.
func (c *clock) set(micros int64) {
	c.mu.Lock()
	if c.mem != nil {
		atomic.StoreInt64((*int64)(unsafe.Pointer(&c.mem[0])), micros)
	}
	c.mu.Unlock()
}

func (c *clock) close() {
	c.mu.Lock()
	_ = unmapFile(c.mem)
	c.mem = nil
	c.mu.Unlock()
}

// env returns the variables that a server needs in its environment.
func (c *clock) env() []string {
	return []string{"LD_PRELOAD=" + c.shim, "REDISTEST_CLOCK=" + c.file}
}

// shim returns the library that replaces the C library's clocks. It is compiled once, and kept in memory, so that no file
// outlives the test that needs it.
var shim = sync.OnceValues(func() ([]byte, error) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		return nil, fmt.Errorf("a clock that can be set needs a C compiler, cc: apt-get install gcc libc6-dev")
	}
	dir, err := os.MkdirTemp("", "redistest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "clock.so")
	cmd := exec.Command(cc, "-shared", "-fPIC", "-O2", "-o", out, "-x", "c", "-")
	cmd.Stdin = strings.NewReader(shimSource)
	if message, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling the clock: %w\n%s", err, message)
	}
	return os.ReadFile(out)
})

// shimSource overrides the functions by which Redis and its libraries read the wall clock. It does not change the monotonic clocks, by which
// Redis runs its timers. It reads those from the kernel: to find the C library's function may allocate, and the allocator reads a clock.
//
// Valkey 9 reads the wall clock once a millisecond, and between that adds what the processor's counter says, unless that is not known to be
// constant. So the file that says so cannot be opened.
const shimSource = `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t *clock_micros;

__attribute__((constructor)) static void open_clock(void) {
	const char *path = getenv("REDISTEST_CLOCK");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *p = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *clock_micros, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		perror("REDISTEST_CLOCK");
		_exit(1);
	}
	close(fd);
	clock_micros = p;
}

int clock_gettime(clockid_t id, struct timespec *ts) {
	int64_t t = INT64_MIN; /* the time has not been set */
	if (clock_micros && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		t = __atomic_load_n(clock_micros, __ATOMIC_SEQ_CST);
	if (t == INT64_MIN)
		return syscall(SYS_clock_gettime, id, ts);
	ts->tv_sec = t / 1000000;
	ts->tv_nsec = t % 1000000 * 1000;
	if (ts->tv_nsec < 0) {
		ts->tv_sec -= 1;
		ts->tv_nsec += 1000000000;
	}
	return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone) {
	struct timespec ts;
	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &ts))
		return -1;
	tv->tv_sec = ts.tv_sec;
	tv->tv_usec = ts.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *t) {
	struct timespec ts;
	if (clock_gettime(CLOCK_REALTIME, &ts))
		return -1;
	if (t)
		*t = ts.tv_sec;
	return ts.tv_sec;
}

FILE *fopen64(const char *restrict path, const char *restrict mode) {
	if (!strcmp(path, "/proc/cpuinfo"))
		return NULL;
	FILE *(*real)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen64");
	return real(path, mode);
}
`
