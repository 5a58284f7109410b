package lab

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/tallywheel/tallywheel/lab/contestant"
)

// sources are the contestants' sources, so that they can be built where the repository is not.
//
//go:embed contestant/body.go contestant/contestant.go contestant/frames.go contestant/harness.go contestant/http.go
//go:embed contestants/c contestants/rust contestants/python contestants/peers.txtar
//go:embed contestants/otelcol.txtar
var sources embed.FS

// module is the path of this module, which the peers' own module stands below.
const module = "github.com/tallywheel/tallywheel"

// Program is what a contestant runs. The makers are [Own], [Peers], [Otelcol], [Module], [C],
// [Rust], [CrossC], [CrossRust], [Cargo], [Python] and [Tool].
type Program struct {
	kind, source, needs string
}

// Own is this very program, which carries our contestants.
func Own() Program { return Program{kind: "own"} }

// Peers is a program of the module lab/contestants/go, by its folder there. It needs the Go command
// and the modules.
func Peers(folder string) Program { return Program{"go", folder, "go.dev/dl"} }

// PeersWith is Peers built with cgo or without, and with flags for the linker.
func PeersWith(folder string, cgo bool, ldflags string) Program {
	p := Peers(folder)
	if cgo {
		p.kind = "go-cgo"
	}
	p.source += " " + ldflags
	return p
}

// Otelcol is an OpenTelemetry collector with what the experiments take of it: the module
// lab/contestants/otelcol. It needs the Go command and the modules.
func Otelcol() Program { return Program{"otelcol", "", "go.dev/dl"} }

// Module is a program of a public Go module as it is: its package, its version, and the tags that
// it is built with. It needs the Go command and the modules.
func Module(pkg, version string, tags ...string) Program {
	return Program{"module", pkg + "@" + version + " " + strings.Join(tags, ","), "go.dev/dl"}
}

// C is a source in lab/contestants/c, with libraries to link. hint says how to get what it needs.
func C(file, hint string, libraries ...string) Program {
	return Program{"c", file + " " + strings.Join(libraries, " "), hint}
}

// Rust is a source in lab/contestants/rust, with flags for the compiler.
func Rust(file string, flags ...string) Program {
	return Program{"rust", strings.Join(append([]string{file}, flags...), " "), "rustup.rs"}
}

// CrossC is a source in lab/contestants/c for a board with an ARMv7, linked statically: it needs
// nothing there.
func CrossC(file string, libraries ...string) Program {
	return Program{"c-arm", file + " " + strings.Join(libraries, " "), "apt install gcc-arm-linux-gnueabihf libc6-dev-armhf-cross"}
}

// CrossRust is a source in lab/contestants/rust for such a board.
func CrossRust(file string) Program { return Program{"rust-arm", file, "rustup target add " + rustARM} }

// Rust's name of an ARMv7, and the linker for it.
const (
	rustARM = "armv7-unknown-linux-gnueabihf"
	linkARM = "arm-linux-gnueabihf-gcc"
)

// Cargo is a package of Rust in a folder of lab/contestants/rust, whose program has the folder's
// name. It needs cargo, and the crates that its Cargo.lock names.
func Cargo(folder string) Program { return Program{"cargo", folder, "rustup.rs"} }

// Python is a source in lab/contestants/python, and the module that it needs.
func Python(file, pymodule, hint string) Program {
	return Program{"python", file + " " + pymodule, hint}
}

// Tool is a program of this machine.
func Tool(name, hint string) Program { return Program{"tool", name, hint} }

// OwnVariable is set for contestants that are this program, so that a test can tell when it is to
// be one.
const OwnVariable = "TALLYWHEEL_CONTESTANT"

func (p Program) env() []string {
	if p.kind == "own" {
		return []string{OwnVariable + "=1"}
	}
	return nil
}

// Exists reports whether a program of which this one carries the source has one.
func (p Program) Exists() error {
	name, _, _ := strings.Cut(p.source, " ")
	switch p.kind {
	case "c", "rust", "python", "c-arm", "rust-arm":
		_, err := fs.Stat(sources, path.Join("contestants", strings.TrimSuffix(p.kind, "-arm"), name))
		return err
	case "cargo":
		_, err := fs.Stat(sources, path.Join("contestants/rust", name, "Cargo.lock"))
		return err
	case "go", "go-cgo":
		packed, err := sources.ReadFile("contestants/peers.txtar")
		if err == nil && !bytes.Contains(packed, []byte("-- "+name+"/")) {
			err = fmt.Errorf("%s: %w among the peers", name, fs.ErrNotExist)
		}
		return err
	}
	return nil
}

// built is a program that has been built, or why not.
type built struct {
	argv []string
	err  error
}

