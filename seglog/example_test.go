package seglog_test

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tallywheel/tallywheel/seglog"
)

func Example() {
	path, err := os.MkdirTemp("", "seglog-example-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(path)
	dir, err := seglog.Dir(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	log, err := seglog.Open(seglog.Config{FS: dir, Sync: seglog.SyncAlways, SegmentBytes: 1 << 20})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, text := range []string{"first", "second"} {
		seq, err := log.Append(1, time.Now().UnixNano(), []byte(text)) // returns when it is durable
		fmt.Println(seq, err)
	}
	r := log.NewReader(0)
	for {
		rec, err := r.Next()
		if err == io.EOF {
			break
		}
		fmt.Printf("%d %s\n", rec.Seq, rec.Data)
	}
	fmt.Println(r.Close(), log.Close())
	// Output:
	// 1 <nil>
	// 2 <nil>
	// 1 first
	// 2 second
	// <nil> <nil>
}
