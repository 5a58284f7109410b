package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/tallywheel/tallywheel/internal/sys"
)

// maxFile is the largest configuration, in bytes: one of 4096 sources has a tenth of it.
const maxFile = 4 << 20

// Load reads a configuration file, or a pipe, and checks it. What is wrong with it is an error of
// type [Problems], each with the name of the file. A device, a folder, or more than 4 MiB are an
// error, too. Where the disk of the file does not answer, or nobody writes into the pipe, Load does
// not return.
func Load(path string) (Config, error) { return LoadAnd(path, nil) }

// LoadAnd is Load for who knows what else may be wrong, as on this machine: more is asked of what
// is good by itself, and its problems get their file and lines.
func LoadAnd(path string, more func(Config) Problems) (Config, error) {
	return load(path, sys.ReadFileOrPipe, more)
}

// Reload is Load, and takes ordinary files only: what came through a pipe does not come again.
func Reload(path string) (Config, error) { return load(path, sys.ReadOrdinary, nil) }

func load(path string, read func(path string, most int64) ([]byte, error), more func(Config) Problems) (Config, error) {
	b, err := read(path, maxFile)
	if err != nil {
		return Config{}, err
	}
	c, err := parse(b, more)
	var p Problems
	if errors.As(err, &p) {
		for i := range p {
			p[i].File = path
		}
	}
	return c, err
}

// Parse reads a configuration, fills in the defaults and checks it. What is wrong is an error of
// type [Problems]; the configuration is then what could be read of it.
func Parse(b []byte) (c Config, err error) { return parse(b, nil) }