// Program returns how to call a program, which is built at its first use; the error says why it
// cannot be run here.
func (b *Bench) Program(p Program) ([]string, error) {
	done, ok := b.programs[p]
	if !ok {
		done.argv, done.err = b.build(p)
		if done.err != nil && p.needs != "" && !p.hasGo() {
			done.err = fmt.Errorf("%w (%s)", done.err, p.needs)
		}
		b.programs[p] = done
	}
	return done.argv[:len(done.argv):len(done.argv)], done.err
}

// hasGo reports whether a program is built by Go, and Go is there: what went wrong then is not that
// Go has to be installed.
func (p Program) hasGo() bool {
	switch p.kind {
	case "go", "go-cgo", "module", "otelcol":
		_, err := exec.LookPath("go")
		return err == nil
	}
	return false
}

func (b *Bench) build(p Program) ([]string, error) {
	source, rest, _ := strings.Cut(p.source, " ")
	out := filepath.Join(b.bin, p.kind+"-"+strings.NewReplacer("/", "-", ".", "-", " ", "").Replace(p.source))
	switch p.kind {
	case "own":
		exe, err := os.Executable()
		return []string{exe, "lab", "contestant"}, err
	case "tool":
		found, err := exec.LookPath(source)
		if err != nil {
			return nil, fmt.Errorf("no %s", source)
		}
		return []string{found}, nil
	case "module", "otelcol":
		return b.module(p.kind, out, source, rest)
	case "c", "c-arm", "rust", "rust-arm":
		return []string{out}, b.single(p.kind, out, source, strings.Fields(rest)...)
	case "cargo":
		dir, err := b.unpack("contestants/rust")
		if err != nil {
			return nil, err
		}
		built := filepath.Join(out, "release", source)
		return []string{built}, b.compile(filepath.Join(dir, source), "cargo", "build", "--release", "--locked",
			"--quiet", "--target-dir", out)
	case "python":
		dir, err := b.unpack("contestants/python")
		if err != nil {
			return nil, err
		}
		// any will do that has the module; it may be a script that calls another one
		for _, python := range []string{"python3", "/usr/bin/python3"} {
			c := exec.CommandContext(b.ctx, python, "-c", "import sys, "+rest+"; print(sys.executable)")
			c.Dir = dir // a folder of the module's name where we are would be taken for it
			if out, err := c.Output(); err == nil {
				return []string{strings.TrimSpace(string(out)), filepath.Join(dir, source)}, nil
			}
		}
		return nil, fmt.Errorf("no python3 with the module %s", rest)
	case "go", "go-cgo":
		dir, err := b.unpackPeers()
		if err != nil {
			return nil, err
		}
		if _, err := exec.LookPath("go"); err != nil {
			return nil, errors.New("no go")
		}
		args := []string{"CGO_ENABLED=0", "go", "build", "-tags=fact", "-o", out, "-ldflags=" + rest, "./" + source}
		if p.kind == "go-cgo" {
			if _, err := exec.LookPath("cc"); err != nil {
				return nil, errors.New("no cc")
			}
			args[0] = "CGO_ENABLED=1"
		}
		return []string{out}, b.compile(dir, "env", args...)
	}
	panic("lab: a program of no kind")
}

// single builds a program of one source in C or Rust, for this machine or for a board.
func (b *Bench) single(kind, out, source string, flags ...string) error {
	language, arm := strings.CutSuffix(kind, "-arm")
	dir, err := b.unpack("contestants/" + language)
	if err != nil {
		return err
	}
	compiler, args := "cc", []string{"-O2", "-o", out, source}
	switch {
	case language == "rust":
		compiler, args = "rustc", []string{"--edition=2021", "-O", "-o", out, source}
		if arm {
			args = append(args, "--target", rustARM, "-Clinker="+linkARM, "-Ctarget-feature=+crt-static")
		}
	case arm:
		compiler, args = linkARM, append(args, "-static")
	}
	return b.compile(dir, compiler, append(args, flags...)...)
}

// module builds a package of a public module, which is given as PACKAGE@VERSION, or the collector.
func (b *Bench) module(kind, out, source, tags string) ([]string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return nil, errors.New("no go")
	}
	if kind == "otelcol" {
		dir := filepath.Join(b.bin, "otelcol")
		if err := unpackArchive("contestants/otelcol.txtar", dir); err != nil {
			return nil, err
		}
		return []string{out}, b.compile(dir, "env", "CGO_ENABLED=0", "go", "build", "-o", out, ".")
	}
	pkg, _, _ := strings.Cut(source, "@")
	return []string{filepath.Join(out, path.Base(pkg))},
		b.compile(b.bin, "env", "CGO_ENABLED=0", "GOBIN="+out, "go", "install", "-tags="+tags, source)
}

