package resp

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/proxyweir/weir/redis"
)

// greeter is a server that answers any handshake with one text, and hangs up.
func greeter(t *testing.T, commands int, text string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	together(&wg, func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r := bufio.NewReader(c)
			for i := 0; i < commands; i++ {
				if _, err = readCommand(r); err != nil {
					break
				}
			}
			_, _ = io.WriteString(c, text)
			_ = c.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// If a server refuses a connection and says why, the error for the operator has that, even if the server hangs up before it has answered
// everything. The error never has a password that the server quotes.
func TestWhyAServerRefusesToServeIsReported(t *testing.T) {
	t.Parallel()
	const (
		full   = "-ERR max number of clients reached\r\n"
		denied = "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user.\r\n"
		other  = "HTTP/1.1 400 Bad Request\r\n\r\n"
	)
	password := strings.Repeat("p4ss-", 40)
	for _, c := range []struct {
		name     string
		config   Config
		commands int // how many it reads before it answers
		text     string
		says     string
		kind     string
	}{
		{"full, without a password", Config{}, 0, full, "ERR max number of clients reached", "reply"},
		{"full, with a password", Config{Password: "p4ss"}, 0, full, "not available: ERR max number of clients reached", "reply"},
		{"full, with a password and a database", Config{Password: "p4ss", Database: 1}, 0, full, "not available: ERR max number of clients reached", "reply"},
		{"protected, with a password and a database", Config{Password: "p4ss", Database: 1}, 2, denied, "not available: DENIED Redis is running in protected mode", "reply"},
		{"the password is wrong, and it hangs up", Config{Password: "p4ss", Database: 1}, 1, "-WRONGPASS invalid username-password pair\r\n", "not available: WRONGPASS", "reply"},
		{"the database is refused, and it hangs up", Config{Password: "p4ss", Database: 1}, 2, "+OK\r\n-ERR DB index is out of range\r\n", "not available: ERR DB index", "reply"},
		{"it hangs up at once", Config{Password: "p4ss", Database: 1}, 2, "", "not available: EOF", "connection"},
		{"it hangs up after the first answer", Config{Password: "p4ss", Database: 1}, 2, "+OK\r\n", "not available: EOF", "connection"},
		{"it hangs up within an answer", Config{Password: "p4ss", Database: 1}, 2, "+OK\r\n-ERR DB ind", "not available: EOF", "connection"},
		{"it hangs up where the end of a line lacks", Config{Password: "p4ss", Database: 1}, 2, "+OK\r\n+OK", "not available: EOF", "connection"},
		{"another kind of server", Config{Password: "p4ss"}, 1, other, "not available: what answers is no Redis", "reply"},
		{"another kind of server for the database", Config{Password: "p4ss", Database: 1}, 2, "+OK\r\n" + other, "not available: what answers is no Redis", "reply"},
		{"more than was asked for", Config{Password: "p4ss"}, 1, "+OK\r\n+OK\r\n", "not available: what answers is no Redis", "reply"},
		{"a line without an end", Config{Password: "p4ss"}, 1, strings.Repeat("x", longestLine+1), "not available: what answers is no Redis", "reply"},
		{"it repeats the password", Config{Password: "p4ss"}, 1, "-ERR p4ss is not it\r\n", "not available: the server refuses the password, and repeats it", "reply"},
		{
			"it repeats what it does not know", Config{Username: "weir", Password: "p4ss"}, 1, "-ERR unknown command 'AUTH', with args beginning with: 'weir' 'p4ss' \r\n",
			"not available: ERR unknown command 'AUTH'", "reply",
		},
		{
			"it repeats the beginning of a long password", Config{Password: password}, 1, "-ERR unknown command `AUTH`, with args beginning with: `" + password[:126] + "` \r\n",
			"not available: ERR unknown command `AUTH`", "reply",
		},
	} {
		test := c // the interpreter has one variable for all rounds
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			config := test.config
			config.Addresses = []string{greeter(t, test.commands, test.text)}
			config.DialTimeout = patience
			err := ask(newClient(t, config), 1, time.Time{})
			if err == nil || !strings.Contains(err.Error(), test.says) || !errors.Is(err, redis.ErrUnavailable) && test.commands > 0 {
				t.Errorf("error %v, want %q", err, test.says)
			}
			if kind := redis.ErrorKind(err); kind != test.kind {
				t.Errorf("error %v is of the kind %q, want %q", err, kind, test.kind)
			}
			if err != nil && strings.Contains(err.Error(), "p4ss") {
				t.Errorf("error %q has the password in it", err)
			}
		})
	}
}
