package syntax

import (
	"strconv"
	"strings"

	"github.com/proxyweir/weir/core/match"
	"github.com/proxyweir/weir/core/words"
)

// The functions of this file normalize values that a person has written for a placeholder, in a configuration or for the admin API,
// to the spelling that requests have. Their errors begin with the value in quotation marks, and say why no request has it and what
// would be right.

// writtenHostPort normalizes a host, with the port if clients write one.
func writtenHostPort(value string) (string, error) {
	if _, err := match.SpellHost(value); err != nil {
		return "", err
	}
	return cleanHostPort(value), nil
}

// writtenLabel normalizes one label of a host.
func writtenLabel(value string) (string, error) {
	label, err := match.SpellHost(value)
	if err != nil || strings.Contains(value, ".") {
		return "", words.Wrong("", strconv.Quote(value), "must be one label of a host, such as the shop of shop.example, and has no dot")
	}
	return label, nil
}

// writtenPiece normalizes a piece of a path without a slash: a segment, or a file name.
func writtenPiece(value string) (string, error) {
	if strings.Contains(value, "/") || value == "." || value == ".." {
		return "", words.Wrong("", strconv.Quote(value), "must be one segment of a path, such as the login of /login, and has no slash")
	}
	return decoded(value)
}

// writtenBase normalizes a file name without its extension; it is / for a path without a file name.
func writtenBase(value string) (string, error) {
	if value == "/" {
		return value, nil
	}
	return writtenPiece(value)
}

// writtenExt normalizes the extension of a file name.
func writtenExt(value string) (string, error) {
	if !strings.HasPrefix(value, ".") || strings.ContainsAny(value[1:], "./") {
		return "", words.Wrong("", strconv.Quote(value), "must be the last extension of a file with its dot, such as .html")
	}
	return decoded(value)
}

// writtenDir normalizes a path up to its last slash.
func writtenDir(value string) (string, error) {
	if !strings.HasPrefix(value, "/") || !strings.HasSuffix(value, "/") {
		return "", words.Wrong("", strconv.Quote(value), "must be a directory of a path, which begins and ends with /")
	}
	return match.SpellPath(value)
}

// decoded accepts a value that is normalized if it is in lower case and not escaped.
func decoded(value string) (string, error) {
	if escape := match.EscapeIn(value); escape != "" {
		return "", words.Wrong("", strconv.Quote(value), "must be written decoded, without %s", escape)
	}
	return strings.ToLower(value), nil
}

// rawPath normalizes a path that has been decoded: what looks escaped in it was escaped twice.
func rawPath(value string) (string, error) {
	if !strings.HasPrefix(value, "/") && value != "*" {
		return match.SpellPath(value) // its error says what is wrong
	}
	return match.CleanPath(value), nil
}

// checkWritten says why no request has a value for a placeholder without spellings, if all its values are known.
func checkWritten(placeholder, value string) error {
	switch placeholder {
	case "http.request.remote.port":
		port, err := strconv.Atoi(value)
		if err != nil || port < 1 || port > 65535 || strconv.Itoa(port) != value {
			return words.Wrong("", strconv.Quote(value), "must be a port, 1 to 65535")
		}
	case "http.request.scheme":
		if value != "http" && value != "https" {
			return words.Wrong("", strconv.Quote(value), "must be http or https")
		}
	}
	return nil
}
