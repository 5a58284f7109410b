//go:build ignore

// The kernel's side of package probe. Tracepoints with BTF are given typed arguments; fields of the kernel's structs are found by name at load
// time (CO-RE), so one object fits every kernel that has them. `go generate ./probe` compiles it; see generate.go.

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "GPL";

#define SLOTS 64 /* powers of two of nanoseconds: all that there are */
#define OPCODES 64
#define ROWS (2 * OPCODES) /* those of an opcode, and those of its multishot requests: opcode + OPCODES */
#define CALLS 512

/* Set before the programs are loaded. */
volatile const __u32 only_tgid = 0;   /* 0: every process */
volatile const __u64 sample_mask = 0; /* of the hash of what is asked, a request by its user_data or a socket: times are taken where none of its bits is set */
volatile const __u64 multishot_flags = 0;   /* of those of a request: it is multishot */
volatile const __u32 complete_has_data = 0; /* io_uring_complete is given what is in a completion, one by one, as older kernels do */

struct io_ring_ctx;
struct io_cqe {
	__u64 user_data;
} __attribute__((preserve_access_index));
struct io_kiocb {
	struct io_cqe cqe;
	__u8 opcode;
	unsigned int flags; /* the lower half of what is 64 bits in newer kernels */
	struct io_ring_ctx *ctx;
} __attribute__((preserve_access_index));
struct task_struct {
	unsigned int flags;
	int pid, tgid;
} __attribute__((preserve_access_index));

/* Index: row * SLOTS + slot; for the other probes row is 0. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ROWS *SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} slots SEC(".maps");

/* Sums in nanoseconds, by row. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ROWS);
	__type(key, __u32);
	__type(value, __u64);
} sums SEC(".maps");

/* 0: submitted, 1: completed; then submitted by row. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 + ROWS);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

/* When a request was submitted, when the kernel first put it aside, and when its file became ready of which it has not completed anything since; 0: never. */
struct request {
	__u64 submitted, queued, ready;
	__u32 row;
};

/* Requests that are timed. The oldest go when it is full. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct request);
} submitted SEC(".maps");

/* Multishot requests that are timed, by what their completions have: all but the last come without the request. */
struct name {
	__u64 ring, user_data;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct name);
	__type(value, __u64);
} named SEC(".maps");

/* The segments of a request, as in probe_linux.go. */
#define TO_QUEUE 0    /* submitted until put aside: armed for when its file is ready, or given to a worker */
#define TO_COMPLETE 1 /* put aside until complete */
#define AT_ONCE 2     /* submitted until complete, of those that were not put aside */
#define TO_REAPED 3   /* complete until the system call returned in which it was, so that its program can take it */
#define FROM_READY 4  /* multishot: its file became ready until complete */
#define SEGMENTS 5

/* Index: (row * SEGMENTS + segment) * SLOTS + slot. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ROWS *SEGMENTS *SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} segment_slots SEC(".maps");

/* Sums in nanoseconds, by row * SEGMENTS + segment. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ROWS *SEGMENTS);
	__type(key, __u32);
	__type(value, __u64);
} segment_sums SEC(".maps");

/* What completed in a system call that has not returned. The thread whose call it is writes and reads. Beyond HELD, what completes is not timed. */
#define HELD 32
struct held {
	__u64 n;
	__u64 at[HELD]; /* the time in ns << 7 | row */
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct held);
} holding SEC(".maps");

/* When a socket's wait began, or a thread's, which are asked for at every event: a hundredth of a microsecond here, a tenth with a hash table. What
 * falls into the same place drives out what was there: a sample is lost. */
#define WAITS 65536
struct wait {
	__u64 of, since; /* since 0: nothing is waited for */
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WAITS);
	__type(key, __u32);
	__type(value, struct wait);
} waits SEC(".maps");

/* Rings of the process that is asked about. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, __u32);
} rings SEC(".maps");

/* The ring that was seen last on this CPU: it is in rings, and need not be looked for there. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} last_ring SEC(".maps");

static __always_inline void add(void *map, __u32 key, __u64 n) {
	__u64 *v = bpf_map_lookup_elem(map, &key);
	if (v)
		*v += n;
}

static __always_inline __u32 log2_of(__u64 v) {
	__u32 r = 0;
	for (int shift = 32; shift > 0; shift >>= 1)
		if (v >> shift) {
			v >>= shift;
			r += shift;
		}
	return r;
}

static __always_inline void took(__u32 row, __u64 ns) {
	add(&slots, row * SLOTS + log2_of(ns), 1);
	add(&sums, row, ns);
}

static __always_inline __u64 hash(__u64 of) { return of * 0x9E3779B97F4A7C15; } /* Fibonacci hashing: Knuth, TAOCP 3, 6.4 */

