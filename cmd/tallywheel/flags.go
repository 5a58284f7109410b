package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tallywheel/tallywheel/archive"
	"github.com/tallywheel/tallywheel/config"
)

// addWord adds a flag that takes one of a few words; the shell completes them.
func addWord[T ~string](c *cobra.Command, p *T, name string, value T, words []T, usage string) {
	*p = value
	c.Flags().Var(&wordFlag[T]{p, words}, name, usage+": "+either(words))
	complete := cobra.FixedCompletions(texts(words), cobra.ShellCompDirectiveNoFileComp)
	if err := c.RegisterFlagCompletionFunc(name, complete); err != nil {
		panic(err) // the flag is there, and has none yet
	}
}

type wordFlag[T ~string] struct {
	p     *T
	words []T
}

func (f *wordFlag[T]) String() string {
	if f.p == nil { // pflag asks a zero value for its default
		return ""
	}
	return string(*f.p)
}

func (*wordFlag[T]) Type() string { return "string" }

func (f *wordFlag[T]) Set(s string) error {
	if !slices.Contains(f.words, T(s)) {
		return fmt.Errorf("want %s", either(f.words))
	}
	*f.p = T(s)
	return nil
}

// either lists words: "a, b or c".
func either[T ~string](words []T) string {
	all := texts(words)
	if len(all) < 2 {
		return strings.Join(all, "")
	}
	return strings.Join(all[:len(all)-1], ", ") + " or " + all[len(all)-1]
}

func texts[T ~string](words []T) (all []string) {
	for _, w := range words {
		all = append(all, string(w))
	}
	return all
}

// oneOf makes anything but one of a few words, as the only argument, a wrong use; the shell
// completes them.
func oneOf[T ~string](c *cobra.Command, words []T) {
	c.ValidArgs = texts(words)
	c.Args = func(c *cobra.Command, args []string) error {
		if len(args) != 1 || !slices.Contains(words, T(args[0])) {
			return fmt.Errorf("%w: %s: want %s", errUsage, c.CommandPath(), either(words))
		}
		return nil
	}
}

// addSpan adds a flag that takes a duration, not a negative one; 0 only where that has a meaning.
func addSpan(c *cobra.Command, p *time.Duration, name string, value time.Duration, zero bool, usage string) {
	*p = value
	c.Flags().Var(&spanFlag{p, zero}, name, usage)
}

type spanFlag struct {
	p    *time.Duration
	zero bool
}

func (f *spanFlag) String() string {
	if f.p == nil || *f.p == 0 { // pflag shows no default then
		return ""
	}
	return f.p.String()
}

func (*spanFlag) Type() string { return "duration" }

func (f *spanFlag) Set(s string) error {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return fmt.Errorf("want %s", config.TimeForm)
	case f.zero && d < 0:
		return fmt.Errorf("want a time, not less than 0")
	case !f.zero && d <= 0:
		return fmt.Errorf("want a time above 0")
	}
	*f.p = d
	return nil
}

// checkLoopback makes an address that others could reach, or that is none, a wrong use.
func checkLoopback(addr, example string) error {
	host, port, err := net.SplitHostPort(addr)
	why := ""
	switch _, portErr := strconv.ParseUint(port, 10, 16); {
	case err != nil: // as a word that means something else
	case portErr != nil:
		why = fmt.Sprintf("port %q is none of 0 to 65535: ", port)
	case !config.Loopback(host):
		why = "others could reach it: "
	default:
		return nil
	}
	return fmt.Errorf("%w: %q: %swant a loopback address, as %s", errUsage, addr, why, example)
}

// parsed is a flag whose words are read by a function.
type parsed struct {
	words, kind string
	read        func(string) error
}

func (f *parsed) String() string { return f.words }
func (f *parsed) Type() string   { return f.kind }

func (f *parsed) Set(s string) error {
	f.words = s
	return f.read(s)
}

// addSwitch adds a flag without a value; on is called where it is given.
func addSwitch(c *cobra.Command, name, usage string, on func()) {
	f := c.Flags().VarPF(&parsed{kind: "bool", read: func(s string) error {
		if s != "true" {
			return errors.New("it takes no value")
		}
		on()
		return nil
	}}, name, "", usage)
	f.NoOptDefVal = "true"
}

// groupOf is the annotation by which cobra knows flags that exclude each other.
const groupOf = "cobra_annotation_mutually_exclusive"

// exclusive makes flags that exclude each other a wrong use, before cobra says so at length. A
// command has one group of them at most.
func exclusive(c *cobra.Command, _ []string) error {
	var all []string
	c.Flags().Visit(func(f *pflag.Flag) {
		if len(f.Annotations[groupOf]) > 0 {
			all = append(all, "--"+f.Name)
		}
	})
	if len(all) < 2 {
		return nil
	}
	return fmt.Errorf("%w: %s: %s exclude each other: leave out one", errUsage, c.CommandPath(),
		strings.Join(all, " and "))
}

// idle makes flags a wrong use that have nothing to do here; why says of what they are.
func idle(c *cobra.Command, why string, names ...string) error {
	for _, name := range names {
		if c.Flags().Changed(name) {
			return fmt.Errorf("%w: %s: --%s %s: leave it out", errUsage, c.CommandPath(), name, why)
		}
	}
	return nil
}

// addContains adds a flag that takes a text, or bytes in digits.
func addContains(c *cobra.Command, p *[]byte, name, usage string) {
	c.Flags().Var(&parsed{kind: "text", read: func(s string) (err error) {
		if *p, err = archive.ParseContains(s); err == nil && len(*p) == 0 {
			err = errors.New("want a text, or bytes as hex:0d0a")
		}
		return err
	}}, name, usage)
}

// badFlag is the error for flags that cannot be read. Of a number it says what is wanted, where Go
// says which function has read it.
func badFlag(_ *cobra.Command, err error) error {
	var number *strconv.NumError
	if !errors.As(err, &number) {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	want := "a whole number"
	switch {
	case errors.Is(number, strconv.ErrRange):
		want = "a number that is not so large"
	case number.Func == "ParseUint":
		want = "a whole number, not less than 0"
	case number.Func == "ParseFloat":
		want = "a number"
	case number.Func == "ParseBool":
		want = "true or false"
	}
	return fmt.Errorf("%w: %s: want %s", errUsage, strings.TrimSuffix(err.Error(), ": "+number.Error()), want)
}
