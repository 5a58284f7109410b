package lab

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// keeper runs a program and what that starts, in a process group of their own, and kills the group
// when its descriptor 3 ends. A second shell waits for that; it ends with the first, or by the
// descriptor's end.
const keeper = `( read -r _ <&3; kill -9 -$$ ) >/dev/null 2>&1 </dev/null &
exec 3<&-
"$@" </dev/null`

// kept runs a program that starts others, as a compiler does, until it ends. None of them
// outlives ctx, or the laboratory, however that ends: with it ends the pipe that the keeper reads.
// The output is that on both its streams.
func kept(ctx context.Context, dir string, env []string, argv ...string) (out []byte, err error) {
	r, w, err := os.Pipe() // closed in programs that are started: no other of ours keeps it open
	if err != nil {
		return nil, err
	}
	defer w.Close()
	c := exec.CommandContext(ctx, "sh", append([]string{"-c", keeper, "sh"}, argv...)...)
	c.Dir, c.Env, c.ExtraFiles = dir, env, []*os.File{r}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = time.Second
	var said bytes.Buffer
	c.Stdout, c.Stderr = &said, &said
	if err := errors.Join(c.Start(), r.Close()); err != nil {
		return nil, err
	}
	err = c.Wait()
	return said.Bytes(), err
}
