package guard

import (
	"sync/atomic"
	"testing"

	"github.com/proxyweir/weir/underrace"
)

// passer plays a program that has requests pass by: it counts those that have a ticket, a pass, or neither.
type passer struct {
	*scene
	Gauge
	tickets, passes, begun, stood int64
}

func (p *passer) ask(n int) {
	for i := 0; i < n; i++ {
		if atomic.AddInt64(p.Tickets, -1) >= 0 {
			p.tickets++
			continue
		}
		if atomic.AddInt64(p.Passes, -1) >= 0 {
			p.passes++
			continue
		}
		p.begun++
		many := Refill(p.g)
		p.stood += many
		if under := BeginFor(p.g, 1, false, p.now, many); under > 0 {
			Pause(p.g)
			Count(p.g, many, under, 100_000)
		}
	}
}

// second plays one with so many requests, and returns how many of the next thousand of them have got what.
func (p *passer) second(n int) (tickets, passes, begun int64) {
	p.ask(n)
	p.now += second
	*p.Tickets = 0
	*p.Passes = 0
	p.ask(1)
	p.tickets, p.passes, p.begun, p.stood = 0, 0, 0, 0
	p.ask(1000)
	return p.tickets, p.passes, p.begun
}

func newPasser(t *testing.T, c Config) *passer {
	s := newScene(t, c)
	return &passer{scene: s, Gauge: GaugeOf(s.g)}
}

func TestMostRequestsPassByWhileThereIsRoom(t *testing.T) {
	underrace.OneGoroutine(t)
	p := newPasser(t, Config{Max: 1000})
	if tickets, passes, begun := p.second(40); begun != 1000 {
		p.t.Errorf("after a second with few requests: %d with a ticket, %d with a pass, %d without", tickets, passes, begun)
	}
	for i := 0; i < 20; i++ {
		if tickets, passes, begun := p.second(0); begun > 60 || passes > 0 || tickets < 900 || p.stood < 900 || p.stood > 1100 {
			t.Errorf("of 1000: %d with a ticket, %d with a pass, %d without, which stand for %d", tickets, passes, begun, p.stood)
		}
	}
	p.second(0)
	if _, asked := countMany(p.g.demand, 1^p.g.seed, p.now, 0); asked < 9000 || asked > 12_500 {
		t.Errorf("a demand of %v in 10 s, want about 10,000", asked)
	}
	p.ask(1000)
	p.now += 60 * second // idle
	*p.Tickets = 0
	p.ask(1)
	p.begun = 0
	if p.ask(1000); p.begun > 60 {
		t.Errorf("of a burst like the last, a minute ago, %d of 1000 called Begin", p.begun)
	}
	// With a quarter of the limit in use there are no tickets, and with all of it in use nothing.
	for _, c := range []struct{ under, tickets, passes int64 }{{200, 1, 0}, {250, 0, 1}, {999, 0, 1}, {1000, 0, 0}} {
		*p.UnderWay = c.under
		if tickets, passes, _ := p.second(0); tickets > 0 != (c.tickets > 0) || passes > 0 != (c.passes > 0) {
			t.Errorf("with %d of 1000 under way: %d with a ticket, %d with a pass", c.under, tickets, passes)
		}
	}
	*p.UnderWay = 0
}

func TestTicketsThatAreLeftStandForNobody(t *testing.T) {
	p := newPasser(t, Config{Max: 1000})
	p.second(0)
	p.second(0)
	for _, under := range []int64{0, 500} { // tickets, and passes
		*p.UnderWay = under
		for i := 0; i < 10; i++ {
			Refill(p.g)
			if many := Refill(p.g); many != 1 {
				t.Errorf("with %d under way and no ticket taken since the last, one stands for %d", under, many)
			}
		}
	}
	*p.UnderWay = 0
}

func TestTicketsThatAreWithdrawnStandForNobody(t *testing.T) {
	underrace.OneGoroutine(t)
	for name, withdraws := range map[string]func(p *passer){
		"other bounds": func(p *passer) { Bound(p.g, Config{Max: 1000}) },
		"a client waits": func(p *passer) {
			defer Proceed(p.g, Linger(p.g))
			for i := 0; i < 2; i++ {
				p.now += second
				turnSecond(p.g, p.now)
			}
		},
	} {
		p := newPasser(t, Config{Max: 1000})
		p.second(1000)
		p.second(0)
		for *p.Tickets <= 0 {
			p.ask(1)
		}
		p.begun, p.stood, p.tickets = 0, 0, 0
		taken := atomic.LoadInt64(&p.g.issued) - *p.Tickets
		withdraws(p)
		if p.ask(1); p.begun != 1 || p.stood != 1+taken {
			t.Errorf("%s: one request stands for %d, want %d", name, p.stood, 1+taken)
		}
	}
}

func TestNobodyPassesByWhoWaitsForAnInformationalAnswer(t *testing.T) {
	p := newPasser(t, Config{})
	p.second(0)
	if tickets, _, _ := p.second(0); tickets == 0 {
		t.Error("there are no tickets")
	}
	Exact(p.g)
	for i := 0; i < 3; i++ {
		if tickets, passes, _ := p.second(0); tickets+passes > 0 {
			t.Errorf("%d with a ticket, %d with a pass", tickets, passes)
		}
	}
}

func TestWithOtherBoundsNobodyPassesByUntilTheyAreInForce(t *testing.T) {
	p := newPasser(t, Config{})
	p.second(0)
	p.second(0)
	Bound(p.g, Config{Max: 100})
	p.tickets, p.passes = 0, 0
	p.ask(100)
	if p.tickets+p.passes > 0 {
		t.Errorf("%d with a ticket, %d with a pass", p.tickets, p.passes)
	}
}

// TestNoTicketsWhereRequestsWaitOnTheirClients for a second: those that have a ticket would be under way until their answers end.
func TestNoTicketsWhereRequestsWaitOnTheirClients(t *testing.T) {
	underrace.OneGoroutine(t)
	p := newPasser(t, Config{})
	p.second(0)
	p.second(0)
	turn := Linger(p.g)
	Proceed(p.g, turn)
	if tickets, _, _ := p.second(0); tickets == 0 {
		t.Error("there are no tickets since a request has waited for a moment")
	}
	turn = Linger(p.g)
	p.second(0)
	p.second(0)
	p.now += second
	*p.Tickets = 1000
	turnSecond(p.g, p.now)
	if left := *p.Tickets; left != 0 {
		t.Errorf("while a request waits %d tickets are left", left)
	}
	if tickets, passes, _ := p.second(0); tickets > 0 || passes == 0 {
		t.Errorf("while a request waits: %d with a ticket, %d with a pass", tickets, passes)
	}
	Proceed(p.g, turn)
	if tickets, _, _ := p.second(0); tickets > 0 {
		t.Error("there are tickets right after")
	}
	for i := 0; i < 60; i++ {
		p.second(0)
	}
	if tickets, _, _ := p.second(0); tickets == 0 {
		t.Error("there are no tickets after a minute")
	}
}
