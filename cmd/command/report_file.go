package command

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// reportFile is a file that a flag names, such as --html. The report is written to a file next to it, which is then renamed: an earlier report
// stays until the new one is complete. Only the owner can read it, since it may have clients' addresses.
type reportFile struct {
	flag   string // without its dashes
	name   string
	beside *os.File
}

// newReportFile checks, before the work begins, that a report can be written to a file. inputs are the files that are read.
func newReportFile(flag, name string, inputs []string) (*reportFile, error) {
	if err := freeForReport(name, inputs); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", flag, name, err)
	}
	place := name
	if linked, err := filepath.EvalSymlinks(name); err == nil { // keeps the link
		place = linked
	}
	beside, err := os.CreateTemp(filepath.Dir(place), ".report-*")
	if err != nil {
		return nil, fmt.Errorf("%s: %s: cannot be written: %s: %w; name a file in a folder that is there and can be written to", flag, name, filepath.Dir(place), cause(err))
	}
	return &reportFile{flag: flag, name: place, beside: beside}, nil
}

// freeForReport says why a report must not replace the file of that name, if it exists.
func freeForReport(name string, inputs []string) error {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("cannot be written: %w", cause(err))
	case info.IsDir():
		return errors.New("is a directory; name a file in it")
	case !info.Mode().IsRegular():
		return errors.New("is not a regular file, which a report could take the place of; name another")
	}
	for _, input := range inputs {
		if other, err := os.Stat(input); err == nil && os.SameFile(info, other) {
			return fmt.Errorf("is %s, which is read, and would be overwritten; name another file", input)
		}
	}
	return nil
}

// write writes the report and moves it to its place.
func (p *reportFile) write(report func(io.Writer) error) error {
	err := report(p.beside)
	if closed := p.beside.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(p.beside.Name(), p.name)
	}
	if err != nil {
		return fmt.Errorf("%s: %s: cannot be written: %w", p.flag, p.name, cause(err))
	}
	return nil
}

// discard removes the file unless it was moved to its place.
func (p *reportFile) discard() {
	_ = p.beside.Close()
	_ = os.Remove(p.beside.Name()) // fails if it was moved
}

// cause returns the cause of an error of the operating system, without the name of the file.
func cause(err error) error {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		return failed.Err
	}
	var renamed *os.LinkError
	if errors.As(err, &renamed) {
		return renamed.Err
	}
	return err
}