// parse is Parse, with what more finds in a configuration that is good.
func parse(b []byte, more func(Config) Problems) (c Config, err error) {
	defer func() { // the YAML library is not ours: whatever it makes of strange input is an error, not a crash
		if r := recover(); r != nil {
			err = Problems{{Text: fmt.Sprintf("this cannot be read: %q", fmt.Sprint(r))}}
		}
	}()
	root, problem := document(bytes.TrimPrefix(b, []byte("\ufeff"))) // which editors of Windows write
	if problem != nil {
		return c, Problems{*problem}.orNil()
	}
	d := decoder{lines: map[string]int{}, anchors: map[string]ast.Node{}}
	d.value("", root, reflect.ValueOf(&c).Elem())
	c = c.WithDefaults()
	wrong := d.problems
	var found Problems
	if errors.As(c.Validate(), &found) {
		wrong = append(wrong, d.placed(found)...)
	}
	if len(wrong) == 0 && more != nil {
		wrong = d.placed(more(c))
	}
	slices.SortStableFunc(wrong, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	return c, wrong.orNil()
}

// document is the root of a file that has one document.
func document(b []byte) (ast.Node, *Problem) {
	if len(bytes.TrimSpace(b)) == 0 {
		return nil, &Problem{Text: "the file is empty"}
	}
	if line := tooDeep(b); line > 0 {
		return nil, &Problem{
			Line: line,
			Text: fmt.Sprintf("brackets, braces or dashes within each other, %d deep: this is no configuration",
				maxDepth),
		}
	}
	file, err := parser.ParseBytes(b, 0, parser.AllowDuplicateMapKey()) // section knows the path of it
	if err != nil {
		return nil, explain(err, b)
	}
	var root ast.Node
	for _, doc := range file.Docs {
		switch {
		case doc.Body == nil || doc.Body.Type() == ast.DirectiveType:
		case root != nil:
			return nil, &Problem{Line: lineOf(doc.Body), Text: "a second document begins: want one"}
		default:
			root = doc.Body
		}
	}
	if root == nil || root.Type() == ast.NullType || root.Type() == ast.CommentType {
		return nil, &Problem{Text: "the file is empty"}
	}
	return root, nil
}

// maxDepth is how deep lists and mappings may stand in each other: a configuration needs six. What
// stands deeper takes the library a time that grows with the square of it, hours for a large file.
const maxDepth = 100

// tooDeep is the first line of a file that goes deeper than maxDepth; 0: none does. It does not
// look into quotes and comments, as far as it knows them by their line alone.
func tooDeep(b []byte) (line int) {
	depth := 0
	for text := range bytes.Lines(b) {
		line++
		dashes := text[:len(text)-len(bytes.TrimLeft(text, "-? \t"))]
		if bytes.Count(dashes, []byte("- "))+bytes.Count(dashes, []byte("? ")) > maxDepth {
			return line
		}
		quote := byte(0)
		for i, c := range text {
			switch {
			case quote != 0:
				if c == quote {
					quote = 0
				}
			case c == '"' || c == '\'':
				quote = c
			case c == '#' && (i == 0 || text[i-1] == ' '):
				quote = '\n'
			case c == '[' || c == '{':
				depth++
			case c == ']' || c == '}':
				depth = max(0, depth-1)
			}
			if depth > maxDepth {
				return line
			}
		}
	}
	return 0
}

// explain makes the library's report on the file b one line.
func explain(err error, b []byte) *Problem {
	p := &Problem{}
	var report yaml.Error
	if !errors.As(err, &report) {
		p.Text = err.Error()
	} else {
		p.Text = report.GetMessage() // Error prints what is around it, which may be all of a large file
		if t := report.GetToken(); t != nil && t.Position != nil {
			p.Line = t.Position.Line
		}
	}
	line := lineAt(b, p.Line)
	switch {
	case tabbed(line):
		p.Text = "a tab in the indentation, where YAML wants spaces: replace it with spaces"
	case braced.Match(line):
		p.Text += "; within brackets, text with a colon, a bracket or a brace goes into quotes"
	}
	p.Text = strings.Join(strings.Fields(p.Text), " ")
	return p
}

// braced is a line on which a URL, or the name of a source in a template, stands within brackets or
// braces without quotes.
var braced = regexp.MustCompile(`[\[{].*[ ,\[:]([a-z]+://|[^ "']*\` + SourceToken + `)`)

// lineAt is a line of a file; they count from 1.
func lineAt(b []byte, line int) []byte {
	lines := bytes.Split(b, []byte("\n"))
	if line < 1 || line > len(lines) {
		return nil
	}
	return lines[line-1]
}

// tabbed reports whether what a line begins with has a tab, list dashes included.
func tabbed(text []byte) bool {
	return bytes.IndexByte(text[:len(text)-len(bytes.TrimLeft(text, " \t-"))], '\t') >= 0
}

func lineOf(n ast.Node) int {
	if n == nil {
		return 0
	}
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 && !m.IsFlowStyle {
		return lineOf(m.Values[0].Key)
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		return t.Position.Line
	}
	return 0
}

// decoder brings a tree of YAML into a Config, and notes where everything stands.
type decoder struct {
	lines    map[string]int // by path
	anchors  map[string]ast.Node
	aliases  int // that have been followed
	problems Problems
}

// placed gives problems their lines. One about a part that could not be read as it was meant is
// left out: what is wrong with it has been said.
func (d *decoder) placed(found Problems) (out Problems) {
	for _, p := range found {
		if slices.ContainsFunc(d.problems, func(said Problem) bool {
			at := below(said.Path, said.key)
			return within(at, p.Path) || within(p.Path, at)
		}) {
			continue
		}
		for at := p.Path; p.Line == 0; at = above(at) {
			if p.Line = d.lines[at]; at == "" {
				break
			}
		}
		out = append(out, p)
	}
	return out
}

func (d *decoder) complain(path string, n ast.Node, format string, args ...any) {
	d.problems = append(d.problems, Problem{Line: lineOf(n), Path: path, Text: fmt.Sprintf(format, args...)})
}

// maxAliases is how many aliases are followed: those that lead to each other could double what is
// read again and again.
const maxAliases = 10_000

// value brings a node into a field.
func (d *decoder) value(path string, n ast.Node, into reflect.Value) {
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return // as if it were not there
	case *ast.AnchorNode:
		d.value(path, n.Value, into)
		d.anchors[n.Name.GetToken().Value] = n.Value
		return
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		target, ok := d.anchors[name]
		switch d.aliases++; {
		case !ok:
			d.complain(path, n, "*%s: want an anchor &%s before it", name, name)
		case d.aliases > maxAliases:
			panic("too many aliases")
		default:
			d.value(path, target, into)
		}
		return
	case *ast.TagNode:
		d.value(path, n.Value, into)
		return
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		d.value(path, n, into.Elem())
	case reflect.Slice:
		d.list(path, n, into)
	case reflect.Struct:
		if text, ok := scalar(n); ok && into.Type() == reflect.TypeFor[Frame]() {
			into.Set(reflect.ValueOf(Frame{Kind: text})) // a name alone
			return
		}
		d.section(path, n, into)
	default:
		text, ok := scalar(n)
		if address := unquoted(n); !ok && address != "" {
			d.complain(path, n,
				"put it in quotes, as %q: without them YAML takes what is before the last colon for a key", address)
			return
		}
		if !ok {
			d.complain(path, n, "want %s, not %s", wanted(into.Type()), kindOf(n))
			return
		}
		if why := set(into, text, n); why != "" {
			d.complain(path, n, "%s", why)
		}
	}
}

// unquoted is a URL with a port that a list in brackets takes for a mapping; "": it is none.
func unquoted(n ast.Node) string {
	entries, ok := mapping(n)
	if !ok || len(entries) != 1 {
		return ""
	}
	host := entries[0].Key.GetToken().Value
	if port, ok := scalar(entries[0].Value); ok && strings.Contains(host, "://") {
		return host + ":" + port
	}
	return ""
}

func (d *decoder) list(path string, n ast.Node, into reflect.Value) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		d.complain(path, n, "want a list, not %s", kindOf(n))
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(seq.Values), len(seq.Values)))
	for i, item := range seq.Values {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.lines[at] = lineOf(item)
		d.value(at, item, into.Index(i))
	}
}

// section brings a mapping into a struct.
func (d *decoder) section(path string, n ast.Node, into reflect.Value) {
	entries, ok := mapping(n)
	if !ok {
		d.complain(path, n, "want a mapping, not %s", kindOf(n))
		return
	}
	for _, e := range entries { // what is merged in first: the section's own keys count more
		if e.Key.IsMergeKey() {
			d.merge(path, e.Value, into)
		}
	}
	var unknown []ast.MapKeyNode
	first := map[string]int{} // line of each key
	for _, e := range entries {
		if e.Key.IsMergeKey() {
			continue
		}
		key := e.Key.GetToken().Value
		if line, twice := first[key]; twice {
			d.complain(below(path, key), e.Key, "this is here twice, first on line %d: take one of them out", line)
			continue
		}
		first[key] = lineOf(e.Key)
		fields := reflect.VisibleFields(into.Type())
		i := slices.IndexFunc(fields, func(f reflect.StructField) bool { return f.Tag.Get("yaml") == key })
		if i < 0 {
			unknown = append(unknown, e.Key)
			continue
		}
		at := below(path, key)
		d.lines[at] = lineOf(e.Key)
		into.Field(i).SetZero()
		before := len(d.problems)
		d.value(at, e.Value, into.Field(i))
		if text, ok := scalar(e.Value); ok && len(d.problems) == before && into.Field(i).IsZero() {
			d.zero(at, e.Value, text, fieldOf(fields[i]), into.Field(i))
		}
	}
	for i, key := range unknown {
		if i == maxUnknown {
			d.problems = append(d.problems, Problem{
				Line: lineOf(key), Path: path, key: key.GetToken().Value,
				Text: fmt.Sprintf("and %d more keys are unknown: is this a configuration?", len(unknown)-i),
			})
			break
		}
		d.unknown(path, key, key.GetToken().Value, into.Type())
	}
}

// maxUnknown is how many unknown keys of a section are named.
const maxUnknown = 20

// zero complains of a 0 that stands in the file where a field must have more, and of an empty text
// where it must be a word of several. Without that it would be taken for nothing, and the default
// for it.
func (d *decoder) zero(path string, n ast.Node, text string, f field, v reflect.Value) {
	if text == "" && len(f.one) > 0 {
		d.complain(path, n, "%q: want %s", text, alternatives(f.one))
	}
	if v.CanInt() && f.min != "" && amount(v.Type(), f.min) > 0 {
		d.complain(path, n, "%s: %s", text, f.span())
	}
}

// merge brings in what stands behind <<: one mapping, or several of which the first count most.
func (d *decoder) merge(path string, n ast.Node, into reflect.Value) {
	if seq, ok := n.(*ast.SequenceNode); ok {
		for _, one := range slices.Backward(seq.Values) {
			d.value(path, one, into)
		}
		return
	}
	d.value(path, n, into)
}

// maxMeant is how many problems there may be until nobody is told any more which key was meant.
const maxMeant = 1000

func (d *decoder) unknown(path string, n ast.Node, key string, t reflect.Type) {
	text := fmt.Sprintf("unknown key %q", key)
	for _, in := range []reflect.Type{t, reflect.TypeFor[Config]()} {
		if len(d.problems) >= maxMeant { // it is another file
			break
		}
		near := nearest(key, keys(in))
		if near == "" {
			continue
		}
		switch where := places(in, "", near); {
		case slices.Contains(where, "") && in == t:
			text += fmt.Sprintf("; did you mean %q?", near)
		case near == key:
			text += " here; it belongs " + inSections(where)
		default:
			text += fmt.Sprintf("; did you mean %q, %s?", near, inSections(where))
		}
		break
	}
	d.problems = append(d.problems, Problem{Line: lineOf(n), Path: path, Text: text, key: key})
}

// keys lists every key that may stand in a section, and in those below it.
func keys(t reflect.Type) (names []string) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice:
		return keys(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			names = append(names, f.Tag.Get("yaml"))
		}
		for f := range t.Fields() {
			names = append(names, keys(f.Type)...)
		}
	}
	return names
}

// places lists the sections, from the one at the path at downwards, in which a key may stand.
func places(t reflect.Type, at, key string) (all []string) {
	switch t.Kind() {
	case reflect.Pointer:
		return places(t.Elem(), at, key)
	case reflect.Slice:
		return places(t.Elem(), at+"[]", key)
	case reflect.Struct:
		for f := range t.Fields() {
			if f.Tag.Get("yaml") == key {
				all = append(all, at)
			}
		}
		for f := range t.Fields() {
			if !slices.Contains(strings.Fields(f.Tag.Get("lacks")), key) {
				all = append(all, places(f.Type, below(at, f.Tag.Get("yaml")), key)...)
			}
		}
	}
	return all
}

// inSections puts places in words.
func inSections(where []string) string {
	if slices.Contains(where, "") {
		return "at the top level"
	}
	return "in " + alternatives(where)
}

func mapping(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, true
	}
	return nil, false
}

// scalar is the text of a node that is neither a mapping nor a list.
func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	}
	return "", false
}

func kindOf(n ast.Node) string {
	switch n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	}
	text, _ := scalar(n)
	return strconv.Quote(short(text, 40))
}

// TimeForm says how a time is written, here and on the command line. No unit is above the hour.
const TimeForm = "a time in ns, us, ms, s, m or h, as 50ms, 1m30s or 720h"

// wanted puts the type of a scalar in words.
func wanted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return TimeForm
	case t == reflect.TypeFor[Size]():
		return "a size, as 64MiB"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int:
		return "a whole number"
	}
	return "text"
}

// set brings the text of a scalar into a field, or says why it cannot.
func set(into reflect.Value, text string, n ast.Node) string {
	no := fmt.Sprintf("%q: want %s", text, wanted(into.Type()))
	switch {
	case into.Type() == reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(text)
		if err != nil {
			return no
		}
		into.SetInt(int64(d))
	case into.Type() == reflect.TypeFor[Size]():
		s, err := ParseSize(text)
		if err != nil {
			return err.Error()
		}
		into.SetInt(int64(s))
	case into.Kind() == reflect.Bool:
		b, ok := n.(*ast.BoolNode)
		if !ok {
			return no
		}
		into.SetBool(b.Value)
	case into.Kind() == reflect.Int:
		i, ok := whole(text, n)
		if !ok {
			return no
		}
		into.SetInt(i)
	default:
		// A name of digits is one. Of these, other readers of YAML make another text.
		if _, float := n.(*ast.FloatNode); float || isNegative(n) {
			return fmt.Sprintf("%s: want text: put it in quotes, as %q", text, text)
		}
		into.SetString(text)
	}
	return ""
}

// isNegative reports whether a node is a whole number below 0.
func isNegative(n ast.Node) bool {
	i, ok := n.(*ast.IntegerNode)
	return ok && strings.HasPrefix(i.GetToken().Value, "-")
}

// whole reads a whole number, however it is written: 9600, 0x2580, 9.6e3 or "9600".
func whole(text string, n ast.Node) (int64, bool) {
	switch n := n.(type) {
	case *ast.IntegerNode:
		switch v := n.Value.(type) {
		case int64:
			return v, v == int64(int(v))
		case uint64:
			return int64(v), v <= math.MaxInt && int64(v) == int64(int(v))
		}
		return 0, false
	case *ast.FloatNode:
		return int64(n.Value), n.Value == math.Trunc(n.Value) && math.Abs(n.Value) <= math.MaxInt32
	}
	i, err := strconv.Atoi(text)
	return int64(i), err == nil
}
