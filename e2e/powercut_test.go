package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/asyncfile"
	"github.com/tallywheel/tallywheel/internal/testenv"
	"github.com/tallywheel/tallywheel/seglog"
)

const (
	diskBytes = 48 << 20
	sector    = 512
	cuts      = 24 // moments at which the power fails, for each engine
)

// TestPowerCut writes a log on an ext4 file system whose block device records every write and
// flush, and cuts the power at many moments: the device then holds all that was written before the
// last flush, and whatever part of the rest. After the file system's own recovery and the log's,
// every record must be there whose Append had returned by then.
func TestPowerCut(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: a power cut needs a file system of its own; run without -short")
	}
	if os.Getuid() != 0 {
		t.Skip("SKIPPED: mounting needs root; run as root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skipf("SKIPPED: %v; modprobe fuse, or run the container with --device /dev/fuse", err)
	}
	daemon := testenv.Program(t, "qemu-storage-daemon", "apt install qemu-system-common")
	for _, engine := range []asyncfile.Backend{asyncfile.Std, asyncfile.Uring} {
		t.Run(string(engine), func(t *testing.T) {
			if err := asyncfile.Available(engine); err != nil {
				t.Skipf("SKIPPED: %v; run on a kernel that has it and lets this process use it", err)
			}
			d := newDisk(t, daemon)
			acks := d.write(t, engine)
			seed := testenv.Seed(t)
			rng := rand.New(rand.NewPCG(seed, 0))
			writes := d.history(t)
			if len(writes) < 100 || len(acks) < 100 {
				t.Fatalf("only %d writes and %d records", len(writes), len(acks))
			}
			checked := 0
			for i := range cuts {
				at := acks[0].entries + rng.Uint64N(uint64(len(writes))-acks[0].entries+1)
				if i == 0 {
					at = uint64(len(writes))
				}
				checked += d.cut(t, rng, writes[:at], acks, at)
			}
			t.Logf("%d writes and flushes, %d records, %d cuts, %d times a record was looked for and found",
				len(writes), len(acks), cuts, checked)
		})
	}
}

// disk is a block device that records what is done to it, with a file system on it.
type disk struct {
	dir, image, log, mount string
	daemon                 *exec.Cmd
	loop                   string
}

func newDisk(t *testing.T, daemon string) *disk {
	dir := t.TempDir()
	d := &disk{dir: dir, image: dir + "/disk.img", log: dir + "/writes.log", mount: dir + "/mnt"}
	export := dir + "/export"
	for path, size := range map[string]int64{d.image: diskBytes, d.log: 2 << 30, export: 0} {
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Truncate(size), f.Close(), os.MkdirAll(d.mount, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	d.daemon = exec.Command(daemon,
		"--blockdev", "driver=file,node-name=disk,filename="+d.image, "--blockdev",
		"driver=file,node-name=log,filename="+d.log,
		"--blockdev", fmt.Sprintf("driver=blklogwrites,node-name=rec,file=disk,log=log,log-sector-size=%d", sector),
		"--export", "type=fuse,id=e,node-name=rec,writable=on,mountpoint="+export)
	if err := d.daemon.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = exec.Command("umount", d.mount).Run()
		if d.loop != "" {
			_ = exec.Command("losetup", "-d", d.loop).Run()
		}
		_ = d.daemon.Process.Signal(os.Interrupt)
		_ = d.daemon.Wait()
		_ = exec.Command("umount", "-l", export).Run()
	})
	testenv.Until(t, 10*time.Second, "the recording device", func() bool {
		st, err := os.Stat(export)
		return err == nil && st.Size() == diskBytes
	})
	d.loop = strings.TrimSpace(tool(t, "losetup", "-f", "--show", export))
	// Without discard: a discard is no write, and the recorded device would forget it.
	tool(t, "mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", d.loop)
	tool(t, "mount", "-t", "ext4", d.loop, d.mount)
	return d
}

func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// ack is a record whose Append has returned, and the number of entries that the device had recorded
// by then.
type ack struct {
	seq     uint64
	data    string
	entries uint64
}

