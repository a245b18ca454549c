// Command flatten writes the code that an interpreter needs flat: what it calls it pays for, since each call allocates all variables of the called
// function, and a call through a function value costs a multiple. A compiler inlines functions; here that is done in the source.
//
// What it writes is made of real functions, which are compiled, vetted and tested as they are:
//
//   - For each function that the rows of the table of algorithms have, it writes a function of that name with a switch, which calls that of
//     the limit's algorithm: algorithm_dispatch.go.
//   - A template is a function in a file _template_test.go. It is written again under another name, once or for each algorithm, with the calls of
//     the functions that have the comment "flatten:inline" inlined, one in the other. These are also the TakeFrom… and rejectFrom… of the algorithms.
//
// A call is inlined that is a statement of its own: a, b = f(x, y). If f may return early, the next statement must be an if that only goes to a
// label: it is left out, and where f returns early it goes there. In f, := declares an int64; others are declared with var. A variable of f and one
// of the template with the same name are one. So arguments and results usually have the names of f's.
//
// Within a template for an algorithm, an if whose condition is a trait of the algorithm's row, such as l.IsLog, is decided here, and take is that
// algorithm's. In a template for all algorithms, a call that depends on the algorithm becomes a switch.
//
// Fields of the variables limit and t, which never change, are captured by a function literal: that costs an interpreter less than reading them.
//
// To add a template, write it, and add a row to files. It is run by go generate, in its own folder. A test finds files that are not up to date.
package main

//go:generate go run .

import (
	"fmt"
	"os"
)

// file is a file that is written.
type file struct {
	name    string   // its path from the root
	from    string   // the file of the templates, beside it; "": the file has the functions of the table
	written []writes // in this order
}

// writes is what is written of a template.
type writes struct {
	template, as string
	kind         kind
}

type kind int

const (
	_        kind = iota
	once          // one function for all algorithms
	each          // one for each algorithm, with its name at the end
	switched      // one, which returns a function literal for the algorithm e.algorithm
)

var files = []file{
	{name: "core/rate/algorithm_dispatch.go"},
	{name: "core/memory/memory_fast_path_flat.go", from: "memory_fast_path_template_test.go", written: []writes{{"templateServe", "Serve", switched}}},
	{name: "core/memory/memory_fast_path_settle.go", from: "memory_fast_path_template_test.go", written: []writes{{"templateSettle", "settle", each}, {"templateReject", "reject", each}}},
	{name: "core/memory/memory_several_flat.go", from: "memory_fast_path_template_test.go", written: []writes{{"templateSeveral", "newSeveral", once}}},
	{name: "redis/store_fast_path_flat.go", from: "store_fast_path_template_test.go", written: []writes{
		{"templateOne", "newOne", once}, {"templateLeased", "newLeased", once}, {"templateSeveral", "newSeveral", once},
	}},
}

// captured are the variables of function literals whose fields are captured.
var captured = []string{"limit", "t"}

// algorithms is the folder of the algorithms.
const algorithms = "core/rate"

// below has the folders of the packages whose functions may be inlined in another.
var below = map[string][]string{"core/memory": {algorithms}, "redis": {algorithms, "core/memory"}}

// root is the path to the repository, from this folder.
const root = "../../"

func main() {
	for _, f := range files {
		source, err := generate(root, f)
		if err == nil {
			err = os.WriteFile(root+f.name, source, 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "flatten:", err)
			os.Exit(1)
		}
	}
}
