package board

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
)

// WriteInitramfs writes an archive of files, by their names in the guest, which the kernel unpacks
// into its first file system. The format is newc of cpio: for each file a head of 13 numbers in
// hexadecimal, the name and the data, each filled up to four bytes; at the end a file of a name
// that says so.
func WriteInitramfs(path string, files map[string]string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := &cpio{to: bufio.NewWriter(f)}
	for _, dir := range []string{"dev", "proc", "sys", "tmp", "modules"} {
		w.add(dir, 0o040755, nil)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		b, err := os.ReadFile(files[name])
		if err != nil {
			return err
		}
		w.add(name, 0o100755, b)
	}
	w.add("TRAILER!!!", 0, nil)
	return w.to.Flush() // what failed before fails here, too
}

type cpio struct {
	to    *bufio.Writer
	at    int
	inode int
}

func (a *cpio) add(name string, mode int, data []byte) {
	a.inode++
	const links = 1
	head := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", a.inode, mode, 0, 0, links, 0,
		len(data), 0, 0, 0, 0, len(name)+1, 0)
	a.write([]byte(head + name + "\x00"))
	a.write(data)
}

func (a *cpio) write(b []byte) {
	fill := -(a.at + len(b)) & 3
	_, _ = a.to.Write(append(b[:len(b):len(b)], make([]byte, fill)...))
	a.at += len(b) + fill
}
