package filesequential

import (
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/lab/bigfile"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

// by reads or writes (access=read, write) a file 4 KiB at a time, in order, or reads it at random
// (access=random: so many blocks as bigfile.ColdReads says, however long that takes), the page
// cache dropped before. What is written is synced before the time ends.
func by(b bigfile.Backend) contestant.Work {
	return func(t *contestant.Turn) error { return inOrder(t, b) }
}

func inOrder(t *contestant.Turn, b bigfile.Backend) error {
	cfg := b.Config
	path, kind := t.Text("file"), asyncfile.Read
	if t.Text("access") == "write" {
		path, kind = t.Text("dir")+"/written", asyncfile.Write
		cfg.Create = true
		defer os.Remove(path)
	} else if err := bigfile.Forget(path); err != nil {
		return err
	}
	f, err := asyncfile.Open(path, cfg)
	if err != nil {
		return err
	}
	defer f.Close()
	size := int64(t.Int("size_mib", 256)) << 20
	until, err := t.Ready()
	if err != nil {
		return err
	}
	n, most := uint64(0), uint64(size/bigfile.Block)
	random := t.Text("access") == "random"
	if random {
		most, until = bigfile.ColdReads(size), bigfile.Until(t)
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	err = b.Each(f, kind, func() int64 {
		if n >= most || n%64 == 0 && !time.Now().Before(until) {
			return -1
		}
		n++
		if random {
			return rng.Int64N(size/bigfile.Block) * bigfile.Block
		}
		return int64(n-1) * bigfile.Block
	})
	if kind == asyncfile.Write {
		err = errors.Join(err, f.Sync())
	}
	if err != nil {
		return err
	}
	took, err := t.Done()
	if err != nil {
		return err
	}
	v := []contestant.Value{{Metric: "MB_per_s", V: float64(n) * bigfile.Block / 1e6 / took.Seconds()}}
	if random {
		file, err := ofFile(path)
		if err != nil {
			return err
		}
		v = append(v, file...)
	}
	return t.Result(took, n, v...)
}

func ofFile(path string) (v []contestant.Value, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return bigfile.OfFile(f)
}
