package redis

import (
	"testing"
	"time"
)

// leaseServer is a client and its only server, which knows leases alone. It calls before ahead of each call.
type leaseServer struct {
	t      *testing.T
	server *Server
	has    map[string]bool // by key and member, put together
	before func()
}

func (f *leaseServer) Server(key string) (*Server, error) { return f.server, nil }
func (f *leaseServer) Cluster() bool                      { return false }
func (f *leaseServer) Timeout() time.Duration             { return time.Minute }
func (f *leaseServer) Background() time.Duration          { return f.Timeout() }
func (f *leaseServer) Servers() []*Server                 { return []*Server{f.server} }
func (f *leaseServer) Name() string                       { return "leases" }
func (f *leaseServer) Close() error                       { return nil }

func (f *leaseServer) Run(c *Call) error {
	f.before()
	made := int64(0)
	for i, key := range c.Keys {
		for from := 0; from < len(c.Args[i+1]); from += memberLength {
			name := key + c.Args[i+1][from:from+memberLength]
			if c.Script == scriptOfRelease {
				delete(f.has, name)
			} else if !f.has[name] {
				f.has[name] = true
				made++
			}
		}
	}
	c.Reply = []int64{made, 0}
	return nil
}

// A renewal makes a lost lease again. If the lease's request ends meanwhile, the lease does not stay.
func TestALeaseThatEndsWhileItIsRenewedIsGone(t *testing.T) {
	f := &leaseServer{t: t, has: make(map[string]bool)}
	f.server = NewServer("leases", f)
	s := &Store{client: f}
	s.renewals.begin(s, time.Hour)
	defer s.renewals.abandon()
	const mine, other = "mine, 16 bytes..", "another of them."
	for _, lost := range []bool{true, false} {
		s.renewals.add("k", mine)
		s.renewals.add("k", other)
		f.has["k"+mine] = !lost
		f.has["k"+other] = !lost
		if lost {
			f.has = make(map[string]bool)
		}
		f.before = func() { // the request ends, and its reservation is removed before the renewal
			s.renewals.remove("k", mine)
			delete(f.has, "k"+mine)
			f.before = func() {}
		}
		s.renewals.renew()
		if f.has["k"+mine] || !f.has["k"+other] {
			t.Errorf("there are %v; want that of the request under way alone", f.has)
		}
	}
}
