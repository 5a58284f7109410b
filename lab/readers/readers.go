// Package readers is the ways to read ports and datagrams that experiments on serial lines compare:
// ours, the articles', and those of the standard library.
package readers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/api"
	"github.com/tallywheel/tallywheel/config"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/frame/tally128"
	"github.com/tallywheel/tallywheel/lab/contestant"
	"github.com/tallywheel/tallywheel/reader"
	"github.com/tallywheel/tallywheel/recorder"
	"github.com/tallywheel/tallywheel/serial"
)

// Lane decodes the bytes of one port, checks them, and counts.
type Lane struct {
	dec   tally128.Decoder
	found contestant.Frames
	now   int64
}

// Arrived takes what has come.
func (l *Lane) Arrived(view []byte, _ int, _ int64) (int, bool) {
	l.now = time.Now().UnixNano()
	return l.dec.Decode(view, l), true
}

// Silent, Closed, Frame, Damaged and Skip make a Lane a handler and a sink of frames.
func (l *Lane) Silent([]byte, int64) int    { return 0 }
func (l *Lane) Closed([]byte, int64, error) {}
func (l *Lane) Frame(f *frame.Frame)        { l.found.Count(f.Data, l.now) }
func (l *Lane) Damaged()                    {}
func (l *Lane) Skip([]byte)                 {}

// tick is how often mode throughput looks.
const tick = 5 * time.Millisecond

// By reads ports by one of our strategies.
func By(strategy reader.Strategy, mode reader.Mode) contestant.Work {
	cfg := reader.Config{Strategy: strategy, Mode: mode, Tick: tick}
	if strategy == reader.Polling {
		cfg.Tick = 0
	}
	return func(t *contestant.Turn) error { return readPorts(t, cfg) }
}

func readPorts(t *contestant.Turn, cfg reader.Config) error {
	r, err := reader.New(cfg)
	if err != nil {
		return err
	}
	var lanes []*Lane
	for _, path := range t.Paths() {
		p, err := serial.Open(path, serial.Config{})
		if err != nil {
			return err
		}
		l := &Lane{}
		lanes = append(lanes, l)
		if _, err := r.Add(reader.Port{FD: p.FD(), Handler: l}); err != nil {
			return err
		}
	}
	if _, err := t.Ready(); err != nil {
		return err
	}
	t.End()
	took := t.Elapsed()
	if err := r.Close(); err != nil {
		return err
	}
	var sum contestant.Frames
	for _, l := range lanes {
		sum.Add(l.found)
	}
	return framesResult(t, took, &sum)
}

// framesResult reports what a reader has seen.
func framesResult(t *contestant.Turn, took time.Duration, f *contestant.Frames) error {
	mb := float64(f.N) * tally128.Size / 1e6
	return t.Result(took, f.N,
		append(f.Latencies(), contestant.Value{Metric: "MB_per_s", V: mb / took.Seconds()})...)
}

// Pipeline has four goroutines for the stages read, parse, validate and store of each port, with a
// channel operation for each chunk or frame between them, as the article has it. The recorder's
// own is another (recorder/pipeline.go).
func Pipeline(t *contestant.Turn) error {
	found := make([]contestant.Frames, len(t.Paths()))
	files, err := OpenPorts(t)
	if err != nil {
		return err
	}
	var done sync.WaitGroup
	for i, f := range files {
		chunks, candidates, valid := make(chan []byte, 64), make(chan []byte, 256), make(chan []byte, 256)
		go readStage(f, chunks)
		go parseStage(chunks, candidates)
		go validateStage(candidates, valid)
		done.Go(func() {
			for frame := range valid {
				found[i].Count(frame, time.Now().UnixNano())
			}
		})
	}
	return untilEnd(t, files, &done, found)
}

func readStage(f *os.File, chunks chan<- []byte) {
	defer close(chunks)
	for {
		b := make([]byte, 4096)
		n, err := f.Read(b)
		if err != nil {
			return
		}
		chunks <- b[:n]
	}
}

