package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// swapped has the replacement of each operator of Go.
var swapped = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND, token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
	token.AND: token.OR, token.OR: token.AND, token.SHL: token.SHR, token.SHR: token.SHL, token.AND_NOT: token.AND, token.XOR: token.AND,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN, token.MUL_ASSIGN: token.QUO_ASSIGN, token.QUO_ASSIGN: token.MUL_ASSIGN,
	token.OR_ASSIGN: token.AND_ASSIGN, token.AND_ASSIGN: token.OR_ASSIGN, token.INC: token.DEC, token.DEC: token.INC,
}

// finder collects the changes of a file.
type finder struct {
	name     string
	contents []byte
	file     *token.File
	posts    map[ast.Stmt]bool // statements that end an iteration: without them, the loop would not end
	changes  []change
}

// changesIn returns the changes of a Go file; none if it is generated.
func changesIn(name string, contents []byte) ([]change, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, name, contents, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(parsed) {
		return nil, nil
	}
	f := &finder{name: name, contents: contents, file: files.File(parsed.Pos()), posts: make(map[ast.Stmt]bool)}
	ast.Inspect(parsed, f.visit)
	return f.changes, nil
}

// add adds the change of the text between two offsets.
func (f *finder) add(from, to int, text, what string) {
	position := f.file.Position(f.file.Pos(from))
	f.changes = append(f.changes, change{file: f.name, line: position.Line, column: position.Column, from: from, to: to, text: text, what: what})
}

// addNode adds the change of a node.
func (f *finder) addNode(n ast.Node, text, what string) {
	f.add(f.file.Offset(n.Pos()), f.file.Offset(n.End()), text, what)
}

// addToken adds the change of an operator at a position in a node.
func (f *finder) addToken(at token.Pos, was token.Token, in ast.Node) {
	becomes, ok := swapped[was]
	if !ok {
		return
	}
	from := f.file.Offset(at)
	f.add(from, from+len(was.String()), becomes.String(), fmt.Sprintf("%s becomes %s in %s", was, becomes, f.source(in)))
}

// source returns a node's text, on one line and shortened.
func (f *finder) source(n ast.Node) string {
	return shortened(string(f.contents[f.file.Offset(n.Pos()):f.file.Offset(n.End())]))
}

func shortened(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > 70 {
		return string(runes[:69]) + "…"
	}
	return text
}

// visit adds the changes of a node, and reports whether to visit those below it.
func (f *finder) visit(n ast.Node) bool {
	if statement, ok := n.(ast.Stmt); ok && f.posts[statement] {
		return false
	}
	switch n := n.(type) {
	case *ast.ForStmt:
		if n.Post != nil {
			f.posts[n.Post] = true
		}
	case *ast.ImportSpec, *ast.ArrayType:
		return false
	case *ast.Field:
		return false // a tag, or a type
	case *ast.BinaryExpr:
		if n.Op == token.ADD && (isText(n.X) || isText(n.Y)) {
			return true
		}
		f.addToken(n.OpPos, n.Op, n)
	case *ast.IncDecStmt:
		f.addToken(n.TokPos, n.Tok, n)
		f.remove(n)
	case *ast.AssignStmt:
		f.addToken(n.TokPos, n.Tok, n)
		if n.Tok != token.DEFINE {
			f.remove(n)
		}
	case *ast.ExprStmt:
		f.remove(n)
	case *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt:
		f.remove(n)
	case *ast.BranchStmt:
		if n.Tok == token.CONTINUE || n.Tok == token.BREAK {
			f.remove(n)
		}
	case *ast.ReturnStmt:
		f.remove(n)
	case *ast.IfStmt:
		f.addNode(n.Cond, "!("+string(f.contents[f.file.Offset(n.Cond.Pos()):f.file.Offset(n.Cond.End())])+")", "negated: if "+f.source(n.Cond))
	case *ast.BasicLit:
		if n.Kind == token.INT {
			f.move(n)
		}
	case *ast.Ident:
		if n.Name == "true" {
			f.addNode(n, "false", "true becomes false")
		} else if n.Name == "false" {
			f.addNode(n, "true", "false becomes true")
		}
	case *ast.FuncDecl:
		if n.Body != nil && len(n.Body.List) > 0 {
			f.leave(n)
		}
	}
	return true
}

// isText reports whether an expression is obviously a text. (Changes of others do not compile.)
func isText(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return e.Op == token.ADD && (isText(e.X) || isText(e.Y))
	}
	return false
}

// remove adds the removal of a statement.
func (f *finder) remove(n ast.Node) {
	f.addNode(n, "", "taken out: "+f.source(n))
}

// move adds two changes of a number: one more, and one less.
func (f *finder) move(n *ast.BasicLit) {
	value, err := strconv.ParseUint(strings.ReplaceAll(n.Value, "_", ""), 0, 63)
	if err != nil {
		return
	}
	for _, moved := range []int64{int64(value) + 1, int64(value) - 1} {
		f.addNode(n, "("+strconv.FormatInt(moved, 10)+")", fmt.Sprintf("%s becomes %d", n.Value, moved))
	}
}

// leave adds a return at the beginning of a function, with the zero value of each result.
func (f *finder) leave(n *ast.FuncDecl) {
	var zeros []string
	if n.Type.Results != nil {
		for _, field := range n.Type.Results.List {
			kind := string(f.contents[f.file.Offset(field.Type.Pos()):f.file.Offset(field.Type.End())])
			for i := 0; i == 0 || i < len(field.Names); i++ {
				zeros = append(zeros, "*new("+kind+")")
			}
		}
	}
	text := "return"
	if len(zeros) > 0 {
		text += " " + strings.Join(zeros, ", ")
	}
	at := f.file.Offset(n.Body.Lbrace) + 1
	// In a condition, so that the compiler accepts the code behind it.
	f.add(at, at, " if true { "+text+" };", "returns at once: "+n.Name.Name)
}
