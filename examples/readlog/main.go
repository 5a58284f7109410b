// Command readlog reads a log on disk with package seglog alone: it prints how many records each
// stream has.
//
//	go run ./examples/readlog ./data
package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tallywheel/tallywheel/seglog"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: readlog DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "readlog:", err)
		os.Exit(1)
	}
}

func run(path string) error {
	dir, err := seglog.Dir(path)
	if err != nil {
		return err
	}
	r := seglog.NewReader(dir, 0)
	defer r.Close()
	records, bytes := map[uint32]int{}, map[uint32]int{}
	ended := false
	for {
		rec, err := r.Next()
		var gap *seglog.GapError
		switch {
		case errors.As(err, &gap):
			fmt.Println(gap)
			continue
		case errors.Is(err, io.EOF) && !ended:
			if err := r.End(); err != nil { // damage may look like the end
				return err
			}
			ended = true // unless more follows
			continue
		case errors.Is(err, io.EOF):
			for stream, n := range records {
				fmt.Printf("stream %d: %d records, %d bytes\n", stream, n, bytes[stream])
			}
			return nil
		case err != nil:
			return err
		}
		ended = false
		records[rec.Stream]++
		bytes[rec.Stream] += len(rec.Data)
	}
}