func parseStage(chunks <-chan []byte, candidates chan<- []byte) {
	defer close(candidates)
	var held []byte
	for c := range chunks {
		held = append(held, c...)
		at := 0
		for len(held)-at >= tally128.Size {
			if held[at] != 0xA5 || held[at+1] != 0x5A {
				at++
				continue
			}
			candidates <- append([]byte(nil), held[at:at+tally128.Size]...)
			at += tally128.Size
		}
		held = append(held[:0], held[at:]...)
	}
}

func validateStage(candidates <-chan []byte, valid chan<- []byte) {
	defer close(valid)
	for c := range candidates {
		var dec tally128.Decoder
		var good counter
		if dec.Decode(c, &good); good == 1 {
			valid <- c
		}
	}
}

// The article's way to wait: at most so long for a chunk, so many readers at a time, and so long
// until a reader that found no place tries again.
const (
	selectLimit   = 10 * time.Millisecond
	selectReaders = 3
	selectRetry   = 5 * time.Millisecond
)

// Select takes what a goroutine reads from each port by select with a time-out, as the article
// has it: a channel, a timer for each wait, and a semaphore for the readers.
func Select(t *contestant.Turn) error {
	found := make([]contestant.Frames, len(t.Paths()))
	files, err := OpenPorts(t)
	if err != nil {
		return err
	}
	places := make(chan struct{}, selectReaders)
	var done sync.WaitGroup
	for i, f := range files {
		chunks := make(chan []byte, 64)
		go readStage(f, chunks)
		done.Go(func() {
			var held []byte
			for more := true; more; {
				select {
				case places <- struct{}{}:
				default:
					time.Sleep(selectRetry)
					continue
				}
				select {
				case c, ok := <-chunks:
					held, more = append(held, c...), ok
					held = append(held[:0], held[found[i].Take(held):]...)
				case <-time.After(selectLimit):
				}
				<-places
			}
		})
	}
	return untilEnd(t, files, &done, found)
}

// untilEnd lets goroutines read the files until the turn ends, and reports what they have found.
func untilEnd(t *contestant.Turn, files []*os.File, done *sync.WaitGroup, found []contestant.Frames) error {
	if _, err := t.Ready(); err != nil {
		return err
	}
	t.End()
	took := t.Elapsed()
	for _, f := range files {
		if err := f.Close(); err != nil {
			return err
		}
	}
	done.Wait()
	var sum contestant.Frames
	for _, f := range found {
		sum.Add(f)
	}
	return framesResult(t, took, &sum)
}

// counter counts frames.
type counter int

func (c *counter) Frame(*frame.Frame) { *c++ }
func (c *counter) Damaged()           {}
func (c *counter) Skip([]byte)        {}

// OpenPort opens a port in raw mode as a file that Go's poller watches.
func OpenPort(path string) (*os.File, error) {
	p, err := serial.Open(path, serial.Config{}) // sets the line
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	return f, errors.Join(err, p.Close())
}

