package seglog

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallywheel/tallywheel/internal/fault"
)

// Room is what can be appended until the disk is full, but for what records and batches have
// beside their data; the reserve is left alone, and whoever waits is told how much is missing.
func TestRoomIsWhatFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const segment, reserve, disk = 32 << 10, 50 << 10, 300 << 10
		d := fault.New()
		d.SetFree(disk)
		cfg := small(faulty{d}, SyncBatch)
		cfg.SegmentBytes, cfg.MinFree = segment, reserve
		l := openHarmed(t, cfg)
		time.Sleep(time.Second) // a spare segment is ready
		room := func() int64 {
			n, err := l.Room()
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		begin := room()
		if begin < disk-reserve-2*segment || begin > disk-reserve {
			t.Errorf("of %d bytes there is room for %d", disk, begin)
		}
		data := make([]byte, 1000)
		var n int64
		for !l.Position().Full {
			if _, err := l.TryAppend(1, 1, data); err != nil && !errors.Is(err, ErrBusy) {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond)
			n++
			p := l.Position()
			if p.Used+p.Ahead > disk-reserve+segment || p.Used < (n-1)*1000 || p.Used > begin+segment {
				t.Fatalf("%d records take %d bytes, %d are ahead", n, p.Used, p.Ahead)
			}
			if left := room(); left < 0 || p.Used+left > begin+segment {
				t.Fatalf("with %d bytes used there is room for %d, at the beginning there was for %d", p.Used, left,
					begin)
			}
		}
		if left := room(); left >= 3000 || n*1000 < begin*9/10-segment {
			t.Errorf("%d bytes were taken of %d, and there is room for %d", n*1000, begin, left)
		}
		if free, _ := d.FreeBytes(); free < reserve {
			t.Errorf("%d bytes are free, want the reserve of %d", free, reserve)
		}
		why := l.Position().Stalled
		if !errors.Is(why, syscall.ENOSPC) ||
			!strings.Contains(why.Error(), "it takes 32 KiB beside the reserve of 50 KiB") {
			t.Errorf("the log waits because of %v", why)
		}
		if err := l.Close(); !errors.Is(err, ErrDiskFull) {
			t.Error(err)
		}
	})
}
