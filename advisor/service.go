package advisor

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/proxyweir/weir/core/advice"
)

// Serve computes advice each interval, and serves it at a listener, until the context ends. Requests that are under way have ten seconds to end. tell gets what
// an operator should know, and what is over again, one line each.
func (a *Advisor) Serve(ctx context.Context, l net.Listener, tell func(text string)) error {
	server := &http.Server{
		Handler: a.Handler(), TLSConfig: a.config.TLS,
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 1 << 16,
		ErrorLog: log.New(told(tell), "", 0),
	}
	ctx, stop := context.WithCancel(ctx)
	computed := make(chan struct{})
	go func() {
		defer close(computed)
		a.computeEach(ctx, tell)
	}()
	served := make(chan error, 1)
	go func() {
		if a.config.TLS != nil {
			served <- server.ServeTLS(l, "", "")
		} else {
			served <- server.Serve(l)
		}
	}()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = server.Shutdown(within)
		if served := <-served; err == nil && !errors.Is(served, http.ErrServerClosed) {
			err = served
		}
	}
	stop()
	<-computed
	return err
}

// told is a writer of lines for an operator.
type told func(text string)

func (t told) Write(line []byte) (int, error) {
	t(strings.TrimSpace(string(line)))
	return len(line), nil
}

// computeEach computes at once, and then each interval.
func (a *Advisor) computeEach(ctx context.Context, tell func(text string)) {
	failing := ""
	for {
		began := a.now()
		err := a.Compute(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && err.Error() != failing:
			failing = err.Error()
			tell("not everything was answered: " + failing)
		case err == nil && failing != "":
			failing = ""
			tell("everything is answered again")
		}
		next := time.NewTimer(a.pause(err) - a.now().Sub(began))
		select {
		case <-next.C:
		case <-ctx.Done():
			next.Stop()
			return
		}
	}
}

// retry is how long after an error it computes again at the latest: Prometheus may only have started later than the advisor.
const retry = 30 * time.Second

// pause returns how long after the beginning of a computation the next one begins.
func (a *Advisor) pause(err error) time.Duration {
	if err != nil {
		return min(a.config.Interval, retry)
	}
	return a.config.Interval
}

// Handler returns what serves GET /v1/advice, /healthz and /metrics.
func (a *Advisor) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/advice", a.serveAdvice)
	mux.HandleFunc("GET /healthz", a.serveHealth)
	mux.Handle("GET /metrics", a.metrics.handler())
	return mux
}

// serveAdvice answers as docs/advice.openapi.yaml says.
func (a *Advisor) serveAdvice(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	status := a.answer(w, r)
	a.metrics.requests.WithLabelValues(strconv.Itoa(status)).Inc()
}

func (a *Advisor) answer(w http.ResponseWriter, r *http.Request) (status int) {
	a.mu.RLock()
	at := a.latest
	a.mu.RUnlock()
	fleet, config := r.URL.Query().Get("fleet"), r.Header.Get("Weir-Config")
	switch {
	case !a.admits(r.Header.Get("Authorization")):
		w.Header().Set("WWW-Authenticate", "Bearer")
		return problem(w, http.StatusUnauthorized, "the token is missing, or another than this advisor's", nil)
	case fleet != a.config.Fleet:
		return problem(w, http.StatusNotFound, fmt.Sprintf("this advisor advises the fleet %q, not %q", a.config.Fleet, fleet), nil)
	case config != "" && config != a.digest:
		return problem(w, http.StatusConflict, "the proxy has other adaptable rules than this advisor: compare limit, burst, algorithm, floor, ceiling and algorithms of each",
			map[string]any{"config": a.digest})
	case at.document == nil || !a.now().Before(at.document.ExpiresAt):
		w.Header().Set("Retry-After", strconv.Itoa(max(int(a.config.Interval/time.Second), 1)))
		return problem(w, http.StatusServiceUnavailable, "no advice has been computed; /healthz says why", nil)
	}
	w.Header().Set("ETag", at.tag)
	if matches(r.Header.Values("If-None-Match"), at.tag) {
		w.WriteHeader(http.StatusNotModified)
		return http.StatusNotModified
	}
	w.Header().Set("Content-Type", "application/json")
	if at.signature != "" {
		w.Header().Set(advice.SignatureHeader, at.signature)
	}
	_, _ = w.Write(at.body) // fails if the proxy has gone
	return http.StatusOK
}

// admits compares the token of an Authorization field with the configured one, in a time that does not depend on how much of it is right.
func (a *Advisor) admits(authorization string) bool {
	if a.config.Token == "" {
		return true
	}
	scheme, token, _ := strings.Cut(authorization, " ")
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(a.config.Token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1 && strings.EqualFold(scheme, "Bearer")
}

// matches reports whether If-None-Match has a tag.
func matches(fields []string, tag string) bool {
	for _, one := range strings.Split(strings.Join(fields, ","), ",") {
		if one = strings.TrimSpace(one); one == "*" || strings.TrimPrefix(one, "W/") == tag {
			return true
		}
	}
	return false
}

// problem answers with problem details (RFC 9457), and returns the status.
func problem(w http.ResponseWriter, status int, detail string, more map[string]any) int {
	said := map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": detail}
	for name, value := range more {
		said[name] = value
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(said) // fails if the proxy has gone
	return status
}

// serveHealth says whether there is a document that is valid.
func (a *Advisor) serveHealth(w http.ResponseWriter, _ *http.Request) {
	a.mu.RLock()
	document, err := a.latest.document, a.err
	a.mu.RUnlock()
	health := struct {
		Status   string     `json:"status"`   // ok, failing while the last document is valid, or unavailable
		Computed *time.Time `json:"computed"` // when the last document was
		Serial   int64      `json:"serial,omitempty"`
		Error    string     `json:"error,omitempty"`
	}{Status: "ok"}
	status := http.StatusOK
	if err != nil {
		health.Status, health.Error = "failing", err.Error()
	}
	if document != nil {
		health.Computed, health.Serial = &document.IssuedAt, document.Serial
	}
	if document == nil || !a.now().Before(document.ExpiresAt) {
		health.Status, status = "unavailable", http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(health) // fails if the client has gone
}
