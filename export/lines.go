package export

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/seglog"
)

// writeBytes is what is written at once.
const writeBytes = 256 << 10

// raw writes the bytes of records one behind the other.
type raw struct{ w *bufio.Writer }

func newRaw(w io.Writer) sink { return raw{bufio.NewWriterSize(w, writeBytes)} }

func (r raw) put(rec seglog.Record, of *archive.Stream) error {
	_, err := r.w.Write(archive.Payload(of, rec.Data))
	return err
}

func (r raw) close(bool) error { return r.w.Flush() }

// ndjson writes each record as the API shows it.
type ndjson struct {
	w    *bufio.Writer
	e    *json.Encoder
	zone *time.Location
}

func newNDJSON(cfg Config, w io.Writer) sink {
	b := bufio.NewWriterSize(w, writeBytes)
	return ndjson{b, json.NewEncoder(b), cfg.Zone}
}

func (j ndjson) put(rec seglog.Record, of *archive.Stream) error {
	r := archive.Describe(*of, rec)
	r.Time = r.Time.In(j.zone)
	return j.e.Encode(r)
}

func (j ndjson) close(bool) error { return j.w.Flush() }

// csv writes lines of cells.
type csv struct {
	w        io.Writer
	columns  []Column
	text     Text
	exact    bool
	numbered bool // a column says what the framing tells
	clock    clock
	buf      []byte // lines that are not written yet
	cell     []byte // of the data, before it is quoted
}

func newCSV(cfg Config, w io.Writer) sink {
	c := &csv{
		w: w, columns: cfg.Columns, text: cfg.Text, exact: cfg.Exact, clock: clock{zone: cfg.Zone},
		numbered: describes(cfg.Columns),
		buf:      make([]byte, 0, writeBytes+writeBytes/4),
	}
	if cfg.BOM {
		c.buf = append(c.buf, "\uFEFF"...)
	}
	for i, column := range c.columns {
		if i > 0 {
			c.buf = append(c.buf, ',')
		}
		c.buf = append(c.buf, column...)
	}
	c.buf = append(c.buf, '\n')
	return c
}

// describes reports whether one of the columns says what the framing tells about a record.
func describes(columns []Column) bool {
	return slices.ContainsFunc(columns, func(c Column) bool {
		return c == DeviceTime || c == Device || c == Epoch || c == Number
	})
}

func (c *csv) put(rec seglog.Record, of *archive.Stream) error {
	data := archive.Payload(of, rec.Data)
	var f frame.Frame
	if c.numbered {
		f = archive.Frame(of, rec.Data)
	}
	for i, column := range c.columns {
		if i > 0 {
			c.buf = append(c.buf, ',')
		}
		switch column {
		case Source:
			c.cell = append(c.cell[:0], of.Source...)
			c.quoted()
		case Seq:
			c.buf = strconv.AppendUint(c.buf, rec.Seq, 10)
		case Time:
			c.buf = c.clock.append(c.buf, rec.Time)
		case Offset:
			if offset, ok := archive.WasteOffset(of, rec.Data); ok {
				c.buf = strconv.AppendUint(c.buf, offset, 10)
			}
		case Len:
			c.buf = strconv.AppendInt(c.buf, int64(len(data)), 10)
		case Data:
			c.cell = appendCell(c.cell[:0], c.text, of, data)
			c.quoted()
		default:
			c.told(column, &f)
		}
	}
	c.buf = append(c.buf, '\n')
	if len(c.buf) >= writeBytes {
		return c.flush()
	}
	return nil
}

// told appends what the framing tells; nothing where it tells nothing.
func (c *csv) told(column Column, f *frame.Frame) {
	if !f.Sequenced {
		return
	}
	switch column {
	case DeviceTime:
		c.buf = strconv.AppendInt(c.buf, f.DeviceTime, 10)
	case Device:
		c.buf = strconv.AppendUint(c.buf, uint64(f.Device), 10)
	case Epoch:
		c.buf = strconv.AppendUint(c.buf, uint64(f.Epoch), 10)
	case Number:
		c.buf = strconv.AppendUint(c.buf, f.Seq, 10)
	}
}

// quoted appends the cell, in quotes where RFC 4180 asks for them.
func (c *csv) quoted() {
	guard := !c.exact && isFormula(c.cell)
	if bytes.IndexByte(c.cell, '"') < 0 && bytes.IndexByte(c.cell, ',') < 0 && bytes.IndexByte(c.cell, '\n') < 0 &&
		bytes.IndexByte(c.cell, '\r') < 0 {
		if guard {
			c.buf = append(c.buf, '\'')
		}
		c.buf = append(c.buf, c.cell...)
		return
	}
	c.buf = append(c.buf, '"')
	if guard {
		c.buf = append(c.buf, '\'')
	}
	for rest := c.cell; ; {
		at := bytes.IndexByte(rest, '"')
		if at < 0 {
			c.buf = append(c.buf, rest...)
			break
		}
		c.buf = append(append(c.buf, rest[:at+1]...), '"')
		rest = rest[at+1:]
	}
	c.buf = append(c.buf, '"')
}

func (c *csv) close(bool) error { return c.flush() }

func (c *csv) flush() error {
	_, err := c.w.Write(c.buf)
	c.buf = c.buf[:0]
	return err
}

// clock writes times with nine digits of the second, and keeps what those of one second share.
type clock struct {
	zone          *time.Location
	second        int64
	before, after []byte // of the digits; empty before the first time
}

func (c *clock) append(dst []byte, ns int64) []byte {
	second, rest := ns/1e9, ns%1e9
	if rest < 0 {
		second, rest = second-1, rest+1e9
	}
	if second != c.second || len(c.before) == 0 {
		t := time.Unix(second, 0).In(c.zone)
		c.second = second
		c.before = t.AppendFormat(c.before[:0], "2006-01-02T15:04:05.")
		c.after = t.AppendFormat(c.after[:0], "Z07:00")
	}
	dst = append(append(dst, c.before...), "000000000"...)
	for i := len(dst) - 1; rest > 0; i, rest = i-1, rest/10 {
		dst[i] = byte('0' + rest%10)
	}
	return append(dst, c.after...)
}
