package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
)

// flattening is a function that is being written from a template.
type flattening struct {
	*source
	row      row               // of its algorithm; nil: it is for all
	types    map[string]string // of the variables that it has already
	names    []string          // of those that inlined functions bring
	outer    []string          // the variables of captured that it has outside its function literal
	captures []string          // the statements that capture their fields
	err      error             // the first one
}

// scope is the function whose code is written: the template, or one that is inlined.
type scope struct {
	inlined bool
	of      string            // the qualifier of its package; "": that which is written
	locals  map[string]bool   // its own variables, if it is of another package
	stands  map[string]string // what stands for its parameters and results
	results []string          // what its results are assigned to
	giveUp  string            // the label where it goes when it returns early; "": it must not
}

// variables stands, in the text of a template, for the declarations of what inlined functions bring.
const variables = "\x00"

// write returns what is written of a template.
func (p *source) write(w writes) (string, error) {
	template := p.functions[w.template]
	if template == nil {
		return "", fmt.Errorf("there is no function %s", w.template)
	}
	if w.kind != each {
		return p.function(template, w.as, nil, w.kind)
	}
	text := ""
	for _, r := range p.fast() {
		one, err := p.function(template, w.as+r["algorithm"], r, w.kind)
		if err != nil {
			return "", err
		}
		text += one + "\n"
	}
	return text, nil
}

// fast returns the rows of the algorithms that have fast paths.
func (p *source) fast() []row {
	return slices.DeleteFunc(slices.Clone(p.rows), func(r row) bool { return r["fastPath"] == "" })
}

// function writes a template under a name. Its last statement is what is written for each algorithm if it is switched.
func (p *source) function(template *ast.FuncDecl, name string, r row, k kind) (string, error) {
	f := &flattening{source: p, row: r, types: map[string]string{}}
	body := template.Body
	last := body.List[len(body.List)-1]
	before := f.list(body.Lbrace+1, body.List[:len(body.List)-1], last.Pos(), &scope{}, false)
	for _, s := range body.List {
		if assign, ok := s.(*ast.AssignStmt); ok && assign.Tok == token.DEFINE && slices.Contains(captured, p.name(assign.Lhs[0])) {
			f.outer = append(f.outer, p.name(assign.Lhs[0]))
		}
	}
	after := ""
	if k == switched {
		after = "switch e.algorithm {\n"
		for _, f.row = range p.fast() {
			f.types, f.names = map[string]string{}, nil
			after += "case " + f.qualifier + f.row["algorithm"] + ":\n" + f.whole(last) + "\n"
		}
		after += "}\npanic(" + f.qualifier + "NoFunction(e.algorithm, \"fast path\"))"
	} else {
		after = f.whole(last)
		before = f.declare(before)
	}
	if f.err != nil {
		return "", fmt.Errorf("%s, as %s: %w", template.Name.Name, name, f.err)
	}
	doc := ""
	for _, line := range template.Doc.List {
		doc += strings.ReplaceAll(line.Text, template.Name.Name, name) + "\n"
	}
	return doc + "func " + name + p.between(template.Name.End(), body.Lbrace+1) + before + strings.Join(f.captures, "") + after + "\n}\n", nil
}

// whole returns the text of a statement, with its variables.
func (f *flattening) whole(s ast.Stmt) string { return f.declare(f.statement(s, &scope{})) }

// declare puts the declarations in their place.
func (f *flattening) declare(text string) string {
	declarations := ""
	for i, name := range f.names {
		if declarations += name; i+1 < len(f.names) && f.types[f.names[i+1]] == f.types[name] {
			declarations += ", "
			continue
		}
		declarations += " " + f.types[name] + "\n"
	}
	return strings.Replace(text, variables, declarations, 1)
}

// add declares a variable, unless there is one of that name.
func (f *flattening) add(name, kind string) {
	switch f.types[name] {
	case kind:
	case "":
		f.types[name] = kind
		f.names = append(f.names, name)
	default:
		f.fail("%s is a %s here, and a %s there", name, f.types[name], kind)
	}
}

func (f *flattening) fail(format string, arguments ...any) {
	f.err = errors.Join(f.err, fmt.Errorf(format, arguments...))
}

