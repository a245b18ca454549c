package traefik

import (
	"fmt"
	"strings"

	"github.com/proxyweir/weir/core/front"
	"github.com/proxyweir/weir/core/guard"
	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/ruleset"
	"github.com/proxyweir/weir/core/words"
)

// guardSettings is a middleware's guard, checked.
type guardSettings struct {
	name     string // under which it is shared
	bounds   guard.Config
	priority match.Source
	values   map[string]bool // of priority that have it; nil: no request has
}

// newGuardSettings reads a guard; nil: there is none. namespace is that of the middleware.
func newGuardSettings(value interface{}, namespace string) (*guardSettings, error) {
	var (
		none   *guardSettings
		given  Guard
		source GuardPriority
		in     ruleset.Settings
	)
	present, err := decodeObject("guard", value, &given)
	if err != nil || !present {
		return none, err
	}
	s := &guardSettings{name: strings.TrimSpace(given.Name)}
	s.bounds.Max = int(in.Number("max", given.Max, 1, front.MostUnderWay, 0))
	s.bounds.Min = int(in.Number("min", given.Min, 1, front.MostUnderWay, 0))
	s.bounds.Shadow = in.Truth("shadow", given.Shadow)
	warmUp := in.Duration("warmUp", given.WarmUp, front.LeastWarmUp, front.MostWarmUp, 0)
	if in.Err != nil {
		return none, fmt.Errorf("guard: %w", in.Err)
	}
	if s.bounds.WarmUp, err = front.GuardWarmUp(strings.TrimSpace(given.Tighten), warmUp); err != nil {
		return none, ourWords(words.Of(err))
	}
	if err = front.CheckGuard(s.name, s.bounds.Max, s.bounds.Min); err != nil {
		return none, err
	}
	if s.name == "" {
		s.name = namespace
	}
	present, err = decodeObject("guard: priority", given.Priority, &source)
	if err != nil || !present {
		return s, err
	}
	return s, s.setPriority(strings.TrimSpace(source.Source), trimmed(source.Values))
}

func (s *guardSettings) setPriority(text string, values []string) error {
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
	s.priority = source
	s.values = make(map[string]bool)
	for _, value := range values {
		if value, err = source.Spell(value); err != nil {
			return fmt.Errorf("guard: priority %q: %w", text, err)
		}
		s.values[value] = true
	}
	return nil
}

// alike reports whether two guards of one name have the same bounds. (Which requests have priority is each middleware's own.)
func (s *guardSettings) alike(other *guardSettings) bool {
	return s.bounds.Max == other.bounds.Max && s.bounds.Min == other.bounds.Min && s.bounds.WarmUp == other.bounds.WarmUp && s.bounds.Shadow == other.bounds.Shadow
}

// isOn reports whether an object of the configuration is there.
func isOn(value interface{}) bool {
	_, present, err := membersOf("", value, nil)
	return present || err != nil
}
