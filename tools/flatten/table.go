package main

import (
	"errors"
	"fmt"
	"go/ast"
	"strings"
)

// row is a row of the table of algorithms: its fields, with their values if these are names.
type row map[string]string

// dispatched are the names of the functions that call those of a row, by field.
var dispatched = map[string]string{"decide": "decideBy", "take": "Take", "reject": "Reject", "roll": "Roll", "charge": "chargeBy", "credit": "creditBy", "creditLog": "CreditLog", "spent": "spent",
	"late": "ChargeLate", "decideLog": "DecideLog", "chargeLog": "ChargeLog", "lateLog": "LateLog", "slot": "SlotOf", "lease": "leaseBy"}

// optional is the function that algorithms may lack: false then says so. For others, core finds what is missing when it starts.
const optional = "roll"

// readTable finds the table and the type of its rows.
func (p *source) readTable() error {
	var err error
	for _, parsed := range p.files {
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if n.Name.Name == "algorithmRow" {
					p.rowType = n.Type.(*ast.StructType)
				}
			case *ast.CompositeLit:
				if array, ok := n.Type.(*ast.ArrayType); ok && len(n.Elts) > 0 && p.text(array) == "[]algorithmRow" {
					for i, element := range n.Elts {
						r := readRow(element)
						if r["algorithm"] == "" {
							err = errors.Join(err, fmt.Errorf("row %d of the table does not say its algorithm", i+1))
						}
						p.rows = append(p.rows, r)
					}
				}
			}
			return true
		})
	}
	return err
}

func readRow(element ast.Expr) row {
	r := row{}
	for _, field := range element.(*ast.CompositeLit).Elts {
		if pair, ok := field.(*ast.KeyValueExpr); ok {
			key, isName := pair.Key.(*ast.Ident)
			value, isToo := pair.Value.(*ast.Ident)
			if isName && isToo {
				r[unexported(key.Name)] = value.Name
			}
		}
	}
	return r
}

// dispatch returns the text of the functions that call those of the rows.
func (p *source) dispatch() (string, error) {
	if p.rows == nil || p.rowType == nil {
		return "", errors.New("there is no []algorithmRow")
	}
	var text strings.Builder
	for _, field := range p.rowType.Fields.List {
		signature, ok := field.Type.(*ast.FuncType)
		if !ok {
			continue
		}
		name := unexported(field.Names[0].Name)
		var arguments []string
		for _, parameter := range signature.Params.List {
			for _, argument := range parameter.Names {
				arguments = append(arguments, argument.Name)
			}
		}
		call := "(" + strings.Join(arguments, ", ") + ")"
		before := ""
		if signature.Results != nil {
			before = "return "
		}
		fmt.Fprintf(&text, "\n// %s calls %s of the limit's algorithm.\nfunc %[1]s%[3]s {\n\tswitch l.Algorithm {\n", dispatched[name], name, strings.TrimPrefix(p.text(signature), "func"))
		for _, r := range p.rows {
			if r[name] != "" {
				fmt.Fprintf(&text, "\tcase %s:\n\t\t%s%s%s\n", r["algorithm"], before, r[name], call)
			}
		}
		switch {
		case name == optional:
			text.WriteString("\t}\n\treturn false\n}\n")
		case before == "":
			fmt.Fprintf(&text, "\tdefault:\n\t\tpanic(NoFunction(l.Algorithm, %q))\n\t}\n}\n", name)
		default:
			fmt.Fprintf(&text, "\t}\n\tpanic(NoFunction(l.Algorithm, %q))\n}\n", name)
		}
	}
	return text.String(), nil
}
