package uring_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tallywheel/tallywheel/uring"
	"golang.org/x/sys/unix"
)

// TestBehaviours holds this package and the kernel to what liburing's own tests hold them to
// (github.com/axboe/liburing, test/), written anew. The name of each is that of the file there.
// What those test of cancelled reads, overflow, threads that end, drains, polled completion, zero
// copy, splice, multishot and registered things stands with the rest of our tests.
func TestBehaviours(t *testing.T) {
	all := map[string]func(t *testing.T, r *uring.Ring){}
	for _, part := range []map[string]func(t *testing.T,
		r *uring.Ring){behavioursOfFiles, behavioursOfSockets, behavioursOfRings} {
		for name, f := range part {
			all[name] = f
		}
	}
	if len(all) < 33 {
		t.Errorf("%d behaviours", len(all))
	}
	kinds(t, func(t *testing.T, cfg uring.Config) {
		for name, f := range all {
			t.Run(name, func(t *testing.T) { f(t, open(t, cfg)) })
		}
	})
}

// gives runs one operation and expects a result of it.
func gives(t *testing.T, r *uring.Ring, op *uring.Op, want int) {
	t.Helper()
	do(t, r, op)
	is(t, op, want)
}

// refuses runs one operation and expects an error of it.
func refuses(t *testing.T, r *uring.Ring, op *uring.Op, want unix.Errno) {
	t.Helper()
	do(t, r, op)
	fails(t, op, want)
}

// chain runs operations one after the other; each completes once.
func chain(t *testing.T, r *uring.Ring, ops ...*uring.Op) {
	t.Helper()
	if err := r.Chain(ops...); err != nil {
		t.Fatal(err)
	}
	reap(t, r, len(ops))
}

func some(n int) *uring.Buffer { return uring.Wrap(make([]byte, n)) }

