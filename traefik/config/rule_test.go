package config

import "testing"

func TestTheOverflowPolicyIsWrittenAsProvidersHaveIt(t *testing.T) {
	for _, r := range []Rule{
		{Limit: "100/1m", Algorithm: "token_bucket", Concurrency: "5", Candidate: object{"limit": "50/1m", "burst": 9}, Penalty: []string{"1m", " 10m"}, Enforcement: "soft 20% 30s"},
		{Limit: "100/1m", Algorithm: "token_bucket", Concurrency: " 5 ", Candidate: map[string]string{"Limit": " 50/1m ", "BURST": "9"}, Penalty: []string{"1m, 10m"}, Enforcement: "soft 20 30s", Count: []string{}},
	} {
		text, err := textOf(&r)
		if err != nil {
			t.Fatal(err)
		}
		if text.Lists["count"] != nil || len(text.Lists["penalty"]) == 0 || len(text.Objects["candidate"]) != 1 {
			t.Errorf("%+v: %+v", r, text)
		}
		s, err := Read(&Config{Rule: r}, "m@file")
		if err != nil {
			t.Fatal(err)
		}
		own := s.Rules[0].Limits.Own()
		beside := own.Linked()
		if len(beside) != 2 || !beside[0].IsCandidate() || beside[0].Limit.String() != "50/1m token_bucket burst 9" || beside[1].Limit.String() != "concurrency 5" {
			t.Errorf("%+v: %v", r, beside)
		}
	}
	s, err := Read(&Config{Rule: Rule{Limit: "100/day", OnLimit: "delay", MaxDelay: "3s", MaxWaiting: "9"}}, "m@file")
	if err != nil {
		t.Fatal(err)
	}
	waiting := s.Rules[0].Limits.Own().Limit
	if !waiting.Delays || waiting.MaxDelay != 3_000_000 {
		t.Errorf("%v, %d µs", waiting.Delays, waiting.MaxDelay)
	}
}
