package guard

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// passing plays a program that has requests pass by: it counts those that have a ticket, a pass, or neither.
type passing struct {
	*scene
	Gauge
	tickets, passes, begun, stood int64
}

func (p *passing) ask(n int) {
	for i := 0; i < n; i++ {
		if atomic.AddInt64(p.Word, Take)&NoTicket == 0 {
			atomic.AddInt64(p.Word, -Place)
			p.tickets++
			continue
		}
		atomic.AddInt64(p.Word, -Take)
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

// left returns how many tickets there are.
func (p *passing) left() int64 { return *p.Word >> 48 }

// spend leaves no ticket and no pass.
func (p *passing) spend() {
	swapTickets(p.g, 0)
	*p.Passes = 0
}

// occupy has so many requests be under way.
func (p *passing) occupy(n int64) { *p.Word += (n - *p.Word&underWay) * Place }

// second plays one with so many requests, and returns how many of the next thousand of them have got what.
func (p *passing) second(n int) (tickets, passes, begun int64) {
	p.ask(n)
	p.now += second
	p.spend()
	p.ask(1)
	p.tickets, p.passes, p.begun, p.stood = 0, 0, 0, 0
	p.ask(1000)
	return p.tickets, p.passes, p.begun
}

func newPassing(t *testing.T, c Config) *passing {
	s := newScene(t, c)
	s.g.belief.Trusted = float64(c.Max) // as if so many had been under way without a queue
	return &passing{scene: s, Gauge: GaugeOf(s.g)}
}

func TestMostRequestsPassByWhileThereIsRoom(t *testing.T) {
	underrace.OneGoroutine(t)
	p := newPassing(t, Config{Max: 1000})
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
	p.spend()
	p.ask(1)
	p.begun = 0
	if p.ask(1000); p.begun > 60 {
		t.Errorf("of a burst like the last, a minute ago, %d of 1000 called Begin", p.begun)
	}
	// With a quarter of the limit in use there are no tickets, and with all of it in use nothing.
	for _, c := range []struct{ under, tickets, passes int64 }{{200, 1, 0}, {250, 0, 1}, {999, 0, 1}, {1000, 0, 0}} {
		p.occupy(c.under)
		if tickets, passes, _ := p.second(0); tickets > 0 != (c.tickets > 0) || passes > 0 != (c.passes > 0) {
			t.Errorf("with %d of 1000 under way: %d with a ticket, %d with a pass", c.under, tickets, passes)
		}
	}
	p.occupy(0)
}

// TestBurstsPassByWhereverTheirSecondsEnd: each burst of a second is followed by two idle ones, and the last of its requests end its second.
func TestBurstsPassByWhereverTheirSecondsEnd(t *testing.T) {
	p := newPassing(t, Config{Max: 1000})
	for burst := 0; burst < 10; burst++ {
		p.begun = 0
		p.ask(1000)
		if burst > 1 && p.begun > 120 {
			t.Errorf("burst %d: %d of 1000 called Begin", burst, p.begun)
		}
		p.now += second
		p.spend()
		p.ask(1)
		p.now += 2 * second
		p.spend()
		p.ask(1)
	}
}

// TestNoMoreHaveTicketsThanAQuarterOfTheLimit, however many tickets there are, and whoever holds places.
func TestNoMoreHaveTicketsThanAQuarterOfTheLimit(t *testing.T) {
	p := newPassing(t, Config{Max: 1000})
	p.second(0)
	p.second(0)
	for _, others := range []int64{0, 100, 250, 300} {
		p.occupy(others)
		swapTickets(p.g, 1000)
		got := int64(0)
		for atomic.AddInt64(p.Word, Take)&NoTicket == 0 {
			got++
		}
		atomic.AddInt64(p.Word, -Take)
		want := 250 - others
		if want < 0 {
			want = 0
		}
		if got != want || p.left() != 1000-want {
			t.Errorf("beside %d others of 1000, %d have got a ticket, and %d are left; want %d, and %d", others, got, p.left(), want, 1000-want)
		}
		if under := Look(p.g).UnderWay; under != others+want {
			t.Errorf("%d are under way, want %d", under, others+want)
		}
		if want > 0 { // one ends, one more gets a ticket
			atomic.AddInt64(p.Word, -Place)
			if atomic.AddInt64(p.Word, Take)&NoTicket != 0 || atomic.AddInt64(p.Word, Take)&NoTicket == 0 {
				t.Error("want one more to get a ticket when one has ended")
			}
		}
	}
	p.occupy(0)
	p.spend()
	if atomic.AddInt64(p.Word, Take)&NoTicket == 0 {
		t.Error("there is a ticket where none are left")
	}
}

// TestTheWordIsExact while many take tickets at a time, find none, and the limit moves.
func TestTheWordIsExact(t *testing.T) {
	g := New(Config{Max: 40, Cells: 64})
	gauge := GaugeOf(g)
	turnSecond(g, begin) // the only one
	atomic.StoreInt64(&g.stride, 8)
	var done sync.WaitGroup
	rounds := 2000
	if interpreted {
		rounds = 200
	}
	tickets, begun := int64(0), int64(0)
	for i := 0; i < 8; i++ {
		done.Add(1)
		go takeMany(g, gauge, i, rounds, &tickets, &begun, &done)
	}
	done.Wait()
	if atomic.LoadInt64(&tickets) == 0 || atomic.LoadInt64(&begun) == 0 {
		t.Errorf("%d had a ticket, %d had none", tickets, begun)
	}
	must.Equal(t, Look(g).UnderWay, 0, "in the end are under way")
	withdraw(g)
	must.Equal(t, *gauge.Word, free*room, "in the end the word")
}

// takeMany has requests come and go, some of them with tickets.
func takeMany(g *Guard, gauge Gauge, i, rounds int, tickets, begun *int64, done *sync.WaitGroup) {
	defer done.Done()
	for n := 0; n < rounds; n++ {
		if n%50 == i {
			makeAmple(g, int64(n%20))
		}
		if atomic.AddInt64(gauge.Word, Take)&NoTicket == 0 {
			atomic.AddInt64(tickets, 1)
			atomic.AddInt64(gauge.Word, -Place)
			continue
		}
		atomic.AddInt64(gauge.Word, -Take)
		atomic.AddInt64(begun, 1)
		many := Refill(g)
		if under := BeginFor(g, uint64(n), false, begin, many); under > 0 {
			Pause(g)
			Resume(g)
			Pause(g)
			Count(g, many, under, 1000)
		}
	}
}

func TestTicketsThatAreLeftStandForNobody(t *testing.T) {
	p := newPassing(t, Config{Max: 1000})
	p.second(0)
	p.second(0)
	for _, under := range []int64{0, 500} { // tickets, and passes
		p.occupy(under)
		for i := 0; i < 10; i++ {
			Refill(p.g)
			must.Equal(t, Refill(p.g), 1, "with %d under way and no ticket taken since the last, one stands for", under)
		}
	}
	p.occupy(0)
}

func TestTicketsThatAreWithdrawnStandForNobody(t *testing.T) {
	underrace.OneGoroutine(t)
	for name, withdraws := range map[string]func(p *passing){
		"other bounds": func(p *passing) { Bound(p.g, Config{Max: 1000}) },
		"a client waits": func(p *passing) {
			defer Proceed(p.g, Linger(p.g))
			for i := 0; i < 2; i++ {
				p.now += second
				turnSecond(p.g, p.now)
			}
		},
	} {
		p := newPassing(t, Config{Max: 1000})
		p.second(1000)
		p.second(0)
		for p.left() <= 0 {
			p.ask(1)
		}
		p.begun, p.stood, p.tickets = 0, 0, 0
		taken := atomic.LoadInt64(&p.g.issued) - p.left()
		withdraws(p)
		if p.ask(1); p.begun != 1 || p.stood != 1+taken {
			t.Errorf("%s: one request stands for %d, want %d", name, p.stood, 1+taken)
		}
	}
}

func TestNobodyPassesByWhoWaitsForAnInformationalAnswer(t *testing.T) {
	p := newPassing(t, Config{})
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
	p := newPassing(t, Config{})
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
	p := newPassing(t, Config{})
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
	swapTickets(p.g, 1000)
	turnSecond(p.g, p.now)
	if left := p.left(); left != 0 {
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
