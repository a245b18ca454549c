package goredis_test

import (
	"strings"
	"testing"

	"github.com/proxyweir/weir/core/exception"
	"github.com/proxyweir/weir/redis"
	"github.com/proxyweir/weir/redis/goredis"
	"github.com/proxyweir/weir/redis/redistest"
	"github.com/proxyweir/weir/tools/must"
)

// exchangeWith returns the exchange of a store with that secret in its keys.
func exchangeWith(t *testing.T, server *redistest.Server, secret string) exception.Exchange {
	t.Helper()
	client, err := goredis.New(goredis.Config{Addresses: []string{server.Addr()}})
	must.Succeed(t, err)
	s, err := redis.NewStore(redis.Config{Client: client, KeySecret: secret})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return redis.Exceptions(s)
}

func TestExceptionsInRedisHaveVersions(t *testing.T) {
	server := redistest.Start(t)
	exchange := exchangeWith(t, server, "")
	ask := func(a exception.Ask) exception.Answer {
		t.Helper()
		answer, err := exchange(&a)
		must.Succeed(t, err)
		return *answer
	}
	nothing := ask(exception.Ask{})
	if nothing.Version != "" || len(nothing.Document) > 0 || nothing.Now < 1_700_000_000_000_000 {
		t.Errorf("%+v", nothing)
	}
	first := ask(exception.Ask{Document: []byte("one")})
	if !first.Taken || len(first.Version) != 16 || len(first.Document) > 0 {
		t.Errorf("%+v", first)
	}
	late := ask(exception.Ask{Document: []byte("two")}) // over what is not there any more
	if late.Taken || late.Version != first.Version || string(late.Document) != "one" {
		t.Errorf("%+v", late)
	}
	second := ask(exception.Ask{Known: first.Version, Over: first.Version, Document: []byte("two")})
	if !second.Taken || second.Version <= first.Version {
		t.Errorf("%+v", second)
	}
	if known := ask(exception.Ask{Known: second.Version}); known.Version != second.Version || len(known.Document) > 0 {
		t.Errorf("%+v", known)
	}
	if lost := ask(exception.Ask{Known: first.Version, Lost: true, Document: []byte("old")}); lost.Taken || string(lost.Document) != "two" {
		t.Errorf("what is newer is taken for lost: %+v", lost)
	}
	server.MustDo(t, "FLUSHALL")
	if back := ask(exception.Ask{Known: second.Version, Lost: true, Document: []byte("two")}); !back.Taken || back.Version <= second.Version {
		t.Errorf("%+v", back)
	}
	keys := server.MustDo(t, "KEYS", "*").Strings()
	must.Equal(t, strings.Join(keys, " "), "weir:{%exceptions}:1", "keys")
	if life := server.MustDo(t, "TTL", keys[0]).Int; life < 366*86400 || life > 368*86400 {
		t.Errorf("it expires in %d s", life)
	}
}

func TestExceptionsAreSealedWithTheSecret(t *testing.T) {
	server := redistest.Start(t)
	answer, err := exchangeWith(t, server, "secret")(&exception.Ask{Document: []byte("sk-leaked")})
	must.Succeed(t, err)
	must.Equal(t, answer.Taken, true, "taken")
	if text := server.MustDo(t, "GET", "weir:{%exceptions}:1").String(); strings.Contains(text, "leaked") {
		t.Errorf("Redis has %q", text)
	}
	answer, err = exchangeWith(t, server, "secret")(&exception.Ask{})
	must.Succeed(t, err)
	must.Equal(t, string(answer.Document), "sk-leaked", "with the secret")
	_, err = exchangeWith(t, server, "another")(&exception.Ask{})
	if err == nil {
		t.Fatal("another secret opens it")
	}
	must.Contain(t, err.Error(), "another key_secret, or none, has written them")
}
