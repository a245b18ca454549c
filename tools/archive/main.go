// Command archive packs files into a .tar.gz or a .zip, whose bytes depend on nothing but the files' contents, the names and the time that it is given.
//
//	go run ./tools/archive -time 1767225600 weir_0.1.0_linux_amd64.tar.gz bin/weir LICENSE
//
// Each file is packed under its base name, in the order of the arguments: as a program (0755) if its owner may execute it, else as a plain file (0644).
package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	seconds := flag.Int64("time", 0, "the time of all files, in `seconds` since 1970")
	flag.Parse()
	if err := pack(flag.Arg(0), flag.Args()[min(1, flag.NArg()):], time.Unix(*seconds, 0).UTC()); err != nil {
		fmt.Fprintln(os.Stderr, "archive:", err)
		os.Exit(1)
	}
}

// pack writes an archive with files, which are all as old as modified says. The archive's name says of which kind it is.
func pack(archive string, files []string, modified time.Time) error {
	if len(files) == 0 {
		return fmt.Errorf("want: archive -time <seconds> <archive> <file>..., and there is no file")
	}
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer out.Close()
	var begin func(name string, mode fs.FileMode, size int64) (io.Writer, error)
	var ends []io.Closer
	switch {
	case strings.HasSuffix(archive, ".tar.gz"):
		packed := gzip.NewWriter(out)
		t := tar.NewWriter(packed)
		ends = []io.Closer{t, packed}
		begin = func(name string, mode fs.FileMode, size int64) (io.Writer, error) {
			return t, t.WriteHeader(&tar.Header{Name: name, Mode: int64(mode), Size: size, ModTime: modified, Format: tar.FormatUSTAR})
		}
	case strings.HasSuffix(archive, ".zip"):
		z := zip.NewWriter(out)
		ends = []io.Closer{z}
		begin = func(name string, mode fs.FileMode, _ int64) (io.Writer, error) {
			header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: modified}
			header.SetMode(mode)
			return z.CreateHeader(header)
		}
	default:
		return fmt.Errorf("%s: the name must end in .tar.gz or .zip", archive)
	}
	for _, name := range files {
		if err := add(name, begin); err != nil {
			return err
		}
	}
	for _, end := range append(ends, out) {
		if err := end.Close(); err != nil {
			return err
		}
	}
	return nil
}

// add packs one file into what begin returns for it.
func add(name string, begin func(name string, mode fs.FileMode, size int64) (io.Writer, error)) error {
	in, err := os.Open(name)
	if err != nil {
		return err
	}
	defer in.Close()
	about, err := in.Stat()
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if about.Mode()&0o100 != 0 || strings.HasSuffix(name, ".exe") {
		mode = 0o755
	}
	out, err := begin(filepath.Base(name), mode, about.Size())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return err
}
