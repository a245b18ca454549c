package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/proxyweir/weir/replay"
)

// pageFile is the file that --html names. The report is written to a file next to it, which is then renamed: an earlier report
// stays until the new one is complete. Only the owner can read it, since it has clients' addresses.
type pageFile struct {
	name   string
	beside *os.File
}

// newPageFile checks, before the replay begins, that a report can be written to a file. inputs are the files that the replay reads.
func newPageFile(name string, inputs []string) (*pageFile, error) {
	if err := freeForPage(name, inputs); err != nil {
		return nil, fmt.Errorf("html: %s: %w", name, err)
	}
	place := name
	if linked, err := filepath.EvalSymlinks(name); err == nil { // keeps the link
		place = linked
	}
	beside, err := os.CreateTemp(filepath.Dir(place), ".replay-*.html")
	if err != nil {
		return nil, fmt.Errorf("html: %s: cannot be written: %s: %w; name a file in a folder that is there and can be written to", name, filepath.Dir(place), cause(err))
	}
	return &pageFile{name: place, beside: beside}, nil
}

// freeForPage says why a report must not replace the file of that name, if it exists.
func freeForPage(name string, inputs []string) error {
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
func (p *pageFile) write(report *replay.Report) error {
	err := report.WriteHTML(p.beside)
	if closed := p.beside.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(p.beside.Name(), p.name)
	}
	if err != nil {
		return fmt.Errorf("html: %s: cannot be written: %w", p.name, cause(err))
	}
	return nil
}

// discard removes the file unless it was moved to its place.
func (p *pageFile) discard() {
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
