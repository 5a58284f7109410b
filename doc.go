// Package tallywheel is the map of the repository; it holds no code.
//
// Tallywheel records what industrial devices say, loses nothing, and proves it. One static binary
// reads serial, TCP and UDP devices, cuts the bytes into frames, writes them to a durable log, and
// keeps a balance sheet for every port:
//
//	wire = stored + lost (by cause) + in flight
//
// The folders, in reading order. Imports go down this list only, and folders of one layer never
// import each other; a folder's own sub-folders are free. house_test.go holds these rules.
//
//	ground     crc16              CRC-16 Modbus and CCITT, fast on every target
//	           internal/sys       system calls that the standard library does not offer as we need them
//	           internal/http1     the framing of HTTP/1.1 requests, strictly
//	           internal/hist      latency histogram
//	           internal/beat      lets what is done each second be done together
//	           internal/pack      writes and reads the fields of a type by one description
//	           internal/fault     a disk in memory that can be cut off and told to fail
//	           internal/testenv   what a test needs, and how it says that it is missing
//	mechanism  frame              what a framing is; frame/…: tally128, modbus, cobs, slip, line, ubx, length, raw;
//	                              frame/detect finds the one that fits
//	           ledger             the balance sheet
//	           ring               double-mapped byte ring for one producer and one consumer
//	           rt                 affinity, scheduling classes, locked memory, clocks: asked of the kernel
//	           uring              io_uring in pure Go
//	           admission          what a server takes on at a time: gates and pools
//	           proof              shows others what a log holds: trees of hashes, checkpoints, proofs
//	           steal              small tasks that beget tasks: bounded queues, workers that take from others
//	plane      serial             serial ports: opening, identity, line counters; serial/serialtest: virtual ones
//	           reader             reading descriptors, strategies side by side
//	           asyncfile          files by one interface: ordinary calls, mmap, io_uring
//	           seglog             durable segmented log; FORMAT.md beside the code
//	           server             HTTP and TCP by net/http, epoll and io_uring, with the same handlers
//	           prefork            any server on several processes: restarts, upgrades, kills without a lost client
//	           ipc                processes of one machine: messages with descriptors, rings in shared memory
//	           internal/spool     what one process reads from a port and another records, in memory that outlives both
//	           internal/sockets   connections and datagrams that are read: dialling, listening, as bare descriptors
//	           loadgen            an open-loop load of HTTP requests
//	           cell               a part of a program that keeps time, in a process of its own; above ipc
//	product    archive            what a log means: streams, records, a cursor, sheets of starts
//	           config             the configuration file: defaults, checks, schema
//	           export             writes records out: CSV, Parquet, JSON lines, raw bytes; above archive
//	           internal/isolate   keeper and reader of a recorder that is three processes, and what they tell each other
//	           replay             plays a source onto a wire again; above archive
//	           forward            the log goes on to NATS JetStream and MQTT, each frame once; above archive and config;
//	                              forward/batch decodes what it sends
//	           recorder           sources → frames → books → log, the verdict; above archive and config
//	           api                the API, its events, the page and the metrics; above recorder
//	           tap                shows what comes on a line while it comes; above recorder
//	           doctor             what this machine allows and how it is set; changes what is safe, and takes that back
//	           memfrag            follows how memory fragments, for days: of the machine and of a process
//	           probe              looks into the kernel by eBPF: io_uring, sockets, the scheduler
//	laboratory lab                measures ways to do the same thing side by side: experiments, contestants, report, heat map
//	command    cmd/tallywheel     main and one file for each verb
//	           examples           short programs that use the public packages
//	           e2e                the whole program as a process: real programs, kills, a browser; e2e/stranger: feeders that share no code with it
package tallywheel
