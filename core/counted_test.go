package core

import (
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

func TestResponsesCountByStatusOrField(t *testing.T) {
	c, err := ParseCounted([]string{"401 4xx", "header:x-login=failed", "header:X-Blocked", "trailer:grpc-status=16", "header:X-Note=two words, and a comma", "header:X-Login=failed"})
	must.Succeed(t, err)
	must.Equal(t, c.String(), `4xx,header:X-Blocked,header:X-Login="failed",header:X-Note="two words, and a comma",trailer:Grpc-Status="16"`)
	for _, of := range []struct {
		fields   map[string][]string
		trailers bool
		want     bool
	}{
		{map[string][]string{"X-Login": {"failed"}}, false, true},
		{map[string][]string{"X-Login": {"ok", " failed "}}, false, true},
		{map[string][]string{"X-Login": {"Failed"}}, false, false},
		{map[string][]string{"X-Login": {"failed"}}, true, false},
		{map[string][]string{"X-Blocked": {""}}, false, true},
		{map[string][]string{"X-Note": {"two words, and a comma"}}, false, true},
		{map[string][]string{"Grpc-Status": {"16"}}, true, true},
		{map[string][]string{"Grpc-Status": {"16"}}, false, false},
		{nil, false, false},
	} {
		must.Equal(t, c.Meets(of.fields, of.trailers), of.want, "%v, trailers: %t", of.fields, of.trailers)
	}
	must.Equal(t, c.Has(404) && !c.Has(200) && !c.Has(600), true, "statuses")

	must.Succeed(t, err)

	for text, want := range map[string]string{
		"header:":       `count "header:": has no name of a header field; write one such as header:X-Login=failed`,
		"trailer:a b=c": `count "trailer:a b=c": has no name of a header field; write one such as trailer:X-Login=failed`,
		"header: X-A":   `count "header: X-A": has no name of a header field; write one such as header:X-Login=failed`,
		"Header:X-A":    `count "Header:X-A": ` + countedWords,
		" , ":           `count: names no status; write those of the responses that stay charged, such as 401 or 4xx`,
		"401 header:=x": `count "header:=x": has no name of a header field; write one such as header:X-Login=failed`,
	} {
		if _, err := ParseCounted([]string{text}); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
