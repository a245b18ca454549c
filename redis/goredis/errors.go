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

// errTLS is in errors of connections over TLS that have not come about.
var errTLS = errors.New("over TLS")

// mark adds redis.ErrReply or redis.ErrRefused to what a server has replied, and to what is no reply at all: to all that is not a connection's error.
func mark(err error) error {
	if isConnections(err) {
		return err
	}
	if text, _, repeats := strings.Cut(err.Error(), ", with args beginning with"); repeats { // of a command that it does not know: AUTH's are secrets
		err = errors.New(text)
	}
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
		context.Canceled, context.DeadlineExceeded, errTLS,
	} {
		if errors.Is(err, is) {
			return true
		}
	}
	var network net.Error
	return errors.As(err, &network)
}
