package export

import (
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/frame"
	"github.com/tallywheel/tallywheel/seglog"
)

// Bounds of what is held. A row group, compressed, is held until it is whole.
const (
	batchRows  = 8 << 10 // encoded at a time …
	batchBytes = 4 << 20 // … or so many bytes of data, and one record more
	groupRows  = 1 << 18 // of a row group, …
	groupBytes = 32 << 20
	pageBytes  = 256 << 10
)

// table writes Parquet. What puts gather in a batch is encoded and compressed by a goroutine of its
// own, [table.encode], while the log is read on. Two batches go round: one is filled by put, one is
// encoded; free and full each have room for both, so that nobody waits to hand one back.
type table struct {
	columns  []Column
	text     Text
	numbered bool

	at         *batch      // being filled, by put
	free, full chan *batch // full is closed by close
	ended      chan error  // what encode made of it, once; then it is closed
	err        error       // that, once it was taken
	whole      bool        // said by close
}

// batch is some rows, column by column.
type batch struct {
	values [][]parquet.Value // by column
	rows   int
	data   []byte // what the values of Data are views of
}

// kinds are the columns as Parquet has them. An instant is one whatever the zone, so times are UTC;
// device_time is by a clock of which nobody knows where it begins.
func kinds(text Text) map[Column]parquet.Node {
	delta := func(n parquet.Node) parquet.Node { return parquet.Encoded(n, &parquet.DeltaBinaryPacked) }
	data := parquet.Leaf(parquet.ByteArrayType)
	if text != AsFramed {
		data = parquet.String()
	}
	return map[Column]parquet.Node{
		Source:     parquet.Encoded(parquet.String(), &parquet.RLEDictionary),
		Seq:        delta(parquet.Uint(64)),
		Time:       delta(parquet.Timestamp(parquet.Nanosecond)),
		DeviceTime: parquet.Optional(delta(parquet.Int(64))),
		Device:     parquet.Optional(parquet.Encoded(parquet.Uint(32), &parquet.RLEDictionary)),
		Epoch:      parquet.Optional(parquet.Encoded(parquet.Uint(32), &parquet.RLEDictionary)),
		Number:     parquet.Optional(delta(parquet.Uint(64))),
		Offset:     parquet.Optional(delta(parquet.Uint(64))),
		Len:        delta(parquet.Uint(32)),
		Data:       data,
	}
}

// ordered is a group whose columns stay in their order: parquet.Group sorts them by name.
type ordered struct {
	parquet.Group
	fields []parquet.Field
}

// Fields implements parquet.Node.
func (o ordered) Fields() []parquet.Field { return o.fields }

// schema is what the columns are, in their order.
func schema(cfg Config) *parquet.Schema {
	all, group := kinds(cfg.Text), parquet.Group{}
	for _, c := range cfg.Columns {
		group[string(c)] = all[c]
	}
	o := ordered{Group: group}
	for _, c := range cfg.Columns {
		for _, f := range group.Fields() {
			if f.Name() == string(c) {
				o.fields = append(o.fields, f)
			}
		}
	}
	return parquet.NewSchema("records", o)
}

func newParquet(cfg Config, w io.Writer) (sink, error) {
	made, err := parquet.NewWriterConfig(
		schema(cfg), parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest}), parquet.PageBufferSize(pageBytes),
		parquet.CreatedBy("tallywheel", "1", ""), parquet.DataPageStatistics(true), parquet.WriteBufferSize(writeBytes),
	)
	if err != nil {
		return nil, err
	}
	t := &table{
		columns: cfg.Columns, text: cfg.Text, numbered: describes(cfg.Columns),
		free: make(chan *batch, 2), full: make(chan *batch, 2), ended: make(chan error, 1),
	}
	t.at = newBatch(len(cfg.Columns))
	t.free <- newBatch(len(cfg.Columns))
	go t.encode(parquet.NewGenericWriter[any](w, made))
	return t, nil
}

func newBatch(columns int) *batch {
	b := &batch{values: make([][]parquet.Value, columns), data: make([]byte, 0, batchBytes)}
	for i := range b.values {
		b.values[i] = make([]parquet.Value, 0, batchRows)
	}
	return b
}

