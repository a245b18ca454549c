package replay

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/proxyweir/weir/tools/must"
)

// A report with all that its text can say.
func everyLine() *Report {
	at := func(minute int) time.Time { return time.Date(2026, 3, 2, 12, minute, 0, 0, time.UTC) }
	return &Report{
		Requests: 12_345, From: at(0), To: at(59), Rejected: 1, AllowedSoft: 2, Delayed: 3, Logged429: 4, LoggedByRule: 5,
		Unreadable: 3, Examples: []BadLine{{File: "a.log", Line: 7, Why: "is no line of a log"}},
		Other: 6, OutOfOrder: 9, Crowded: 2, EndedEarly: 8, ClockSteps: 1, Warnings: []string{"of one kind"},
		Rules: []RuleReport{
			{
				Name: "minutes", Limit: "5/1m", Algorithm: "token_bucket", Enforcement: "hard", Requests: 1000, Clients: 9, Rejected: 1, RejectedShare: 0.001, Touched: 1, TouchedShare: 0.00001,
				AllowedSoft: 1, Delayed: 2, ForConcurrency: 3, RejectedByOthers: 4, NotReplayed: []NotReplayed{{Requests: 2}, {Requests: 3}},
				WorstMinutes: []Minute{{at(1), 10, 5}, {at(2), 9, 4}}, TopKeys: []KeyReport{{"192.0.2.1", 20, 7}},
				Candidate: &OwnComparison{Limit: "6/1m", NewlyRejected: 1, NewlyAllowed: 2},
			},
			{
				Name: "keys", Limit: "concurrency 5", Algorithm: "concurrency", Enforcement: "shadow", ShadowRejected: 2, RejectedShare: 0.5,
				WorstMinutes: []Minute{{at(1), 10, 5}}, TopKeys: []KeyReport{{"192.0.2.1", 20, 7}, {"192.0.2.2", 19, 6}},
			},
			{Name: "nothing", Limit: "5/1m", Algorithm: "fixed_window", Enforcement: "hard"},
		},
		Candidate: &Comparison{
			Rejected: 1, NewlyRejected: 2, NewlyAllowed: 3, OnlyNow: []string{"x", "y"}, OnlyCandidate: []string{"z"},
			Rules: []RuleComparison{
				{Name: "minutes", Limit: "5/1m", Candidate: "6/1m", NewlyRejected: 1, NewlyAllowed: 2, SameKeys: true, NewlyTouched: 3, Spared: 4, Shadow: [2]bool{false, true}, Keys: []KeyChange{{"192.0.2.1", 8, 9}}},
				{Name: "keys", Limit: "5/1m", Candidate: "6/1m", Shadow: [2]bool{true, false}},
			},
		},
		Suggestions: []Suggestion{
			{Rule: "minutes", Of: "limit", Now: "5/1m", Limit: "7/1m", Burst: 9, Clients: 100, Touched: 1, Share: 0.01, Note: "a note"},
			{Rule: "minutes", Of: "concurrency", Now: "5", Limit: "6", Clients: 100},
			{Rule: "keys", Of: "limit", Now: "5/1m", Clients: 3, Note: "no limit would do"},
		},
	}
}

