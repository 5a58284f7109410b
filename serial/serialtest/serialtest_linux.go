// Package serialtest makes serial ports out of pseudo-terminals, and devices behind them that
// misbehave on purpose.
//
// A [Port] is a link to the slave of a pty. It can vanish, as an adapter that is unplugged, and
// come back under another name behind the same link. A [Device] sends numbered frames through it at
// a rate and does them harm by a seeded plan: it drops, repeats, damages and reorders frames,
// stalls, sends in bursts, and unplugs the port. It keeps the [Truth] of all it did, so that a
// receiver's books can be checked against it.
//
// A pty has no line errors and carries any rate; it holds about 20 KiB and then takes no more. What
// a device cannot hand over at once waits in the device: that is its own delay, never a loss.
package serialtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// Port is a virtual serial port at the path of its link.
type Port struct {
	Link string

	master int // -1 while unplugged
	keeper int // the slave, held open so that bytes outlive a reader that goes away
}

// NewPort makes a port whose link is the given path; the directory must exist.
func NewPort(link string) (*Port, error) {
	p := &Port{Link: link, master: -1, keeper: -1}
	return p, p.Plug()
}

// Plug makes the port be there, under a new device name.
func (p *Port) Plug() error {
	if p.master >= 0 {
		return nil
	}
	master, slave, err := sys.OpenPTY()
	if err != nil {
		return err
	}
	keeper, err := sys.OpenTTY(slave)
	if err != nil {
		return errors.Join(err, sys.CloseFD(master))
	}
	t, err := sys.GetTermios(keeper)
	if err == nil {
		sys.SetLine(t, sys.Line{Baud: 115200, DataBits: 8})
		err = sys.SetTermios(keeper, t)
	}
	if err == nil {
		next := filepath.Join(filepath.Dir(p.Link), fmt.Sprintf(".%s.%d", filepath.Base(p.Link), os.Getpid()))
		_ = os.Remove(next) // left by a process of the same number that was killed
		if err = os.Symlink(slave, next); err == nil {
			err = os.Rename(next, p.Link)
		}
	}
	if err != nil {
		return errors.Join(err, sys.CloseFD(keeper), sys.CloseFD(master))
	}
	p.master, p.keeper = master, keeper
	return nil
}

// Write hands over what the pty takes, which may be nothing.
func (p *Port) Write(b []byte) (int, error) {
	if p.master < 0 {
		return 0, fmt.Errorf("write %s: unplugged", p.Link)
	}
	return sys.Write(p.master, b)
}

// drained reports whether all bytes that could be read have been. Bytes move from the pty's buffer
// to where they are read in the background, and the count of bytes ready to be read does not know
// those on their way; poll(2) waits for that move before it answers. It cannot know of a move that
// is not asked for yet: a reader that has just emptied the 4095 bytes of the line discipline asks
// for the next only after it has copied them. See Deliver.
func (p *Port) drained() (bool, error) {
	ready, _, err := sys.PollIn(p.keeper, -1, 0)
	return !ready, err
}

// deliverPieces is more than the times that what a pty holds, 20,480 bytes, fills the line
// discipline.
const deliverPieces = 8

// Deliver hands over b, waits until it and all before it have been read, and reports whether they
// have within timeout. b is handed over in pieces: each makes the kernel move as much as the line
// discipline takes, so that behind the last one nothing is left, whatever a reader was doing when
// [Port.Drain] took it for done.
func (p *Port) Deliver(b []byte, timeout time.Duration) (bool, error) {
	deadline := time.Now().Add(timeout)
	all := p.Drain(timeout)
	for i := range deliverPieces {
		piece := b[i*len(b)/deliverPieces : (i+1)*len(b)/deliverPieces]
		for len(piece) > 0 {
			n, err := p.Write(piece)
			if err != nil {
				return false, err
			}
			if piece = piece[n:]; len(piece) > 0 {
				if time.Now().After(deadline) {
					return false, fmt.Errorf("%s: nobody reads: %d bytes left", p.Link, len(piece))
				}
				time.Sleep(time.Millisecond)
			}
		}
		all = p.Drain(time.Until(deadline)) && all
	}
	return all, nil
}

// Drain waits until no bytes are ready to be read, at most for timeout, and reports whether that
// came. More than 4095 bytes behind, a reader may have a moment in which none are; only Deliver is
// certain.
func (p *Port) Drain(timeout time.Duration) bool { return DrainAll([]*Port{p}, timeout) }

// DrainAll is Drain for many ports at once.
func DrainAll(ports []*Port, timeout time.Duration) bool {
	deadline := time.Now().Add(timeout)
	for _, p := range ports {
		for {
			done, err := p.drained()
			if err != nil || time.Now().After(deadline) {
				return false
			}
			if done {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return true
}

// Unplug makes the port vanish: readers get an error, bytes not read are gone.
func (p *Port) Unplug() error {
	if p.master < 0 {
		return nil
	}
	err := errors.Join(os.Remove(p.Link), sys.CloseFD(p.master), sys.CloseFD(p.keeper))
	p.master, p.keeper = -1, -1
	return err
}

// Close is Unplug.
func (p *Port) Close() error { return p.Unplug() }
