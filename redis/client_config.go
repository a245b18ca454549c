package redis

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// Defaults of the clients' configurations.
const (
	DefaultTimeout     = 50 * time.Millisecond
	DefaultDialTimeout = time.Second
	DefaultReadTimeout = 500 * time.Millisecond
)

// DefaultPort is the port of an address without one.
const DefaultPort = "6379"

// ErrURL is the error of an address that is an invalid URL. It does not quote the URL, which may have a password in it.
var ErrURL = errors.New("address: the URL cannot be read; write redis://host:6379/0, for example; in a password, write %xx for what is not a letter or digit, or set the password by itself")

// CompleteAddress returns addr, with DefaultPort added if it has no port. The error says what is wrong with an address that is neither
// host:port nor the path of a Unix socket.
func CompleteAddress(addr string) (string, error) {
	const form = "must be host:port, the path of a Unix socket, or a URL"
	if strings.HasPrefix(addr, "/") {
		return addr, nil
	}
	if strings.Contains(addr, "@") { // there may be a password before it
		return "", errors.New("address: " + form + "; write a user and a password in a URL, or in settings of their own")
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host = strings.Trim(addr, "[]")
		port = DefaultPort
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			host = ""
		}
	}
	if host == "" || port == "" || strings.ContainsAny(host, " /?") {
		return "", fmt.Errorf("address %q: %s", addr, form)
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("address %q: the port must be from 1 to 65535", addr)
	}
	return net.JoinHostPort(host, port), nil
}

// CompleteTimeouts sets those of a client's timeouts that are 0 to their defaults. The default of read is DefaultReadTimeout, or timeout
// if that is longer. The error says which one is not from 1ms to 1m, or that read is shorter than timeout.
func CompleteTimeouts(timeout, dial, read *time.Duration) error {
	standard := DefaultReadTimeout
	if standard < *timeout {
		standard = *timeout
	}
	for _, t := range []struct {
		name     string
		value    *time.Duration
		standard time.Duration
	}{
		{"timeout", timeout, DefaultTimeout},
		{"dial_timeout", dial, DefaultDialTimeout},
		{"read_timeout", read, standard},
	} {
		if *t.value == 0 {
			*t.value = t.standard
		}
		if *t.value < time.Millisecond || *t.value > time.Minute {
			return fmt.Errorf("%s %s: must be from 1ms to 1m", t.name, *t.value)
		}
	}
	if *read < *timeout {
		return fmt.Errorf("read_timeout %s: must not be shorter than the timeout of a decision, %s", *read, *timeout)
	}
	return nil
}
