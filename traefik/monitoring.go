package traefik

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/memory"
)

// monitoring says where a middleware serves metrics and quotas. Paths that it does not have are core.NoPath.
type monitoring struct {
	address string // where metrics are served; "": nowhere
	metrics string // the path for metrics
	status  string // the path for quotas
}

// setMonitoring reads metrics and statusPath of a configuration.
func (e *engine) setMonitoring(c *Config) error {
	w := &e.monitoring
	w.metrics = memory.NoPath
	w.status = memory.NoPath
	var m Metrics
	counts, err := decodeObject("metrics", c.Metrics, &m)
	if err != nil {
		return err
	}
	e.counts = counts
	w.address = strings.TrimSpace(m.Address)
	if w.address != "" {
		if err = checkAddress(w.address); err != nil {
			return fmt.Errorf("metrics: address %q: %w", m.Address, err)
		}
	}
	if err = pathOf("metrics: path", m.Path, &w.metrics); err != nil {
		return err
	}
	if err = pathOf("statusPath", c.StatusPath, &w.status); err != nil {
		return err
	}
	if w.metrics == w.status && w.status != memory.NoPath {
		return fmt.Errorf("statusPath %q: is the path of metrics; write another", c.StatusPath)
	}
	return nil
}

// checkAddress checks an address to listen on.
func checkAddress(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return errors.New("must be host:port, such as 127.0.0.1:9180")
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return errors.New("the port must be from 1 to 65535")
	}
	return nil
}

// pathOf reads a path that is compared with the paths of requests as they come.
func pathOf(field, text string, path *string) error {
	if text == "" {
		return nil
	}
	if !strings.HasPrefix(text, "/") {
		return fmt.Errorf("%s %q: must begin with /", field, text)
	}
	if strings.ContainsAny(text, "?#*") {
		return fmt.Errorf("%s %q: must be one path as it is, without ?, # and *", field, text)
	}
	if encoded, err := url.PathUnescape(text); err != nil || encoded != text {
		return fmt.Errorf("%s %q: must be as it reads when it is decoded, without %%", field, text)
	}
	*path = text
	return nil
}

// asides reports whether there is a path that the middleware answers itself.
func (w *monitoring) asides() bool { return w.metrics != memory.NoPath || w.status != memory.NoPath }
