package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/proxyweir/weir/replay"
)

// pageFile is the file that --html names. It is written beside its place and then put there, so that an earlier report stays until a
// whole one takes its place, and only its owner can read it, since it has clients' addresses.
type pageFile struct {
	name   string
	beside *os.File
}

// newPageFile finds out, before anything is replayed, whether a report can be written to a file. inputs are files that are read.
func newPageFile(name string, inputs []string) (*pageFile, error) {
	if err := freeForPage(name, inputs); err != nil {
		return nil, fmt.Errorf("html: %s: %w", name, err)
	}
	place := name
	if linked, err := filepath.EvalSymlinks(name); err == nil { // the link stays one
		place = linked
	}
	beside, err := os.CreateTemp(filepath.Dir(place), ".replay-*.html")
	if err != nil {
		return nil, fmt.Errorf("html: %s: cannot be written: %s: %w; name a file in a folder that is there and can be written to", name, filepath.Dir(place), cause(err))
	}
	return &pageFile{name: place, beside: beside}, nil
}

// freeForPage says why a report cannot take the place of a file, if there is one.
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

// write writes the report and puts it in its place.
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

// discard takes away what has not been put in its place.
func (p *pageFile) discard() {
	_ = p.beside.Close()
	_ = os.Remove(p.beside.Name()) // which is not there any more when it has been
}

// cause returns an error of the operating system without the name of the file.
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