// list returns the text of statements, with what is between from and to around them. last says that the function ends behind them.
func (f *flattening) list(from token.Pos, statements []ast.Stmt, to token.Pos, s *scope, last bool) string {
	text := ""
	for i := 0; i < len(statements); i++ {
		statement := statements[i]
		text += f.between(from, statement.Pos())
		from = statement.End()
		if chosen, known := f.decide(statement); known {
			if chosen != nil {
				ends := false
				if n := len(chosen.List); last && n > 0 {
					_, ends = chosen.List[n-1].(*ast.ReturnStmt)
				}
				text += f.list(chosen.Lbrace+1, chosen.List, chosen.Rbrace, s, ends)
				if ends {
					return text
				}
			}
			continue
		}
		if result, ok := statement.(*ast.ReturnStmt); ok && s.inlined {
			text += f.leave(result, s, last && i == len(statements)-1)
			continue
		}
		call, results := f.call(statement, s)
		if call == nil {
			text += f.statement(statement, s)
			continue
		}
		label := ""
		if i+1 < len(statements) {
			label = labelOf(statements[i+1])
		}
		if f.row == nil && f.depends(call, s) {
			text += f.choose(call, results, s)
			continue
		}
		text += f.inline(call, results, label, s)
		if label != "" {
			i++
			from = statements[i].End()
		}
	}
	return text + f.between(from, to)
}

// decide returns the block that an if comes to for the algorithm, if its condition is a trait.
func (f *flattening) decide(s ast.Stmt) (chosen *ast.BlockStmt, known bool) {
	choice, ok := s.(*ast.IfStmt)
	if !ok || f.row == nil {
		return nil, false
	}
	trait, ok := choice.Cond.(*ast.SelectorExpr)
	name := ""
	if ok {
		name = unexported(trait.Sel.Name)
	}
	if name == "" || !slices.ContainsFunc(fieldsOf(f.rowType.Fields), func(field named) bool { return unexported(field.name) == name }) {
		return nil, false
	}
	if f.row[name] == "true" {
		return choice.Body, true
	}
	chosen, _ = choice.Else.(*ast.BlockStmt)
	return chosen, true
}

// leave returns the text of a return of an inlined function.
func (f *flattening) leave(result *ast.ReturnStmt, s *scope, last bool) string {
	if !last {
		if s.giveUp == "" {
			f.fail("%s: a function that is inlined here returns early, and no if with a goto follows", f.set.Position(result.Pos()))
		}
		return "goto " + s.giveUp
	}
	if len(result.Results) == 1 {
		if call, ok := result.Results[0].(*ast.CallExpr); ok && f.inlines(f.target(call, s)) {
			return f.inline(call, s.results, s.giveUp, s)
		}
	}
	if len(result.Results) != len(s.results) {
		f.fail("%s: want a value for each result", f.set.Position(result.Pos()))
		return ""
	}
	text := ""
	var changed []string
	for i := len(s.results) - 1; i >= 0; i-- { // since a value may be made of the results before it
		value := f.expression(result.Results[i], s)
		if value == s.results[i] {
			continue
		}
		if slices.ContainsFunc(changed, func(name string) bool { return f.mentions(result.Results[i], name) > 0 }) {
			f.fail("%s: a value is made of a result behind it", f.set.Position(result.Pos()))
		}
		changed = append(changed, s.results[i])
		text += s.results[i] + " = " + value + "\n"
	}
	return text
}

// target returns the function that a call calls; nil: it is none of the packages'.
func (f *flattening) target(call *ast.CallExpr, s *scope) *ast.FuncDecl {
	return f.functions[f.called(call, s)]
}

// called returns the name of the function that a call calls, as the package that is written has it.
func (f *flattening) called(call *ast.CallExpr, s *scope) string {
	name := f.text(call.Fun)
	if s.of != "" && !strings.Contains(name, ".") {
		name = s.of + name
	}
	if field, ok := strings.CutPrefix(name, f.qualifier); ok && f.row != nil && dispatched[unexported(field)] != "" {
		return f.qualifier + f.row[unexported(field)]
	}
	return name
}

// unexported returns the name of a field or function without regard to whether it is exported.
func unexported(name string) string {
	if name == "" {
		return ""
	}
	return strings.ToLower(name[:1]) + name[1:]
}

// call returns the call that a statement consists of, and what its results are assigned to; nil: it is none that is inlined.
func (f *flattening) call(s ast.Stmt, in *scope) (*ast.CallExpr, []string) {
	var call *ast.CallExpr
	var results []string
	switch s := s.(type) {
	case *ast.ExprStmt:
		call, _ = s.X.(*ast.CallExpr)
	case *ast.AssignStmt:
		if s.Tok == token.ASSIGN && len(s.Rhs) == 1 {
			call, _ = s.Rhs[0].(*ast.CallExpr)
			for _, result := range s.Lhs {
				results = append(results, f.expression(result, in))
			}
		}
	}
	if call == nil || !f.inlines(f.target(call, in)) {
		return nil, nil
	}
	return call, results
}

