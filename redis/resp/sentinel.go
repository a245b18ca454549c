package resp

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/proxyweir/weir/redis"
)

// sentinels find the master. Only the goroutine that makes the connection of their conn uses them.
type sentinels struct {
	config Config // of the servers
	own    Config // of the Sentinels
	first  int    // the Sentinel to ask first: the one that was right last
}

func newSentinels(config Config) *sentinels {
	s := &sentinels{config: config, own: config}
	s.own.Username = config.SentinelUsername
	s.own.Password = config.SentinelPassword
	s.own.Database = 0
	return s
}

// dialMaster asks one Sentinel after the other which server is the master, until one knows it, and connects to that. A Sentinel may not know
// yet that the master has failed. So if the server does not answer, or says that it is a replica, the next attempt begins with the next Sentinel.
// leave keeps new calls off a connection, when the Sentinels name another master.
func dialMaster(ctx context.Context, s *sentinels, leave func(l *link)) (*link, error) {
	var why error
	for range s.config.Addresses {
		sentinel := s.config.Addresses[s.first%len(s.config.Addresses)]
		address, err := askSentinel(ctx, s, sentinel)
		if err == nil {
			l, err := connectTo(ctx, s.config, address, checkMaster)
			if err == nil {
				var until context.Context
				until, l.unwatch = context.WithCancel(ctx)
				own := *s
				go watchMaster(until, &own, address, l, leave)
				return l, nil
			}
			s.first++
			return nil, fmt.Errorf("the master at %s, of which Sentinel %s knows: %w", address, sentinel, err)
		}
		s.first++
		if why == nil {
			why = fmt.Errorf("at Sentinel %s: %w", sentinel, err)
		} else {
			why = fmt.Errorf("%w; at Sentinel %s: %w", why, sentinel, err)
		}
	}
	return nil, why
}

// askSentinel returns the address of the master that a Sentinel knows.
func askSentinel(ctx context.Context, s *sentinels, sentinel string) (string, error) {
	address := ""
	l, err := connectTo(ctx, s.own, sentinel, func(stream *redis.Stream) error {
		a, err := roundTrip(stream, "SENTINEL", "get-master-addr-by-name", s.config.MasterName)
		if err != nil {
			return err
		}
		if a.elements[0] == "_" {
			return fmt.Errorf("knows no master of the name %q%w", s.config.MasterName, redis.ErrReply)
		}
		n := a.number("*")
		host := a.text()
		port, failure := strconv.Atoi(a.text())
		if n != 2 || host == "" || failure != nil || port < 1 || port > 65535 {
			return errNoRedis
		}
		address = net.JoinHostPort(host, strconv.Itoa(port))
		return nil
	})
	if err != nil {
		return "", err
	}
	hangUp(l)
	return address, nil
}

// watchMaster leaves a master when a Sentinel names another: one that was replaced by hand does not know it for several seconds, and what it counts meanwhile
// is lost. It asks when the Sentinel announces a switch; where that cannot be heard, once a second. It returns when the context ends, as it does with the
// connection.
func watchMaster(ctx context.Context, s *sentinels, master string, l *link, leave func(l *link)) {
	defer func() { _ = recover() }() // an interpreted program has no other recover
	for ctx.Err() == nil {
		sentinel := s.config.Addresses[s.first%len(s.config.Addresses)]
		heard, deaf := connectTo(ctx, s.own, sentinel, func(stream *redis.Stream) error {
			_, err := roundTrip(stream, "SUBSCRIBE", "+switch-master")
			return err
		})
		address, err := askSentinel(ctx, s, sentinel)
		if err == nil && address != master {
			leave(l)
			sleep(ctx, s.config.Timeout) // until the last calls have ended
			hangUp(l)
		}
		if deaf == nil && err == nil {
			stop := context.AfterFunc(ctx, func() { hangUp(heard) })
			_ = heard.stream.Conn.SetReadDeadline(time.Now().Add(longestSilence))
			_, deaf = heard.stream.Conn.Read(make([]byte, 1))
			stop()
		}
		if heard != nil {
			hangUp(heard)
		}
		if err != nil {
			s.first++
		}
		if deaf != nil || err != nil {
			sleep(ctx, lastWait)
		}
	}
}

// longestSilence is after how long a Sentinel that announces nothing is asked all the same, since it may be gone.
const longestSilence = time.Minute

// errReplaced is why a connection to a master is left.
var errReplaced = fmt.Errorf("a Sentinel names another master%w", redis.ErrReply)

// checkMaster returns an error unless the server is a master.
func checkMaster(stream *redis.Stream) error {
	a, err := roundTrip(stream, "ROLE")
	if err != nil {
		return err
	}
	a.number("*")
	if role := a.text(); role != "master" {
		return fmt.Errorf("its role is %s%w", readable(role), redis.ErrReply)
	}
	return nil
}
