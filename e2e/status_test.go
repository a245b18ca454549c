package e2e

import (
	"encoding/json"
	"net/http"
	"testing"
)

// quotas are a client's own quotas, as the plugin reports them.
type quotas struct {
	Quotas []struct {
		Name                    string
		Limit, Remaining, Reset int
		RetryAfter              *int `json:"retry_after"`
	}
}

func (s *site) quotas(fields ...string) (q quotas) {
	s.t.Helper()
	r := s.do("/_weir/quota", fields...)
	r.want(s.t, "Content-Type", "application/json", "Cache-Control", "no-store", "X-Ratelimit-Limit", "-")
	if err := json.Unmarshal([]byte(r.body), &q); err != nil || r.status != http.StatusOK {
		s.t.Fatalf("%d %s: %v", r.status, r.body, err)
	}
	return q
}

func TestClientsGetTheirOwnQuotas(t *testing.T) {
	s := limited(t, `
		statusPath: /_weir/quota
		rules:
			- {name: everyone, limit: 300/366d, algorithm: fixed_window}
			- {name: logins, match: {methods: [POST], paths: [/login]}, limit: 2/366d, algorithm: fixed_window}
			- {name: by-key, key: 'header:X-Key', onMissingKey: skip, limit: 9/366d, algorithm: fixed_window}
			- {name: watched, limit: 1/1h, enforcement: shadow}`)
	s.admit(3, "/", "X-Key", "k")
	s.exactly(2, "POST /login")
	for range 3 { // at no cost
		q := s.quotas("X-Key", "k").Quotas
		if len(q) != 3 || q[0].Name != "everyone" || q[0].Limit != 300 || q[0].Remaining != 295 || q[0].Reset < 1 || q[0].Reset > 366*86400 || q[0].RetryAfter != nil ||
			q[1].Name != "logins" || q[1].Remaining != 0 || q[1].RetryAfter == nil || *q[1].RetryAfter > 366*86400 ||
			q[2].Name != "by-key" || q[2].Remaining != 6 {
			t.Fatalf("%+v", q)
		}
	}
	if q := s.quotas().Quotas; len(q) != 2 {
		t.Errorf("without a key: %+v", q)
	}
	if q := s.from("127.0.0.9").quotas("X-Key", "k").Quotas; q[0].Remaining != 300 || q[2].Remaining != 6 {
		t.Errorf("another client: %+v", q)
	}
	if r := s.do("POST /_weir/quota"); r.status != http.StatusMethodNotAllowed || r.header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d %v", r.status, r.header)
	}
	s.do("/_weir/quota/").want(t, "X-Ratelimit-Remaining", "294")
}
