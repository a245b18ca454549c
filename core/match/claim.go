package match

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/proxyweir/weir/core/words"
)

// claimTaker returns a function that takes a claim of the JSON Web Token that a request brings: in Authorization: Bearer, or where the name says so
// behind an @, in another header field or in a cookie.
func claimTaker(name string) (take func(r *http.Request) string, full string, err error) {
	claim, place := name, ""
	for _, kind := range []string{"@header:", "@cookie:"} {
		if at := strings.LastIndex(name, kind); at >= 0 {
			claim, place = name[:at], name[at+1:]
		}
	}
	if claim == "" || len(claim) > longestClaim {
		return nil, name, words.Wrong("", "", "must have the name of a claim, of 1 to %d bytes, such as sub, or sub@cookie:session", longestClaim)
	}
	if at := strings.LastIndexByte(claim, '@'); at >= 0 && strings.IndexByte(claim[at:], ':') > 0 {
		return nil, name, words.Wrong("", "", "has a token in %q, and it can be in @header:NAME or @cookie:NAME alone", claim[at:])
	}
	if place == "" {
		return func(r *http.Request) string { return claimOf(bearer(r), claim) }, name, nil
	}
	token, place, err := tokenTaker(place)
	if err != nil {
		return nil, name, err
	}
	return func(r *http.Request) string { return claimOf(withoutScheme(token(r)), claim) }, claim + "@" + place, nil
}

// tokenTaker returns a function that takes the token from where it is, header:NAME or cookie:NAME, and that place as it is written.
func tokenTaker(place string) (take func(r *http.Request) string, full string, err error) {
	kind, name, _ := strings.Cut(place, ":")
	if kind == "cookie" {
		err = checkFieldName(kind, name)
		return func(r *http.Request) string {
			c, missing := r.Cookie(name)
			if missing != nil {
				return ""
			}
			return c.Value
		}, place, err
	}
	canonical, err := headerName(name)
	return func(r *http.Request) string { return strings.Join(r.Header[canonical], ",") }, "header:" + canonical, err
}

// longestClaim is the longest name of a claim, and longestToken the longest token of which claims are read, in bytes.
const (
	longestClaim = 200
	longestToken = 16 << 10
)

// bearer returns the token of the field Authorization (RFC 6750); "": there is none, or there is more than one such field.
func bearer(r *http.Request) string {
	values := r.Header["Authorization"]
	if len(values) != 1 {
		return ""
	}
	token := withoutScheme(values[0])
	if token == values[0] {
		return ""
	}
	return token
}

// withoutScheme returns a token without the word Bearer in front.
func withoutScheme(value string) string {
	scheme, token, found := strings.Cut(value, " ")
	if found && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return value
}

// claimOf returns a claim of a signed JSON Web Token (RFC 7519), whose signature it does not verify: a text that is not empty, a number as it is written,
// true or false. It returns "" for all other values, and for what is no such token. name is the claim's, or the names of nested ones with dots between;
// a claim whose own name has the dots comes first.
func claimOf(token, name string) string {
	if len(token) > longestToken {
		return ""
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 || jsonObject(parts[0]) == nil {
		return ""
	}
	if _, err := base64.RawURLEncoding.DecodeString(parts[2]); err != nil {
		return ""
	}
	return textOf(memberOf(jsonObject(parts[1]), name))
}

// jsonObject reads a part of a token; nil: it is no object of JSON.
func jsonObject(part string) map[string]interface{} {
	data, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil || !utf8.Valid(data) || !json.Valid(data) {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var object map[string]interface{}
	if err = decoder.Decode(&object); err != nil {
		return nil
	}
	return object
}

// memberOf returns the member of an object with that name, or at that path of names with dots between; nil: there is none.
func memberOf(object map[string]interface{}, name string) interface{} {
	value := object[name]
	for i := 0; i < len(name) && value == nil; i++ {
		inner := object[name[:i]]
		if name[i] != '.' || inner == nil {
			continue
		}
		if nested, ok := inner.(map[string]interface{}); ok {
			value = memberOf(nested, name[i+1:])
		}
	}
	return value
}

// textOf returns a single value of JSON as a text; "" for any other, and for null.
func textOf(value interface{}) string {
	if value == nil {
		return ""
	}
	if text, ok := value.(string); ok {
		return text
	}
	if number, ok := value.(json.Number); ok {
		return number.String()
	}
	if truth, ok := value.(bool); ok {
		return strconv.FormatBool(truth)
	}
	return ""
}