static __always_inline struct wait *place(__u64 of) {
	__u32 i = hash(of) >> 48;
	return bpf_map_lookup_elem(&waits, &i);
}

/* begins starts a wait, unless one runs and is not to begin again. */
static __always_inline void begins(__u64 of, int again) {
	struct wait *w = place(of);
	if (!w || (w->of == of && w->since && !again))
		return;
	w->of = of;
	w->since = bpf_ktime_get_ns();
}

/* ends says whether there was a wait; its time is of interest where counts is set. */
static __always_inline int ends(__u64 of, int counts) {
	struct wait *w = place(of);
	if (!w || w->of != of || !w->since)
		return 0;
	if (counts)
		took(0, bpf_ktime_get_ns() - w->since);
	w->since = 0;
	return 1;
}

static __always_inline int ours(void) {
	return !only_tgid || bpf_get_current_pid_tgid() >> 32 == only_tgid;
}

/* sampled is the same when a request is submitted and when it completes: no table needs to be asked. All bits of user_data count, wherever a
 * program has what differs: package uring names a slot, and has the number of its operations from bit 40 up. */
static __always_inline int sampled(__u64 data) { return !(hash(data) >> 54 & sample_mask); }

/* has_name is whether a request is multishot, or may be: no flag of IORING_OP_POLL_ADD says it. */
static __always_inline int has_name(__u32 row) { return row >= OPCODES || row == 6; }

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(uring_submit, struct io_kiocb *req) {
	if (!ours())
		return 0;
	__u64 ring = (__u64)req->ctx, key = (__u64)req;
	__u32 op = req->opcode, one = 1;
	if (op >= OPCODES)
		op = OPCODES - 1;
	__u32 row = BPF_CORE_READ(req, flags) & multishot_flags ? op + OPCODES : op;
	add(&counts, 0, 1);
	add(&counts, 2 + row, 1);
	if (only_tgid) {
		__u32 first = 0;
		__u64 *last = bpf_map_lookup_elem(&last_ring, &first);
		if (last && *last != ring) {
			bpf_map_update_elem(&rings, &ring, &one, BPF_ANY);
			*last = ring;
		}
	}
	if (sampled(req->cqe.user_data)) {
		struct request now = {.submitted = bpf_ktime_get_ns(), .row = row};
		bpf_map_update_elem(&submitted, &key, &now, BPF_ANY);
		if (has_name(row)) {
			struct name name = {ring, req->cqe.user_data};
			bpf_map_update_elem(&named, &name, &key, BPF_ANY);
		}
	}
	return 0;
}

static __always_inline void passed(__u32 row, __u32 segment, __u64 ns) {
	__u32 at = row * SEGMENTS + segment;
	add(&segment_slots, at * SLOTS + log2_of(ns), 1);
	add(&segment_sums, at, ns);
}

/* hold keeps a completion until the system call returns in which it came. Those that a worker posts, or a thread that polls, are in none. */
static __always_inline void hold(__u32 row, __u64 now) {
	struct task_struct *t = (struct task_struct *)bpf_get_current_task();
	if (BPF_CORE_READ(t, flags) & 0x10) /* PF_IO_WORKER */
		return;
	__u64 id = bpf_get_current_pid_tgid();
	struct held *h = bpf_map_lookup_elem(&holding, &id);
	if (!h) {
		struct held none = {};
		bpf_map_update_elem(&holding, &id, &none, BPF_ANY);
		h = bpf_map_lookup_elem(&holding, &id);
	}
	if (!h)
		return;
	__u64 n = h->n;
	if (n >= HELD)
		return;
	h->at[n] = now << 7 | row;
	h->n = n + 1;
}

/* shot is a completion of a multishot request. It is timed from when its file became ready; those that follow at once, of the same time, are not. */
static __always_inline void shot(struct request *r, int segments) {
	__u64 ready = r->ready, now = bpf_ktime_get_ns();
	__u32 row = r->row;
	if (!ready || row >= ROWS)
		return;
	r->ready = 0;
	took(row, now - ready);
	if (segments) {
		passed(row, FROM_READY, now - ready);
		hold(row, now);
	}
}

/* The completion of which io_uring_complete tells: its third argument, or what was in it the third and fourth one. */
struct result {
	__u64 user_data;
	int res;
};

static __always_inline struct result result_of(unsigned long long *ctx) {
	struct result of = {};
	if (complete_has_data) {
		of.user_data = ctx[2];
		of.res = ctx[3];
	} else
		bpf_probe_read_kernel(&of, 12, (void *)ctx[2]); /* struct io_uring_cqe begins with these */
	return of;
}

