// Package excepted puts in force what people have decided for single keys.
//
//	Table  the exceptions of one store, as they were last read: each second, and whenever somebody decides
//	Group  the rules of one handler, in which a table puts them in force
//
// A limit becomes an override of the rule, so that requests cost nothing more where there is none: see package transition. A block is a state of the key in
// the store. The table makes it again where the rule counts elsewhere, such as after a change of its algorithm.
package excepted
