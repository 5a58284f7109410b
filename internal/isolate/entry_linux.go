package isolate

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/tallywheel/tallywheel/serial"
)

// Role is which of the three processes one is.
type Role string

// The roles.
const (
	Keeper   Role = "keeper"
	Reader   Role = "reader"
	Recorder Role = "recorder"
)

// RoleVariable is the environment variable that tells a process its role. Such a process was
// started by this package alone.
const RoleVariable = "TALLYWHEEL_ROLE"

// Names of entries on the shelf. The recorder puts all but PortOf, SpillOf and CellEntry, which the
// reader does. What a source has to wait for connections is put by whoever takes those: the
// recorder, where it gives them to the reader, else the reader.
const (
	BellEntry  = "bell"  // the memory of a [Bell]
	StartEntry = "start" // a [Start]
	ReadEntry  = "read"  // how to read: a [Reading]
	CellEntry  = "cell"  // what has become of a reader that is to keep time: a [Kept]
	EndEntry   = "end"   // the recording has ended in order: nobody is to be started again
	// A recorder that prepares itself has the first of these, and StartEntry, before the others.
	APIEntry    = "api"    // where the API listens, as the configuration says it, and the socket
	ConfigEntry = "config" // the text of the configuration that is recorded with
	DoorEntry   = "door"   // the path at which the keeper is to listen for upgrades
	// The keeper itself puts this one, as long as what is on the shelf outlives it, too.
	StoreEntry = "store"
)

// LaneOf names the entry of a source that the reader is to read: a [Lane], and its spool.
func LaneOf(source string) string { return "lane/" + source }

// PortOf names the entry of the device of a source: a [Port], and its descriptor while it is open.
func PortOf(source string) string { return "port/" + source }

// ListenerOf names the entry of the socket at which a source waits for connections.
func ListenerOf(source string) string { return "listener/" + source }

// GateOf names the entry of a source that reads all connections, as it is recorded: who waits at
// its listener, or is a guest, came for that.
func GateOf(source string) string { return "gate/" + source }

// NextOf names the entry of a connection that is about to be, or waits to become, the device of a
// source.
func NextOf(source string) string { return "next/" + source }

// GuestOf names the entry of a connection to a source that reads all of them, which nobody reads
// yet.
func GuestOf(source string, n int) string { return "guest/" + source + "@" + strconv.Itoa(n) }

// GuestIn is the source of a connection that nobody reads yet, and its number, by what SourceOf
// says.
func GuestIn(name string) (source string, n int) {
	i := strings.LastIndexByte(name, '@')
	n, err := strconv.Atoi(name[i+1:])
	if i < 0 || err != nil {
		return "", 0
	}
	return name[:i], n
}

// SpillOf names the entry of a source that runs over: the near one of its two spools, and the file
// while something is in it.
func SpillOf(source string) string { return "spill/" + source }

// ClosedOf names the entry of a source whose books are closed, or have those of peers that made
// room: a [Closed].
func ClosedOf(source string) string { return "closed/" + source }

// Of lists the names of all entries that a source may have.
func Of(source string) []string {
	return []string{LaneOf(source), PortOf(source), ListenerOf(source), NextOf(source), SpillOf(source)}
}

// SourceOf is the source of an entry's name, and what kind of entry it is: "lane", "port",
// "listener", "next", "guest", "gate", "spill", "closed" or "".
func SourceOf(name string) (kind, source string) {
	for _, kind := range []string{"lane", "port", "listener", "next", "guest", "gate", "spill", "closed"} {
		if n := len(kind) + 1; len(name) > n && name[:n] == kind+"/" {
			return kind, name[n:]
		}
	}
	return "", ""
}

// Start is the start of the recorder that goes on over restarts.
type Start struct {
	Since    int64  // when it began, ns since 1970: it names the start
	Identity string // of its log
	LastEnd  string // how the start before it had ended
	Dir      string // of its log: an absolute path
	Formats  string // of what lies in shared memory: a recorder with others cannot go on with that
}

// Closed is how many frames of a source the log has stored whose spools were given back. The sheets
// have them, too, and may go with the folder of the log.
type Closed struct {
	Since  int64             // of the start
	Parts  uint64            // the last part of the start, as the history numbers them, that is in Frames
	Frames uint64            // of books that are closed
	Open   map[uint64]uint64 // of those of peers that made room, in books of the source, by their number
	Books  []uint64          // of what was closed last: its spool may be there yet
}

// Kind is what the device of a source is.
type Kind string

// The kinds.
const (
	Serial    Kind = "serial"
	Datagrams Kind = "udp"
	Dialled   Kind = "dial"   // a device that listens
	First     Kind = "first"  // one that connects: the first connection is read to its end
	Newest    Kind = "newest" // … or until a newer one takes over
	Given     Kind = "given"  // connections that the recorder has taken, one behind the other
)

// Lane is what the reader needs to know of a source.
type Lane struct {
	Source   json.RawMessage // as the recorder records it; the reader does not look at it
	Book     uint64          // number of its books
	Kind     Kind
	Port     string // path or identity of a serial port; host:port of any other
	Line     serial.Config
	Silence  time.Duration // see reader.Port
	Patience time.Duration
	GiveUp   *time.Time // the reader is to read what there is, until then at most, and to end the spool
	// … of a peer that makes room for another: its source stays. The reader does not look at it
	MakesRoom bool `json:",omitempty"`
	// up to when what came was taken, in ns since 1970, of a source that a recorder has stopped; 0:
	// none has. The reader does not look at it
	ReadTo int64  `json:",omitempty"`
	Spill  *Spill `json:",omitempty"` // what a full spool runs over into; nil: nothing
}

// Spill is a file that a full spool runs over into.
type Spill struct {
	Dir     string
	Max     int64 // bytes of the file
	Reserve int64 // of the disk, that are to stay free
}

// Port is what the reader tells of a source's device.
type Port struct {
	Path     string            // where it was opened last; the peer of a connection
	Identity string            // … and what it was, by which it is found under another name
	Accepted map[string]string // optional settings and what became of them
	Begin    uint64            // the offset on the wire of its first byte, of a connection
	Why      string            // what keeps it from being open; "": it is open
	Refused  bool              // the reader cannot take the source at all, and why
	// Ended is the number of the books of a source that is read no more, while its spool is too
	// full to say so; 0: it can.
	Ended uint64
	// Lost is how many bytes were discarded since the source with the books LostOf was to be read
	// no more, by marks that the spool may not show; of so many more as Unmarked there is none yet.
	Lost, LostOf, Unmarked uint64
}

// Process is one of the three, as the status shows it.
type Process struct {
	Role     Role      `json:"role"`
	PID      int       `json:"pid"` // 0: it is about to be started again
	Since    time.Time `json:"since"`
	Restarts int       `json:"restarts"`       // of crashes
	Cell     *Kept     `json:"cell,omitempty"` // of a reader that keeps time; the recorder adds it
}
