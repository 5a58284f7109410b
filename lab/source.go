package lab

import (
	"fmt"
	"slices"
	"strings"
)

// Document is an article whose claims are judged.
type Document struct {
	Number string `json:"number"` // among the five
	Title  string `json:"title"`
	InEn   string `json:"in_english"`
	Link   string `json:"link,omitempty"` // where it is public; "": no address is known
}

// The five articles. They came without authors and addresses; where an address stands here, the
// page of it has the article word for word. Of the one on processes none was found.
var (
	SerialArticle = Document{
		"000", "Golang读取COM口性能压测报告(实测吞吐达468KB/s):单协程vs多协程vs mmap映射IO对比",
		"Reading a COM port in Go, measured (468 KB/s): one goroutine, several, mmap",
		"https://datasea.cn/go0210477432.html",
	}
	FilesArticle = Document{
		"001", "Go文件IO性能瓶颈突破:bufio.ReadWriter vs mmap vs io_uring(Linux 6.1实测吞吐对比)",
		"Breaking the bottleneck of file I/O in Go: bufio.ReadWriter, mmap, io_uring (measured on Linux 6.1)",
		"https://datasea.cn/go0211480036.html",
	}
	RealTimeArticle = Document{
		"002", "【权威实测】A40i开发板Go vs Rust vs C实时性对比报告:任务切换延迟、内存碎片率、启动确定性三维度拆解",
		"Go, Rust and C in real time on an A40i board: task switches, fragmentation, start-up",
		"https://datasea.cn/go0216492864.html",
	}
	ProcessesArticle = Document{
		"003", "Go语言多进程性能压测报告:吞吐量提升300%的优化路径",
		"Several processes in Go, measured: the way to 300 % more throughput",
		"",
	}
	NetworkArticle = Document{
		"004", "CentOS 7内核4.19+Go 1.20+io_uring高性能网络栈配置(实测QPS提升37.2%)",
		"A fast network stack from CentOS 7, kernel 4.19, Go 1.20 and io_uring (37.2 % more QPS)",
		"https://datasea.cn/go0130447439.html",
	}
)

// Source is where a claim comes from.
type Source struct {
	Document
	Chapter string `json:"chapter"`
	ID      string `json:"id,omitempty"` // of the claim, in the list of package claims
	figure  string
}

// Says is a claim of a chapter: the figure, in its unit, or the words that stand there.
func (d Document) Says(chapter, figure string) Source {
	return Source{Document: d, Chapter: chapter, figure: figure}
}

// Published is a claim of an article. Package claims has the list.
type Published struct {
	Text   string // one sentence, which says all that it means
	Source Source
}

// Claims makes a claim of a document: its number there, the chapter, the claim in one sentence, and
// the figure in its unit, or the words that stand there.
func (d Document) Claims(number int, chapter, text, figure string) Published {
	return Published{text, Source{d, chapter, fmt.Sprintf("%s-%02d", d.Number, number), figure}}
}

// Judged is the claim with its judge, and with what must have been measured for it.
func (p Published) Judged(needs string, judge func(v View) (Verdict, bool)) Claim {
	return Claim{Claim: p.Text, Source: p.Source, Needs: needs, Judge: judge}
}

// Asked is the claim that is judged by what a contestant found out, by yes or no ([Answer]), and
// said of it. It holds if the answer is yes, for one reason, else it does not for another. An
// answer for which there is none, "", was not expected, and the verdict says so. Where it could not
// be asked, that reason stands there.
func (p Published) Asked(contestant *Contestant, ifSo, ifNot string) Claim {
	if ifNot == "" {
		ifNot = otherwise + ifSo
	}
	return p.Judged(contestant.Name, func(v View) (Verdict, bool) {
		yes, said, ok := v.Answer(contestant)
		if !ok {
			return v.notAsked(contestant)
		}
		return Holds(yes, said, ifSo).IfNot(ifNot), true
	})
}

// Refuted is as Asked, for what cannot be so if the answer is no.
func (p Published) Refuted(contestant *Contestant, why string) Claim {
	return p.Judged(contestant.Name, func(v View) (Verdict, bool) {
		yes, said, ok := v.Answer(contestant)
		switch {
		case !ok:
			return v.notAsked(contestant)
		case !yes:
			return CannotBe(said, why), true
		}
		return Holds(yes, said, "It was otherwise wherever this project has run."), true
	})
}

// Compiled is the claim that something exists which the source of a contestant uses: a compiler
// that says that it is not defined has refuted it.
func (p Published) Compiled(contestant *Contestant, why string) Claim {
	return p.Judged(contestant.Name, func(v View) (Verdict, bool) {
		if yes, said, ok := v.Answer(contestant); ok {
			return Holds(yes, said, "It was otherwise wherever this project has run."), true
		}
		if said, lacks := v.undefined(contestant); lacks {
			return CannotBe(said, why), true
		}
		return v.notAsked(contestant)
	})
}

// Lacks is the claim that there is nothing of what the source of a contestant uses: it holds if a
// compiler says that it is not defined, and it does not, for a reason, if the contestant runs.
func (p Published) Lacks(contestant *Contestant, ifNot string) Claim {
	return p.Judged(contestant.Name, func(v View) (Verdict, bool) {
		if _, said, ok := v.Answer(contestant); ok {
			return Holds(false, said, "").IfNot(ifNot), true
		}
		if said, lacks := v.undefined(contestant); lacks {
			return Holds(true, said, "").IfNot(ifNot), true
		}
		return v.notAsked(contestant)
	})
}

// undefined is what a compiler said that did not find what the source of a contestant uses.
func (v View) undefined(contestant *Contestant) (said string, is bool) {
	said = v.notRun(contestant)
	return said, slices.ContainsFunc([]string{"undefined: ", "undeclared", "has no member"},
		func(words string) bool { return strings.Contains(said, words) })
}

// GoalPrefix begins the figure of a goal of this project in the results.
const GoalPrefix = "this project: "

// Goal is a claim of this project: what it wants to reach.
func Goal(figure string) Source { return Source{figure: GoalPrefix + figure} }

// published reports whether a claim is an article's.
func (s Source) published() bool { return s.Number != "" }

// String names the chapter: “Breaking the …”, chapter 4.1.
func (s Source) String() string {
	return fmt.Sprintf("“%s” (%s), chapter %s", s.InEn, s.Title, s.Chapter)
}
