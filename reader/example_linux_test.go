package reader_test

import (
	"fmt"
	"syscall"

	"github.com/tallywheel/tallywheel/reader"
)

// lines prints whole lines and holds the rest.
type lines struct{ done chan error }

func (l lines) Arrived(view []byte, _ int, _ int64) (done int, more bool) {
	for i, c := range view {
		if c == '\n' {
			fmt.Printf("%s\n", view[done:i])
			done = i + 1
		}
	}
	return done, true
}

func (l lines) Silent([]byte, int64) int { return 0 }

func (l lines) Closed(view []byte, _ int64, err error) {
	fmt.Printf("%d bytes held at the end\n", len(view))
	l.done <- err
}

func Example() {
	r, err := reader.New(reader.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()

	p := make([]int, 2) // usually the descriptor of a serial.Port
	if err := syscall.Pipe2(p, syscall.O_NONBLOCK|syscall.O_CLOEXEC); err != nil {
		fmt.Println(err)
		return
	}
	h := lines{make(chan error, 1)}
	if _, err := r.Add(reader.Port{FD: p[0], Handler: h}); err != nil {
		fmt.Println(err)
		return
	}
	_, _ = syscall.Write(p[1], []byte("20.5\n20.7\n20"))
	syscall.Close(p[1])
	fmt.Println(<-h.done)
	syscall.Close(p[0])
	// Output:
	// 20.5
	// 20.7
	// 2 bytes held at the end
	// EOF
}
