// Package memory keeps counters in the memory of a process: it is a core.Store. Its fast paths decide on a request, and write its header fields, in one function
// each, for interpreted programs: they use the inside of the store, so they are beside it. tools/flatten writes them.
package memory
