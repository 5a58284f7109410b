package isolate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/tallywheel/tallywheel/ipc"
)

// The door is a Unix socket beside the log, at which the keeper listens: whoever connects asks for
// an upgrade, and hears what becomes of it. Its file is of the user's alone, and of root.

// upgradeWithin is how long an upgrade may take, with one that is under way before it.
const upgradeWithin = 3 * time.Minute

// openDoor listens at a path, which a recorder has put on the shelf. That has the lock of the log
// beside it, so what lies there is of a keeper that was killed. mu is held.
func (k *keeper) openDoor(data json.RawMessage) {
	var path string
	if json.Unmarshal(data, &path) != nil || k.door != nil && k.door.Addr() == path || path == k.doorAt {
		return
	}
	if k.door != nil {
		_ = k.door.Close()
		k.door = nil
	}
	k.tryDoor(path, 0)
}

// tryDoor opens the door. Where the keeper lacks what it needs, as descriptors, that is tried
// again, less and less often, until there is another door, or the keeper ends. wait is how long the
// last try waited; 0: this is the first. mu is held.
func (k *keeper) tryDoor(path string, wait time.Duration) {
	k.doorAt = ""
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() == os.ModeSocket {
		_ = os.Remove(path)
	}
	door, err := ipc.Listen(path, ipc.ConnConfig{})
	if passes(err) {
		if wait == 0 {
			k.Log.Warn("`tallywheel upgrade` does not find this keeper yet, which tries again; SIGUSR2 asks it, too", "error", err)
		}
		wait = max(firstRetry, min(2*wait, lastKnock))
		k.doorAt = path
		time.AfterFunc(wait, func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			if k.doorAt == path {
				k.tryDoor(path, wait)
			}
		})
		return
	}
	if err != nil {
		k.Log.Warn("`tallywheel upgrade` will not find this keeper: send it SIGUSR2 instead", "error", err)
		return
	}
	k.door = door
	go k.answerDoor(door)
}

// lastKnock is how long at most is waited before the next try to hear who is at the door.
const lastKnock = time.Second

// answerDoor hears who is at the door, in a goroutine of its own, until that is closed. Whoever
// cannot be heard now, as where there are no descriptors, waits there.
func (k *keeper) answerDoor(door *ipc.Listener) {
	var wait time.Duration // 0: the last one was heard
	for {
		c, err := door.Accept()
		switch {
		case err == nil:
			wait = 0
			k.want(Renewal{Upgrade: true, Why: "upgrade"}, c)
		case errors.Is(err, ipc.ErrRefused):
		case errors.Is(err, net.ErrClosed):
			return
		default:
			if wait == 0 {
				k.Log.Warn("the keeper cannot hear who asks for an upgrade, and tries again", "error", err)
			}
			wait = max(firstRetry, min(2*wait, lastKnock))
			time.Sleep(wait)
		}
	}
}

// IsKept reports whether a keeper listens at a path. It asks for nothing: a stream is of another
// kind than the door, so the kernel refuses it, and says something else where nobody listens.
func IsKept(path string) bool {
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.EPROTOTYPE)
}

// answer tells somebody at the door how it went; "": well.
func answer(c *ipc.Conn, result string) {
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	if b, err := json.Marshal(result); err == nil {
		_ = c.Send(ipc.Message{Data: b}) // an error: it has not waited
	}
	_ = c.Close()
}

// Upgrade asks the keeper that listens at a path for an upgrade, and returns once that is over.
func Upgrade(ctx context.Context, path string) error {
	c, err := ipc.Dial(ctx, path, ipc.ConnConfig{})
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })()
	_ = c.SetReadDeadline(time.Now().Add(upgradeWithin))
	m, err := c.Receive()
	var result string
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.EOF):
		return errors.New("the keeper has ended")
	case err != nil:
		return fmt.Errorf("the keeper does not answer: %w", err)
	}
	if err := json.Unmarshal(m.Data, &result); err != nil {
		return fmt.Errorf("an answer that cannot be read: %w", err)
	}
	if result != "" {
		return errors.New(result)
	}
	return nil
}
