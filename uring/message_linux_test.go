package uring_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/tallywheel/tallywheel/uring"
	"golang.org/x/sys/unix"
)

// TestRecvMsgEach: each datagram with its sender, its control data, and what of them did not fit.
func TestRecvMsgEach(t *testing.T) {
	have(t, uring.MultishotMessages)
	kinds(t, func(t *testing.T, cfg uring.Config) {
		r := open(t, cfg)
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		f, err := uring.FileOf(conn)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.SetsockoptInt(f.FD(), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
			t.Fatal(err)
		}
		g, err := r.NewBufferRing(8, 256, false)
		if err != nil {
			t.Fatal(err)
		}
		client, err := net.Dial("udp4", conn.LocalAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		const control = 32 // one timestamp: a header of 16 bytes, and 16
		var op uring.Op
		if err := r.Push(op.RecvMsgEach(f, control, g)); err != nil {
			t.Fatal(err)
		}
		const room = 256 - 16 - unix.SizeofSockaddrInet6 - control
		for i, n := range []int{1, 10, room, room + 1, 1000, 2, 3, 4, 5, 6, 7} {
			sent := bytes.Repeat([]byte{byte(i + 1)}, n)
			if _, err := client.Write(sent); err != nil {
				t.Fatal(err)
			}
			reap(t, r, 1)
			m, ok := op.PickedMessage()
			if !ok || !bytes.Equal(m.Bytes, sent[:min(n, room)]) || m.Truncated != (n > room) || m.ControlTruncated {
				t.Fatalf("a datagram of %d: %v, %d bytes, truncated %v %v; result %d", n, ok, len(m.Bytes), m.Truncated,
					m.ControlTruncated, op.Res)
			}
			if m.From.String() != client.LocalAddr().String() {
				t.Errorf("from %v, want %v", m.From, client.LocalAddr())
			}
			all, err := unix.ParseSocketControlMessage(m.Control)
			if err != nil || len(all) != 1 || all[0].Header.Type != unix.SO_TIMESTAMPNS {
				t.Errorf("control data %x: %v", m.Control, err)
			}
			if _, again := op.PickedMessage(); again || !op.More() {
				t.Errorf("picked twice: %v; goes on: %v", again, op.More())
			}
			if i%2 == 0 { // the others go back by themselves
				m.Give()
			}
		}
		do2(t, r, &op, new(uring.Op).Cancel(&op))
	})
}

func TestRecvMsgEachRefuses(t *testing.T) {
	have(t, uring.MultishotMessages)
	r := open(t, uring.Config{})
	a, _ := socketsOf(t, unix.SOCK_DGRAM)
	small, err := r.NewBufferRing(2, 44, false)
	if err != nil {
		t.Fatal(err)
	}
	large, err := r.NewBufferRing(2, 4096, false)
	if err != nil {
		t.Fatal(err)
	}
	inc, err := r.NewBufferRing(2, 4096, true)
	if err != nil {
		t.Fatal(err)
	}
	for name, op := range map[string]*uring.Op{
		"no room":             new(uring.Op).RecvMsgEach(a, 0, small),
		"no room for control": new(uring.Op).RecvMsgEach(a, 4096, large),
		"negative":            new(uring.Op).RecvMsgEach(a, -1, large),
		"no stock":            new(uring.Op).RecvMsgEach(a, 0, nil),
		"no file":             new(uring.Op).RecvMsgEach(nil, 0, large),
	} {
		if err := r.Push(op); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if inc.Incremental() {
		if err := r.Push(new(uring.Op).RecvMsgEach(a, 0, inc)); err == nil {
			t.Error("an incremental stock: taken")
		}
		if err := r.Push(new(uring.Op).RecvFrom(a, inc).Bundle()); err == nil {
			t.Error("a bundle of an incremental stock: taken")
		}
	}
	panics(t, "a bundle of what is none", func() { new(uring.Op).Nop().Bundle() })
	if _, ok := new(uring.Op).PickedMessage(); ok {
		t.Error("a message of a nop")
	}
}

// TestBundle: one completion brings several buffers, in the order in which they stand in the stock,
// whatever the order in which they were given back.
func TestBundle(t *testing.T) {
	have(t, uring.ReceiveBundles)
	for _, each := range []bool{false, true} {
		t.Run(fmt.Sprint("each=", each), func(t *testing.T) {
			kinds(t, func(t *testing.T, cfg uring.Config) {
				r := open(t, cfg)
				a, b := sockets(t)
				g, err := r.NewBufferRing(8, 16, false)
				if err != nil {
					t.Fatal(err)
				}
				var op uring.Op
				next, came, most := byte(0), byte(0), 0
				var kept []uring.Piece
				for round, n := range []int{1, 16, 17, 100, 64, 3, 128, 33, 128, 5, 90} {
					sent := make([]byte, n)
					for i := range sent {
						sent[i], next = next, next+1
					}
					send(t, b, string(sent))
					for left := n; left > 0; {
						if !op.InFlight() {
							if op.RecvFrom(a, g).Bundle(); each {
								op.RecvEach(a, g).Bundle()
							}
							if err := r.Push(&op); err != nil {
								t.Fatal(err)
							}
						}
						if err := r.WaitFor(1, time.Minute); err != nil {
							t.Fatal(err)
						}
						if r.Next(); errors.Is(op.Err(), unix.ENOBUFS) {
							continue
						}
						pieces := 0
						for p, ok := op.Picked(); ok; p, ok = op.Picked() {
							for _, c := range p.Bytes {
								if c != came {
									t.Fatalf("byte %d, want %d", c, came)
								}
								came++
							}
							left -= len(p.Bytes)
							kept = append(kept, p)
							pieces++
						}
						most = max(most, pieces)
						if left < 0 || pieces == 0 {
							t.Fatalf("%d bytes too many, or nothing came: %d", -left, op.Res)
						}
						if want := g.Free() + len(kept); want != 8 {
							t.Fatalf("%d are free and %d kept, of 8", g.Free(), len(kept))
						}
						for i := range kept { // to and fro
							if round%2 == 0 {
								i = len(kept) - 1 - i
							}
							kept[i].Give()
						}
						kept = kept[:0]
					}
				}
				if most < 4 {
					t.Errorf("at most %d buffers came at a time", most)
				}
				send(t, b, "of which nobody asks: two of three buffers")
				if !op.InFlight() {
					if err := r.Push(op.RecvFrom(a, g).Bundle()); err != nil {
						t.Fatal(err)
					}
				}
				reap(t, r, 1)
				first, _ := op.Picked()
				if first.Give(); op.InFlight() {
					do2(t, r, &op, new(uring.Op).Cancel(&op))
				}
				if op.Reset(); g.Free() != 8 {
					t.Errorf("%d of 8 are free", g.Free())
				}
			})
		})
	}
}
