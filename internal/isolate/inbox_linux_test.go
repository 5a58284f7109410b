package isolate

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strconv"
	"testing"

	"github.com/tallywheel/tallywheel/ipc"
)

// both is a keeper and the links of its two children, which have the shelf. end closes all, and
// gives what the keeper has said.
func both(t *testing.T) (links map[Role]*Link, end func() string) {
	t.Helper()
	var journal syncBuffer
	k := newKeeper(Keeping{Log: slog.New(slog.NewTextHandler(&journal, nil))})
	links = map[Role]*Link{}
	var conns []*ipc.Conn
	for _, role := range []Role{Reader, Recorder} {
		ours, conn := linkPair(t)
		conns = append(conns, conn)
		c := &child{Process: Process{Role: role}, process: &os.Process{}, conn: ours, heard: make(chan struct{})}
		k.children[role] = c
		if err := k.tell(c, nil, message{Op: opReady}); err != nil {
			t.Fatal(err)
		}
		links[role] = newLink(conn)
		if _, err := links[role].Shelf(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range k.children {
		go k.listen(c, c.conn)
	}
	return links, func() string {
		for _, c := range conns {
			_ = c.Close()
		}
		for _, c := range k.children {
			<-c.heard
			_ = c.conn.Close()
		}
		return journal.String()
	}
}

// Both children put far more than a socket holds, and follow the link only once they have: one on
// the goroutine that follows it, as what it hears asks for it, or before it follows at all. All
// comes through, in its order, and the keeper takes neither for dead.
func TestWhoPutsMuchStillReceives(t *testing.T) {
	const many = 3000
	puts := func(link *Link, name string) error {
		for n := range many {
			if err := link.Put(name+strconv.Itoa(n%7), n); err != nil {
				return err
			}
		}
		return nil
	}
	for _, before := range []bool{true, false} {
		t.Run("before it follows: "+strconv.FormatBool(before), func(t *testing.T) {
			links, end := both(t)
			all, ends := errors.New("all is heard"), make(chan error, len(links))
			for role, link := range links {
				go func() {
					next, put := 0, before
					if before {
						if err := puts(link, string(role)); err != nil {
							ends <- err
							return
						}
					}
					_, err := link.Follow(func(e Entry) error {
						if !put {
							put = true
							if err := puts(link, string(role)); err != nil {
								return err
							}
						}
						if e.Name == "begin" {
							return nil
						}
						var n int
						if err := json.Unmarshal(e.Data, &n); err != nil || n != next {
							t.Errorf("%s hears %s: %d, want %d: %v", role, e.Name, n, next, err)
						}
						if next++; next == many {
							return all
						}
						return nil
					}, func([]Process) {})
					ends <- err
				}()
			}
			if !before {
				if err := links[Recorder].Put("begin", nil); err != nil {
					t.Fatal(err)
				}
			}
			for range links {
				if err := <-ends; !errors.Is(err, all) {
					t.Errorf("it ends by: %v", err)
				}
			}
			if said := end(); said != "" {
				t.Errorf("the keeper says %s", said)
			}
		})
	}
}
