// rust: hears of events, and says how late. The thread that waits is on the last CPU that it may have, in SCHED_FIFO 80, where that is allowed. event event event=eventfd|pipe|timerfd|signal seconds=S
// Another thread, on the first CPU, makes an event EVERY ns behind the moment at which the one before was heard; a timerfd expires so often by itself.
use std::ffi::{c_int, c_long, c_void};
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

#[repr(C)]
#[derive(Clone, Copy)]
struct Timespec {
    sec: c_long,
    nsec: c_long,
}

type Signals = [u64; 16];
type Cpus = [u64; 16];

extern "C" {
    fn clock_gettime(clock: c_int, t: *mut Timespec) -> c_int;
    fn eventfd(value: u32, flags: c_int) -> c_int;
    fn pipe(fds: *mut c_int) -> c_int;
    fn timerfd_create(clock: c_int, flags: c_int) -> c_int;
    fn timerfd_settime(fd: c_int, flags: c_int, grid: *const [Timespec; 2], before: *mut c_void) -> c_int;
    fn read(fd: c_int, b: *mut c_void, n: usize) -> isize;
    fn write(fd: c_int, b: *const c_void, n: usize) -> isize;
    fn signal(number: c_int, handler: extern "C" fn(c_int)) -> usize;
    fn sigemptyset(set: *mut Signals) -> c_int;
    fn sigaddset(set: *mut Signals, number: c_int) -> c_int;
    fn pthread_sigmask(how: c_int, set: *const Signals, before: *mut Signals) -> c_int;
    fn sigsuspend(set: *const Signals) -> c_int;
    fn pthread_self() -> usize;
    fn pthread_kill(thread: usize, number: c_int) -> c_int;
    fn mlockall(flags: c_int) -> c_int;
    fn sched_setscheduler(pid: c_int, policy: c_int, param: *const c_int) -> c_int;
    fn sched_getaffinity(pid: c_int, size: usize, set: *mut Cpus) -> c_int;
    fn sched_setaffinity(pid: c_int, size: usize, set: *const Cpus) -> c_int;
    fn prctl(option: c_int, ...) -> c_int;
}

const MONOTONIC: c_int = 1;
const USR1: c_int = 10;
const EVERY: i64 = 200_000;
const MOST: usize = 1 << 18;

static MADE: AtomicI64 = AtomicI64::new(0); // when the event was made
static HEARD: AtomicUsize = AtomicUsize::new(0);
static OVER: AtomicBool = AtomicBool::new(false);
static mut LATE: [i64; MOST] = [1; MOST]; // the thread that waits alone writes it

fn now() -> i64 {
    let mut t = Timespec { sec: 0, nsec: 0 };
    unsafe { clock_gettime(MONOTONIC, &mut t) };
    t.sec as i64 * 1_000_000_000 + t.nsec as i64
}

fn at(ns: i64) -> Timespec {
    Timespec { sec: (ns / 1_000_000_000) as _, nsec: (ns % 1_000_000_000) as _ }
}

fn allowed() -> Vec<usize> {
    let mut all: Cpus = [0; 16];
    unsafe { sched_getaffinity(0, std::mem::size_of::<Cpus>(), &mut all) };
    (0..1024).filter(|i| all[i / 64] >> (i % 64) & 1 == 1).collect()
}

fn take_cpu(i: usize) {
    let mut one: Cpus = [0; 16];
    one[i / 64] = 1 << (i % 64);
    assert_eq!(unsafe { sched_setaffinity(0, std::mem::size_of::<Cpus>(), &one) }, 0);
}

fn hear(since: i64) {
    let n = HEARD.load(Ordering::SeqCst);
    unsafe { LATE[n % MOST] = now() - since };
    HEARD.store(n + 1, Ordering::SeqCst);
}

extern "C" fn on_signal(_: c_int) {
    hear(MADE.load(Ordering::SeqCst));
}

// make makes an event again and again, until the time is over; the last one ends the wait.
fn make(event: impl Fn(), length: i64, cpu: usize) {
    take_cpu(cpu);
    let end = now() + length;
    for n in 0.. {
        thread::sleep(Duration::from_nanos(EVERY as u64));
        let last = now() >= end;
        OVER.store(last, Ordering::SeqCst);
        MADE.store(now(), Ordering::SeqCst);
        event();
        if last {
            return;
        }
        while HEARD.load(Ordering::SeqCst) <= n {
            thread::sleep(Duration::from_micros(20)); // it is asleep by the time of the next one
        }
    }
}

