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

// mark returns err with redis.ErrReply or redis.ErrRefused wrapped, unless it is an error of a connection. Those it returns unchanged.
func mark(err error) error {
	if isConnections(err) {
		return err
	}
	if text, _, repeats := strings.Cut(err.Error(), ", with args beginning with"); repeats { // the server does not know a command and quotes it: the arguments of AUTH are secrets
		err = errors.New(text)
	}
	return fmt.Errorf("%w%w", err, redis.OfReply(err.Error()))
}

// isConnections reports whether an error is one of a connection, or of an attempt to connect.
func isConnections(err error) bool {
	var reply goredis.Error
	if errors.As(err, &reply) {
		return false
	}
	for _, is := range []error{
		io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		goredis.ErrClosed, goredis.ErrPoolTimeout, goredis.ErrPoolExhausted,
		context.Canceled, context.DeadlineExceeded, redis.ErrTLS,
	} {
		if errors.Is(err, is) {
			return true
		}
	}
	var network net.Error
	return errors.As(err, &network)
}