// OpenPorts opens the ports of a turn.
func OpenPorts(t *contestant.Turn) (files []*os.File, err error) {
	for _, path := range t.Paths() {
		f, err := OpenPort(path)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// Files reads ports as files, a goroutine each, with a buffer of the parameter bytes (4096).
func Files(t *contestant.Turn) error { return readFiles(t, chunkByChunk) }

// Buffered reads as Files does, through a bufio.Reader of that size, a frame at a time.
func Buffered(t *contestant.Turn) error { return readFiles(t, frameByFrame) }

func readFiles(t *contestant.Turn, read func(r io.Reader, size int, found *contestant.Frames)) error {
	size := t.Int("bytes", 4096)
	found := make([]contestant.Frames, len(t.Paths()))
	files, err := OpenPorts(t)
	if err != nil {
		return err
	}
	var done sync.WaitGroup
	for i, f := range files {
		done.Go(func() { read(f, size, &found[i]) })
	}
	return untilEnd(t, files, &done, found)
}

func chunkByChunk(r io.Reader, size int, found *contestant.Frames) {
	buf, have := make([]byte, size+tally128.Size), 0
	for {
		n, err := r.Read(buf[have : have+size])
		if err != nil {
			return
		}
		have += n
		have = copy(buf, buf[found.Take(buf[:have]):have])
	}
}

func frameByFrame(port io.Reader, size int, found *contestant.Frames) {
	r := bufio.NewReaderSize(port, size)
	var one [tally128.Size]byte
	have := 0
	for {
		n, err := io.ReadFull(r, one[have:])
		if err != nil {
			return
		}
		have += n
		have = copy(one[:], one[found.Take(one[:have]):have])
	}
}

// udpSize is the size of the datagrams, in bytes.
const udpSize = 256

// Datagrams reads datagrams of 256 bytes from the socket that is descriptor 3, by net.UDPConn into
// a buffer of the parameter bytes. A datagram that does not fit is cut by the kernel.
func Datagrams(t *contestant.Turn) error {
	size := t.Int("bytes", 4096)
	return readUDP(t, func(f *os.File, d *datagrams) error {
		c, err := net.FilePacketConn(f)
		if err != nil {
			return err
		}
		go func() {
			u, buf := c.(*net.UDPConn), make([]byte, size)
			for {
				n, _, err := u.ReadFromUDPAddrPort(buf)
				if err != nil {
					return
				}
				d.Arrived(nil, n, 0)
			}
		}()
		return nil
	})
}

// RingDatagrams reads them by our reader.
func RingDatagrams(t *contestant.Turn) error {
	return readUDP(t, func(_ *os.File, d *datagrams) error {
		r, err := reader.New(reader.Config{})
		if err != nil {
			return err
		}
		_, err = r.Add(reader.Port{FD: 3, Messages: true, Hold: 1 << 20, Handler: d})
		return err
	})
}

// readUDP lets read begin, and reports what it has seen when the turn ends.
func readUDP(t *contestant.Turn, read func(f *os.File, d *datagrams) error) error {
	if err := syscall.SetNonblock(3, true); err != nil { // handing it over made it block
		return os.NewSyscallError("fcntl", err)
	}
	f := os.NewFile(3, "udp")
	defer f.Close()
	var d datagrams
	if err := read(f, &d); err != nil {
		return err
	}
	if _, err := t.Ready(); err != nil {
		return err
	}
	t.End()
	took, n := t.Elapsed(), d.got.Load()
	return t.Result(
		took, n, contestant.Value{Metric: "cut_frames", V: float64(n - d.whole.Load())},
		contestant.Value{Metric: "MB_per_s", V: float64(n) * udpSize / 1e6 / took.Seconds()},
	)
}

type datagrams struct{ got, whole atomic.Uint64 }

func (d *datagrams) Arrived(view []byte, fresh int, _ int64) (int, bool) {
	d.got.Add(1)
	if fresh == udpSize {
		d.whole.Add(1)
	}
	return len(view), true
}
func (d *datagrams) Silent([]byte, int64) int    { return 0 }
func (d *datagrams) Closed([]byte, int64, error) {}

// Record is the whole recorder: it reads, decodes, books and writes the log, synced in batches,
// with its API on. It reports the frames that its sheet says are durable.
func Record(t *contestant.Turn) error {
	dir, err := os.MkdirTemp(t.Text("dir"), "record-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cfg := config.Config{
		Log: config.Log{Dir: dir}, API: config.API{Listen: "127.0.0.1:0"},
		Read: config.Read{Mode: string(reader.Latency)},
	}
	for i, path := range t.Paths() {
		cfg.Sources = append(cfg.Sources, config.Source{
			ID: fmt.Sprintf("line-%d", i+1), Serial: &config.Serial{Port: path}, Frame: config.Frame{Kind: "tally128"},
		})
	}
	g, err := recorder.Start(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	s, err := api.Serve(g, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer s.Close()
	time.Sleep(200 * time.Millisecond) // its start, and its first segment made ready, are not what is measured
	if _, err := t.Ready(); err != nil {
		return err
	}
	t.End()
	took := t.Elapsed()
	sheet, err := g.Stop("the turn ended")
	if err != nil {
		return err
	}
	if !sheet.Balanced {
		return errors.New("its books do not balance")
	}
	n := uint64(0)
	for _, p := range sheet.Ports {
		n += p.Frames.Durable
	}
	return t.Result(took, n, contestant.Value{Metric: "MB_per_s", V: float64(n) * tally128.Size / 1e6 / took.Seconds()})
}
