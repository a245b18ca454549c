package redistest

import (
	"strconv"
)

// Migration is the migration of a slot from one master of a cluster to another. During it From serves the keys that it has, and answers
// ASK for all others. To serves commands after ASKING, and answers MOVED to all others.
type Migration struct {
	Slot     int
	From, To *Server

	cluster *Cluster
	toID    string
}

// Migrate begins the migration of a slot to another master. It moves no key yet.
func (c *Cluster) Migrate(slot int) *Migration {
	c.t.Helper()
	m := &Migration{Slot: slot, From: c.Master(slot), cluster: c}
	for other := 0; ; other += slots / 8 {
		if m.To = c.Master(other % slots); m.To != m.From {
			break
		}
	}
	m.toID = c.id(m.To)
	m.setSlot(m.To, "IMPORTING", c.id(m.From))
	m.setSlot(m.From, "MIGRATING", m.toID)
	return m
}

func (m *Migration) setSlot(n *Server, args ...string) {
	t := m.cluster.t
	t.Helper()
	n.MustDo(t, append([]string{"CLUSTER", "SETSLOT", strconv.Itoa(m.Slot)}, args...)...)
}

// Move moves keys of the slot. It ignores keys that do not exist.
func (m *Migration) Move(keys ...string) {
	m.cluster.t.Helper()
	command := []string{"MIGRATE", "127.0.0.1", strconv.Itoa(m.To.port), "", "0", "5000"}
	if password := m.From.options.password; password != "" {
		command = append(command, "AUTH", password)
	}
	command = append(command, "KEYS")
	m.From.MustDo(m.cluster.t, append(command, keys...)...)
}

// Finish moves the remaining keys, gives the slot to To, and waits as Settle does. From then on From answers MOVED.
func (m *Migration) Finish() {
	t := m.cluster.t
	t.Helper()
	for {
		keys := m.From.MustDo(t, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(m.Slot), "100").Strings()
		if len(keys) == 0 {
			break
		}
		m.Move(keys...)
	}
	m.setSlot(m.To, "NODE", m.toID)
	m.setSlot(m.From, "NODE", m.toID)
	m.cluster.Settle()
}
