package simulation

import (
	"testing"

	"github.com/proxyweir/weir/core/guard"
)

// served returns the mean of what is served in a situation, and the least.
func served(h Healthy) (mean, least float64) {
	least = 100
	for seed := uint64(1); seed <= uint64(*seeds); seed++ {
		s := h.Play(guard.New(guard.Config{Seed: 1}), seed)
		mean += s / float64(*seeds)
		least = min(least, s)
	}
	return mean, least
}

func TestWhatIsHealthyIsLetThrough(t *testing.T) {
	for _, h := range Healthies() {
		t.Run(h.Name, func(t *testing.T) {
			t.Parallel()
			mean, least := served(h)
			t.Logf("served %6.2f %%, at least %6.2f %%", mean, least)
			if mean < 99.9 {
				t.Errorf("%.2f %% are served, want 99.9", mean)
			}
		})
	}
}

// TestAServiceOfPatientClientsIsProtected: nobody leaves, so without a guard a queue grows for as long as more come than are answered.
func TestAServiceOfPatientClientsIsProtected(t *testing.T) {
	for _, h := range Patients() {
		t.Run(h.Name, func(t *testing.T) {
			t.Parallel()
			mean, least := served(h)
			t.Logf("answered in time %6.2f %%, at least %6.2f %%", mean, least)
			if least < h.Want {
				t.Errorf("%.2f %% are answered in time, want %v", least, h.Want)
			}
		})
	}
}

// TestNoMaximumIsNeeded: a guard finds out by itself what is too much, as quickly as one of at most 128.
func TestNoMaximumIsNeeded(t *testing.T) {
	for _, name := range Names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bounded, free float64
			for seed := uint64(1); seed <= uint64(*seeds); seed++ {
				s, n := New(name, seed, Options{Sigma: *sigma}), float64(*seeds)
				bounded += Run(s, unlimited(s), NewGuarded(128), nil, seed).Good / n
				free += Run(s, unlimited(s), NewGuarded(0), nil, seed).Good / n
			}
			t.Logf("goodput of %.2f %% with at most 128, %.2f %% without a maximum", bounded, free)
			if free < bounded-1.5 {
				t.Error("a maximum is worth having")
			}
		})
	}
}
