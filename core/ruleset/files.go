package ruleset

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Contents has the contents of the files that a list of patterns names.
type Contents struct {
	Names     []string // in the order of the patterns, and by name in each
	Sums      []string // of the contents of each
	Sizes     []int    // in bytes
	Digest    string   // of all names and contents
	ByPattern map[string][]string
	data      [][]byte
}

// Read reads the files that patterns name: paths, or globs as filepath.Match defines them, in which a * does not match files and
// folders whose name begins with a dot. It reads each file once. Every pattern must name an existing file.
func Read(patterns []string) (*Contents, Problems) {
	c := &Contents{ByPattern: make(map[string][]string)}
	var problems Problems
	known := make(map[string]bool)
	for _, pattern := range patterns {
		names, err := expand(pattern)
		if err != nil {
			problems = append(problems, Problem{File: pattern, Text: err.Error()})
		}
		c.ByPattern[pattern] = names
		for _, name := range names {
			if !known[name] {
				known[name] = true
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
		if err == errDirectory {
			err = fmt.Errorf("is a directory; name the files in it, as in %s or *.json", filepath.Join(name, "*.yaml"))
		}
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
		c.Sums = append(c.Sums, string(sum[:]))
		c.Sizes = append(c.Sizes, len(data))
		digest.Write(sum[:])
	}
	if len(problems) > 0 {
		return nil, problems
	}
	c.Digest = string(digest.Sum(nil))
	return c, nil
}

// expand returns the files that a pattern names. (It returns an error, not a text: under Yaegi the text of an earlier call stayed.)
func expand(pattern string) ([]string, error) {
	if pattern == "" {
		return nil, fmt.Errorf("the name of a file is empty")
	}
	if !strings.ContainsAny(pattern, wildcards) || isThere(pattern) { // or a file is really called so
		return []string{filepath.Clean(pattern)}, nil
	}
	if _, err := filepath.Match(pattern, ""); err != nil {
		return nil, fmt.Errorf("is no pattern that can match: %w", err)
	}
	names, err := glob(filepath.Clean(pattern))
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	if len(names) == 0 {
		return nil, fmt.Errorf("no file matches%s", from(pattern))
	}
	return names, nil
}

func isThere(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

const wildcards = "*?["

// glob returns the files that a pattern matches. Unlike filepath.Glob it reports folders that it cannot read. Otherwise rules would go as
// if their files had been removed. A name that begins with a dot matches only if the pattern begins so.
func glob(pattern string) ([]string, error) {
	folder, last := filepath.Split(pattern)
	folder = filepath.Clean(folder)
	folders := []string{folder}
	if strings.ContainsAny(folder, wildcards) {
		found, err := glob(folder)
		if err != nil {
			return nil, err
		}
		folders = found
	}
	var names []string
	for _, folder := range folders {
		info, err := os.Stat(folder)
		if os.IsNotExist(err) || err == nil && !info.IsDir() {
			continue
		}
		found, err := namesIn(folder, last, err)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", folder, plainly(err))
		}
		names = append(names, found...)
	}
	return names, nil
}

// namesIn returns the names in a folder that the last part of a pattern matches. err is the error of reading the folder.
func namesIn(folder, last string, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	if !strings.ContainsAny(last, wildcards) {
		name := filepath.Join(folder, last)
		_, err := os.Lstat(name)
		if os.IsNotExist(err) {
			return nil, nil
		}
		return []string{name}, err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		name := entry.Name()
		matches, _ := filepath.Match(last, name) // the pattern was found to be one
		if matches && (!strings.HasPrefix(name, ".") || strings.HasPrefix(last, ".")) {
			names = append(names, filepath.Join(folder, name))
		}
	}
	return names, nil
}

// from says which folder a relative path starts from.
func from(name string) string {
	if filepath.IsAbs(name) {
		return ""
	}
	folder, err := os.Getwd()
	if err != nil {
		return ""
	}
	return " (from " + folder + ")"
}

var errDirectory = errors.New("is a directory; name a file in it")

// readFile returns the contents of a regular file, or of one that a link points to. It refuses devices and pipes, which may have no end.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%w%s", plainly(err), from(name))
	}
	if info.IsDir() {
		return nil, errDirectory
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

// plainly returns an error of the operating system without the name of the file in front of it.
func plainly(err error) error {
	if failed, ok := err.(*os.PathError); ok {
		return failed.Err
	}
	return err
}

// Parser parses a file into a Node.
type Parser func(file string, data []byte) (*Node, Problems)

// Parse reads the rules of all files, and returns all problems: of each file, and between files.
func Parse(c *Contents, parser Parser) ([]*File, Problems) {
	var problems Problems
	files := make([]*File, 0, len(c.Names))
	for i := range c.Names {
		f, wrong := ParseFile(c, i, parser)
		if f != nil {
			files = append(files, f)
		}
		problems = append(problems, wrong...)
	}
	problems = append(problems, Conflicts(files)...)
	return files, problems
}

// ParseFile is Parse for one file, the i-th of c.
func ParseFile(c *Contents, i int, parser Parser) (*File, Problems) {
	root, wrong := parser(c.Names[i], c.data[i])
	if len(wrong) > 0 {
		return nil, wrong
	}
	return Decode(c.Names[i], root)
}

// Conflicts reports rules and domains that are in more than one file.
func Conflicts(files []*File) Problems {
	var problems Problems
	rules := make(map[string]string)
	domains := make(map[string]string)
	for _, f := range files {
		inFile := make(map[string]bool) // duplicates in one file are reported already
		for i := range f.Rules {
			r := &f.Rules[i]
			if first := rules[r.Name]; first != "" && r.Name != "" && !inFile[r.Name] {
				problems = append(problems, Problem{File: f.Name, Line: r.Line, Column: r.Column, Text: fmt.Sprintf("rule %q: duplicate name, also in %s; rename one", shorten(r.Name), first)})
			}
			inFile[r.Name] = true
			rules[r.Name] = f.Name
		}
		if f.Domain == nil || f.Domain.Name == "" {
			continue
		}
		if first := domains[f.Domain.Name]; first != "" {
			problems = append(problems, Problem{File: f.Name, Line: f.Domain.Line, Column: f.Domain.Column, Text: fmt.Sprintf("domain %q: is in %s, too; write all its descriptors in one file", shorten(f.Domain.Name), first)})
		}
		domains[f.Domain.Name] = f.Name
	}
	return problems
}
