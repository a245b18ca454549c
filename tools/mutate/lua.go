package main

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/proxyweir/weir/tools/luaparts"
)

// swappedInLua has the replacement of each operator and word of Lua.
var swappedInLua = map[string]string{
	"==": "~=", "~=": "==", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "+": "-", "-": "+", "*": "/", "/": "*", "%": "*",
	"and": "or", "or": "and", "not": "", "true": "false", "false": "true",
}

// changesInLua returns the changes of a file: of its parts.
func changesInLua(name string, contents []byte) ([]change, error) {
	text := string(contents)
	parts, err := luaparts.Parts(filepath.Base(name), text)
	var changes []change
	for _, p := range parts {
		for _, c := range changesInPart(text[p.From:p.To]) {
			c.from += p.From
			c.to += p.From
			c.file = name
			c.line = 1 + strings.Count(text[:c.from], "\n")
			c.column = c.from - strings.LastIndexByte(text[:c.from], '\n')
			changes = append(changes, c)
		}
	}
	return changes, err
}

// changesInPart returns the changes of a piece of Lua. Their offsets are into it.
func changesInPart(text string) []change {
	var changes []change
	was := "" // the token before
	add := func(from, to int, becomes, what string) {
		changes = append(changes, change{from: from, to: to, text: becomes, what: what + " in " + shortened(lineAround(text, from))})
	}
	for i := 0; i < len(text); {
		to := luaToken(text, i)
		token := text[i:to]
		switch {
		case strings.HasPrefix(token, "--") || strings.TrimSpace(token) == "":
			i = to
			continue
		case token[0] >= '0' && token[0] <= '9':
			if value, err := strconv.ParseInt(token, 10, 64); err == nil {
				add(i, to, strconv.FormatInt(value+1, 10), fmt.Sprintf("%s becomes %d", token, value+1))
				add(i, to, "("+strconv.FormatInt(value-1, 10)+")", fmt.Sprintf("%s becomes %d", token, value-1))
			}
		case token == "-" && !endsOperand(was): // the sign of a number
		default:
			if becomes, ok := swappedInLua[token]; ok {
				add(i, to, becomes, strings.TrimSpace(token+" becomes "+becomes))
			}
		}
		was = token
		i = to
	}
	return append(changes, statementsInLua(text)...)
}

// luaToken returns the end of the token at an offset: a comment, spaces, a text, a number, a word, or an operator.
func luaToken(text string, from int) int {
	end := func(more func(c byte) bool) int {
		to := from + 1
		for to < len(text) && more(text[to]) {
			to++
		}
		return to
	}
	c := text[from]
	switch {
	case strings.HasPrefix(text[from:], "--"):
		return end(func(c byte) bool { return c != '\n' })
	case c == '\'' || c == '"':
		to := end(func(d byte) bool { return d != c && d != '\n' })
		if to < len(text) {
			to++
		}
		return to
	case isSpace(c):
		return end(isSpace)
	case isWord(c):
		return end(isWord)
	}
	for _, operator := range []string{"...", "..", "==", "~=", "<=", ">="} {
		if strings.HasPrefix(text[from:], operator) {
			return from + len(operator)
		}
	}
	return from + 1
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

func isWord(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// endsOperand reports whether an operator may follow a token.
func endsOperand(token string) bool {
	switch token {
	case "", "return", "and", "or", "not", "then", "do", "else":
		return false
	}
	last := token[len(token)-1]
	return isWord(last) || last == ')' || last == ']' || last == '}' || last == '\''
}

// statementsInLua returns the removals of lines that are one statement each: an assignment to an existing variable, a call, or a
// return.
func statementsInLua(text string) []change {
	var changes []change
	from := 0
	for _, line := range strings.SplitAfter(text, "\n") {
		statement, _, _ := strings.Cut(strings.TrimSpace(line), " --")
		begin := from + strings.Index(line, statement)
		from += len(line)
		if isStatementInLua(statement) {
			changes = append(changes, change{from: begin, to: begin + len(statement), what: "taken out: " + shortened(statement)})
		}
	}
	return changes
}

// isStatementInLua reports whether a line is a statement that can be removed alone.
func isStatementInLua(line string) bool {
	depth := 0
	assigns := false
	first := true
	for i := 0; i < len(line); {
		to := luaToken(line, i)
		switch token := line[i:to]; token {
		case "local", "function", "if", "then", "else", "elseif", "for", "while", "repeat", "until", "do", "end":
			return false
		case "return":
			if !first {
				return false
			}
			assigns = true
		case "(", "{", "[":
			depth++
		case ")", "}", "]":
			depth--
		case "=":
			assigns = assigns || depth == 0
		default:
			if strings.HasPrefix(token, "--") {
				return false
			}
		}
		first = false
		if depth < 0 {
			return false
		}
		i = to
	}
	if line == "" || depth != 0 || !isWord(line[0]) || strings.HasSuffix(line, ",") {
		return false
	}
	return assigns || strings.HasSuffix(line, ")")
}

// lineAround returns the line at an offset.
func lineAround(text string, at int) string {
	from := strings.LastIndexByte(text[:at], '\n') + 1
	line, _, _ := strings.Cut(text[from:], "\n")
	return line
}
