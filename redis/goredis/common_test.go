package goredis_test

import (
	"context"
	"time"

	client "github.com/redis/go-redis/v9"
)

// patience is the longest wait for something that takes no time, on a busy machine.
const patience = 30 * time.Second

// quiet drops the log of go-redis about servers that the tests stop.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func init() { client.SetLogger(quiet{}) }
