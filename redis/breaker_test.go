package redis

import (
	"sync"
	"sync/atomic"
	"testing"
)

// fail notes the failure of a call that began when the breaker was about to open.
func (b *breaker) fail() bool { return b.Fail(failuresToOpen - 1) }

// failTimes notes failures, and returns how many of them have opened the breaker.
func failTimes(b *breaker, n int) int {
	opened := 0
	for i := 0; i < n; i++ {
		if b.Fail(b.Trouble().Load()) {
			opened++
		}
	}
	return opened
}

func TestBreakerOpensAfterFiveFailuresInARow(t *testing.T) {
	var b breaker
	if opened := failTimes(&b, 4); b.Open() || opened != 0 {
		t.Fatal("open after four failures")
	}
	b.Succeed()
	if opened := failTimes(&b, 4); b.Open() || opened != 0 {
		t.Fatal("open after four failures behind a success")
	}
	if !b.Fail(b.Trouble().Load()) || !b.Open() {
		t.Fatal("closed after five failures in a row")
	}
	if opened := failTimes(&b, 20); opened != 0 || !b.Open() {
		t.Errorf("opened %d times more", opened)
	}
}

// All the calls of a connection fail when it is lost. That is one event, and says little about the server.
func TestCallsThatFailTogetherAreOneFailure(t *testing.T) {
	var b breaker
	for round := 1; round <= 5; round++ {
		seen := b.Trouble().Load()
		opened := 0
		for call := 0; call < 100; call++ {
			if b.Fail(seen) {
				opened++
			}
		}
		if b.Open() != (round == 5) || b.Open() && opened != 1 {
			t.Fatalf("after %d failures of a hundred calls each: open %v, %d calls have opened it", round, b.Open(), opened)
		}
	}
}

func TestAFailureOfACallThatBeganBeforeAnAnswerDoesNotCount(t *testing.T) {
	var b breaker
	failTimes(&b, 4)
	seen := b.Trouble().Load()
	b.Succeed()
	if b.Fail(seen) || b.Open() || b.Trouble().Load() != 0 {
		t.Errorf("open %v, %d failures", b.Open(), b.Trouble().Load())
	}
}

func TestBreakerIsNotClosedByALateAnswer(t *testing.T) {
	var b breaker
	failTimes(&b, 5)
	b.Succeed()
	if !b.Open() {
		t.Error("closed by an answer to an earlier call")
	}
	if b.Trouble().Load() == 0 {
		t.Error("an answer to an earlier call has reset the failures")
	}
	if b.Fail(b.Trouble().Load()) {
		t.Error("opened a second time")
	}
}

func TestBreakerLetsOneProbeThroughAtATime(t *testing.T) {
	var b breaker
	if b.Probe() {
		t.Error("a probe while closed")
	}
	failTimes(&b, 5)
	if !b.Probe() {
		t.Fatal("no probe while open")
	}
	if b.Probe() {
		t.Error("a second probe while one is under way")
	}
	b.Probed(false)
	if !b.Open() {
		t.Error("closed by a probe that failed")
	}
	if !b.Probe() {
		t.Fatal("no probe after one that failed")
	}
	b.Probed(true)
	if b.Open() || b.Probe() {
		t.Error("open after a probe that succeeded")
	}
	if opened := failTimes(&b, 4); opened != 0 || b.Open() {
		t.Error("the failures from before still count")
	}
	if !b.Fail(b.Trouble().Load()) {
		t.Error("does not open again")
	}
}

func TestBreakerWaitsTwiceAsLongAfterEachProbeThatFailsUpToASecond(t *testing.T) {
	var b breaker
	for round := 0; round < 2; round++ { // the second round begins with the shortest wait again
		failTimes(&b, 5)
		for i, want := range []int64{100_000, 200_000, 400_000, 800_000, 1_000_000, 1_000_000} {
			least, half, most := b.Wait(0), b.Wait(0.5), b.Wait(0.999999)
			if least != want/2 || half != want*3/4 || most >= want || most < want-10 {
				t.Errorf("round %d, probe %d: waits from %d over %d to %d µs, want from half of %d up to it", round, i, least, half, most, want)
			}
			if !b.Probe() {
				t.Fatal("no probe while open")
			}
			b.Probed(false)
		}
		b.Probe()
		b.Probed(true)
	}
}

// countTrue counts a call that returns true. It is not a function literal, since Yaegi may call that of an earlier round again.
func countTrue(call func() bool, count *atomic.Int64, wg *sync.WaitGroup) {
	if call() {
		count.Add(1)
	}
	wg.Done()
}

func TestBreakerIsOpenedByOneOfManyFailures(t *testing.T) {
	for round := 0; round < 50; round++ {
		var b breaker
		var opened, probes atomic.Int64
		var wg sync.WaitGroup
		failTimes(&b, failuresToOpen-1)
		for i := 0; i < 16; i++ {
			wg.Add(1)
			go countTrue(b.fail, &opened, &wg)
		}
		wg.Wait()
		for i := 0; i < 16; i++ {
			wg.Add(1)
			go countTrue(b.Probe, &probes, &wg)
		}
		wg.Wait()
		if opened.Load() != 1 || probes.Load() != 1 || !b.Open() {
			t.Fatalf("%d failures have opened it, and %d callers may probe; want 1 and 1", opened.Load(), probes.Load())
		}
	}
}
