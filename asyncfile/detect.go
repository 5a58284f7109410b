package asyncfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime/metrics"
	"strings"
)

// Detector watches a reader. Put it between a file and whatever reads it, run the program for a
// while, and ask it for its Report:
//
//	d := asyncfile.Detect(file)
//	scanner := bufio.NewScanner(d)
//	…
//	log.Print(d.Report())
//
// It belongs to the goroutine that reads. Allocations are counted for the whole program, so measure
// with little else running.
type Detector struct {
	r      io.Reader
	reads  uint64
	bytes  uint64
	offers uint64 // room that the reads offered
	binary uint64 // bytes that text does not have
	looked uint64 // bytes that were looked at for it
	allocs uint64 // of the program when it began
	sample [1]metrics.Sample
}

// Detect starts to watch r. Without a reader each Read is an error.
func Detect(r io.Reader) *Detector {
	d := &Detector{r: r}
	d.sample[0].Name = "/gc/heap/allocs:objects"
	d.allocs = d.allocations()
	return d
}

func (d *Detector) allocations() uint64 {
	metrics.Read(d.sample[:])
	return d.sample[0].Value.Uint64()
}

// lookEvery is the share of reads that are searched for bytes which text does not have.
const lookEvery = 16

// Read implements [io.Reader].
func (d *Detector) Read(b []byte) (int, error) {
	if d.r == nil {
		return 0, errors.New("detect: no reader")
	}
	n, err := d.r.Read(b)
	if d.reads%lookEvery == 0 {
		look := b[:min(n, 512)]
		d.looked += uint64(len(look))
		d.binary += uint64(bytes.Count(look, []byte{0}))
		for _, c := range look {
			if c != 0 && c < 0x20 && c != '\n' && c != '\r' && c != '\t' || c == 0x7f {
				d.binary++
			}
		}
	}
	d.reads++
	d.bytes += uint64(n)
	d.offers += uint64(len(b))
	return n, err
}

// Report is what was seen.
type Report struct {
	Bytes        uint64
	Reads        uint64  // calls of Read: a system call each, on a file
	BytesPerRead float64 // that came
	ReadsPerMB   float64 // 10⁶ bytes
	AllocsPerMB  float64 // heap objects
	Binary       bool    // the data is not text
	Advice       []string
}

// Limits of what is fine. One read of 64 KiB costs about as much in system calls as in copying;
// below a quarter of that, calls dominate.
const (
	smallRead     = 16 << 10
	manyAllocs    = 1000 // a MB: one for every 1000 bytes
	binaryPerMill = 20
	enoughBytes   = 64 << 10
)

// Report looks back on what was read so far.
func (d *Detector) Report() Report {
	r := Report{Bytes: d.bytes, Reads: d.reads}
	if d.bytes == 0 {
		return r
	}
	mb := float64(d.bytes) / 1e6
	r.BytesPerRead = float64(d.bytes) / float64(d.reads)
	r.ReadsPerMB = float64(d.reads) / mb
	r.AllocsPerMB = float64(d.allocations()-d.allocs) / mb
	r.Binary = d.looked > 0 && d.binary*1000/d.looked >= binaryPerMill
	if d.bytes < enoughBytes {
		return r
	}
	advise := func(format string, args ...any) { r.Advice = append(r.Advice, fmt.Sprintf(format, args...)) }
	if offer := float64(d.offers) / float64(d.reads); offer < smallRead {
		advise("reads of %.0f bytes: %.0f system calls a MB; give the reader a buffer of 64 KiB or more: bufio.NewReaderSize(f, 64<<10)", offer, r.ReadsPerMB)
	} else if r.BytesPerRead < smallRead/4 {
		advise("reads bring only %.0f of %.0f bytes: the source is a stream that gives little at a time; a larger buffer will not help", r.BytesPerRead, offer)
	}
	if r.Binary {
		advise("the data is binary: a line scanner cuts it at bytes that happen to be 0x0A, and stops at 64 KiB without one; read frames by their length or sync word")
	}
	if r.AllocsPerMB > manyAllocs {
		advise("%.0f allocations a MB: use Scanner.Bytes or Reader.ReadSlice and not Text or ReadString, or asyncfile.Lines, which allocates nothing for a line", r.AllocsPerMB)
	}
	return r
}

// String is one line, and one for each advice.
func (r Report) String() string {
	kind := "text"
	if r.Binary {
		kind = "binary"
	}
	lines := []string{fmt.Sprintf("%d bytes of %s in %d reads: %.0f bytes a read, %.1f reads a MB, %.1f allocations a MB", r.Bytes, kind, r.Reads, r.BytesPerRead, r.ReadsPerMB, r.AllocsPerMB)}
	return strings.Join(append(lines, r.Advice...), "\n  ")
}
