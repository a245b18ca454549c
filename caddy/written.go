package ratelimit

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/match"
)

// What a person has written for a placeholder, in a configuration or for the admin API, is taken in the spelling that requests have, by
// the functions of this file. Their errors begin with the value in quotation marks, say why no request has it, and what would be right.

// writtenHostPort takes a host with the port that clients write, if any.
func writtenHostPort(value string) (string, error) {
	if _, err := match.SpellHost(value); err != nil {
		return "", err
	}
	return cleanHostPort(value), nil
}

// writtenLabel takes one label of a host.
func writtenLabel(value string) (string, error) {
	label, err := match.SpellHost(value)
	if err != nil || strings.Contains(value, ".") {
		return "", fmt.Errorf("%q: must be one label of a host, such as the shop of shop.example, and has no dot", value)
	}
	return label, nil
}

// writtenPiece takes a piece of a path without a slash: a segment, or a file.
func writtenPiece(value string) (string, error) {
	if strings.Contains(value, "/") || value == "." || value == ".." {
		return "", fmt.Errorf("%q: must be one segment of a path, such as the login of /login, and has no slash", value)
	}
	return decoded(value)
}

// writtenBase takes a file without its extension, which is / for the path that has none.
func writtenBase(value string) (string, error) {
	if value == "/" {
		return value, nil
	}
	return writtenPiece(value)
}

// writtenExt takes the extension of a file.
func writtenExt(value string) (string, error) {
	if !strings.HasPrefix(value, ".") || strings.ContainsAny(value[1:], "./") {
		return "", fmt.Errorf("%q: must be the last extension of a file with its dot, such as .html", value)
	}
	return decoded(value)
}

// writtenDir takes a path up to its last slash.
func writtenDir(value string) (string, error) {
	if !strings.HasPrefix(value, "/") || !strings.HasSuffix(value, "/") {
		return "", fmt.Errorf("%q: must be a directory of a path, which begins and ends with /", value)
	}
	return match.SpellPath(value)
}

// decoded takes what is in one spelling when it is in lower case, and not escaped.
func decoded(value string) (string, error) {
	if escape := match.EscapeIn(value); escape != "" {
		return "", fmt.Errorf("%q: must be written decoded, without %s", value, escape)
	}
	return strings.ToLower(value), nil
}

// rawPath takes a path that has been decoded: what looks escaped in it was escaped twice.
func rawPath(value string) (string, error) {
	if !strings.HasPrefix(value, "/") && value != "*" {
		return match.SpellPath(value) // which says what is wrong
	}
	return match.CleanPath(value), nil
}

// checkWritten says why no request has a value for a placeholder that has no spellings, of those whose values are known.
func checkWritten(placeholder, value string) error {
	switch placeholder {
	case "http.request.remote.port":
		port, err := strconv.Atoi(value)
		if err != nil || port < 1 || port > 65535 || strconv.Itoa(port) != value {
			return fmt.Errorf("%q: must be a port, 1 to 65535", value)
		}
	case "http.request.scheme":
		if value != "http" && value != "https" {
			return fmt.Errorf("%q: must be http or https", value)
		}
	}
	return nil
}
