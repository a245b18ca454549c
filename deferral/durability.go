package deferral

import (
	"context"
	"fmt"
	"strings"

	goredis "github.com/redis/go-redis/v9"
)

// CheckDurability says why jobs are not safe in that Redis by an UnsafeError: it may evict keys, it writes no append-only file, or it does not say. Another
// error means that Redis did not answer.
func (q *Queue) CheckDurability(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	node, err := q.node(ctx)
	if err != nil {
		return err
	}
	pipe := node.Pipeline()
	memory, persistence := pipe.Info(ctx, "memory"), pipe.Info(ctx, "persistence")
	if _, err := pipe.Exec(ctx); goredis.HasErrorPrefix(err, "NOPERM") || goredis.HasErrorPrefix(err, "ERR unknown command") {
		return &UnsafeError{fmt.Sprintf("Redis does not say whether it keeps jobs safely, since it refuses INFO: %v; allow the user INFO", err)}
	} else if err != nil {
		return err
	}
	switch policy := infoField(memory.Val(), "maxmemory_policy"); policy {
	case "noeviction":
	case "":
		return &UnsafeError{"Redis does not say whether it keeps jobs safely: its INFO has no maxmemory_policy"}
	default:
		return &UnsafeError{fmt.Sprintf("maxmemory-policy is %s, so Redis may remove jobs that wait; set it to noeviction", policy)}
	}
	if infoField(persistence.Val(), "aof_enabled") != "1" {
		return &UnsafeError{"there is no append-only file, so jobs do not survive a restart of Redis; set appendonly to yes"}
	}
	return nil
}

// UnsafeError says why jobs are not safe in a Redis.
type UnsafeError struct{ Why string }

// Error implements error.
func (e *UnsafeError) Error() string { return e.Why }

// infoField returns a field of the reply of INFO.
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
