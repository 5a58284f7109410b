package contestant

import (
	"encoding/binary"
	"testing"
)

// framed is a whole frame that was due at a time.
func framed(due int64) []byte {
	f := make([]byte, frameSize)
	f[0], f[1] = 0xA5, 0x5A
	binary.LittleEndian.PutUint64(f[frameTime:], uint64(due))
	crc := uint16(0xFFFF)
	for _, b := range f[:frameCRC] {
		crc ^= uint16(b)
		for range 8 {
			if crc&1 == 1 {
				crc = crc>>1 ^ 0xA001
			} else {
				crc >>= 1
			}
		}
	}
	binary.LittleEndian.PutUint16(f[frameCRC:], crc)
	return f
}

func valuesOf(f *Frames) map[string]float64 {
	all := map[string]float64{}
	for _, v := range f.Latencies() {
		all[v.Metric] = v.V
	}
	return all
}

// TestDamagedFramesHaveNoTime: a program that trusts the line counts a damaged frame; its time is
// not a latency where it would be the longest, or below 0.
func TestDamagedFramesHaveNoTime(t *testing.T) {
	var f Frames
	const now = 1_800_000_000_000_000_000
	for range 1000 {
		f.Count(framed(now-2000), now)
	}
	for _, bit := range []byte{1 << 7, 1 << 4} {
		damaged := framed(now - 2000)
		damaged[frameTime+7] ^= bit // of the highest byte: ages, or ages before
		f.Count(damaged, now)
	}
	got := valuesOf(&f)
	if f.N != 1002 || got["latency_us_max"] != 2 || got["latency_us_p50"] != 2 {
		t.Errorf("%d frames, %v; want 1002, and 2 µs at most", f.N, got)
	}
	if f.Count(framed(now-5000), now); valuesOf(&f)["latency_us_max"] != 5 {
		t.Errorf("the longest of whole frames: %v", valuesOf(&f))
	}
}

// TestLatenciesOfALongTurn: the figures of more frames than are kept are of all of them, those of
// several readers too.
func TestLatenciesOfALongTurn(t *testing.T) {
	const n, readers = 3 * maxLatencies, 2
	late := func(i int) int64 { return int64(i) * 100 } // it grows: the longest are the last
	var sum Frames
	for r := range readers {
		var f Frames
		some := n
		if r == 1 {
			some = 1000 // that keeps all
		}
		frame := framed(0)
		for i := range some {
			f.Count(frame, late(i))
		}
		if len(f.kept) > maxLatencies {
			t.Errorf("%d latencies are kept", len(f.kept))
		}
		sum.Add(f)
	}
	got := valuesOf(&sum)
	if sum.N != n+1000 || got["latency_us_max"] != float64(late(n-1))/1e3 {
		t.Errorf("%d frames, at most %v µs; want %d, %v", sum.N, got["latency_us_max"], n+1000, float64(late(n-1))/1e3)
	}
	for metric, share := range map[string]float64{"latency_us_p50": 0.5, "latency_us_p99": 0.99} {
		want := share * float64(late(n)) / 1e3
		if got[metric] < 0.99*want || got[metric] > 1.01*want {
			t.Errorf("%s: %v, want %v", metric, got[metric], want)
		}
	}
}
