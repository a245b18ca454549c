package traefik

import (
	"net/http"
	"sync"

	"github.com/proxyweir/weir/core"
	"github.com/proxyweir/weir/core/memory"
)

// sharedParts are the parts of fast paths that all routers of a set of rules share. They are made when the first router needs them.
type sharedParts struct {
	mu     sync.Mutex
	served map[*core.Rule][]*memory.ServedRule // by the limit
	places func(r *http.Request) []int         // of indexedPath
}

func newSharedParts() *sharedParts {
	return &sharedParts{served: make(map[*core.Rule][]*memory.ServedRule)}
}