fn number(fd: c_int) -> u64 {
    let mut n = 0u64;
    if unsafe { read(fd, &mut n as *mut u64 as *mut c_void, 8) } < 0 {
        panic!("read: {}", io::Error::last_os_error());
    }
    n
}

// by_timer hears a timer that expires each EVERY ns: one event a read, that of the first expiration which it tells.
fn by_timer(fd: c_int, began: i64, length: i64) {
    let grid = [at(EVERY), at(began + EVERY)];
    if unsafe { timerfd_settime(fd, 1, &grid, std::ptr::null_mut()) } != 0 {
        panic!("timerfd: {}", io::Error::last_os_error());
    }
    let mut next = began + EVERY;
    while next < began + length {
        let n = number(fd) as i64;
        hear(next);
        next += n * EVERY;
    }
}

fn by_signal(length: i64, other: usize) {
    let (mut usr, mut before) = ([0u64; 16], [0u64; 16]);
    let waiter = unsafe {
        signal(USR1, on_signal);
        sigemptyset(&mut usr);
        sigaddset(&mut usr, USR1);
        pthread_sigmask(0, &usr, &mut before); // until it waits, and in the thread that sends it
        pthread_self()
    };
    let maker = thread::spawn(move || make(|| unsafe { assert_eq!(pthread_kill(waiter, USR1), 0) }, length, other));
    unsafe { sched_setscheduler(0, 1, &80) };
    while !OVER.load(Ordering::SeqCst) {
        unsafe { sigsuspend(&before) };
    }
    maker.join().unwrap();
}

fn by_descriptor(from: c_int, to: c_int, length: i64, other: usize) {
    let one = 1u64;
    let maker = thread::spawn(move || make(|| unsafe { assert_eq!(write(to, &one as *const u64 as *const c_void, 8), 8) }, length, other));
    unsafe { sched_setscheduler(0, 1, &80) };
    while !OVER.load(Ordering::SeqCst) {
        number(from);
        hear(MADE.load(Ordering::SeqCst));
    }
    maker.join().unwrap();
}

fn main() {
    let param = |key: &str| std::env::args().find_map(|a| a.strip_prefix(&format!("{key}=")).map(String::from)).unwrap_or_default();
    let length = (param("seconds").parse::<f64>().expect("seconds=") * 1e9) as i64;
    let kind = param("event");
    let mut fds = [0 as c_int; 2];
    unsafe {
        match kind.as_str() {
            "eventfd" => fds = [eventfd(0, 0); 2],
            "pipe" => assert_eq!(pipe(fds.as_mut_ptr()), 0),
            "timerfd" => fds[0] = timerfd_create(MONOTONIC, 0),
            "signal" => (),
            _ => panic!("event={kind}"),
        }
        mlockall(3);
    }
    let cpus = allowed();
    take_cpu(*cpus.last().expect("a CPU"));
    println!("ready");
    let mut go = [0u8; 3];
    io::stdin().read_exact(&mut go).expect("go");
    let began = now();
    match kind.as_str() {
        "signal" => by_signal(length, cpus[0]),
        "timerfd" => {
            unsafe {
                sched_setscheduler(0, 1, &80);
                prctl(29, 1usize);
            }
            by_timer(fds[0], began, length)
        }
        _ => by_descriptor(fds[0], fds[1], length, cpus[0]),
    }
    unsafe { sched_setscheduler(0, 0, &0) };
    let took = now() - began;
    println!("done");
    io::stdout().flush().unwrap();
    let mut rest = Vec::new();
    io::stdin().read_to_end(&mut rest).unwrap();
    let n = HEARD.load(Ordering::SeqCst).min(MOST);
    let mut late: Vec<i64> = (0..n).map(|i| unsafe { LATE[i] }).collect();
    late.sort();
    let mut out = format!("BenchmarkEvent {n} {} ns/op", took as f64 / n as f64);
    for (name, p) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999)] {
        if p < 0.99 || n as f64 * (1.0 - p) >= 5.0 {
            out += &format!(" {} latency_us_{}", late[(n as f64 * p) as usize] as f64 / 1e3, name);
        }
    }
    println!("{out} {} latency_us_max", late[n - 1] as f64 / 1e3);
}
