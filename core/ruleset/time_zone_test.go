package ruleset

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestATimeZoneOnAMachineWithoutADatabaseSaysHowToGetOne(t *testing.T) {
	none := func(name string) (*time.Location, error) { return nil, errors.New("unknown time zone " + name) }
	if _, err := locationOf("Europe/Berlin", none); err == nil || !strings.Contains(err.Error(), "install the package tzdata") {
		t.Errorf("%v; want what to install", err)
	}
	one := func(name string) (*time.Location, error) {
		if name == "Europe/London" {
			return time.UTC, nil
		}
		return none(name)
	}
	if _, err := locationOf("Europe/Berln", one); err == nil || !strings.Contains(err.Error(), "must be a name of the time zone database") {
		t.Errorf("%v; want that the name is wrong", err)
	}
	if _, err := locationOf("Local", one); err == nil {
		t.Error("Local is taken")
	}
}
