package syntax

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	_ "time/tzdata" // the time zone database for machines that have none, such as the Alpine image of Caddy: 450 KB of the program

	"github.com/caddyserver/caddy/v2"
)

// noteZoneinfo says once if time zones are taken from this program, since the machine has none. It looks where Go looks.
var noteZoneinfo = sync.OnceFunc(func() {
	places := []string{"/usr/share/zoneinfo", "/usr/share/lib/zoneinfo", "/usr/lib/locale/TZ", "/etc/zoneinfo"}
	has := func(place string) bool {
		_, err := os.Stat(filepath.Join(place, "UTC"))
		return err == nil
	}
	if os.Getenv("ZONEINFO") == "" && !slices.ContainsFunc(places, has) {
		caddy.Log().Named("rate_limit").Info("this machine has no time zone database; time zones are those of the day on which this Caddy was built")
	}
})
