// Package server serves HTTP/1.1 and TCP by three engines with the same handlers: package net/http
// itself, epoll, and io_uring.
//
// # Engines
//
//	std    net/http and one goroutine for each connection: everywhere, and the measure of the others
//	epoll  a few loops, each with epoll and plain calls: Linux
//	uring  a few loops, each with a ring: one multishot receive for each connection, and one system call a turn: Linux 6.0
//
// auto takes uring where the kernel and the container allow it, else epoll, else std; for handlers
// on goroutines it takes epoll first, since a ring belongs to one thread, and each of its turns
// would hand a CPU to that thread and back. [Server.Choice] says what was chosen and why.
//
// On loopback a ring saves little against good epoll. What both save against net/http is a
// goroutine that is woken for each request, and memory for each connection. The laboratory measures
// it on your machine: tallywheel lab run http-plaintext.
//
// # Modes
//
// How a handler runs on the loops of epoll and uring:
//
//	goroutine  on a goroutine for each connection: any handler. The default. The engine receives for all; handlers send by
//	           themselves
//	coroutine  on the loop's own thread, as a coroutine that gives way where it would wait for the network. The handler must not wait
//	           for anything else: a lock held long, a channel, a disk, a time.Sleep stop all connections of the loop meanwhile; after
//	           a second the log says so ([Stats].Stalls). It must use its ResponseWriter, body and connection on its own goroutine
//	           only: another one gets [ErrElsewhere] where it would have to wait, as those of httputil.ReverseProxy and
//	           http.TimeoutHandler do; and it must not hold runtime.LockOSThread where it reads or writes: the runtime would
//	           end the process. Close and deadlines of a connection are any goroutine's: the handler wakes. Its context does not follow
//	           the client, and a deadline or time-out that passes while it holds the loop counts only once it has given way
//	inline     a [LeanHandler] on the loop's own thread, called when a request is whole: the least work for each request
//
// Under load the loops of the last two keep their CPUs to themselves: other goroutines of the
// program run on them about once a millisecond.
//
// A request that asks for an upgrade (WebSocket) or a tunnel (CONNECT) runs on a goroutine in every
// mode, because who takes a connection over waits as it likes; and so does all of TLS. Hijack works
// for these requests, and in goroutine mode for all: the connection leaves the engine, and the
// handler gets a *net.TCPConn or *net.UnixConn of package net, by TLS the *tls.Conn, without
// deadlines. What the client has sent behind the request is in the buffer of the reader that comes
// with it. The connection does not count among MaxConns any more, and Shutdown and Close leave it
// alone: who has it closes it.
//
// A panic in a handler ends its connection and nothing else, and is logged; so does runtime.Goexit,
// on a loop's thread too. What was answered to earlier requests of the connection still goes out.
// What a handler writes after it has returned is refused with an error. On engine std that is as in
// net/http: a Flush from another goroutine after the return may end the process.
//
// # What differs from net/http
//
// [Config.Handler] gets the same requests and its ResponseWriter does the same, by test, all of
// Go's own among them (docs/design/2026-11-30-other-peoples-suites.md); ConnState, ConnContext,
// BaseContext, RegisterOnShutdown and SetKeepAlivesEnabled are as there. The differences:
//
//   - Requests are parsed strictly, so that no proxy in front can read them another way: a line
//     that ends with a bare LF, a bare CR, a folded header line, two Content-Lengths even if they
//     are equal, Content-Length beside Transfer-Encoding, and Transfer-Encoding in HTTP/1.0 are
//     400. net/http repairs these.
//   - A Host with a port that is no number, an IP literal without its bracket or a % that begins no
//     escape, a target in absolute form without a host, and a chunk extension without a name are
//     400; one empty line before a request is ignored (RFC 9112, sections 2.2, 3.2 and 7.1.1).
//   - A body in chunks that are malformed is answered by 400 if the head of the answer has not gone
//     out, whatever the handler made of the error. White space before the ; of a chunk extension is
//     allowed, as RFC 9112 has it.
//   - A [LeanHandler] gets targets as they came; on engine std net/http has refused those that are
//     malformed.
//   - Half a head at the end of its time is answered by 408; so is one that is not whole 5 s after
//     its first bytes where Shutdown waits for it. An Expect of anything but 100-continue is
//     answered by 417, as by net/http, but with a text and the end of the connection. Of several
//     fields the first counts, as there.
//   - At most 256 header fields; and one limit, MaxHeaderBytes, for the request line with all of
//     them.
//   - The target may not have control characters, spaces or DEL.
//   - An HTTP/2 preface without TLS is 505. OPTIONS * is answered for every Handler: there is no
//     DisableGeneralOptionsHandler.
//   - A request in HTTP/1.0 with "Connection: close" beside a "Connection: keep-alive" is the last
//     (RFC 9112, section 9.3); net/http goes on.
//   - HTTP/2 by TLS is net/http's own, which gets such connections after the handshake.
//   - Answers go out when the handler returns, flushes, or has written 4 KiB; those to pipelined
//     requests together, after a millisecond at the latest.
//   - A file of less than 16 KiB is read and goes out with the head, in one call; sendfile is for
//     those that are larger.
//   - Negative time-outs are an error of New. epoll and uring take listeners of package net only,
//     not wrapped ones, and notice after about a second that one was closed.
//   - Informational answers (103 Early Hints) are not sent to clients of HTTP/1.0 (RFC 9110,
//     section 15.2).
//   - After an Expect a connection is kept where the client was asked for the body and little of it
//     is left when the handler returns; net/http closes it.
//   - ConnState is not told of StateIdle where a client leaves amid a request's body.
//   - A Content-Length stands behind the handler's own fields.
//   - A TLS configuration without a certificate is found out by the first client, not by Serve.
//   - [http.MaxBytesReader] cannot ask the server to close the connection; it is closed if more
//     than 256 KiB of the body are left.
//
// # Limits
//
// Every connection has a bound on what it may make the server hold: MaxHeaderBytes of a request
// that is not whole, 64 KiB of body that was not asked for (the kernel then holds the client back),
// and 64 KiB of answer that the client does not take (the handler then waits). In inline mode a
// request waits in memory until its body is whole, at most MaxBodyBytes, and all of them together
// at most MaxBodyMemory; the memory grows with what has come. The framing of a chunked body may
// have 16 bytes for each chunk and two for each byte of the body, and 16 KiB more: beyond that the
// body is malformed, as for net/http. Connections beyond MaxConns wait to be accepted.
//
// A client that still sends when its connection ends would lose, by a reset, the answers that it
// has not read yet. What it sends is read and thrown away until it ends its side, or has taken all
// and is silent for half a second: for 30 s at most, and until it has sent 256 KiB more.
package server