// labelOf returns the label if a statement is an if that only goes to it; else "".
func labelOf(s ast.Stmt) string {
	choice, ok := s.(*ast.IfStmt)
	if !ok || len(choice.Body.List) != 1 || choice.Else != nil {
		return ""
	}
	branch, ok := choice.Body.List[0].(*ast.BranchStmt)
	if !ok || branch.Tok != token.GOTO {
		return ""
	}
	return branch.Label.Name
}

// inline returns the text of a call, inlined.
func (f *flattening) inline(call *ast.CallExpr, results []string, label string, s *scope) string {
	function := f.target(call, s)
	in := f.scopeOf(call, s)
	in.inlined, in.results, in.giveUp = true, results, label
	text := ""
	for i, parameter := range fieldsOf(function.Type.Params) {
		argument := f.expression(call.Args[i], s)
		_, constant := call.Args[i].(*ast.BasicLit)
		if !token.IsIdentifier(argument) && !constant && f.mentions(function.Body, parameter.name) > 1 {
			f.add(parameter.name, f.expression(parameter.kind, in))
			text += parameter.name + " = " + argument + "\n"
			continue
		}
		in.stands[parameter.name] = argument
	}
	for i, result := range fieldsOf(function.Type.Results) {
		in.stands[result.name] = results[i]
	}
	return text + strings.TrimSpace(f.list(function.Body.Lbrace+1, function.Body.List, function.Body.Rbrace, in, true))
}

// scopeOf returns the scope of the function that a call calls.
func (f *flattening) scopeOf(call *ast.CallExpr, s *scope) *scope {
	in := &scope{stands: map[string]string{}}
	name := f.called(call, s)
	if i := strings.IndexByte(name, '.'); i >= 0 {
		in.of = name[:i+1]
		in.locals = map[string]bool{}
		ast.Inspect(f.functions[name], func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.Field:
				for _, name := range n.Names {
					in.locals[name.Name] = true
				}
			case *ast.ValueSpec:
				for _, name := range n.Names {
					in.locals[name.Name] = true
				}
			case *ast.AssignStmt:
				if n.Tok == token.DEFINE {
					for _, left := range n.Lhs {
						in.locals[f.name(left)] = true
					}
				}
			}
			return true
		})
	}
	return in
}

// named is a parameter, a result, or a field.
type named struct {
	name string
	kind ast.Expr
}

func fieldsOf(list *ast.FieldList) []named {
	var all []named
	if list == nil {
		return nil
	}
	for _, field := range list.List {
		for _, name := range field.Names {
			all = append(all, named{name.Name, field.Type})
		}
	}
	return all
}

// mentions counts how often code has the name of a variable.
func (f *flattening) mentions(code ast.Node, variable string) int {
	n := 0
	ast.Inspect(code, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok {
			n += f.mentions(selector.X, variable)
			return false
		}
		if f.name(node) == variable {
			n++
		}
		return true
	})
	return n
}

// depends reports whether what a function does depends on the algorithm: it calls one of the row's.
func (f *flattening) depends(call *ast.CallExpr, s *scope) bool {
	depends := false
	in := f.scopeOf(call, s)
	ast.Inspect(f.target(call, s).Body, func(n ast.Node) bool {
		inner, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if field, found := strings.CutPrefix(f.called(inner, in), f.qualifier); found && dispatched[unexported(field)] != "" {
			depends = true
		}
		return true
	})
	return depends
}

// choose returns a switch, with what such a call calls for each algorithm.
func (f *flattening) choose(call *ast.CallExpr, results []string, s *scope) string {
	function := f.target(call, s)
	in := f.scopeOf(call, s)
	limit := ""
	for i, parameter := range fieldsOf(function.Type.Params) {
		in.stands[parameter.name] = f.expression(call.Args[i], s)
		if f.expression(parameter.kind, in) == "*"+f.qualifier+"Limit" {
			limit = in.stands[parameter.name]
		}
	}
	text := "switch " + limit + ".Algorithm {\n"
	for _, r := range f.fast() {
		one := &flattening{source: f.source, row: r}
		returned := one.list(function.Body.Lbrace+1, function.Body.List, function.Body.Rbrace, in, true)
		value, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(returned), "return "), "\n")
		text += "case " + f.qualifier + r["algorithm"] + ":\n" + strings.Join(results, ", ") + " = " + value + "\n"
	}
	return text + "}"
}

