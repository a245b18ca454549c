package main_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/proxyweir/weir/experiment/arms"
	"github.com/proxyweir/weir/tools/must"
)

// The tests of package arms are here: a test program has all of Caddy, and takes seconds to link.

// fill sends n requests that wait, and returns how many the arm has passed on, and ends them.
func fill(t *testing.T, arm caddyhttp.MiddlewareHandler, n int) int {
	t.Helper()
	begun, over, released := make(chan bool, n), make(chan bool, n), make(chan bool)
	next := caddyhttp.HandlerFunc(func(http.ResponseWriter, *http.Request) error {
		begun <- true
		<-released
		return nil
	})
	var clients sync.WaitGroup
	for range n {
		clients.Go(func() {
			if err := arm.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), next); err != nil {
				over <- true
			}
		})
	}
	passed := 0
	for range n {
		select {
		case <-begun:
			passed++
		case <-over:
		}
	}
	close(released)
	clients.Wait()
	return passed
}

func TestTheCapLetsItsNumberBeUnderWay(t *testing.T) {
	c := new(arms.Cap)
	must.Succeed(t, c.UnmarshalCaddyfile(caddyfile.NewTestDispenser("cap 48")))
	for range 2 {
		if got := fill(t, c, 60); got != 48 {
			t.Errorf("%d of 60 were under way, want 48", got)
		}
	}
	if c.UnmarshalCaddyfile(caddyfile.NewTestDispenser("cap 0")) == nil || c.UnmarshalCaddyfile(caddyfile.NewTestDispenser("cap")) == nil {
		t.Error("a cap without a number is taken")
	}
}

func TestFailsafeBeginsWithItsLimit(t *testing.T) {
	f := new(arms.Failsafe)
	must.Succeed(t, f.UnmarshalCaddyfile(caddyfile.NewTestDispenser("failsafe 8 128 20")))
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	must.Succeed(t, f.Provision(ctx))
	for range 2 {
		if got := fill(t, f, 40); got != 20 {
			t.Errorf("%d of 40 were under way, want 20", got)
		}
	}
	for _, wrong := range []*arms.Failsafe{{Min: 8, Max: 10, Initial: 20}, {Min: 8, Max: 128, Initial: 20, Over: "drop"}} {
		if wrong.Provision(ctx) == nil {
			t.Errorf("%+v is taken", wrong)
		}
	}
}
