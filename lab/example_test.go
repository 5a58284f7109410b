package lab_test

import (
	"context"
	"fmt"
	"os"

	"github.com/tallywheel/tallywheel/lab"
)

// An experiment of one's own, with fio and a program that speaks the protocol.
func ExampleBench_Run() {
	fio := lab.FIO("fio/psync", func(b *lab.Bench, cell lab.Params) []string {
		return []string{
			"--filename=x", "--size=64m", "--rw=randread", "--direct=1", "--ioengine=psync",
			"--bs=" + cell["bytes"],
		}
	})
	mine := lab.Tool("./my-reader", "make my-reader").As("mine", "read")
	e := &lab.Experiment{
		Name: "my-disk", Plane: lab.Files, Question: "How fast is my disk?",
		Metrics: []lab.Metric{lab.OpsPerSecond, lab.CPUPerOp}, Base: fio,
		Cells:       func(lab.Options) []lab.Params { return lab.Cells("bytes", 4096, 65536) },
		Contestants: []*lab.Contestant{fio, mine},
	}
	b, err := lab.NewBench(context.Background(), lab.Quick(), os.Stderr)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer b.Close()
	r, err := b.Run(e)
	if err != nil {
		fmt.Println(err)
		return
	}
	v := lab.View{ExperimentResult: &r}
	if ratio, ok := v.Ratio(mine, fio, lab.Params{"bytes": "4096"}, lab.OpsPerSecond); ok {
		fmt.Println(ratio, ratio.Differ())
	}
}
