package goredis_test

import (
	"context"
	"time"

	client "github.com/redis/go-redis/v9"
)

// patience bounds what a test waits for that comes at once, on a machine that is busy.
const patience = 30 * time.Second

// quiet keeps what go-redis says of servers that the tests end out of their output.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func init() { client.SetLogger(quiet{}) }
