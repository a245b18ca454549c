package redistest

import "testing"

func TestSentinelsReplaceTheMaster(t *testing.T) {
	t.Parallel()
	s := StartSentinel(t)
	if len(s.Addrs()) != 3 || len(s.Servers()) != 3 {
		t.Fatalf("sentinels %v, servers %v", s.Addrs(), addrs(s.Servers()))
	}
	first := s.Master()
	first.MustDo(t, "SET", "key", "value")
	first.MustDo(t, "WAIT", "2", "0")

	second := s.KillMaster()
	if second == first || s.Master() != second || first.Running() {
		t.Errorf("master %s after the death of %s, running %v", second.Addr(), first.Addr(), first.Running())
	}
	// A replica that is just being sent all data anew has none, and would take over with that.
	second.MustDo(t, "SET", "key", "value")
	second.MustDo(t, "WAIT", "1", "0")
	third := s.Failover()
	if third == second || third == first || s.Master() != third || !second.Running() {
		t.Errorf("master %s after a failover from %s, running %v", third.Addr(), second.Addr(), second.Running())
	}
	if got := third.MustDo(t, "GET", "key"); got.Text != "value" {
		t.Errorf("GET: %v", got)
	}
	first.Restart()
	s.Settle()
	if role := first.MustDo(t, "ROLE").List[0].Text; s.Master() != third || role != "slave" {
		t.Errorf("the old master is back as %s, and the master is %s", role, s.Master().Addr())
	}
}

func TestSentinelsWithPasswordAndTLS(t *testing.T) {
	t.Parallel()
	certs := NewCertificates(t)
	s := StartSentinel(t, WithPassword("secret"), WithTLS(certs, "yes"))
	c, err := Dial(s.Addrs()[0], certs.Config())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err = c.Do("SENTINEL", "MASTERS"); err == nil {
		t.Error("a sentinel asks for no password")
	}
	s.Sentinels()[0].Kill()
	s.Settle()
	master := s.Master()
	master.Pause()
	s.Settle()
	if s.Master() == master {
		t.Errorf("the master is still %s, which is paused", master.Addr())
	}
}