func TestTheTextSaysAllThatAReportHas(t *testing.T) {
	var got strings.Builder
	must.Succeed(t, everyLine().WriteText(&got))
	const want = `12,345 requests from 2026-03-02 12:00:00 to 2026-03-02 12:59:00
3 lines could not be read:
  a.log:7: is no line of a log
  and 2 more
6 lines are no requests that came to a limit
7 requests were decided late: begun more than 1m0s before others that were decided already
2 requests were decided late: begun before others that were decided already, since more came meanwhile than are kept to be put in order (100,000, or 1,000,000 rules for them)
of 8 requests the end was brought forward, since more were under way than are kept
the clock of the log went back 1 time
1 would have been rejected (<0.01 %), 2 let through by tolerance, 3 delayed; the log itself has 4 with status 429, and 5 that a rule rejected with another
warning: of one kind

RULE     LIMIT              REQUESTS  CLIENTS  REJECTED          CLIENTS TOUCHED           NOTES
minutes  5/1m token_bucket  1,000     9        1         0.10 %  1                <0.01 %  1 by tolerance; 2 delayed; 3 for concurrency; 4 rejected by other rules; 5 left out
keys     concurrency 5      0         0        2         50.0 %  0                0 %      shadow
nothing  5/1m fixed_window  0         0        0         0 %     0                0 %

minutes: its candidate 6/1m would reject 1 more, and let 2 more through

minutes: the worst minutes, and the keys most rejected
  MINUTE               REJECTED  OF  KEY        REJECTED  OF
  2026-03-02 12:01:00  5         10  192.0.2.1  7         20
  2026-03-02 12:02:00  4         9

keys: the worst minutes, and the keys most rejected
  MINUTE               REJECTED  OF  KEY        REJECTED  OF
  2026-03-02 12:01:00  5         10  192.0.2.1  7         20
                                     192.0.2.2  6         19

candidate: would reject 1: 2 more, and 3 fewer
RULE     LIMIT        CANDIDATE    NEWLY REJECTED  NEWLY ALLOWED  CLIENTS NEWLY TOUCHED  SPARED
minutes  5/1m         6/1m shadow  1               2              3                      4
keys     5/1m shadow  6/1m         0               0              other keys             other keys
only now: x, y
only in the candidate: z

minutes: the keys most affected
  KEY        NEWLY REJECTED  NEWLY ALLOWED
  192.0.2.1  8               9

suggested: the least limits that would have touched so few clients, each rule by itself
RULE     NOW            SUGGESTED      CLIENTS TOUCHED         OF   NOTES
minutes  5/1m           7/1m burst 9   1                1.0 %  100  a note
minutes  concurrency 5  concurrency 6  0                0 %    100
keys     5/1m           none                                   3  no limit would do
`
	if got.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", got.String(), want)
	}
}

// full takes so many bytes, and then no more.
type full int

var errFull = errors.New("no space left")

func (f *full) Write(b []byte) (int, error) {
	if *f -= full(len(b)); *f < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestATextThatCannotBeWrittenIsAnError(t *testing.T) {
	var whole strings.Builder
	must.Succeed(t, everyLine().WriteText(&whole))
	for room := 0; room <= whole.Len(); room += 50 {
		f := full(room)
		if err := everyLine().WriteText(&f); !errors.Is(err, errFull) && room < whole.Len() {
			t.Errorf("with room for %d bytes of %d: %v", room, whole.Len(), err)
		}
	}
}

func TestOneLineIsSpokenOfInTheSingular(t *testing.T) {
	r := everyLine()
	r.Requests, r.Unreadable, r.Other, r.OutOfOrder, r.Crowded, r.EndedEarly, r.ClockSteps = 1, 1, 1, 2, 1, 1, 1
	var got strings.Builder
	must.Succeed(t, r.WriteText(&got))
	const want = `1 request from 2026-03-02 12:00:00 to 2026-03-02 12:59:00
1 line could not be read:
  a.log:7: is no line of a log
1 line is no request that came to a limit
1 request was decided late: begun more than 1m0s before others that were decided already
1 request was decided late: begun before others that were decided already, since more came meanwhile than are kept to be put in order (100,000, or 1,000,000 rules for them)
of 1 request the end was brought forward, since more were under way than are kept
the clock of the log went back 1 time
`
	if !strings.HasPrefix(got.String(), want) {
		t.Errorf("%s, want\n%s", got.String(), want)
	}
	var page strings.Builder
	must.Succeed(t, r.WriteHTML(&page))
	for _, want := range []string{">1 request from ", ">1 line could not", ">2 requests were decided late", "went back 1 time<"} {
		must.Contain(t, page.String(), want, "the page does not have")
	}
}
