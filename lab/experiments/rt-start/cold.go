package rtstart

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tallywheel/tallywheel/lab"
)

// scene hands a program to a contestant: the one that was built, or a copy that can be cold.
func scene(b *lab.Bench, c *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
	argv, err := b.Program(programs[c.Name])
	if err != nil {
		return nil, err
	}
	p := lab.Params{"program": strings.Join(argv, "\n")}
	if cell["cache"] != cold["cache"] {
		return &lab.Scene{Params: p}, nil
	}
	if c == python {
		return nil, errors.New("its library is in use by other programs: it cannot be taken out of the page cache")
	}
	dir := filepath.Join(b.Dir, "cold", strings.NewReplacer(" ", "", ",", "-").Replace(c.Name))
	argv, files, err := copied(argv[0], dir)
	if err != nil {
		return nil, err
	}
	p["program"], p["evict"] = strings.Join(argv, "\n"), strings.Join(files, "\n")
	return &lab.Scene{Params: p}, nil
}

// copied makes a copy of a program in a folder, with all that it is linked with at its start, so
// that nobody else has any of it mapped. It returns how to call that, and the files.
func copied(program, dir string) (argv, files []string, err error) {
	if err := os.RemoveAll(dir); err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, nil, err
	}
	take := func(path string) string {
		to := filepath.Join(dir, filepath.Base(path))
		err = errors.Join(err, copyFile(path, to))
		files = append(files, to)
		return to
	}
	linker, libraries, linkErr := linked(program)
	argv = []string{take(program)}
	if linker != "" {
		argv = []string{take(linker), "--library-path", dir, argv[0]}
	}
	for _, path := range libraries {
		take(path)
	}
	return argv, files, errors.Join(linkErr, err)
}

// linked is the program that links another one at its start, and the libraries that it finds for
// it. There is none where all was linked before.
func linked(program string) (linker string, libraries []string, err error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", nil, err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b, err := io.ReadAll(p.Open())
			if err != nil {
				return "", nil, err
			}
			linker = string(bytes.TrimRight(b, "\x00"))
		}
	}
	if linker == "" {
		return "", nil, nil
	}
	said, err := exec.Command(linker, "--list", program).Output()
	if err != nil {
		return "", nil, fmt.Errorf("%s --list: %w", linker, err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(said)); lines.Scan(); { // libc.so.6 => /lib/libc.so.6 (0x7f00)
		if _, found, ok := strings.Cut(lines.Text(), " => "); ok {
			if path, _, _ := strings.Cut(found, " ("); path != linker {
				libraries = append(libraries, path)
			}
		}
	}
	return linker, libraries, nil
}

// copyFile copies a file to the disk: what is not written yet stays in the cache.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}
