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
#define CALLS 512

/* Set before the programs are loaded. */
volatile const __u32 only_tgid = 0;   /* 0: every process */
volatile const __u64 sample_mask = 0; /* of the hash of what is asked, a request by its user_data or a socket: times are taken where none of its bits is set */

struct io_ring_ctx;
struct io_cqe {
	__u64 user_data;
} __attribute__((preserve_access_index));
struct io_kiocb {
	struct io_cqe cqe;
	__u8 opcode;
	struct io_ring_ctx *ctx;
} __attribute__((preserve_access_index));
struct task_struct {
	unsigned int flags;
	int pid, tgid;
} __attribute__((preserve_access_index));

/* Index: opcode * SLOTS + slot; for the other probes opcode is 0. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OPCODES *SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} slots SEC(".maps");

/* Sums in nanoseconds, by opcode. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OPCODES);
	__type(key, __u32);
	__type(value, __u64);
} sums SEC(".maps");

/* 0: submitted, 1: completed; then submitted by opcode. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2 + OPCODES);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

/* When a request was submitted, and when the kernel first put it aside; 0: it has not. */
struct request {
	__u64 submitted, queued;
};

/* Requests that are timed. The oldest go when it is full. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct request);
} submitted SEC(".maps");

/* The segments of a request, as in probe_linux.go. */
#define TO_QUEUE 0    /* submitted until put aside: armed for when its file is ready, or given to a worker */
#define TO_COMPLETE 1 /* put aside until complete */
#define AT_ONCE 2     /* submitted until complete, of those that were not put aside */
#define TO_REAPED 3   /* complete until the system call returned in which it was, so that its program can take it */
#define SEGMENTS 4

/* Index: (opcode * SEGMENTS + segment) * SLOTS + slot. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OPCODES *SEGMENTS *SLOTS);
	__type(key, __u32);
	__type(value, __u64);
} segment_slots SEC(".maps");

/* Sums in nanoseconds, by opcode * SEGMENTS + segment. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OPCODES *SEGMENTS);
	__type(key, __u32);
	__type(value, __u64);
} segment_sums SEC(".maps");

/* What completed in a system call that has not returned. The thread whose call it is writes and reads. Beyond HELD, what completes is not timed. */
#define HELD 32
struct held {
	__u64 n;
	__u64 at[HELD]; /* the time in ns << 6 | opcode */
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

static __always_inline void took(__u32 op, __u64 ns) {
	__u32 slot = log2_of(ns);
	if (op >= OPCODES)
		op = OPCODES - 1;
	add(&slots, op * SLOTS + slot, 1);
	add(&sums, op, ns);
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

SEC("tp_btf/io_uring_submit_req")
int BPF_PROG(uring_submit, struct io_kiocb *req) {
	if (!ours())
		return 0;
	__u64 ring = (__u64)req->ctx, key = (__u64)req;
	__u32 op = req->opcode, one = 1;
	if (op >= OPCODES)
		op = OPCODES - 1;
	add(&counts, 0, 1);
	add(&counts, 2 + op, 1);
	if (only_tgid) {
		__u32 first = 0;
		__u64 *last = bpf_map_lookup_elem(&last_ring, &first);
		if (last && *last != ring) {
			bpf_map_update_elem(&rings, &ring, &one, BPF_ANY);
			*last = ring;
		}
	}
	if (sampled(req->cqe.user_data)) {
		struct request now = {.submitted = bpf_ktime_get_ns()};
		bpf_map_update_elem(&submitted, &key, &now, BPF_ANY);
	}
	return 0;
}

static __always_inline void passed(__u32 op, __u32 segment, __u64 ns) {
	__u32 at = op * SEGMENTS + segment;
	add(&segment_slots, at * SLOTS + log2_of(ns), 1);
	add(&segment_sums, at, ns);
}

/* hold keeps a completion until the system call returns in which it came. Those that a worker posts, or a thread that polls, are in none. */
static __always_inline void hold(__u32 op, __u64 now) {
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
	h->at[n] = now << 6 | op;
	h->n = n + 1;
}

/* The first completion of a request ends its time; those that follow (multishot) come without a request and only count. */
static __always_inline int completes(void *owner, struct io_kiocb *req, int segments) {
	__u64 ring = (__u64)owner, key = (__u64)req;
	if (!ours() && !bpf_map_lookup_elem(&rings, &ring)) /* most complete in their own thread */
		return 0;
	add(&counts, 1, 1);
	if (!req || !sampled(BPF_CORE_READ(req, cqe.user_data))) /* typed as void here, so read with care */
		return 0;
	struct request *r = bpf_map_lookup_elem(&submitted, &key);
	if (!r)
		return 0;
	__u64 now = bpf_ktime_get_ns();
	__u32 op = BPF_CORE_READ(req, opcode);
	if (op >= OPCODES)
		op = OPCODES - 1;
	took(op, now - r->submitted);
	if (segments) {
		if (r->queued) {
			passed(op, TO_QUEUE, r->queued - r->submitted);
			passed(op, TO_COMPLETE, now - r->queued);
		} else
			passed(op, AT_ONCE, now - r->submitted);
		hold(op, now);
	}
	bpf_map_delete_elem(&submitted, &key);
	return 0;
}

SEC("tp_btf/io_uring_complete")
int BPF_PROG(uring_complete, void *owner, struct io_kiocb *req) { return completes(owner, req, 0); }

SEC("tp_btf/io_uring_complete")
int BPF_PROG(uring_passes, void *owner, struct io_kiocb *req) { return completes(owner, req, 1); }

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
	passed(at & (OPCODES - 1), TO_REAPED, r->now - (at >> 6));
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
