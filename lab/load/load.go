// Package load sends what contestants read: frames through virtual serial ports, and datagrams. All
// of it is open-loop: when a frame is due does not depend on whether the one before was taken, and
// each carries the time at which it was due. So a reader that stalls is charged for all that it
// delays.
package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/serial"
	"github.com/tallywheel/tallywheel/serial/serialtest"
)

// Serial is a load through ports.
type Serial struct {
	Ports     int
	Rate      float64 // bytes a second and port; 0: as fast as the ports take it
	Burst     bool    // 10 ms at the rate, every 100 ms
	Disturbed bool    // with frames dropped, repeated, damaged and reordered, at the rate of that condition; one port
	Unplugs   bool    // Disturbed, and the port goes and comes again: for who opens it again
	Overruns  bool    // what a port has no room for is lost, as in a UART; else it is waited for
}

const (
	burstLength = 10 * time.Millisecond
	burstPeriod = 100 * time.Millisecond
	drainLimit  = 10 * time.Second
)

// Scene makes the ports of one turn in a folder below b.Dir.
func (s Serial) Scene(b *lab.Bench) (*lab.Scene, error) {
	dir, err := os.MkdirTemp(b.Dir, "ports-")
	if err != nil {
		return nil, err
	}
	var lines []*serialtest.Port
	var paths []string
	closeAll := func() error {
		var errs []error
		for _, p := range lines {
			errs = append(errs, p.Close())
		}
		return errors.Join(append(errs, os.RemoveAll(dir))...)
	}
	for i := range s.Ports {
		p, err := serialtest.NewPort(filepath.Join(dir, fmt.Sprintf("line-%d", i)))
		if err != nil {
			return nil, errors.Join(err, closeAll())
		}
		lines, paths = append(lines, p), append(paths, p.Link)
		raw, err := serial.Open(p.Link, serial.Config{}) // in raw mode for contestants that cannot set it
		if err != nil {
			return nil, errors.Join(err, closeAll())
		}
		if err := raw.Close(); err != nil {
			return nil, errors.Join(err, closeAll())
		}
	}
	load := func(ctx context.Context, length time.Duration) (func(lab.Metrics), error) {
		sent, err := s.send(ctx, lines, length)
		if err != nil {
			return nil, err
		}
		if !serialtest.DrainAll(lines, drainLimit) {
			return nil, errors.New("it does not read to the end")
		}
		return sent.judge, nil
	}
	return &lab.Scene{Params: lab.Params{"paths": strings.Join(paths, ",")}, Load: load, Close: closeAll}, nil
}

// sent is what a load has sent, in frames.
type sent struct {
	whole                      uint64 // valid, repetitions included
	damaged, dropped, repeated uint64 // faults, as they were made
	unplugged                  uint64 // times
	overruns                   bool   // the source did not wait
	overrun                    uint64 // frames that the port had no room for
}

// judge holds what a reader says it has seen against what was sent. Damaged frames that it took for
// good make up for lost ones.
func (s sent) judge(m lab.Metrics) {
	seen, whole := m["ops"]-m["cut_frames"], float64(s.whole)
	delete(m, "cut_frames")
	m[lab.SentFrames.String()] = whole
	m[lab.LostFrames.String()] = max(0, whole-seen)
	m[lab.FalseFrames.String()] = max(0, seen-whole)
	m[lab.LostPercent.String()] = 100 * m[lab.LostFrames.String()] / max(1, whole)
	if s.overruns {
		m[lab.LostAtPort.String()] = float64(s.overrun)
	}
	if faults := s.damaged + s.dropped + s.repeated; faults > 0 {
		m[lab.Unplugged.String()] = float64(s.unplugged)
		m[lab.DamagedFrames.String()], m[lab.DroppedFrames.String()],
			m[lab.RepeatedFrames.String()] = float64(s.damaged), float64(s.dropped), float64(s.repeated)
	}
}

func (s Serial) send(ctx context.Context, lines []*serialtest.Port, length time.Duration) (did sent, err error) {
	switch {
	case s.Disturbed:
		return s.disturb(ctx, lines[0], length)
	case s.Rate == 0:
		did.whole, err = flood(ctx, lines, length)
		return did, err
	}
	return s.pace(ctx, lines, length)
}

// senderLate is by how much a source that does not wait may be late: beyond that its line was idle,
// for what the machine kept it from sending at once would be more than its rate.
const senderLate = time.Millisecond