func (t *table) put(rec seglog.Record, of *archive.Stream) error {
	b, data := t.at, archive.Payload(of, rec.Data)
	// The values of this batch are views of its data, which must not move: so it ends before that
	// would grow. A cell is at most twice as long as its bytes, and its mark.
	if most := 2*len(data) + len(hexMark); b.rows == batchRows || len(b.data)+most > cap(b.data) && b.rows > 0 {
		if err := t.next(); err != nil {
			return err
		}
		b = t.at
	}
	var f frame.Frame
	if t.numbered {
		f = archive.Frame(of, rec.Data)
	}
	for i, c := range t.columns {
		// Column numbers and levels are by parquet: a value that may be null has level 1 where it
		// is there.
		v, optional := t.value(c, rec, of, data, &f)
		level := 0
		if optional && !v.IsNull() {
			level = 1
		}
		b.values[i] = append(b.values[i], v.Level(0, level, i))
	}
	b.rows++
	return nil
}

// value is what stands in a column, and whether the column may be empty.
func (t *table) value(c Column, rec seglog.Record, of *archive.Stream, data []byte, f *frame.Frame) (v parquet.Value,
	optional bool,
) {
	switch c {
	case Source:
		return parquet.ByteArrayValue([]byte(of.Source)), false
	case Seq:
		return parquet.Int64Value(int64(rec.Seq)), false
	case Time:
		return parquet.Int64Value(rec.Time), false
	case Len:
		return parquet.Int32Value(int32(len(data))), false
	case Data:
		b := t.at
		from := len(b.data)
		if t.text == AsFramed {
			b.data = append(b.data, data...)
		} else {
			b.data = appendCell(b.data, t.text, of, data)
		}
		return parquet.ByteArrayValue(b.data[from:]), false
	case Offset:
		if offset, ok := archive.WasteOffset(of, rec.Data); ok {
			return parquet.Int64Value(int64(offset)), true
		}
		return parquet.NullValue(), true
	}
	if !f.Sequenced {
		return parquet.NullValue(), true
	}
	switch c {
	case DeviceTime:
		v = parquet.Int64Value(f.DeviceTime)
	case Device:
		v = parquet.Int32Value(int32(f.Device))
	case Epoch:
		v = parquet.Int32Value(int32(f.Epoch))
	default:
		v = parquet.Int64Value(int64(f.Seq))
	}
	return v, true
}

// next hands the batch over, and takes the other one.
func (t *table) next() error {
	t.full <- t.at // there is room for both
	select {
	case t.at = <-t.free:
		return nil
	case t.err = <-t.ended: // it cannot go on, or it would have given one back
		t.at = nil
		return t.err
	}
}

func (t *table) close(whole bool) error {
	t.whole = whole // before full is closed: encode looks at it behind that
	if whole && t.at != nil && t.at.rows > 0 {
		t.full <- t.at
	}
	close(t.full)
	if err, ok := <-t.ended; ok {
		t.err = err
	}
	return t.err
}

// encode is the goroutine that writes. It ends with the last batch, or with the first error.
func (t *table) encode(w *parquet.GenericWriter[any]) {
	defer close(t.ended)
	var rows, bytes int
	for b := range t.full {
		for i, column := range w.ColumnWriters() {
			if _, err := column.WriteRowValues(b.values[i]); err != nil {
				t.ended <- err
				return
			}
		}
		rows, bytes = rows+b.rows, bytes+len(b.data)
		b.reset()
		t.free <- b
		if rows >= groupRows || bytes >= groupBytes {
			rows, bytes = 0, 0
			if err := w.Flush(); err != nil {
				t.ended <- err
				return
			}
		}
	}
	if !t.whole { // without its end nobody takes the file for one
		t.ended <- nil
		return
	}
	if err := w.Close(); err != nil {
		t.ended <- fmt.Errorf("end the Parquet file: %w", err)
		return
	}
	t.ended <- nil
}

func (b *batch) reset() {
	for i := range b.values {
		b.values[i] = b.values[i][:0]
	}
	b.rows, b.data = 0, b.data[:0]
}
