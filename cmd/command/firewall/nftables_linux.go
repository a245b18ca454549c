package firewall

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// tableName is the name of the table of nftables. Nothing else is touched.
const tableName = "weir_firewall"

// kernelWall is a wall in the kernel of this machine, or of this network namespace.
type kernelWall struct {
	ports    []uint16
	only     net.Listener // there is one in the namespace; it ends with the process
	conn     *nftables.Conn
	table    *nftables.Table
	v4, v6   *nftables.Set
	kept     map[netip.Prefix]closing // what is in the sets
	standing bool                     // the table is there
}

// newWall makes the table, which keeps nobody out yet.
func newWall(ports []uint16) (wall, error) {
	only, err := net.Listen("unix", "@weir-firewall")
	if err != nil {
		return nil, fmt.Errorf("another caddy rate-limit firewall seems to run on this machine (%w); stop it, or have one follow several Caddys by repeating --address", err)
	}
	w := &kernelWall{ports: ports, only: only}
	// A transaction is one message of up to some megabytes.
	w.conn, err = nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error { return c.SetWriteBuffer(16 << 20) }))
	if err == nil {
		err = w.build(nil, time.Now())
	}
	if err != nil {
		_ = only.Close()
		if errors.Is(err, os.ErrPermission) {
			return nil, fmt.Errorf("nftables: %w: this needs CAP_NET_ADMIN; run it as root, or as docs/layers.md has it for systemd, or try --dry-run", err)
		}
		return nil, fmt.Errorf("nftables: %w", err)
	}
	return w, nil
}

// build makes the table in the place of the one that is there, in one transaction.
func (w *kernelWall) build(closed map[netip.Prefix]closing, now time.Time) error {
	w.table = &nftables.Table{Family: nftables.TableFamilyINet, Name: tableName}
	w.conn.AddTable(w.table) // so that there is one to delete
	w.conn.DelTable(w.table)
	w.conn.AddTable(w.table)
	accept := nftables.ChainPolicyAccept
	// In front of what sends packets on to containers, which changes their port.
	chain := w.conn.AddChain(&nftables.Chain{Name: "prerouting", Table: w.table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting,
		Priority: nftables.ChainPriorityRaw, Policy: &accept})
	w.v4 = &nftables.Set{Table: w.table, Name: "v4", KeyType: nftables.TypeIPAddr, HasTimeout: true, Size: Most}
	w.v6 = &nftables.Set{Table: w.table, Name: "v6", KeyType: nftables.TypeIP6Addr, HasTimeout: true, Size: Most}
	ports := &nftables.Set{Table: w.table, Anonymous: true, Constant: true, KeyType: nftables.TypeInetService, KeyByteOrder: binaryutil.BigEndian}
	protocols := &nftables.Set{Table: w.table, Anonymous: true, Constant: true, KeyType: nftables.TypeInetProto}
	var closing []nftables.SetElement
	for _, port := range w.ports {
		closing = append(closing, nftables.SetElement{Key: binaryutil.BigEndian.PutUint16(port)})
	}
	err := errors.Join(w.conn.AddSet(w.v4, nil), w.conn.AddSet(w.v6, nil))
	for _, family := range []struct {
		number      byte
		offset, len uint32 // of the source address in the header
		set         *nftables.Set
		mask        []expr.Any
	}{
		{unix.NFPROTO_IPV4, 12, 4, w.v4, nil},
		{unix.NFPROTO_IPV6, 8, 16, w.v6, []expr.Any{&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 16,
			Mask: append([]byte{255, 255, 255, 255, 255, 255, 255, 255}, make([]byte, 8)...), Xor: make([]byte, 16)}}},
	} {
		ports, protocols := *ports, *protocols // a rule has anonymous sets of its own
		err = errors.Join(err, w.conn.AddSet(&ports, closing), w.conn.AddSet(&protocols, []nftables.SetElement{{Key: []byte{unix.IPPROTO_TCP}}, {Key: []byte{unix.IPPROTO_UDP}}}))
		rule := []expr.Any{
			&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family.number}},
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Lookup{SourceRegister: 1, SetName: protocols.Name, SetID: protocols.ID},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Lookup{SourceRegister: 1, SetName: ports.Name, SetID: ports.ID},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: family.offset, Len: family.len},
		}
		rule = append(append(rule, family.mask...), &expr.Lookup{SourceRegister: 1, SetName: family.set.Name, SetID: family.set.ID}, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop})
		w.conn.AddRule(&nftables.Rule{Table: w.table, Chain: chain, Exprs: rule})
	}
	err = errors.Join(err, w.add(closed, now))
	if flushed := w.conn.Flush(); flushed != nil || err != nil {
		return errors.Join(err, flushed)
	}
	w.kept, w.standing = closed, true
	return nil
}

// keep implements wall. With renew it writes all, in one transaction: kernels before 6.12 cannot set the time of an element that is there. If that fails, somebody
// has deleted the table, and it is built again.
func (w *kernelWall) keep(closed map[netip.Prefix]closing, now time.Time, renew bool) error {
	if !w.standing {
		return w.build(closed, now)
	}
	var err error
	if renew {
		w.conn.FlushSet(w.v4)
		w.conn.FlushSet(w.v6)
		err = w.add(closed, now)
	} else {
		added := make(map[netip.Prefix]closing)
		for network, c := range closed {
			if before, there := w.kept[network]; !there || !before.end.After(now) {
				added[network] = c
			} else {
				c.end = before.end // until it is renewed
				closed[network] = c
			}
		}
		removed := make(map[netip.Prefix]closing)
		for network, c := range w.kept {
			if _, still := closed[network]; !still && c.end.After(now) {
				removed[network] = c
			}
		}
		err = errors.Join(w.each(removed, now, w.conn.SetDeleteElements), w.add(added, now))
	}
	if flushed := w.conn.Flush(); flushed != nil || err != nil {
		return w.build(closed, now)
	}
	w.kept = closed
	return nil
}

func (w *kernelWall) add(closed map[netip.Prefix]closing, now time.Time) error {
	return w.each(closed, now, w.conn.SetAddElements)
}

// atOnce is how many elements a message has: it has 64 KiB.
const atOnce = 1000

// each calls change for elements of each of the sets.
func (w *kernelWall) each(closed map[netip.Prefix]closing, now time.Time, change func(*nftables.Set, []nftables.SetElement) error) error {
	var err error
	lists := map[*nftables.Set][]nftables.SetElement{}
	for network, c := range closed {
		set := w.v6
		if network.Addr().Is4() {
			set = w.v4
		}
		lists[set] = append(lists[set], nftables.SetElement{Key: network.Addr().AsSlice(), Timeout: max(c.end.Sub(now), time.Millisecond)})
		if len(lists[set]) == atOnce {
			err = errors.Join(err, change(set, lists[set]))
			lists[set] = nil
		}
	}
	for set, rest := range lists {
		if len(rest) > 0 {
			err = errors.Join(err, change(set, rest))
		}
	}
	return err
}

// open implements wall: it deletes the table.
func (w *kernelWall) open() error {
	w.conn.AddTable(w.table) // so that there is one to delete
	w.conn.DelTable(w.table)
	return errors.Join(w.conn.Flush(), w.conn.CloseLasting(), w.only.Close())
}
