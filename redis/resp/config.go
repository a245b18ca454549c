package resp

import (
	"github.com/proxyweir/weir/redis"
)

// Config says where Redis is, and how to connect to it.
type Config = redis.ClientConfig