var behavioursOfFiles = map[string]func(t *testing.T, r *uring.Ring){
	"fallocate": func(t *testing.T, r *uring.Ring) {
		f, path := temp(t)
		gives(t, r, new(uring.Op).Fallocate(f, 0, 0, 10_000), 0)
		if st, err := os.Stat(path); err != nil || st.Size() != 10_000 {
			t.Errorf("%v, %v", st.Size(), err)
		}
		gives(t, r, new(uring.Op).Fallocate(f, unix.FALLOC_FL_KEEP_SIZE, 0, 20_000), 0)
		if st, err := os.Stat(path); err != nil || st.Size() != 10_000 {
			t.Errorf("kept: %v, %v", st.Size(), err)
		}
		refuses(t, r, new(uring.Op).Fallocate(f, 0, 0, 0), unix.EINVAL)
	},
	"fpos": func(t *testing.T, r *uring.Ring) { // reads at the file's own position move it, one after the other
		f, _ := temp(t)
		gives(t, r, new(uring.Op).Write(f, uring.Wrap([]byte("abcdef")), 0), 6)
		var ops [3]uring.Op
		bufs := [3]*uring.Buffer{some(2), some(2), some(2)}
		for i := range ops {
			ops[i].Read(f, bufs[i], uring.Current)
		}
		chain(t, r, &ops[0], &ops[1], &ops[2])
		if got := string(bufs[0].Bytes()) + string(bufs[1].Bytes()) + string(bufs[2].Bytes()); got != "abcdef" {
			t.Errorf("%q", got)
		}
		gives(t, r, ops[0].Read(f, bufs[0], uring.Current), 0)
		gives(t, r, ops[0].Read(f, bufs[0], 1), 2) // which does not
		gives(t, r, ops[1].Read(f, bufs[1], uring.Current), 0)
	},
	"fsync": func(t *testing.T, r *uring.Ring) {
		f, _ := temp(t)
		in, _ := pipe(t)
		gives(t, r, new(uring.Op).Fsync(f, false), 0)
		gives(t, r, new(uring.Op).Fsync(f, true), 0)
		refuses(t, r, new(uring.Op).Fsync(in, true), unix.EINVAL)
	},
	"file-register": func(t *testing.T, r *uring.Ring) { // a table that is full says so, and has room again
		have(t, uring.DirectDescriptors)
		var files [2]*uring.File
		open := new(uring.Op)
		ordinary, _ := pipe(t)
		refuses(t, r, open.Open("/dev/null", os.O_RDONLY, 0).Direct(), unix.ENFILE) // no table is a full one
		refuses(t, r, new(uring.Op).Install(ordinary), unix.ENXIO)
		if err := r.RegisterFiles(2); err != nil {
			t.Fatal(err)
		}
		for i := range files {
			do(t, r, open.Open("/dev/null", os.O_RDONLY, 0).Direct())
			f, err := open.NewFile(r)
			if err != nil {
				t.Fatal(err)
			}
			files[i] = f
		}
		refuses(t, r, open.Open("/dev/null", os.O_RDONLY, 0).Direct(), unix.ENFILE)
		gives(t, r, new(uring.Op).CloseFile(files[0]), 0)
		do(t, r, open.Open("/dev/zero", os.O_RDONLY, 0).Direct())
		f, err := open.NewFile(r)
		if err != nil {
			t.Fatal(err)
		}
		gives(t, r, new(uring.Op).Read(f, some(10), uring.Current), 10)
		if err := errors.Join(f.Close(), files[1].Close()); err != nil {
			t.Error(err)
		}
	},
	"ooo-file-unreg": func(t *testing.T, r *uring.Ring) { // a slot with an operation in flight stays
		have(t, uring.DirectDescriptors)
		if err := r.RegisterFiles(1); err != nil {
			t.Fatal(err)
		}
		in, out := pipe(t)
		var install, read uring.Op
		do(t, r, install.Install(in))
		f, err := install.NewFile(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.Push(read.Read(f, some(5), uring.Current)), r.Submit()); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); !errors.Is(err, uring.ErrBusy) {
			t.Error(err)
		}
		if err := r.Push(new(uring.Op).CloseFile(f)); !errors.Is(err, uring.ErrBusy) {
			t.Error(err)
		}
		send(t, out, "hello")
		reap(t, r, 1)
		is(t, &read, 5)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	},
	"rename": func(t *testing.T, r *uring.Ring) {
		needs(t, uring.OpRenameAt)
		dir := t.TempDir()
		one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
		for _, path := range []string{one, two} {
			if err := os.WriteFile(path, []byte(path), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		gives(t, r, new(uring.Op).Rename(one, two), 0)
		if b, err := os.ReadFile(two); string(b) != one || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		refuses(t, r, new(uring.Op).Rename(one, two), unix.ENOENT)
		refuses(t, r, new(uring.Op).Rename(two, t.TempDir()), unix.EISDIR)
	},
	"lfs-openat": func(t *testing.T, r *uring.Ring) { // offsets beyond 4 GiB
		f, path := temp(t)
		const far = 5 << 30
		gives(t, r, new(uring.Op).Write(f, uring.Wrap([]byte("far")), far), 3)
		var open uring.Op
		do(t, r, open.Open(path, os.O_RDONLY, 0))
		g, err := open.NewFile(nil)
		if err != nil {
			t.Fatal(err)
		}
		b := some(5)
		gives(t, r, new(uring.Op).Read(g, b, far-2), 5)
		if string(b.Bytes()) != "\x00\x00far" {
			t.Errorf("%q", b.Bytes())
		}
		gives(t, r, new(uring.Op).CloseFile(g), 0)
	},
	// a read that waits, and the end of another file behind it
	"linked-defer-close": func(t *testing.T, r *uring.Ring) {
		in, out := pipe(t)
		f, _ := temp(t)
		fd := f.FD()
		var read, end uring.Op
		if err := errors.Join(r.Chain(read.Read(in, some(3), uring.Current), end.CloseFile(f)),
			r.Submit()); err != nil {
			t.Fatal(err)
		}
		if !isOpen(fd) {
			t.Error("closed before its time")
		}
		send(t, out, "abc")
		reap(t, r, 2)
		is(t, &read, 3)
		is(t, &end, 0)
		if isOpen(fd) {
			t.Error("open")
		}
	},
	"open-close": func(t *testing.T, r *uring.Ring) {
		dir := t.TempDir()
		path := filepath.Join(dir, "file")
		open := new(uring.Op)
		refuses(t, r, open.Open(path, os.O_RDWR, 0), unix.ENOENT)
		refuses(t, r, open.Open(dir, os.O_WRONLY, 0), unix.EISDIR)
		do(t, r, open.Open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640))
		f, err := open.NewFile(nil)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o640 {
			t.Errorf("%v, %v", st.Mode(), err)
		}
		refuses(t, r, open.Open(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640), unix.EEXIST)
		gives(t, r, new(uring.Op).CloseFile(f), 0)
		if err := r.Push(new(uring.Op).CloseFile(f)); !errors.Is(err, uring.ErrClosed) {
			t.Errorf("closed twice: %v", err)
		}
	},
	"short-read": func(t *testing.T, r *uring.Ring) {
		f, _ := temp(t)
		gives(t, r, new(uring.Op).Write(f, some(1000), 0), 1000)
		gives(t, r, new(uring.Op).Read(f, some(800), 600), 400)
		gives(t, r, new(uring.Op).Read(f, some(800), 1000), 0)
		gives(t, r, new(uring.Op).Readv(f, 600, some(300), some(300)), 400)
	},
	"statx": func(t *testing.T, r *uring.Ring) {
		f, path := temp(t)
		gives(t, r, new(uring.Op).Write(f, some(1234), 0), 1234)
		op := new(uring.Op)
		gives(t, r, op.Statx(path), 0)
		st, err := os.Stat(path)
		if got := op.Stat(); err != nil || got.Size != 1234 || got.Mode != st.Mode() ||
			!got.ModTime.Equal(st.ModTime()) || got.Links != 1 {
			t.Errorf("%+v, want %+v", got, st)
		}
		refuses(t, r, op.Statx(path+".none"), unix.ENOENT)
	},
	"submit-reuse": func(t *testing.T, r *uring.Ring) { // what an operation points to lives, whoever forgets it
		dir := t.TempDir()
		open := new(uring.Op)
		if err := r.Push(open.Open(strings.Clone(filepath.Join(dir, "new")), os.O_CREATE|os.O_RDWR,
			0o600)); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			runtime.GC()
			_ = make([]byte, 64<<10)
		}
		reap(t, r, 1)
		f, err := open.NewFile(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "new")); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	},
	// a file that is appended to, lengths of 0, and files for one way only
	"read-write": func(t *testing.T, r *uring.Ring) {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte("first"), 0o600); err != nil {
			t.Fatal(err)
		}
		var open [2]uring.Op
		var f [2]*uring.File
		for i, flags := range []int{os.O_WRONLY | os.O_APPEND, os.O_RDONLY} {
			do(t, r, open[i].Open(path, flags, 0))
			var err error
			if f[i], err = open[i].NewFile(nil); err != nil {
				t.Fatal(err)
			}
			defer f[i].Close()
		}
		gives(t, r, new(uring.Op).Write(f[0], uring.Wrap([]byte("last")), 0), 4)
		gives(t, r, new(uring.Op).Write(f[0], some(0), 0), 0)
		gives(t, r, new(uring.Op).Read(f[1], some(0), 0), 0)
		gives(t, r, new(uring.Op).Readv(f[1], 0, some(0), some(3), some(0)), 3)
		refuses(t, r, new(uring.Op).Read(f[0], some(1), 0), unix.EBADF)
		refuses(t, r, new(uring.Op).Write(f[1], some(1), 0), unix.EBADF)
		if b, err := os.ReadFile(path); string(b) != "firstlast" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	},
	"pipe-eof": func(t *testing.T, r *uring.Ring) { // the writer goes while a read waits
		in, out := pipe(t)
		var read uring.Op
		if err := errors.Join(r.Push(read.Read(in, some(10), uring.Current)), r.Submit(), out.Close()); err != nil {
			t.Fatal(err)
		}
		reap(t, r, 1)
		is(t, &read, 0)
	},
	"pipe-reuse": func(t *testing.T, r *uring.Ring) {
		in, out := pipe(t)
		b, op := some(7), new(uring.Op)
		for i := range 50 {
			want := strings.Repeat(string(rune('a'+i%26)), 1+i%7)
			send(t, out, want)
			gives(t, r, op.Read(in, b, uring.Current), len(want))
			if got := string(b.Bytes()[:len(want)]); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
	},
	"eventfd": func(t *testing.T, r *uring.Ring) {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		f := uring.NewFile(fd)
		defer f.Close()
		b, read := some(8), new(uring.Op)
		if err := errors.Join(r.Push(read.Read(f, b, uring.Current)), r.Submit()); err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(fd, []byte{1, 2, 0, 0, 0, 0, 0, 0}); err != nil {
			t.Fatal(err)
		}
		reap(t, r, 1)
		if is(t, read, 8); !bytes.Equal(b.Bytes(), []byte{1, 2, 0, 0, 0, 0, 0, 0}) {
			t.Errorf("%x", b.Bytes())
		}
		refuses(t, r, new(uring.Op).Write(f, uring.Wrap(bytes.Repeat([]byte{255}, 8)), uring.Current), unix.EINVAL)
	},
}
