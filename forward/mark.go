package forward

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
	"github.com/tallywheel/tallywheel/ledger"
)

// mark is the local witness of one destination: how far it has acknowledged. It is written now and
// then, so it may be behind the destination, never ahead of it.
type mark struct {
	Log     string            `json:"log"`     // identity of the log
	Created ledger.Time       `json:"created"` // of the stream, null: not known
	Through uint64            `json:"through"` // everything up to this record of the log is acknowledged
	Settled uint64            `json:"settled"` // … and was so graceTime ago
	Sources map[string]source `json:"sources"` // by laneKey.String
}

// source is what the mark has of a lane.
type source struct {
	Last uint64      `json:"last"` // last record that was acknowledged
	Seq  uint64      `json:"seq"`  // of the message that had it, in the stream
	At   ledger.Time `json:"at"`   // when
}

// graceTime is how long records stay in the log behind their acknowledgement: a broker that syncs
// its files each two minutes may lose what it has acknowledged, and gets it again then.
const graceTime = 10 * time.Minute

// maxMark is the largest file of a mark that is read.
const maxMark = 64 << 20

// loadMark reads the mark of a destination on the log of an identity. One of another log counts for
// nothing, as does none. fresh says that it is such a one.
func loadMark(path string, log [16]byte) (m *mark, fresh bool, err error) {
	none := &mark{Log: hex.EncodeToString(log[:]), Sources: map[string]source{}}
	b, err := sys.ReadOrdinary(path, maxMark)
	if errors.Is(err, fs.ErrNotExist) {
		return none, true, nil
	}
	m = &mark{}
	if err == nil {
		err = json.Unmarshal(b, m)
	}
	if err != nil {
		return none, true, fmt.Errorf("read %s: %w; what the destination has says alone where to go on", path, err)
	}
	if m.Log != none.Log {
		return none, true, nil
	}
	if m.Sources == nil {
		m.Sources = map[string]source{}
	}
	return m, false, nil
}

// save brings the mark to disk, whole.
func (m *mark) save(path string) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	part := path + ".part"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// forget begins anew: the destination has nothing of what it had acknowledged.
func (m *mark) forget() {
	m.Through, m.Settled, m.Created, m.Sources = 0, 0, 0, map[string]source{}
}

// grace knows since when what is acknowledged. It belongs to one goroutine.
type grace struct{ old []moment }

type moment struct {
	at      time.Time
	through uint64
}

// graceStep is how finely it knows that.
const graceStep = 15 * time.Second

// settle takes down how far everything is acknowledged at a moment, and returns how far it was
// graceTime before; before, where it does not go back so far.
func (g *grace) settle(now time.Time, through, before uint64) uint64 {
	if n := len(g.old); n == 0 || now.Sub(g.old[n-1].at) >= graceStep {
		g.old = append(g.old, moment{now, through})
	}
	for len(g.old) > 0 && now.Sub(g.old[0].at) >= graceTime {
		before = g.old[0].through
		g.old = g.old[1:]
	}
	return min(before, through)
}
