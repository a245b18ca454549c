// Package log has the switch of the library's log.
package log

import "log/slog"

// SetDefault does nothing: there is nothing to log.
func SetDefault(*slog.Logger) {}
