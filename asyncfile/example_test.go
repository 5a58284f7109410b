package asyncfile_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/tallywheel/tallywheel/asyncfile"
)

// Open a file by whatever suits, write, make it durable, and read it back line by line.
func Example() {
	dir, err := os.MkdirTemp("", "asyncfile-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	f, err := asyncfile.Open(filepath.Join(dir, "log"), asyncfile.Config{Create: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("one\ntwo\nthree\n"), 0); err != nil {
		fmt.Println(err)
		return
	}
	if err := f.Sync(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(f.Choice().Backend)
	lines := asyncfile.NewLines(f, 0)
	for lines.Next() {
		fmt.Printf("%d: %s\n", lines.Offset(), lines.Bytes())
	}
	if err := lines.Err(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// std
	// 0: one
	// 4: two
	// 8: three
}

// Keep many reads in flight from one goroutine: by io_uring where it can be had, by goroutines
// elsewhere.
func ExampleNewBatch() {
	f, err := asyncfile.Open("doc.go", asyncfile.Config{Depth: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	batch, err := asyncfile.NewBatch(f, asyncfile.BatchConfig{Depth: 8})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer batch.Close()
	ops := make([]asyncfile.Op, 4)
	for i := range ops {
		ops[i] = asyncfile.Op{Kind: asyncfile.Read, Buf: make([]byte, 5), Off: int64(i * 5)}
	}
	if _, err := batch.Submit(ops); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := batch.Reap(nil, len(ops)); err != nil {
		fmt.Println(err)
		return
	}
	for _, op := range ops {
		fmt.Printf("%s", op.Buf[:op.N])
	}
	fmt.Println()
	// Output: // Package asyncfile
}
