package own

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

// lane decodes the bytes of one port, checks them, and counts.
type lane struct {
	dec     tally128.Decoder
	found   contestant.Frames
	now     int64
	arrived atomic.Int64 // bytes
}

func (l *lane) Arrived(view []byte, fresh int, _ int64) (int, bool) {
	l.now = time.Now().UnixNano()
	l.arrived.Add(int64(fresh))
	return l.dec.Decode(view, l), true
}
func (l *lane) Silent([]byte, int64) int    { return 0 }
func (l *lane) Closed([]byte, int64, error) {}
func (l *lane) Frame(f *frame.Frame)        { l.found.Count(f.Data, l.now) }
func (l *lane) Damaged()                    {}
func (l *lane) Skip([]byte)                 {}

// readSerial reads ports by one of our strategies: ring (modes latency, throughput, hybrid),
// blocking, polling, pipeline.
func readSerial(t *contestant.Turn) error {
	cfg := reader.Config{Strategy: reader.Strategy(t.Text("strategy")), Mode: reader.Mode(t.Text("mode")), Tick: 5 * time.Millisecond}
	switch cfg.Strategy {
	case "pipeline":
		return pipeline(t)
	case "select":
		return selecting(t)
	}
	if cfg.Strategy == reader.Polling {
		cfg.Tick = 0
	}
	r, err := reader.New(cfg)
	if err != nil {
		return err
	}
	var lanes []*lane
	for _, path := range t.Paths() {
		p, err := serial.Open(path, serial.Config{})
		if err != nil {
			return err
		}
		l := &lane{}
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
	return t.Result(took, f.N, append(contestant.Latencies(f.Latencies), contestant.Value{Metric: "MB_per_s", V: mb / took.Seconds()})...)
}

// pipeline has four goroutines for the stages read, parse, validate and store of each port, with a
// channel operation for each chunk or frame between them, as the article has it. The recorder's
// own is another (recorder/pipeline.go).
func pipeline(t *contestant.Turn) error {
	found := make([]contestant.Frames, len(t.Paths()))
	files, err := openPorts(t)
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

// selecting takes what a goroutine reads from each port by select with a time-out, as the article
// has it: a channel, a timer for each wait, and a semaphore for the readers.
func selecting(t *contestant.Turn) error {
	found := make([]contestant.Frames, len(t.Paths()))
	files, err := openPorts(t)
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

// openPort opens a port in raw mode as a file that Go's poller watches.
func openPort(path string) (*os.File, error) {
	p, err := serial.Open(path, serial.Config{}) // sets the line
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	return f, errors.Join(err, p.Close())
}

// openPorts opens the ports of a turn.
func openPorts(t *contestant.Turn) (files []*os.File, err error) {
	for _, path := range t.Paths() {
		f, err := openPort(path)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// readFile reads ports as files, a goroutine each, with a buffer of the parameter bytes (4096);
// with the parameter bufio=1 through a bufio.Reader of that size, a frame at a time.
func readFile(t *contestant.Turn) error {
	size := t.Int("bytes", 4096)
	found := make([]contestant.Frames, len(t.Paths()))
	files, err := openPorts(t)
	if err != nil {
		return err
	}
	var done sync.WaitGroup
	for i, f := range files {
		done.Go(func() {
			if t.Int("bufio", 0) == 1 {
				frameByFrame(bufio.NewReaderSize(f, size), &found[i])
			} else {
				chunkByChunk(f, size, &found[i])
			}
		})
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

func frameByFrame(r io.Reader, found *contestant.Frames) {
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

// readUDP reads datagrams of 256 bytes from the socket that is descriptor 3: by net.UDPConn into a
// buffer of the parameter bytes, or, with strategy=ring, by our reader. A datagram that does not
// fit is cut by the kernel.
func readUDP(t *contestant.Turn) error {
	if err := syscall.SetNonblock(3, true); err != nil { // handing it over made it block
		return os.NewSyscallError("fcntl", err)
	}
	f := os.NewFile(3, "udp")
	var got, whole atomic.Uint64
	if t.Text("strategy") == "ring" {
		r, err := reader.New(reader.Config{Mode: reader.Mode(t.Text("mode"))})
		if err != nil {
			return err
		}
		if _, err := r.Add(reader.Port{FD: 3, Messages: true, Hold: 1 << 20, Handler: &datagrams{&got, &whole}}); err != nil {
			return err
		}
	} else {
		c, err := net.FilePacketConn(f)
		if err != nil {
			return err
		}
		size := t.Int("bytes", 4096)
		go func() {
			u, buf := c.(*net.UDPConn), make([]byte, size)
			for {
				n, _, err := u.ReadFromUDPAddrPort(buf)
				if err != nil {
					return
				}
				got.Add(1)
				if n == udpSize {
					whole.Add(1)
				}
			}
		}()
	}
	if _, err := t.Ready(); err != nil {
		return err
	}
	t.End()
	took, n := t.Elapsed(), got.Load()
	return t.Result(
		took, n, contestant.Value{Metric: "cut_frames", V: float64(n - whole.Load())},
		contestant.Value{Metric: "MB_per_s", V: float64(n) * udpSize / 1e6 / took.Seconds()},
	)
}

type datagrams struct{ got, whole *atomic.Uint64 }

func (d *datagrams) Arrived(view []byte, fresh int, _ int64) (int, bool) {
	d.got.Add(1)
	if fresh == udpSize {
		d.whole.Add(1)
	}
	return len(view), true
}
func (d *datagrams) Silent([]byte, int64) int    { return 0 }
func (d *datagrams) Closed([]byte, int64, error) {}

// record is the whole recorder: it reads, decodes, books and writes the log, synced in batches,
// with its API on. It reports the frames that its sheet says are durable.
func record(t *contestant.Turn) error {
	dir, err := os.MkdirTemp(t.Text("dir"), "record-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cfg := config.Config{
		Log: config.Log{Dir: dir}, API: config.API{Listen: "127.0.0.1:0"},
		Read: config.Read{Strategy: t.Text("strategy"), Mode: t.Text("mode")},
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