// write appends records until a few segments are full, then lets the device go.
func (d *disk) write(t *testing.T, engine asyncfile.Backend) (acks []ack) {
	fs, err := seglog.DirWith(d.mount+"/log", func(path string, create bool) (seglog.File, error) {
		return asyncfile.Open(path, asyncfile.Config{Backend: engine, Write: true, Create: create})
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := seglog.Open(seglog.Config{FS: fs, Sync: seglog.SyncAlways, SegmentBytes: 128 << 10, MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	record, err := os.Open(d.log)
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	var mu sync.Mutex
	var all sync.WaitGroup
	for p := range 4 {
		all.Go(func() {
			for i := range 600 {
				data := fmt.Sprintf("record %d of producer %d %s", i, p, strings.Repeat("x", i%300))
				seq, err := l.Append(uint32(p), 1, []byte(data))
				if err != nil {
					t.Error(err)
					return
				}
				var head [24]byte // magic, version, number of entries: renewed with each flush
				if _, err := record.ReadAt(head[:], 0); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acks = append(acks, ack{seq, data, binary.LittleEndian.Uint64(head[16:])})
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return acks
}

// change is one entry of the device's record: a write, or a flush of what was written before.
type change struct {
	off   int64
	data  []byte
	flush bool
	fua   bool
}

// history reads the record, in the format of dm-log-writes (Linux,
// Documentation/admin-guide/device-mapper/log-writes.rst).
func (d *disk) history(t *testing.T) (all []change) {
	const flagFlush, flagFUA, flagDiscard, flagMark = 1, 2, 4, 8
	f, err := os.Open(d.log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var head [32]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(head[16:])
	at := int64(sector)
	for range n {
		if _, err := f.ReadAt(head[:], at); err != nil {
			t.Fatal(err)
		}
		at += sector
		first, count, flags := binary.LittleEndian.Uint64(head[0:]), binary.LittleEndian.Uint64(head[8:]),
			binary.LittleEndian.Uint64(head[16:])
		c := change{off: int64(first) * sector, flush: flags&flagFlush != 0, fua: flags&flagFUA != 0}
		if flags&(flagDiscard|flagMark) != 0 {
			t.Fatalf("entry with flags %#x", flags)
		}
		if count > 0 {
			c.data = make([]byte, count*sector)
			if _, err := f.ReadAt(c.data, at); err != nil {
				t.Fatal(err)
			}
			at += int64(len(c.data))
		}
		all = append(all, c)
	}
	return all
}

// cut makes the device that the power cut leaves behind, recovers it, and looks for the records. It
// returns how many were due.
func (d *disk) cut(t *testing.T, rng *rand.Rand, writes []change, acks []ack, at uint64) (due int) {
	image := make([]byte, diskBytes)
	safe := 0 // index of the last flush: what came before it is on the disk
	for i, w := range writes {
		if w.flush {
			safe = i
		}
	}
	for i, w := range writes {
		data := w.data
		if i > safe && !w.fua { // in the device's cache: whole, torn, or gone
			switch rng.IntN(3) {
			case 0:
				continue
			case 1:
				data = data[:rng.IntN(len(data)/sector+1)*sector]
			}
		}
		copy(image[w.off:], data)
	}
	path, mnt := d.dir+"/cut.img", d.dir+"/cut"
	if err := errors.Join(os.WriteFile(path, image, 0o600), os.MkdirAll(mnt, 0o755)); err != nil {
		t.Fatal(err)
	}
	tool(t, "mount", "-t", "ext4", "-o", "loop", path, mnt)
	defer tool(t, "umount", mnt)
	fs, err := seglog.Dir(filepath.Join(mnt, "log"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := seglog.Open(seglog.Config{FS: fs, SegmentBytes: 128 << 10, MinFree: -1})
	if err != nil {
		t.Fatalf("after %d of the device's writes: %v", at, err)
	}
	found := map[uint64]string{}
	r := l.NewReader(0)
	for {
		rec, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("after %d of the device's writes: %v", at, err)
		}
		found[rec.Seq] = string(rec.Data)
	}
	if err := errors.Join(r.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	for _, a := range acks {
		if a.entries > at {
			continue
		}
		due++
		if found[a.seq] != a.data {
			t.Fatalf("after %d of the device's writes: record %d, durable after %d, is %q", at, a.seq, a.entries,
				found[a.seq])
		}
	}
	return due
}
