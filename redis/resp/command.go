package resp

import (
	"strconv"
	"strings"

	"github.com/proxyweir/weir/redis"
)

// Pieces for the commands of calls that differ only in their keys.
const (
	evalSHA      = "*5\r\n$7\r\nEVALSHA\r\n$40\r\n"
	oneKey       = "\r\n$1\r\n1"
	longestReady = 1024
)

const askingCommand = "*1\r\n$6\r\nASKING\r\n"

// lengths are the pieces between two arguments, by the length of the second.
var lengths = makeLengths()

func makeLengths() []string {
	list := make([]string, longestReady)
	for i := range list {
		list[i] = "\r\n$" + strconv.Itoa(i) + "\r\n"
	}
	return list
}

// command returns a command in RESP.
func command(words []string) string {
	list := make([]string, 0, 2*len(words)+2)
	list = append(list, "*"+strconv.Itoa(len(words)))
	for _, word := range words {
		list = append(list, "\r\n$"+strconv.Itoa(len(word))+"\r\n", word)
	}
	list = append(list, "\r\n")
	return strings.Join(list, "")
}

// commandOf returns the command of a call. For a Constant call it keeps the pieces that never change in Head and Tail.
func commandOf(call *redis.Call) string {
	if call.Constant && len(call.Args) == 1 && len(call.Args[0]) < longestReady {
		call.Head = evalSHA + call.Script.SHA1 + oneKey
		call.Tail = lengths[len(call.Args[0])] + call.Args[0] + "\r\n"
	}
	return script(call, false)
}

// script returns the command of a call: with source, the script itself, which the server then keeps; otherwise its SHA-1.
func script(call *redis.Call, source bool) string {
	words := make([]string, 0, 3+len(call.Keys)+len(call.Args))
	if source {
		words = append(words, "EVAL", call.Script.Source)
	} else {
		words = append(words, "EVALSHA", call.Script.SHA1)
	}
	words = append(words, strconv.Itoa(len(call.Keys)))
	words = append(words, call.Keys...)
	words = append(words, call.Args...)
	return command(words)
}

// Config says where Redis is, and how to connect to it.
type Config = redis.ClientConfig
