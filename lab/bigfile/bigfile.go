// Package bigfile makes the files that experiments read.
package bigfile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/contestant"
)

// Sizes of the large file, in MiB: that of the articles, which a full run has, and that of a quick
// one.
const (
	fullMiB  = 1 << 10
	quickMiB = 256
)

// Path is where the file of an experiment is.
func Path(b *lab.Bench) string { return filepath.Join(b.Dir, "file") }

// Scene hands the file to a contestant.
func Scene(b *lab.Bench, _ *lab.Contestant, _ lab.Params) (*lab.Scene, error) {
	info, err := os.Stat(Path(b))
	if err != nil {
		return nil, err
	}
	return &lab.Scene{Params: lab.Params{"file": Path(b), "size_mib": strconv.FormatInt(info.Size()>>20, 10)}}, nil
}

// Large writes the large file.
func Large(ctx context.Context, b *lab.Bench) error {
	if b.Full() {
		return Binary(fullMiB)(ctx, b)
	}
	return Binary(quickMiB)(ctx, b)
}

// Cold writes a file of which blocks are read at random, none of them cached: 1 GiB, in a quick run
// only where disk and memory have room for it, and the disk is quick enough to write and read it
// again and again in the time of the experiment; else that of quickMiB. Which one it was is the
// figure file_bytes.
func Cold(ctx context.Context, b *lab.Bench) error {
	if b.Full() {
		return Binary(fullMiB)(ctx, b)
	}
	free, err := sys.FreeBytes(b.Dir)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := Binary(quickMiB)(ctx, b); err != nil {
		return err
	}
	if !fits(free, lab.ThisMachine(b.Dir).MemoryBytes, time.Since(began)) {
		return nil
	}
	return Binary(fullMiB)(ctx, b)
}

// fits reports whether a quick run has room and time for the file of a full one: the disk has so
// much free, the machine so much memory, and to write the smaller file has taken so long.
func fits(free, memory int64, took time.Duration) bool {
	const most = time.Second // 1 GiB takes four, and is read again in each round
	return free > 3*fullMiB<<20 && memory > 3*fullMiB<<20 && took <= most
}

// Largest writes the largest file that an article has, 16 GiB, in a full run where memory and disk
// have room for it twice; else that of Cold.
func Largest(ctx context.Context, b *lab.Bench) error {
	const gib = 16
	free, err := sys.FreeBytes(b.Dir)
	if err == nil && b.Full() && free > 2*gib<<30 && lab.ThisMachine(b.Dir).MemoryBytes > gib*5/4<<30 {
		return Binary(gib<<10)(ctx, b)
	}
	return Cold(ctx, b)
}

// Binary writes some MiB of random bytes, whole, so that no read meets a hole.
func Binary(mib int) func(context.Context, *lab.Bench) error {
	return func(ctx context.Context, b *lab.Bench) error {
		rng := rand.New(rand.NewPCG(1, 1))
		block := make([]byte, 1<<20)
		for i := range block {
			block[i] = byte(rng.Uint32())
		}
		return write(ctx, b, mib, block)
	}
}

// Text writes some MiB of lines like those of a log.
func Text(mib int) func(context.Context, *lab.Bench) error {
	return func(ctx context.Context, b *lab.Bench) error {
		var s strings.Builder
		for i := 0; s.Len() < 1<<20; i++ {
			fmt.Fprintf(&s,
				"2026-11-20T07:30:%02d.%06dZ INFO plc-%d reading channel=%d value=%d.%03d unit=degC status=ok%s\n",
				i%60, i%1_000_000, i%16, i%64, i%900, i%1000, strings.Repeat("x", i%40))
		}
		text := []byte(s.String())
		return write(ctx, b, mib, text)
	}
}

// Page writes so many bytes of the pattern that bodies have to a file, and leaves it in the page
// cache.
func Page(ctx context.Context, path string, bytes int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for block := contestant.Pattern(); bytes > 0 && err == nil; bytes -= len(block) {
		if err = ctx.Err(); err == nil {
			_, err = f.Write(block[:min(len(block), bytes)])
		}
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// write writes the file and its pages to the disk, and leaves it out of the page cache.
func write(ctx context.Context, b *lab.Bench, mib int, block []byte) error {
	f, err := os.Create(Path(b))
	if err != nil {
		return err
	}
	for range mib {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			_, err = f.Write(block)
		}
	}
	return errors.Join(err, f.Sync(), sys.DropCache(f), f.Close())
}
