package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/memory"
)

// Monitoring says where a middleware serves metrics and quotas. Paths that it does not have are memory.NoPath.
type Monitoring struct {
	Address string // where metrics are served; "": nowhere
	Metrics string // the path for metrics
	Status  string // the path for quotas
}

// setMonitoring reads metrics and statusPath of a configuration, and reports whether rules have metrics.
func setMonitoring(c *Config, w *Monitoring) (counts bool, err error) {
	w.Metrics = memory.NoPath
	w.Status = memory.NoPath
	var m Metrics
	counts, err = decodeObject("metrics", c.Metrics, &m)
	if err != nil {
		return counts, err
	}
	w.Address = strings.TrimSpace(m.Address)
	if w.Address != "" {
		if err = checkAddress(w.Address); err != nil {
			return counts, fmt.Errorf("metrics: address %q: %w", m.Address, err)
		}
	}
	if err = pathOf("metrics: path", m.Path, &w.Metrics); err != nil {
		return counts, err
	}
	if err = pathOf("statusPath", c.StatusPath, &w.Status); err != nil {
		return counts, err
	}
	if w.Metrics == w.Status && w.Status != memory.NoPath {
		return counts, fmt.Errorf("statusPath %q: is the path of metrics; write another", c.StatusPath)
	}
	return counts, nil
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

// Asides reports whether there is a path that the middleware answers itself.
func (w *Monitoring) Asides() bool { return w.Metrics != memory.NoPath || w.Status != memory.NoPath }
