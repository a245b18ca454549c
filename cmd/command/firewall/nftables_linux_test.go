package firewall

import (
	"errors"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// inItsOwnNetwork has a test run in a network namespace of its own.
func inItsOwnNetwork(t testing.TB) {
	t.Helper()
	runtime.LockOSThread() // and never unlocks, so that the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); errors.Is(err, os.ErrPermission) {
		t.Skip("needs root, for a network namespace: run it as root, or in a container with CAP_NET_ADMIN and CAP_SYS_ADMIN")
	} else {
		must.Succeed(t, err)
	}
}

// manyAddresses returns that many addresses and networks.
func manyAddresses(n int, end time.Time) map[netip.Prefix]closing {
	all := make(map[netip.Prefix]closing)
	v4, v6 := netip.MustParseAddr("198.18.0.0"), [16]byte{0x20, 0x01, 0x0d, 0xb8}
	for i := range n {
		if i%2 == 0 {
			all[netip.PrefixFrom(v4, 32)] = closing{end: end}
			v4 = v4.Next()
		} else {
			v6[5], v6[6], v6[7] = byte(i>>16), byte(i>>8), byte(i)
			all[netip.PrefixFrom(netip.AddrFrom16(v6), 64)] = closing{end: end}
		}
	}
	return all
}

// inKernel returns how many elements the kernel has in the sets of a wall.
func inKernel(t testing.TB, w *kernelWall) int {
	t.Helper()
	v4, err := w.conn.GetSetElements(w.v4)
	must.Succeed(t, err)
	v6, err := w.conn.GetSetElements(w.v6)
	must.Succeed(t, err)
	return len(v4) + len(v6)
}

func TestTheKernelHasAllThatAreKeptOutAndNobodyElse(t *testing.T) {
	underrace.OneGoroutine(t)
	inItsOwnNetwork(t)
	made, err := newWall([]uint16{80, 443})
	must.Succeed(t, err)
	w := made.(*kernelWall)
	now := time.Now()
	all := manyAddresses(Most, now.Add(time.Minute))
	must.Succeed(t, w.keep(all, now, false))
	must.Succeed(t, w.keep(all, now, true))
	must.Equal(t, inKernel(t, w), Most, "all, renewed")

	some := manyAddresses(10, now.Add(time.Minute))
	must.Succeed(t, w.keep(some, now, false))
	must.Equal(t, inKernel(t, w), 10, "of the first ten")
	must.Succeed(t, w.keep(manyAddresses(12, now.Add(time.Minute)), now, false))
	must.Equal(t, inKernel(t, w), 12, "of two more")
	for network := range w.kept { // the kernel has forgotten one that is to be opened
		w.kept[netip.PrefixFrom(netip.MustParseAddr("198.51.100.1"), 32)] = w.kept[network]
		break
	}
	must.Succeed(t, w.keep(some, now, false))
	must.Equal(t, inKernel(t, w), 10, "of ten")
	w.conn.FlushRuleset()
	must.Succeed(t, w.conn.Flush())
	must.Succeed(t, w.keep(manyAddresses(11, now.Add(time.Minute)), now, false))
	must.Equal(t, inKernel(t, w), 11, "when somebody has deleted the table")
	_, err = newWall([]uint16{80})
	must.Contain(t, err.Error(), "another caddy rate-limit firewall seems to run")
	must.Succeed(t, w.open())
	tables, err := w.conn.ListTables()
	must.Succeed(t, err)
	must.Equal(t, len(tables), 0, "tables at the end")
}

// BenchmarkKeep writes as many as are kept out at most.
func BenchmarkKeep(b *testing.B) {
	inItsOwnNetwork(b)
	made, err := newWall([]uint16{80, 443})
	must.Succeed(b, err)
	now := time.Now()
	all := manyAddresses(Most, now.Add(time.Hour))
	for b.Loop() {
		must.Succeed(b, made.keep(all, now, true))
	}
	b.ReportMetric(float64(Most)*float64(b.N)/b.Elapsed().Seconds(), "elements/s")
	must.Succeed(b, made.open())
}
