package recorder

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/tallywheel/tallywheel/config"
)

// tableWrites tells how often the table of streams in dir was written since it was asked last.
func tableWrites(t *testing.T, dir string) func() int {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	// With the creations in between, for the kernel makes one event of two that are the same.
	if _, err := syscall.InotifyAddWatch(fd, dir, syscall.IN_CREATE|syscall.IN_MOVED_TO); err != nil {
		t.Fatal(err)
	}
	return func() (n int) {
		b := make([]byte, 64<<10)
		for {
			got, err := syscall.Read(fd, b)
			if err != nil { // none is left
				return n
			}
			n += strings.Count(string(b[:got]), "streams.json\x00")
		}
	}
}

// A start, a reload and a stop with many new names write the table of streams once, not once for
// each.
func TestManyNewNamesAreWrittenOnce(t *testing.T) {
	dir := t.TempDir()
	writes := tableWrites(t, dir)
	sources := func(n int) (list []config.Source) {
		for i := range n {
			s := tcp(fmt.Sprintf("s%d", i))
			s.Quarantine = true
			list = append(list, s)
		}
		return append(list, all("p", 64))
	}
	g := start(t, dir, nil, sources(5)...)
	if n := writes(); n != 1 {
		t.Errorf("a start has written it %d times", n)
	}
	reloaded(t, g, sources(10)...)
	if n := writes(); n != 1 {
		t.Errorf("a reload has written it %d times", n)
	}
	var p *port
	for _, q := range g.sources() {
		if q.hub != nil {
			p = q
		}
	}
	addr := address(g, "p")
	p.hub.making.Lock() // the first has to wait for its books, and all others for the first
	for n := 1; n <= 20; n++ {
		c := dialFrom(t, n, addr)
		write(t, c, of(uint32(n), 0, 1))
		c.Close()
	}
	stopping, cancel := make(chan bool), p.cancel
	p.cancel = func() { cancel(); close(stopping) }
	go func() { // the first has its books once the source is to stop
		<-stopping
		p.hub.making.Unlock()
	}()
	if f, _, _ := total(t, stop(t, g), "p"); f.Durable != 20 {
		t.Errorf("%d frames of 20 are durable", f.Durable)
	}
	if n := writes(); n > 2 {
		t.Errorf("a stop has written it %d times for 20 addresses", n)
	}
}