// compile runs a compiler; its error is the first line in which it says what is wrong.
func (b *Bench) compile(dir, compiler string, args ...string) error {
	if _, err := exec.LookPath(compiler); err != nil {
		return fmt.Errorf("no %s", compiler)
	}
	// what it leaves if it is killed goes with the folder that it takes for temporary files
	out, err := kept(b.ctx, dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=", "TMPDIR="+b.bin),
		append([]string{compiler}, args...)...)
	if err == nil {
		return nil
	}
	if compiler == "env" { // which is there to set variables
		compiler = "go"
	}
	if line := complaint(string(out)); line != "" {
		return fmt.Errorf("%s: %s", compiler, strings.TrimPrefix(line, compiler+": "))
	}
	return fmt.Errorf("%s: %w: %s", compiler, err, strings.TrimSpace(string(out)))
}

// complaint is the first line in which a compiler says what is wrong. What Go fetches before is
// none.
func complaint(said string) string {
	for line := range strings.Lines(said) {
		switch {
		case strings.HasPrefix(line, "go: downloading "), strings.HasPrefix(line, "go: finding "),
			strings.HasPrefix(line, "go: extracting "):
		case strings.Contains(line, "error"), strings.Contains(line, "undefined: "), strings.HasPrefix(line, "go:"):
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// unpack writes a folder of the sources where compilers find it.
func (b *Bench) unpack(folder string) (string, error) {
	to := filepath.Join(b.bin, path.Base(folder))
	if _, err := os.Stat(to); err == nil {
		return to, nil
	}
	sub, err := fs.Sub(sources, folder)
	if err != nil {
		return "", err
	}
	return to, os.CopyFS(to, sub)
}

// unpackPeers writes the peers' module, and above it as much of ours as it needs: the protocol.
func (b *Bench) unpackPeers() (string, error) {
	root := filepath.Join(b.bin, "peers")
	dir := filepath.Join(root, "lab", "contestants", "go")
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	protocol, err := fs.Sub(sources, "contestant")
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(filepath.Join(root, "lab", "contestant"), protocol); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte("module "+module+"\n\ngo 1.26.0\n"),
		0o600); err != nil {
		return "", err
	}
	return dir, unpackArchive("contestants/peers.txtar", dir)
}

// unpackArchive writes the files of an archive of the sources into a folder.
func unpackArchive(archive, dir string) error {
	packed, err := sources.ReadFile(archive)
	if err != nil {
		return err
	}
	for _, f := range txtar.Parse(packed).Files {
		name := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, f.Data, 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// Ours is a contestant that this program carries: its name, and what it does.
func Ours(name string, work contestant.Work) *Contestant {
	return &Contestant{Name: name, Program: Own(), Work: work}
}

// But adds a note to a contestant, and returns it.
func (c *Contestant) But(note string) *Contestant {
	c.Note = note
	return c
}

// For lets a contestant take part in the cells that have all of want alone, and returns it.
func (c *Contestant) For(want Params) *Contestant {
	c.Skip = func(cell Params) bool { return !cell.Has(want) }
	return c
}

// InQuick lets a contestant take part in a quick run in the cells alone that have all of one of
// these; in all others in a full one. It returns it.
func (c *Contestant) InQuick(cells ...Params) *Contestant {
	c.Seldom = func(cell Params) bool { return !slices.ContainsFunc(cells, cell.Has) }
	return c
}

// With sets variables of a contestant's environment, and returns it.
func (c *Contestant) With(env ...string) *Contestant {
	c.Env = append(c.Env, env...)
	return c
}

// Starting lets a contestant of ours start a program, whose path is the parameter "program", and
// returns it.
func (c *Contestant) Starting(p Program) *Contestant {
	c.Starts = p
	return c
}

// As makes a contestant of a program: its name, and what the program is called with.
func (p Program) As(name string, args ...string) *Contestant {
	return &Contestant{Name: name, Program: p, Args: args}
}

// name is what results call a contestant; "" if there is none.
func (c *Contestant) name() string {
	if c == nil {
		return ""
	}
	return c.Name
}

// Contest is the contestant of ours that args name: the experiment, the contestant, and the
// parameters of the turn as KEY=VALUE. It is what this program does when the laboratory calls it.
func Contest(args []string, in io.Reader, out io.Writer) error {
	if len(args) < 2 {
		return errors.New("want EXPERIMENT CONTESTANT KEY=VALUE …")
	}
	t, err := contestant.New(append([]string{"own"}, args[2:]...), in, out)
	if err != nil {
		return err
	}
	cell := Params{}
	for _, a := range args[2:] {
		k, v, _ := strings.Cut(a, "=")
		cell[k] = v
	}
	for _, e := range registered {
		for _, c := range e.Contestants {
			if e.Name == args[0] && c.Name == args[1] && c.Work != nil && (c.Skip == nil || !c.Skip(cell)) {
				return c.Work(t)
			}
		}
	}
	return fmt.Errorf("no contestant %q of experiment %q", args[1], args[0])
}