// pace writes one frame at a time, the ports in turn, each when it is due.
func (s Serial) pace(ctx context.Context, ports []*serialtest.Port, length time.Duration) (did sent, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	did.overruns = s.Overruns
	gap := float64(tally128.Size) / s.Rate / float64(len(ports)) * 1e9
	var f [tally128.Size]byte
	start := time.Now()
	for k := 0; ; k++ {
		due := time.Duration(float64(k) * gap)
		if s.Burst {
			due = due/burstLength*burstPeriod + due%burstLength
		}
		if due >= length || ctx.Err() != nil {
			return did, ctx.Err()
		}
		switch wait := due - time.Since(start); {
		case wait > 0:
			sys.Sleep(wait)
		case s.Overruns && wait < -senderLate:
			start = start.Add(-wait)
		}
		header := tally128.Header{
			Device: uint32(k % len(ports)), Seq: uint64(k / len(ports)),
			DeviceTime: start.UnixNano() + int64(due),
		}
		tally128.Encode(f[:], header, nil)
		if !s.Overruns {
			err = put(ctx, ports[k%len(ports)], f[:])
		} else if n, failed := ports[k%len(ports)].Write(f[:]); failed != nil {
			err = failed
		} else if n < len(f) { // the rest of it is not sent again
			did.overrun++
		}
		if err != nil {
			return did, err
		}
		did.whole++
	}
}

// flood writes as much as the ports take.
func flood(ctx context.Context, ports []*serialtest.Port, length time.Duration) (sent uint64, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const batch = 32
	var b [batch * tally128.Size]byte
	for start := time.Now(); time.Since(start) < length; {
		now := time.Now().UnixNano()
		for i := range batch {
			tally128.Encode(b[i*tally128.Size:],
				tally128.Header{Seq: sent/uint64(len(ports)) + uint64(i), DeviceTime: now}, nil)
		}
		for _, p := range ports {
			if err := put(ctx, p, b[:]); err != nil {
				return sent, err
			}
			sent += batch
		}
	}
	return sent, nil
}

// put writes all of b; a pty that is full is waited for.
func put(ctx context.Context, p *serialtest.Port, b []byte) error {
	for len(b) > 0 {
		n, err := p.Write(b)
		if err != nil {
			return err
		}
		if b = b[n:]; n == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			sys.Sleep(20 * time.Microsecond)
		}
	}
	return nil
}

// UDP is a load of datagrams at a fixed rate, each when it is due.
type UDP struct {
	PerSecond int
	Size      int // bytes of each
}

// UDPLate is by how much a sender of datagrams may be late. What was due before is not sent: the
// queue of a socket has room for some 280 small ones, and the loss would be that of the burst, not
// of the rate.
const UDPLate = 200 * time.Microsecond

// schedule says when what is sent at a steady rate is due.
type schedule struct {
	gap, late time.Duration
	next      time.Duration // since the start
}

// due is how many are due now, of which none has been so for longer than late.
func (s *schedule) due(now time.Duration) (n int) {
	s.next = max(s.next, now-s.late)
	for ; s.next <= now; s.next += s.gap {
		n++
	}
	return n
}

// Scene makes a socket, which the contestant has as descriptor 3.
func (u UDP) Scene() (*lab.Scene, error) {
	in, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	f, err := in.File()
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	out, err := net.DialUDP("udp", nil, in.LocalAddr().(*net.UDPAddr))
	if err != nil {
		return nil, errors.Join(err, in.Close(), f.Close())
	}
	load := func(ctx context.Context, length time.Duration) (func(lab.Metrics), error) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		b, n := make([]byte, u.Size), uint64(0)
		at := schedule{gap: time.Second / time.Duration(u.PerSecond), late: UDPLate}
		start := time.Now()
		for now := time.Duration(0); now < length && ctx.Err() == nil; now = time.Since(start) {
			for range at.due(now) {
				if _, err := out.Write(b); err == nil { // what the sender's socket refuses was not sent
					n++
				}
			}
			if wait := at.next - time.Since(start); wait > 0 {
				sys.Sleep(wait)
			}
		}
		sys.Sleep(20 * time.Millisecond) // what is in the socket is read
		return sent{whole: n}.judge, ctx.Err()
	}
	return &lab.Scene{
		Files: []*os.File{f}, Load: load,
		Close: func() error { return errors.Join(in.Close(), f.Close(), out.Close()) },
	}, nil
}