// expression returns the text of an expression.
func (f *flattening) expression(e ast.Expr, s *scope) string { return f.edit(e, s) }

// statement returns the text of a statement that is no call to be inlined.
func (f *flattening) statement(statement ast.Stmt, s *scope) string {
	switch n := statement.(type) {
	case *ast.LabeledStmt:
		return f.between(n.Pos(), n.Stmt.Pos()) + f.list(n.Stmt.Pos(), []ast.Stmt{n.Stmt}, n.End(), s, false)
	case *ast.AssignStmt:
		if s.inlined && n.Tok == token.DEFINE {
			return f.define(n, s)
		}
	case *ast.DeclStmt:
		list := n.Decl.(*ast.GenDecl)
		for _, one := range list.Specs {
			value, ok := one.(*ast.ValueSpec)
			if !ok {
				continue
			}
			for _, name := range value.Names {
				if s.inlined {
					f.add(name.Name, f.expression(value.Type, s))
				} else {
					f.types[name.Name] = f.text(value.Type)
				}
			}
		}
		if s.inlined {
			return ""
		}
		return f.between(n.Pos(), list.Rparen) + variables + ")"
	}
	return f.edit(statement, s)
}

// define returns the text of an assignment that declares a variable in an inlined function.
func (f *flattening) define(n *ast.AssignStmt, s *scope) string {
	if len(n.Lhs) != 1 {
		f.fail("%s: want one variable", f.set.Position(n.Pos()))
	}
	f.add(f.name(n.Lhs[0]), "int64")
	value := n.Rhs[0]
	if call, ok := value.(*ast.CallExpr); ok && f.name(call.Fun) == "int64" {
		if _, literal := call.Args[0].(*ast.BasicLit); literal { // the variable has a type
			value = call.Args[0]
		}
	}
	return f.name(n.Lhs[0]) + " = " + f.expression(value, s)
}

// edit returns the text of code, with what stands for its variables, and with the statements in it.
func (f *flattening) edit(code ast.Node, s *scope) string {
	var edits []edit
	var visit func(n ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			edits = append(edits, edit{n.Lbrace + 1, n.Rbrace, f.list(n.Lbrace+1, n.List, n.Rbrace, s, false)})
			return false
		case *ast.BranchStmt:
			return false
		case *ast.KeyValueExpr:
			ast.Inspect(n.Value, visit)
			return false
		case *ast.SelectorExpr:
			variable := f.name(n.X)
			if stands, ok := s.stands[variable]; ok {
				variable = stands
			}
			if slices.Contains(f.outer, variable) {
				edits = append(edits, edit{n.Pos(), n.End(), f.capture(variable, n.Sel.Name)})
			} else {
				ast.Inspect(n.X, visit)
			}
			return false
		case *ast.CallExpr:
			if name := f.renamed(n, s); name != "" {
				edits = append(edits, edit{n.Fun.Pos(), n.Fun.End(), name})
				for _, argument := range n.Args {
					ast.Inspect(argument, visit)
				}
				return false
			}
		case *ast.Ident:
			if stands, ok := s.stands[n.Name]; ok && stands != n.Name {
				edits = append(edits, edit{n.Pos(), n.End(), stands})
			} else if !ok && s.of != "" && !s.locals[n.Name] && f.declared[s.of][n.Name] {
				edits = append(edits, edit{n.Pos(), n.End(), s.of + n.Name})
			}
		}
		return true
	}
	ast.Inspect(code, visit)
	return f.edited(code.Pos(), code.End(), edits)
}

// renamed returns what is called in place of a function: that of the algorithm, or what is written of a template; "": itself.
func (f *flattening) renamed(call *ast.CallExpr, s *scope) string {
	if f.row == nil {
		return ""
	}
	function := f.text(call.Fun)
	if name := f.called(call, s); name != function && name != s.of+function {
		return name
	}
	for _, file := range files {
		for _, w := range file.written {
			if w.template == function && w.kind == each {
				return w.as + f.row["algorithm"]
			}
		}
	}
	return ""
}

// capture returns the variable that has a field.
func (f *flattening) capture(variable, field string) string {
	name := variable + strings.ToUpper(field[:1]) + field[1:]
	if statement := name + " := " + variable + "." + field + "\n"; !slices.Contains(f.captures, statement) {
		f.captures = append(f.captures, statement)
	}
	return name
}