/* goes_on is a completion that came without its request, since that is not complete: of one that is multishot. */
static __always_inline void goes_on(unsigned long long *ctx, __u64 ring, int segments) {
	struct name name = {ring, result_of(ctx).user_data};
	if (!sampled(name.user_data))
		return;
	__u64 *key = bpf_map_lookup_elem(&named, &name);
	struct request *r = key ? bpf_map_lookup_elem(&submitted, key) : 0;
	if (!r)
		return;
	if (r->row < OPCODES)
		r->row += OPCODES;
	shot(r, segments);
}

static __always_inline int completes(unsigned long long *ctx, struct io_kiocb *req, int segments) {
	__u64 ring = ctx[0], key = (__u64)req;
	if (!ours() && !bpf_map_lookup_elem(&rings, &ring)) /* most complete in their own thread */
		return 0;
	add(&counts, 1, 1);
	if (!req) {
		goes_on(ctx, ring, segments);
		return 0;
	}
	struct name name = {ring, BPF_CORE_READ(req, cqe.user_data)}; /* typed as void here, so read with care */
	if (!sampled(name.user_data))
		return 0;
	struct request *r = bpf_map_lookup_elem(&submitted, &key);
	if (!r)
		return 0;
	__u32 row = r->row;
	if (has_name(row))
		bpf_map_delete_elem(&named, &name);
	if (row >= OPCODES) { /* it was submitted once for all of its completions */
		if (result_of(ctx).res != -125) /* ECANCELED: nothing has arrived */
			shot(r, segments);
		bpf_map_delete_elem(&submitted, &key);
		return 0;
	}
	__u64 now = bpf_ktime_get_ns();
	took(row, now - r->submitted);
	if (segments) {
		if (r->queued) {
			passed(row, TO_QUEUE, r->queued - r->submitted);
			passed(row, TO_COMPLETE, now - r->queued);
		} else
			passed(row, AT_ONCE, now - r->submitted);
		hold(row, now);
	}
	bpf_map_delete_elem(&submitted, &key);
	return 0;
}

SEC("tp_btf/io_uring_complete")
int BPF_PROG(uring_complete, void *owner, struct io_kiocb *req) { return completes(ctx, req, 0); }

SEC("tp_btf/io_uring_complete")
int BPF_PROG(uring_passes, void *owner, struct io_kiocb *req) { return completes(ctx, req, 1); }

/* ready is when a file that a request waits for wakes it. What wakes it again before that is handled comes without this. A multishot request may be as
 * old as its connection: one that was submitted before the probe began is timed, too. */
SEC("tp_btf/io_uring_task_add")
int BPF_PROG(uring_ready, struct io_kiocb *req) {
	__u64 key = (__u64)req;
	if (!sampled(req->cqe.user_data))
		return 0;
	struct request *r = bpf_map_lookup_elem(&submitted, &key);
	if (!r && BPF_CORE_READ(req, flags) & multishot_flags) {
		__u32 op = req->opcode;
		if (op >= OPCODES)
			op = OPCODES - 1;
		struct request now = {.ready = bpf_ktime_get_ns(), .row = op + OPCODES};
		struct name name = {(__u64)req->ctx, req->cqe.user_data};
		bpf_map_update_elem(&submitted, &key, &now, BPF_ANY);
		bpf_map_update_elem(&named, &name, &key, BPF_ANY);
	} else if (r && !r->ready)
		r->ready = bpf_ktime_get_ns();
	return 0;
}

