package config

import (
	"fmt"
	"strings"

	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/pressure"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// GuardSettings is a middleware's guard, checked.
type GuardSettings struct {
	Name     string // under which it is shared
	Bounds   guard.Config
	Priority match.Source
	Values   map[string]bool // of priority that have it; nil: no request has
	Pressure pressure.Source // whom to ask how busy the service is
}

// newGuardSettings reads a guard; nil: there is none. namespace is that of the middleware.
func newGuardSettings(value interface{}, namespace string) (*GuardSettings, error) {
	var (
		none   *GuardSettings
		given  Guard
		source GuardPriority
		in     ruleset.Settings
	)
	present, err := decodeObject("guard", value, &given)
	if err != nil || !present {
		return none, err
	}
	s := &GuardSettings{Name: strings.TrimSpace(given.Name)}
	s.Bounds.Max = int(in.Number("max", given.Max, 1, front.MostUnderWay, 0))
	s.Bounds.Min = int(in.Number("min", given.Min, 1, front.MostUnderWay, 0))
	s.Bounds.Shadow = in.Truth("shadow", given.Shadow)
	warmUp := in.Duration("warmUp", given.WarmUp, front.LeastWarmUp, front.MostWarmUp, 0)
	if in.Err != nil {
		return none, fmt.Errorf("guard: %w", in.Err)
	}
	if s.Bounds.WarmUp, err = front.GuardWarmUp(strings.TrimSpace(given.Tighten), warmUp); err != nil {
		return none, InWords(words.Of(err))
	}
	if err = front.CheckGuard(s.Name, s.Bounds.Max, s.Bounds.Min); err != nil {
		return none, err
	}
	if s.Name == "" {
		s.Name = namespace
	}
	if s.Pressure, err = newPressure(given.Pressure); err != nil {
		return none, err
	}
	present, err = decodeObject("guard: priority", given.Priority, &source)
	if err != nil || !present {
		return s, err
	}
	return s, s.setPriority(strings.TrimSpace(source.Source), trimmed(source.Values))
}

// newPressure reads whom to ask how busy the service is.
func newPressure(value interface{}) (pressure.Source, error) {
	var (
		none  pressure.Source
		given GuardPressure
		in    ruleset.Settings
	)
	present, err := decodeObject("guard: pressure", value, &given)
	if err != nil || !present {
		return none, err
	}
	interval := in.Duration("interval", given.Interval, pressure.LeastInterval, pressure.MostInterval, 0)
	if in.Err != nil {
		return none, fmt.Errorf("guard: pressure: %w", in.Err)
	}
	return pressure.NewSource(strings.TrimSpace(given.URL), strings.TrimSpace(given.Field), strings.TrimSpace(given.Query), strings.TrimSpace(given.High), interval)
}

func (s *GuardSettings) setPriority(text string, values []string) error {
	if text == "" {
		return fmt.Errorf("guard: priority: source: is missing; write what the value is taken from, such as header:X-Plan")
	}
	source, err := match.ParseSource(text)
	if err != nil {
		return words.Of(err).Named("source").Within("priority", "").Within("guard", "")
	}
	if err = front.CheckPriority(text, values, source.Static(), "another source, such as header:X-Plan"); err != nil {
		return err
	}
	s.Priority = source
	s.Values = make(map[string]bool)
	for _, value := range values {
		if value, err = source.Canonicalize(value); err != nil {
			return fmt.Errorf("guard: priority %q: %w", text, err)
		}
		s.Values[value] = true
	}
	return nil
}

// Alike reports whether two guards of one name have the same bounds. (Which requests have priority is each middleware's own.)
func (s *GuardSettings) Alike(other *GuardSettings) bool {
	return s.Pressure == other.Pressure && s.Bounds.Max == other.Bounds.Max && s.Bounds.Min == other.Bounds.Min && s.Bounds.WarmUp == other.Bounds.WarmUp && s.Bounds.Shadow == other.Bounds.Shadow
}

// isOn reports whether an object of the configuration is there.
func isOn(value interface{}) bool {
	_, present, err := membersOf("", value, nil)
	return present || err != nil
}
