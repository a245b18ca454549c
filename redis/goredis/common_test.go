package goredis_test

import "time"

// patience bounds what a test waits for that comes at once, on a machine that is busy.
const patience = 30 * time.Second