/* aside notes when a request was put aside, the first time. Only those that are timed have a place. */
static __always_inline int aside(struct io_kiocb *req) {
	__u64 key = (__u64)req;
	if (!sampled(req->cqe.user_data))
		return 0;
	struct request *r = bpf_map_lookup_elem(&submitted, &key);
	if (r && !r->queued)
		r->queued = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/io_uring_poll_arm")
int BPF_PROG(uring_armed, struct io_kiocb *req) { return aside(req); }

SEC("tp_btf/io_uring_queue_async_work")
int BPF_PROG(uring_given, struct io_kiocb *req) { return aside(req); }

struct returns {
	struct held *held;
	__u64 now;
};

static long returned(__u32 i, struct returns *r) {
	if (i >= HELD)
		return 1;
	__u64 at = r->held->at[i];
	passed(at & (ROWS - 1), TO_REAPED, r->now - (at >> 7));
	return 0;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(uring_reaped) {
	__u64 id = bpf_get_current_pid_tgid();
	if (!ours())
		return 0;
	struct held *h = bpf_map_lookup_elem(&holding, &id);
	if (!h || !h->n)
		return 0;
	struct returns r = {h, bpf_ktime_get_ns()};
	bpf_loop(h->n, returned, &r, 0); /* unrolled it would be more than the verifier follows */
	h->n = 0;
	return 0;
}

/* The programs of sockets are raw: a socket's address is a number to them. */

/* its_turn is of one socket in as many as sample_mask says, another one every 16 jiffies. */
static __always_inline int its_turn(__u64 sk) { return !((hash(sk) >> 32 ^ bpf_jiffies64() >> 4) & sample_mask); }

SEC("raw_tp/sk_data_ready")
int BPF_PROG(net_ready, __u64 sk) {
	if (its_turn(sk))
		begins(sk, 0); /* the first arrival counts */
	return 0;
}

SEC("raw_tp/sock_recv_length")
int BPF_PROG(net_read, __u64 sk, int ret) {
	int read = ret > 0 && ours();
	if (read)
		add(&counts, 1, 1);
	ends(sk, read);
	return 0;
}

/* What was never read must not be the beginning of another connection's wait, whose socket gets this one's memory. */
SEC("raw_tp/inet_sock_set_state")
int BPF_PROG(net_state, __u64 sk, int before, int after) {
	if (after == 7) /* TCP_CLOSE */
		ends(sk, 0);
	return 0;
}

/* The way of exchanges between the clients and the servers of one TCP port, both on this machine: a request is sent, arrives, is read; its answer is
 * sent, arrives, is read. Stations are summed up, not exchanges: the time from one to the next is the difference of their sums, by their count. */
volatile const __u16 only_port = 0;

enum station { REQUEST_SENT, REQUEST_ARRIVED, REQUEST_READ, ANSWER_SENT, ANSWER_ARRIVED, ANSWER_READ, STATIONS };

struct sock_common {
	__be16 skc_dport;
	__u16 skc_num;
	unsigned char skc_state;
} __attribute__((preserve_access_index));
struct sock {
	struct sock_common __sk_common;
} __attribute__((preserve_access_index));

/* Index: station: how many passed it; STATIONS + station: the sum of the moments at which they did, in ns, modulo 2^64. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 * STATIONS);
	__type(key, __u32);
	__type(value, __u64);
} stations SEC(".maps");

/* The station that a socket passed last. Its own events alone write it: what two of them write at once is of two exchanges at once, which are not for
 * this. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u32);
} passed_last SEC(".maps");

/* pass notes that a socket passes a station, where it is at the one before. So the first piece counts of what goes, comes or is read in several. */
static __always_inline int pass(struct sock *sk, enum station of_server, enum station of_client) {
	__u64 key = (__u64)sk;
	__u32 station;
	if (sk->__sk_common.skc_num == only_port)
		station = of_server;
	else if (sk->__sk_common.skc_dport == __builtin_bswap16(only_port))
		station = of_client;
	else
		return 0;
	if (sk->__sk_common.skc_state != 1) /* TCP_ESTABLISHED: the end of a connection arrives, too, and a listener's sockets */
		return 0;
	__u32 *last = bpf_map_lookup_elem(&passed_last, &key);
	__u32 begins = station == REQUEST_SENT || station == REQUEST_ARRIVED;
	__u32 before = station == REQUEST_SENT ? ANSWER_READ : station == REQUEST_ARRIVED ? ANSWER_SENT : station == ANSWER_ARRIVED ? REQUEST_SENT : station - 1;
	if (last ? *last != before : !begins)
		return 0;
	if (last)
		*last = station;
	else
		bpf_map_update_elem(&passed_last, &key, &station, BPF_ANY);
	add(&stations, station, 1);
	add(&stations, STATIONS + station, bpf_ktime_get_ns());
	return 0;
}

/* Linux 6.16 has a tracepoint there; before it the function itself is entered, which not every kernel allows. */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(way_sent, struct sock *sk) { return pass(sk, ANSWER_SENT, REQUEST_SENT); }

SEC("fentry/tcp_sendmsg")
int BPF_PROG(way_entered, struct sock *sk) { return pass(sk, ANSWER_SENT, REQUEST_SENT); }

SEC("tp_btf/sk_data_ready")
int BPF_PROG(way_arrived, struct sock *sk) { return pass(sk, REQUEST_ARRIVED, ANSWER_ARRIVED); }

SEC("tp_btf/sock_recv_length")
int BPF_PROG(way_read, struct sock *sk, int ret) { return ret > 0 ? pass(sk, REQUEST_READ, ANSWER_READ) : 0; }

/* The memory of a socket that is closed will be another connection's. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(way_closed, struct sock *sk, int before, int after) {
	__u64 key = (__u64)sk;
	if (after == 7) /* TCP_CLOSE */
		bpf_map_delete_elem(&passed_last, &key);
	return 0;
}

static __always_inline int woken(struct task_struct *p) {
	if (!only_tgid || p->tgid == only_tgid)
		begins(p->pid, 1);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_woken, struct task_struct *p) { return woken(p); }

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_new, struct task_struct *p) { return woken(p); }

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_runs, int preempt, struct task_struct *prev, struct task_struct *next) {
	if ((!only_tgid || next->tgid == only_tgid) && ends(next->pid, 1))
		add(&counts, 1, 1);
	return 0;
}

