package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
	"github.com/proxyweir/weir/tools/underrace"
)

// TestMain lets the binary of the tests be the Caddy that the program starts.
func TestMain(m *testing.M) {
	if !balance(os.Args[1:]) {
		os.Exit(m.Run())
	}
}

// The whole story in short, with real load balancers. Bounds are far from what comes on an idle machine.
func TestTheGuardKeepsUpWhatIsLeft(t *testing.T) {
	if underrace.On {
		t.Skip("it needs the time that a machine takes without the race detector: the part `example` of make test runs it")
	}
	s := story{workers: 8, fails: 2, back: 20, ends: 25}
	rows, late, err := runAll(s, seed)
	for again := 0; err == nil && late > 2*tooLate && again < 3; again++ {
		t.Logf("the machine was too busy: it kept requests waiting for up to %s", late)
		rows, late, err = runAll(s, seed)
	}
	must.Succeed(t, err)
	if late > 2*tooLate {
		t.Skipf("the machine was too busy, four times: it kept requests waiting for up to %s", late)
	}
	// A's queue has become too long for any client six seconds after B has failed.
	answered := func(i int) int { return sum(rows[i], s.fails+6, s.back).answered }
	for i, p := range protections {
		all := sum(rows[i], 0, s.ends)
		t.Logf("%s: %.0f answered a second at first, %d by A alone from second %d on, %.0f a second at the end; in all %+v",
			p.title, mean(rows[i], 0, s.fails), answered(i), s.fails+6, mean(rows[i], s.back+2, s.ends), all)
		if all.begun < 9*s.ends*int(s.rate())/10 || mean(rows[i], 0, s.fails) < float64(s.capacity())/2 {
			t.Errorf("%s: clients began %d requests, of which %.0f a second were answered before B failed", p.title, all.begun, mean(rows[i], 0, s.fails))
		}
	}
	// Bounds are in seconds of A's work, of which there are 12. The guard alone needs time to see the queue.
	for i, bounds := range [][2]float64{{0, 0.25}, {6, 13}, {2, 13}, {6, 13}, {6, 13}} {
		if seconds := float64(answered(i)) / float64(s.capacity()); seconds < bounds[0] || seconds > bounds[1] {
			t.Errorf("%s A answers the work of %.1f seconds, not of %v to %v", protections[i].title, seconds, bounds[0], bounds[1])
		}
	}
	if got := mean(rows[3], s.back+2, s.ends); got < s.rate()/2 {
		t.Errorf("%s %.0f a second are answered when B is back", protections[3].title, got)
	}
	if t.Failed() {
		t.Logf("%s", format(rows))
	}
}

// Picture and table are those of the data, and the data show what the page says.
func TestThePageIsMadeOfTheData(t *testing.T) {
	text, err := os.ReadFile(dataFile)
	must.Succeed(t, err)
	rows, err := parse(text)
	must.Succeed(t, err)
	must.Equal(t, string(format(rows)), string(text), dataFile)
	picture, err := os.ReadFile(pictureFile)
	must.Succeed(t, err)
	must.Equal(t, string(picture), string(drawing(whole, rows)), pictureFile)
	page, err := os.ReadFile("README.md")
	must.Succeed(t, err)
	must.Contain(t, string(page), table(whole, rows), "README.md")
	must.Equal(t, string(withTable(page, table(whole, rows))), string(page), "README.md")

	within := func(what string, i, from, to int, least, most float64) {
		t.Helper()
		if got := mean(rows[i], from, to); got < least || got > most {
			t.Errorf("%s, %s: %.0f a second are answered, and the page says from %.0f to %.0f", protections[i].title, what, got, least, most)
		}
	}
	s := whole
	n, rate := float64(s.capacity()), s.rate()
	within("after a few seconds alone", 0, s.fails+8, s.back, 0, n/20)
	within("soon after B is back", 0, s.back+8, s.ends, 0, n/20)
	within("all the time", 1, 0, s.ends, 0.95*n, 1.05*n)
	within("alone", 1, s.fails, s.back, 0.95*n, n)
	within("with both", 2, 0, s.fails, 0.95*rate, 1.05*rate)
	within("after the gap", 2, s.back-5, s.back, 0.9*n, 1.05*n)
	within("with both again", 2, s.back+5, s.ends, 0.95*rate, 1.05*rate)
	within("alone", 3, s.fails, s.back, 0.9*n, 1.05*n)
	within("with both again", 3, s.back+5, s.ends, 0.95*rate, 1.05*rate)
	within("alone", 4, s.fails, s.back, 0.9*n, 1.05*n)
	within("with both again", 4, s.back+2, s.ends, 0.95*rate, 1.05*rate)
	within("two seconds after B is back", 2, s.back+2, s.ends, 0.95*rate, 1.05*rate)
	for i := 2; i < len(protections); i++ {
		if with := sum(rows[i], 0, s.fails); with.refused > 0 {
			t.Errorf("%s %d were turned away while both were up", protections[i].title, with.refused)
		}
	}
}

func TestDataThatAreNoneAreRefused(t *testing.T) {
	text, err := os.ReadFile(dataFile)
	must.Succeed(t, err)
	for _, c := range []struct{ from, to, want string }{
		{"no-limit,3,", "no-limit,three,", `line 5, second: strconv.Atoi: parsing "three"`},
		{"no-limit,3,", "no-limit,4,", "line 5 is of no-limit, second 4, and should be of no-limit, second 3"},
		{"guard,0,", "other,0,", "line 112 is of other, second 0, and should be of guard, second 0"},
		{"no-limit,3,", "no-limit,", "record on line 5: wrong number of fields"},
	} {
		must.Contain(t, string(text), c.from)
		_, err := parse([]byte(strings.Replace(string(text), c.from, c.to, 1)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q in place of %q: the error is %v, not %s", c.to, c.from, err, c.want)
		}
	}
}

func TestRowsThatAreMissingAreTold(t *testing.T) {
	text, err := os.ReadFile(dataFile)
	must.Succeed(t, err)
	header, rest, _ := strings.Cut(string(text), "\n")
	first, _, _ := strings.Cut(rest, "\n")
	for _, text := range []string{header + "\n", header + "\n" + first + "\n"} {
		if _, err := parse([]byte(text)); err == nil || !strings.Contains(err.Error(), "there must be 275 below") {
			t.Errorf("of %q: %v", text, err)
		}
	}
}

// What is asked of it in an instant takes a cluster as long as its capacity says, and what it cannot keep is refused.
func TestAClusterDoesItsCapacity(t *testing.T) {
	c, now := newCluster(10, nil), time.Unix(0, 0)
	var last time.Time
	for range c.most {
		done, taken := c.take(now)
		must.Equal(t, taken, true)
		if done.After(last) {
			last = done
		}
	}
	if _, taken := c.take(now); taken {
		t.Error("a full queue takes one more")
	}
	if rate := float64(c.most) / last.Sub(now).Seconds(); rate < 95 || rate > 105 {
		t.Errorf("it does %.0f a second", rate)
	}
	c.underway--
	if done, taken := c.take(last); !taken || done.Sub(last) < workTime/2 || done.Sub(last) > workTime*3/2 {
		t.Errorf("without a queue one takes %s", done.Sub(last))
	}
}
