package ratelimit

import (
	"encoding/json"
	"fmt"

	"github.com/proxyweir/weir/caddy/syntax"
)

// UnmarshalJSON reads the handler's JSON as strictly as Caddy does. Its errors suggest the field that an unknown one resembles,
// name the zone, and report duplicate zones. (Caddy's own loader keeps only the last of duplicate names before it calls a module,
// so in a whole configuration the last zone counts.)
func (h *Handler) UnmarshalJSON(data []byte) error {
	type plain Handler // without this method, which would call itself
	p := struct {
		RateLimits json.RawMessage `json:"rate_limits"`
		*plain
	}{plain: (*plain)(h)}
	if err := syntax.UnmarshalStrict(data, &p); err != nil {
		return err
	}
	if err := checkStoreIsObject(h.StoreRaw); err != nil {
		return err
	}
	if p.RateLimits == nil {
		return nil
	}
	var err error
	h.RateLimits, err = syntax.UnmarshalZones(p.RateLimits)
	return err
}

// UnmarshalJSON reads the app's JSON as strictly as a handler's.
func (a *App) UnmarshalJSON(data []byte) error {
	type plain App // without this method, which would call itself
	if err := syntax.UnmarshalStrict(data, (*plain)(a)); err != nil {
		return err
	}
	return checkStoreIsObject(a.StoreRaw)
}

// storeInJSON is an example of a store in JSON.
const storeInJSON = `"store": {"store": "redis", "addresses": ["127.0.0.1:6379"]}`

// checkStoreIsObject refuses a store that is only a name. Caddy's own error for it would be about Go types.
func checkStoreIsObject(raw json.RawMessage) error {
	var object map[string]json.RawMessage
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &object) == nil {
		return nil
	}
	return fmt.Errorf("store %s: must be an object that has the store's name, such as %s", raw, storeInJSON)
}

// UnmarshalJSON reads an entry as strictly as a handler.
func (e *DescriptorEntry) UnmarshalJSON(data []byte) error {
	type plain DescriptorEntry
	return syntax.UnmarshalPart("descriptors", data, (*plain)(e))
}

// placeAndZones reads a handler from the object of its JSON, for syntax.CheckSurroundings.
func placeAndZones(object map[string]any) (at string, zones map[string]*syntax.Zone, err error) {
	h, err := handlerFrom(object)
	return h.At, h.RateLimits, err
}

// Interface guards
var (
	_ json.Unmarshaler = (*Handler)(nil)
	_ json.Unmarshaler = (*App)(nil)
	_ json.Unmarshaler = (*DescriptorEntry)(nil)
)

// eachHandler calls f with every rate_limit handler in JSON, at any depth, and its path. A handler that cannot be read is empty.
func eachHandler(path string, raw json.RawMessage, f func(path string, h *Handler)) {
	var value any
	_ = json.Unmarshal(raw, &value)
	syntax.EachObject(path, value, func(path string, object map[string]any) bool {
		if object["handler"] != "rate_limit" {
			return true
		}
		h, err := handlerFrom(object)
		if err != nil {
			h = new(Handler)
		}
		f(path, h)
		return false
	})
}

// handlerFrom reads a handler from the object of its JSON.
func handlerFrom(object map[string]any) (*Handler, error) {
	delete(object, "handler") // as Caddy does
	text, err := json.Marshal(object)
	h := new(Handler)
	if err == nil {
		err = h.UnmarshalJSON(text)
	}
	return h, err
}
