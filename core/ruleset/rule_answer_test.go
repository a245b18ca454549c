package ruleset

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/proxyweir/weir/tools/must"
)

// answering returns a rule with an answer, whose fields and values these are, and what is wrong with it.
func answering(message string, fields ...string) (*Rule, string) {
	t := &RuleText{Name: "a"}
	SetText(&t.Object, "limit", "5/1m")
	SetText(&t.Object, "message", message)
	o := &Object{}
	for i := 0; i < len(fields); i += 2 {
		SetText(o, fields[i], fields[i+1])
	}
	AddObject(t, "answer", o)
	r, wrong := Compile(t, Context{Prefixes: Standard})
	if len(wrong) > 0 {
		return nil, wrong[0].Error()
	}
	return r, ""
}

func TestAnAnswerThatNoClientCouldUseIsRefused(t *testing.T) {
	const target = `must be a path such as /slow-down, or a URL such as https://example.com/slow-down, without spaces, and without a placeholder in its host`
	for _, c := range []struct {
		message string
		fields  []string
		want    string
	}{
		{"", []string{}, `answer: is empty; write some of status, type, body, file, redirect, close, or leave it out`},
		{"", []string{"status", "200"}, `answer: status 200: must be from 400 to 599; 302, 303 and 307 are for a redirect`},
		{"", []string{"status", "302"}, `answer: status 302: must be from 400 to 599; 302, 303 and 307 are for a redirect`},
		{"", []string{"status", "301", "redirect", "/a"}, `answer: status 301: must be 302, 303 or 307 beside a redirect; browsers keep others for ever, or do not follow them`},
		{"", []string{"status", "308", "redirect", "/a"}, `answer: status 308: must be 302, 303 or 307 beside a redirect; browsers keep others for ever, or do not follow them`},
		{"", []string{"body", "a", "file", "b"}, `answer: body and file are mutually exclusive: an answer has one text, or redirects; remove one`},
		{"", []string{"file", "a", "redirect", "/b"}, `answer: file and redirect are mutually exclusive: an answer has one text, or redirects; remove one`},
		{"No.", []string{"body", "a"}, `answer: body and message are mutually exclusive: an answer has one text, or redirects; remove one`},
		{"", []string{"type", "text/html"}, `answer: type "text/html": has no effect without body or file; write one of them, or leave it out`},
		{"", []string{"type", "html", "body", "a"}, `answer: type "html": must be a media type, such as text/html or application/json; charset=utf-8`},
		{"", []string{"type", "text/html\r\nX: y", "body", "a"}, `answer: type "text/html\r\nX: y": must be a media type, such as text/html or application/json; charset=utf-8`},
		{"", []string{"redirect", "slow"}, `answer: redirect "slow": ` + target},
		{"", []string{"redirect", "//example.com/slow"}, `answer: redirect "//example.com/slow": ` + target},
		{"", []string{"redirect", `/\example.com`}, `answer: redirect "/\\example.com": ` + target},
		{"", []string{"redirect", "ftp://example.com"}, `answer: redirect "ftp://example.com": ` + target},
		{"", []string{"redirect", "https://"}, `answer: redirect "https://": ` + target},
		{"", []string{"redirect", "/a\r\nX: y"}, `answer: redirect "/a\r\nX: y": ` + target},
		{"", []string{"redirect", "https://{http.request.host}/slow"}, `answer: redirect "https://{http.request.host}/slow": ` + target},
		{"", []string{"redirect", "HTTPS://{http.request.host}/slow"}, `answer: redirect "HTTPS://{http.request.host}/slow": ` + target},
		{"", []string{"redirect", "{http.request.uri}"}, `answer: redirect "{http.request.uri}": ` + target},
		{"", []string{"close", "perhaps"}, `answer: close "perhaps": must be true or false`},
		{"No.", []string{"status", "403", "close", "true"}, ""},
		{"", []string{"redirect", "https://example.com/slow?by={rule}#{retry_after}"}, ""},
		{"", []string{"type", "text/html; charset=utf-8", "body", "a"}, ""},
	} {
		if _, wrong := answering(c.message, c.fields...); wrong != c.want {
			t.Errorf("%q:\n got %s\nwant %s", c.fields, wrong, c.want)
		}
	}
}

func TestTheFileOfAnAnswerIsReadWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "slow.html")
	r, wrong := answering("", "file", path)
	must.Equal(t, wrong, "", "without the file")
	fails := func(want string) {
		t.Helper()
		if err := ReadAnswer(r); err == nil || !strings.HasPrefix(err.Error(), "answer: file \""+path+"\": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	fails("no such file")
	must.Succeed(t, os.Mkdir(path, 0o700))
	fails("is a directory; name a file in it")
	must.Succeed(t, os.Remove(path))
	must.Succeed(t, os.WriteFile(path, make([]byte, mostAnswered+1), 0o600))
	fails("has 262145 bytes; an answer has at most 262144")
	must.Succeed(t, os.WriteFile(path, nil, 0o600))
	fails("is empty")
	page := strings.Repeat("x", mostAnswered)
	must.Succeed(t, os.WriteFile(path, []byte(page), 0o600))
	must.Succeed(t, ReadAnswer(r))
	must.Equal(t, r.Limits.Own().Answer.Body == page, true, "the body is the file")
}

// A value that is mistyped in an answer is told, and braces of JSON, styles and scripts are not.
func TestMistypedValuesInAnswersAreWarnedOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.html")
	must.Succeed(t, os.WriteFile(path, []byte("<p>{Limit} {remaning} {Limit}"), 0o600))
	for _, c := range []struct{ field, text, want string }{
		{"body", "{limt} of {limit}", "answer: body {limt}: stands for nothing, and clients get it as it is (did you mean {limit}?)"},
		{"body", `{"a": {retryafter}, "b": {retry-after}}`, "answer: body {retryafter}: stands for nothing, and clients get it as it is (did you mean {retry_after}?)\n" +
			"answer: body {retry-after}: stands for nothing, and clients get it as it is (did you mean {retry_after}?)"},
		{"file", path, "answer: file {Limit}: stands for nothing, and clients get it as it is (did you mean {limit}?)\nanswer: file {remaning}: stands for nothing, and clients get it as it is (did you mean {remaining}?)"},
		{"redirect", "/slow?by={rul}", "answer: redirect {rul}: stands for nothing, and clients get it as it is (did you mean {rule}?)"},
		{"body", `<style>a{color:red} b{}</style>{"a": {"limits": 1}} {limit} {remaining} {reset} {retry_after} {rule} {http.limit} {host} {list} {x} { limt } ${name}`, ""},
	} {
		r, wrong := answering("", c.field, c.text)
		must.Equal(t, wrong, "", c.text)
		must.Succeed(t, ReadAnswer(r))
		must.Equal(t, strings.Join(adviceOf(r), "\n"), c.want, c.text)
	}
}
