// Package httpfiles asks what it costs to serve files by HTTP.
package httpfiles

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tallywheel/tallywheel/lab"
	"github.com/tallywheel/tallywheel/lab/bigfile"
	"github.com/tallywheel/tallywheel/lab/load"
	"github.com/tallywheel/tallywheel/lab/servers"
)

var (
	of    = servers.With(servers.File)
	nginx = servers.Nginx(func(b *lab.Bench) string { return "root " + folder(b) + "; sendfile on;" })
)

func init() {
	lab.Register(&lab.Experiment{
		Name: "http-files", Plane: lab.Network,
		Question: "What does it cost to serve a file that is in the page cache?",
		Method: fmt.Sprintf("GET of one file with keep-alive over loopback: by http.ServeFile in ours and net/http, by the file handler of fasthttp, by nginx with sendfile. %d connections for 1 MB and %d for 100 MB, which send again as soon as they are answered. "+
			"Every byte that comes back is compared with the file, on the same CPUs; the CPU time of the server decides. Who sends by sendfile pays for no copy: on loopback the one who receives makes it, from the page cache.", connections(large/100), connections(large)),
		Metrics: []lab.Metric{
			lab.CPUPerOp, lab.MBPerSecond, lab.CPUPerMB, lab.LatencyP50, lab.LatencyP99,
			lab.ContextSwitchesPerOp, lab.RSS,
		},
		Base: of.NetHTTP, Turn: time.Second,
		Cells: func(lab.Options) []lab.Params { return []lab.Params{cell(large / 100), cell(large)} },
		Contestants: []*lab.Contestant{
			of.NetHTTP, of.Auto, of.UringCoroutine, of.UringGoroutine, of.EpollCoroutine,
			of.EpollGoroutine, of.FastHTTP, nginx,
		},
		Prepare: prepare,
		Scene:   scene,
		Advice:  advice,
		Claims:  claims(),
	})
}

const large = 100 << 20

func cell(bytes int) lab.Params { return lab.Params{"bytes": strconv.Itoa(bytes)} }

// connections are fewer where each asks for much: a turn has time for some files only. With fewer
// than these the kernel sends in small pieces, and by sendfile a megabyte costs two to three times
// as much.
func connections(bytes int) int {
	if bytes == large {
		return 8
	}
	return 64
}

func folder(b *lab.Bench) string { return filepath.Join(b.Dir, "files") }

func prepare(ctx context.Context, b *lab.Bench) error {
	dir := folder(b)
	return errors.Join(
		os.Mkdir(dir, 0o755),
		bigfile.Page(ctx, filepath.Join(dir, strconv.Itoa(large/100)), large/100),
		bigfile.Page(ctx, filepath.Join(dir, strconv.Itoa(large)), large),
	)
}

func scene(b *lab.Bench, _ *lab.Contestant, cell lab.Params) (*lab.Scene, error) {
	bytes := cell.Int("bytes")
	s, err := load.HTTP{
		Path: "/" + cell["bytes"], Connections: connections(bytes), Exchanges: load.Answers(bytes),
		Bytes: bytes,
	}.Scene(b)
	if err != nil {
		return nil, err
	}
	s.Params["file"] = filepath.Join(folder(b), cell["bytes"])
	return s, nil
}

var cpu = lab.CPUPerOp

// every is what auto takes for each mode that has http.Handlers, where the kernel has it.
var every = []*lab.Contestant{of.Auto, of.UringCoroutine}

func advice(v lab.View) string {
	said, ok := v.Beside(cell(large), lab.CPUPerMB, "%.3f", 1, of.NetHTTP, every[0], every[1])
	if !ok {
		return ""
	}
	text := fmt.Sprintf("A megabyte of a large file costs %s ms by net/http, %s on goroutines, %s as a coroutine", said...)
	if with, ok := v.Beside(cell(large), lab.CPUPerMB, "%.3f", 1, of.NetHTTP, nginx); ok {
		text += fmt.Sprintf(", %s by nginx", with[1])
	}
	return text + "."
}

func claims() (all []lab.Claim) {
	const why = "By sendfile the pages of the cache are sent as they lie; who reads the file into memory and writes it pays for two copies."
	for _, bytes := range []int{large / 100, large} {
		all = append(all,
			lab.AllAtMost(fmt.Sprintf("http.ServeFile of %d MB costs no more than by net/http, on goroutines and as a coroutine.", bytes>>20), lab.Goal("≤ 1.00×"), every, of.NetHTTP, cell(bytes), cpu, 1, why),
			lab.AllAtMost(fmt.Sprintf("http.ServeFile of %d MB costs at most a fifth more than by nginx, on goroutines and as a coroutine.", bytes>>20), lab.Goal("≤ 1.20×"), every, nginx, cell(bytes), cpu, 1.2, why))
	}
	return all
}
