package uring_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"github.com/tallywheel/tallywheel/uring"
)

// Read a file: one operation, pushed, waited for, and looked at.
func Example_readFile() {
	if err := read("doc.go"); err != nil {
		fmt.Println(err)
	}
	// Output: // Package uring is io_uring for Go programs
}

func read(path string) error {
	if uring.Probe().Has(uring.Rings) != nil { // refused here: ordinary calls do the same
		b, err := os.ReadFile(path)
		fmt.Printf("%s\n", b[:44])
		return err
	}
	ring, err := uring.New(uring.Config{Entries: 1})
	if err != nil {
		return err
	}
	defer ring.Close()
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	file, err := uring.FileOf(f)
	if err != nil {
		return err
	}
	defer file.Close()

	buf := uring.Wrap(make([]byte, 44))
	var op uring.Op
	if err := ring.Push(op.Read(file, buf, 0)); err != nil {
		return err
	}
	if err := ring.Wait(1); err != nil {
		return err
	}
	n, err := ring.Next().Result()
	if err != nil {
		return err
	}
	fmt.Printf("%s\n", buf.Bytes()[:n])
	return nil
}

// Copy a file with 8 blocks in flight: a block that has been read is written at the same place, and
// its buffer then reads the next one.
func Example_copyFile() {
	dir, err := os.MkdirTemp("", "uring-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	data := bytes.Repeat([]byte("tallywheel "), 100_000)
	if err := os.WriteFile(from, data, 0o600); err != nil {
		fmt.Println(err)
		return
	}
	if err := copyFile(from, to); err != nil {
		fmt.Println(err)
		return
	}
	got, err := os.ReadFile(to)
	fmt.Println(bytes.Equal(got, data), err)
	// Output: true <nil>
}

func copyFile(from, to string) error {
	const depth, block = 8, 64 << 10
	runtime.LockOSThread() // Config.Locked: this thread alone uses the ring
	defer runtime.UnlockOSThread()
	ring, err := uring.New(uring.Config{Entries: depth, Locked: true})
	if err != nil {
		b, err := os.ReadFile(from) // refused here
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o600)
	}
	defer ring.Shutdown(nil) // after an error, blocks may be in flight
	in, out, size, err := openBoth(from, to)
	if err != nil {
		return err
	}
	arena, err := uring.NewArena(depth, block)
	if err != nil {
		return err
	}
	// Each operation is either reading its block or writing it; Tag is the offset of the block, and
	// done what has been moved.
	ops, done := make([]uring.Op, depth), make([]int, depth)
	next := int64(0)
	read := func(i int) error {
		if next >= size {
			return nil
		}
		ops[i].Read(in, arena.Buffer(i), next).Tag = uint64(next)
		next += block
		return ring.Push(&ops[i])
	}
	for i := range ops {
		if err := read(i); err != nil {
			return err
		}
	}
	for ring.InFlight() > 0 {
		if err := ring.Wait(1); err != nil {
			return err
		}
		for op := ring.Next(); op != nil; op = ring.Next() {
			n, err := op.Result()
			if err != nil {
				return err
			}
			i := 0
			for op != &ops[i] {
				i++
			}
			switch {
			// less than a block: its rest is the next block's affair only at the end of the file
			case op.Code() == uring.OpRead:
				done[i] = n
				op.Write(out, arena.Buffer(i), int64(op.Tag)).Part(0, n)
				err = ring.Push(op)
			case n < done[i]:
				err = io.ErrShortWrite
			default:
				err = read(i)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func openBoth(from, to string) (in, out *uring.File, size int64, err error) {
	f, err := os.Open(from)
	if err != nil {
		return nil, nil, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, nil, 0, err
	}
	g, err := os.Create(to)
	if err != nil {
		return nil, nil, 0, err
	}
	defer g.Close()
	if in, err = uring.FileOf(f); err == nil {
		out, err = uring.FileOf(g)
	}
	return in, out, st.Size(), err
}

// An echo server: one multishot accept, one multishot receive per connection into a shared stock of
// buffers, and sends.
func Example_echoServer() {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ln.Close()
	ended := make(chan error)
	go func() { ended <- echo(ln.(*net.TCPListener), 2) }()
	for _, word := range []string{"hello", "again"} {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Fprint(c, word)
		c.(*net.TCPConn).CloseWrite()
		b, err := io.ReadAll(c)
		fmt.Println(string(b), err)
		c.Close()
	}
	if err := <-ended; err != nil {
		fmt.Println(err)
	}
	// Output:
	// hello <nil>
	// again <nil>
}

// echo serves so many connections.
func echo(ln *net.TCPListener, connections int) error {
	if uring.Probe().Has(uring.MultishotReceive) != nil { // refused here
		for range connections {
			c, err := ln.Accept()
			if err != nil {
				return err
			}
			io.Copy(c, c)
			c.Close()
		}
		return nil
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ring, err := uring.New(uring.Config{Entries: 64, Locked: true})
	if err != nil {
		return err
	}
	defer ring.Shutdown(nil)
	group, err := ring.NewBufferRing(64, 4096, false)
	if err != nil {
		return err
	}
	listener, err := uring.FileOf(ln)
	if err != nil {
		return err
	}
	type conn struct {
		file       *uring.File
		recv, send uring.Op
		out        uring.Buffer
		waiting    []byte // received while a send is in flight
		ended      bool
	}
	conns := map[*uring.Op]*conn{} // by both operations
	var accept uring.Op
	if err := ring.Push(accept.AcceptEach(listener)); err != nil {
		return err
	}
	for connections > 0 {
		if err := ring.Wait(1); err != nil {
			return err
		}
		for op := ring.Next(); op != nil; op = ring.Next() {
			c := conns[op]
			switch {
			case op == &accept:
				f, err := op.NewFile(ring)
				if err != nil {
					return err
				}
				c = &conn{file: f}
				conns[&c.recv], conns[&c.send] = c, c
				c.recv.RecvEach(f, group)
			case op == &c.recv:
				if p, ok := op.Picked(); ok {
					c.waiting = append(c.waiting, p.Bytes...)
					p.Give()
				}
				c.ended = c.ended || op.Res == 0
			}
			if c.waiting != nil && !c.send.InFlight() {
				c.out.Reset(c.waiting)
				c.waiting = nil
				if err := ring.Push(c.send.Send(c.file, &c.out).WaitAll()); err != nil {
					return err
				}
			}
			switch {
			case !c.ended && !c.recv.InFlight(): // at first, and when the stock of buffers had run out
				if err := ring.Push(&c.recv); err != nil {
					return err
				}
			case c.ended && !c.recv.InFlight() && !c.send.InFlight():
				if err := c.file.Close(); err != nil {
					return err
				}
				delete(conns, &c.recv)
				delete(conns, &c.send)
				connections--
			}
		}
	}
	return nil
}
