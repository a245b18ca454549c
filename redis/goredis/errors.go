package goredis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/proxyweir/weir/redis"
)

// errTLS is why a connection over TLS has not come about.
type errTLS struct{ err error }

// Error implements error.
func (e *errTLS) Error() string { return "over TLS: " + e.err.Error() }

// Unwrap returns the error without that it was over TLS.
func (e *errTLS) Unwrap() error { return e.err }

// errUnknown is what a server has replied that does not know a command, without the arguments that it repeats: those of AUTH are secrets.
type errUnknown struct {
	err  error
	text string
}

// Error implements error.
func (e *errUnknown) Error() string { return e.text }

// Unwrap returns the error with the arguments.
func (e *errUnknown) Unwrap() error { return e.err }

// withoutArguments returns an error without the arguments of a command that the server does not know.
func withoutArguments(err error) error {
	text, _, repeats := strings.Cut(err.Error(), ", with args beginning with")
	if !repeats {
		return err
	}
	return &errUnknown{err, text}
}

// mark adds redis.ErrReply or redis.ErrRefused to what a server has replied, and to what is no reply at all: to all that is not a connection's error.
func mark(err error) error {
	if isConnections(err) {
		return err
	}
	err = withoutArguments(err)
	return fmt.Errorf("%w%w", err, redis.OfReply(err.Error()))
}

// isConnections reports whether an error is that of a connection, or of the lack of one.
func isConnections(err error) bool {
	var reply goredis.Error
	if errors.As(err, &reply) {
		return false
	}
	for _, is := range []error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		goredis.ErrClosed, goredis.ErrPoolTimeout, goredis.ErrPoolExhausted,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, is) {
			return true
		}
	}
	var network net.Error
	var overTLS *errTLS
	return errors.As(err, &network) || errors.As(err, &overTLS)
}