/* Processes whose system calls are counted, and what they start. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u8);
} callers SEC(".maps");

/* System calls by number. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CALLS);
	__type(key, __u32);
	__type(value, __u64);
} calls SEC(".maps");

SEC("tp_btf/sys_enter")
int BPF_PROG(call_enters, struct pt_regs *regs, long nr) {
	__u32 tgid = bpf_get_current_pid_tgid() >> 32;
	if (bpf_map_lookup_elem(&callers, &tgid))
		add(&calls, nr >= 0 && nr < CALLS ? nr : CALLS - 1, 1);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(call_forks, struct task_struct *parent, struct task_struct *child) {
	__u32 from = parent->tgid, to = child->tgid;
	__u8 one = 1;
	if (from != to && bpf_map_lookup_elem(&callers, &from))
		bpf_map_update_elem(&callers, &to, &one, BPF_ANY);
	return 0;
}

/* The ways of one thread from being woken to running. PATHS are kept, the first ones. */
#define PATHS 65536
volatile const __u32 only_thread = 0;

struct path {
	/* expired: when the timer did that was handled last on the CPU that woke it; interrupted: the beginning of the interrupt in which that was; 0: none was */
	__u64 interrupted, expired, woken, runs;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PATHS);
	__type(key, __u32);
	__type(value, struct path);
} paths SEC(".maps");

/* 0: how many paths there are; the next free place. One thread writes: the one whose switch it is. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} path_count SEC(".maps");

/* What was last on a CPU, and the interrupt that it is in, 0: none. Its own programs alone write it, which do not interrupt each other: interrupts are
 * off in all of them. */
struct last {
	__u64 interrupt, timer, interrupt_of_timer;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct last);
} last_events SEC(".maps");

static __always_inline struct last *last_event(void) {
	__u32 first = 0;
	return bpf_map_lookup_elem(&last_events, &first);
}

static __always_inline struct path *next_path(__u32 **n) {
	__u32 first = 0, i;
	*n = bpf_map_lookup_elem(&path_count, &first);
	if (!*n || (i = **n) >= PATHS)
		return 0;
	return bpf_map_lookup_elem(&paths, &i);
}

static __always_inline int in_interrupt(__u64 since) {
	struct last *last = last_event();
	if (last)
		last->interrupt = since;
	return 0;
}

/* The interrupt of the timer that each CPU has: on x86 it is a vector of its own, elsewhere it is handled as a device's. */
SEC("raw_tp/local_timer_entry")
int BPF_PROG(path_timer_begins, int vector) { return in_interrupt(bpf_ktime_get_ns()); }

SEC("raw_tp/local_timer_exit")
int BPF_PROG(path_timer_ends, int vector) { return in_interrupt(0); }

SEC("raw_tp/irq_handler_entry")
int BPF_PROG(path_device_begins, int irq) { return in_interrupt(bpf_ktime_get_ns()); }

SEC("raw_tp/irq_handler_exit")
int BPF_PROG(path_device_ends, int irq) { return in_interrupt(0); }

SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(path_expired, void *timer, void *now) {
	struct last *last = last_event();
	if (last) {
		last->timer = bpf_ktime_get_ns();
		last->interrupt_of_timer = last->interrupt;
	}
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(path_woken, struct task_struct *p) {
	__u32 *n;
	if (p->pid != only_thread)
		return 0;
	struct path *at = next_path(&n);
	struct last *last = last_event();
	if (at && last) {
		at->interrupted = last->interrupt_of_timer;
		at->expired = last->timer;
		at->woken = bpf_ktime_get_ns();
	}
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(path_runs, int preempt, struct task_struct *prev, struct task_struct *next) {
	__u32 *n;
	if (next->pid != only_thread)
		return 0;
	struct path *at = next_path(&n);
	if (at && at->woken) { /* else it was pre-empted, not woken */
		at->runs = bpf_ktime_get_ns();
		++*n;
	}
	return 0;
}
