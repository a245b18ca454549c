package ruleset

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Contents is what the files of a list of patterns hold.
type Contents struct {
	Names  []string // in the order of the patterns, and by name in each
	Digest string   // of names and contents
	data   [][]byte
}

// Read reads the files that patterns name: paths, or globs as filepath.Match has them, in which a * does not stand for files whose
// name begins with a dot. A file is read once. Every pattern must name a file that is there.
func Read(patterns []string) (*Contents, Problems) {
	c := &Contents{}
	var problems Problems
	for _, pattern := range patterns {
		names, problem := expand(pattern)
		if problem != "" {
			problems = append(problems, Problem{File: pattern, Text: problem})
		}
		for _, name := range names {
			if !isOneOf(name, c.Names) {
				c.Names = append(c.Names, name)
			}
		}
	}
	if len(c.Names) > MaxFiles {
		problems = append(problems, Problem{File: patterns[0], Text: fmt.Sprintf("%d files are named; at most %d are read", len(c.Names), MaxFiles)})
		return nil, problems
	}
	digest := sha256.New()
	total := 0
	for _, name := range c.Names {
		data, err := readFile(name)
		total += len(data)
		if err == nil && total > MaxTotal {
			err = fmt.Errorf("the files together have more than %d MB", MaxTotal>>20)
		}
		if err != nil {
			problems = append(problems, Problem{File: name, Text: err.Error()})
			if total > MaxTotal {
				break
			}
			continue
		}
		c.data = append(c.data, data)
		sum := sha256.Sum256(data)
		digest.Write([]byte(name + "\n"))
		digest.Write(sum[:])
	}
	if len(problems) > 0 {
		return nil, problems
	}
	c.Digest = string(digest.Sum(nil))
	return c, nil
}

// expand returns the files that a pattern names.
func expand(pattern string) (names []string, problem string) {
	if pattern == "" {
		return nil, "the name of a file is empty"
	}
	if !strings.ContainsAny(pattern, "*?[") {
		return []string{filepath.Clean(pattern)}, ""
	}
	if _, err := os.Lstat(pattern); err == nil { // a file is really called so
		return []string{filepath.Clean(pattern)}, ""
	}
	found, err := filepath.Glob(pattern)
	if err != nil {
		return nil, "is no pattern that can match: " + err.Error()
	}
	dotted := strings.HasPrefix(filepath.Base(pattern), ".")
	for _, name := range found {
		if dotted || !strings.HasPrefix(filepath.Base(name), ".") {
			names = append(names, filepath.Clean(name))
		}
	}
	sort.Strings(names)
	if len(names) == 0 {
		return nil, "no file matches"
	}
	return names, ""
}

// readFile returns the contents of a regular file, or of one that a link leads to: not of a device or a pipe, which may have no end.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, plainly(err)
	}
	if info.IsDir() {
		return nil, fmt.Errorf("is a directory; write %s for the files in it", filepath.Join(name, "*.yaml"))
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("is not a regular file")
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, plainly(err)
	}
	data, err := io.ReadAll(io.LimitReader(file, MaxFile+1))
	_ = file.Close() // it was only read
	if err != nil {
		return nil, plainly(err)
	}
	if len(data) > MaxFile {
		return nil, fmt.Errorf("has more than %d MB, the most that a rule file can have; write several files", MaxFile>>20)
	}
	return data, nil
}

// plainly returns an error of the operating system without the name of the file, which stands in front of it.
func plainly(err error) error {
	if failed, ok := err.(*os.PathError); ok {
		return failed.Err
	}
	return err
}

// Parser makes a Node of a file.
type Parser func(file string, data []byte) (*Node, Problems)

// Parse reads the rules of all files, and returns all that is wrong with them: with each by itself, and with several together.
func Parse(c *Contents, parser Parser) ([]*File, Problems) {
	var problems Problems
	files := make([]*File, 0, len(c.Names))
	for i, name := range c.Names {
		root, wrong := parser(name, c.data[i])
		if len(wrong) == 0 {
			f, more := Decode(name, root)
			wrong = more
			files = append(files, f)
		}
		problems = append(problems, wrong...)
	}
	problems = append(problems, conflicts(files)...)
	return files, problems
}

// conflicts says which rules and domains are in more than one file.
func conflicts(files []*File) Problems {
	var problems Problems
	rules := make(map[string]string)
	domains := make(map[string]string)
	for _, f := range files {
		inFile := make(map[string]bool) // what is there twice was said already
		for i := range f.Rules {
			r := &f.Rules[i]
			if first := rules[r.Name]; first != "" && r.Name != "" && !inFile[r.Name] {
				problems = append(problems, Problem{File: f.Name, Line: r.Line, Column: r.Column, Text: fmt.Sprintf("rule %q: is in %s, too; a name is unique", r.Name, first)})
			}
			inFile[r.Name] = true
			rules[r.Name] = f.Name
		}
		if f.Domain == nil || f.Domain.Name == "" {
			continue
		}
		if first := domains[f.Domain.Name]; first != "" {
			problems = append(problems, Problem{File: f.Name, Line: f.Domain.Line, Column: f.Domain.Column, Text: fmt.Sprintf("domain %q: is in %s, too; write all its descriptors in one file", f.Domain.Name, first)})
		}
		domains[f.Domain.Name] = f.Name
	}
	return problems
}
