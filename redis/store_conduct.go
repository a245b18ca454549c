package redis

import (
	"errors"

	"github.com/proxyweir/weir/core"
)

var errNotYet = errors.New("redis: not yet")

// Settle implements core.Store.
func (s *Store) Settle(holds []core.Hold) error { return errNotYet }

// ShutOut implements core.Store.
func (s *Store) ShutOut(r *core.Rule, key string, duration int64) error { return errNotYet }
