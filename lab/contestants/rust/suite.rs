// rust: is triggered, stamps the time, aggregates, and pushes that into the queue of results (descriptor 3). suite suite trigger=timer|event seconds=S
// Descriptor 4 is an eventfd: its first number is the start, each after it an event, and one of END or more the last. Ticks are the processor's own.
use std::ffi::{c_int, c_long, c_void};

mod queue;
use queue::{Queue, CLOCK, SAMPLE};

#[repr(C)]
struct Timespec {
    sec: c_long,
    nsec: c_long,
}

extern "C" {
    fn clock_gettime(clock: c_int, t: *mut Timespec) -> c_int;
    fn clock_nanosleep(clock: c_int, flags: c_int, t: *const Timespec, left: *mut Timespec) -> c_int;
    fn read(fd: c_int, b: *mut c_void, n: usize) -> isize;
    fn sched_setscheduler(pid: c_int, policy: c_int, param: *const c_int) -> c_int;
    fn prctl(option: c_int, ...) -> c_int;
}

const MONOTONIC: c_int = 1;
const EVERY: i64 = 200_000;
const END: u64 = 1000;

fn now() -> i64 {
    let mut t = Timespec { sec: 0, nsec: 0 };
    unsafe { clock_gettime(MONOTONIC, &mut t) };
    t.sec as i64 * 1_000_000_000 + t.nsec as i64
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn ticks() -> u64 {
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn ticks() -> u64 {
    let t: u64;
    unsafe { std::arch::asm!("mrs {}, cntvct_el0", out(reg) t) };
    t
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn ticks() -> u64 {
    now() as u64
}

struct All {
    bins: [u64; 64],
    n: u64,
    sum: u64,
    most: u64,
    squares: f64,
}

impl All {
    fn add(&mut self, v: u64) {
        self.bins[v.checked_ilog2().unwrap_or(0) as usize] += 1;
        self.n += 1;
        self.sum += v;
        self.squares += v as f64 * v as f64;
        self.most = self.most.max(v);
    }
}

// tell_clock pushes what the ticks are at a time: the closest of some pairs.
fn tell_clock(queue: &mut Queue) {
    let (mut least, mut due, mut at) = (u64::MAX, 0, 0);
    for _ in 0..100 {
        let before = ticks();
        let ns = now();
        let took = ticks() - before;
        if took < least {
            (least, due, at) = (took, ns as u64, before + took / 2);
        }
    }
    queue.push(&[CLOCK, due, at, 0, 0, 0, 0, 0]);
}

fn number() -> u64 {
    let mut n = 0u64;
    assert_eq!(unsafe { read(4, &mut n as *mut u64 as *mut c_void, 8) }, 8, "events: {}", std::io::Error::last_os_error());
    n
}

fn main() {
    let param = |key: &str| std::env::args().find_map(|a| a.strip_prefix(&format!("{key}=")).map(String::from)).unwrap_or_default();
    let length = (param("seconds").parse::<f64>().expect("seconds=") * 1e9) as i64;
    let timer = param("trigger") == "timer";
    let mut queue = Queue::open(3);
    unsafe {
        prctl(29, 1usize);
        sched_setscheduler(0, 1, &80); // where it is allowed
    }
    let mut all = All { bins: [0; 64], n: 0, sum: 0, most: 0, squares: 0.0 };
    tell_clock(&mut queue);
    number();
    let (mut push, mut last, mut next) = (0, ticks(), now() + EVERY);
    let end = next + length;
    while next < end {
        if timer {
            let t = Timespec { sec: (next / 1_000_000_000) as _, nsec: (next % 1_000_000_000) as _ };
            unsafe { clock_nanosleep(MONOTONIC, 1, &t, std::ptr::null_mut()) };
        } else if number() >= END {
            break;
        }
        let woke = ticks();
        let stamped = ticks();
        all.add(woke - last);
        let aggregated = ticks();
        queue.push(&[SAMPLE, if timer { next as u64 } else { 0 }, woke, stamped, aggregated, push, 0, 0]);
        push = ticks() - aggregated;
        last = woke;
        if timer {
            while next <= now() {
                next += EVERY;
            }
        }
    }
    tell_clock(&mut queue);
    queue.close();
    assert!(std::hint::black_box(&all).n > 0);
}
