// rust/…: wakes up each period and says how late: by clock_nanosleep or by std::thread::sleep. In SCHED_FIFO 80 with locked memory, where that is allowed.
// cyclic cyclic how=nanosleep|sleep interval_us=N seconds=S
use std::io::{self, Read, Write};
use std::thread;
use std::time::Duration;

#[repr(C)]
struct Timespec {
    sec: std::ffi::c_long,
    nsec: std::ffi::c_long,
}

extern "C" {
    fn clock_gettime(clock: i32, t: *mut Timespec) -> i32;
    fn clock_nanosleep(clock: i32, flags: i32, t: *const Timespec, left: *mut Timespec) -> i32;
    fn mlockall(flags: i32) -> i32;
    fn sched_setscheduler(pid: i32, policy: i32, param: *const i32) -> i32;
    fn prctl(option: i32, ...) -> i32;
}

const MONOTONIC: i32 = 1;

fn now() -> i64 {
    let mut t = Timespec { sec: 0, nsec: 0 };
    unsafe { clock_gettime(MONOTONIC, &mut t) };
    t.sec as i64 * 1_000_000_000 + t.nsec as i64
}

fn main() {
    let param = |key: &str| std::env::args().find_map(|a| a.strip_prefix(&format!("{key}=")).map(String::from)).unwrap_or_default();
    let length = (param("seconds").parse::<f64>().expect("seconds=") * 1e9) as i64;
    let every = param("interval_us").parse::<i64>().expect("interval_us=") * 1000;
    let sleeps = param("how") == "sleep";
    let mut late = vec![1i64; (length / every + 2) as usize];
    unsafe {
        mlockall(3);
        sched_setscheduler(0, 1, &80);
        prctl(29, 1usize);
    }
    println!("ready");
    let mut go = [0u8; 3];
    io::stdin().read_exact(&mut go).expect("go");
    let began = now();
    let (mut next, mut before, mut n, mut missed) = (began + every, 0, 0, 0u64);
    let (mut sum, mut squares) = (0f64, 0f64);
    while next < began + length && n < late.len() {
        if sleeps {
            thread::sleep(Duration::from_nanos((next - now()).max(0) as u64));
        } else {
            let t = Timespec { sec: (next / 1_000_000_000) as _, nsec: (next % 1_000_000_000) as _ };
            while unsafe { clock_nanosleep(MONOTONIC, 1, &t, std::ptr::null_mut()) } != 0 {}
        }
        let woke = now();
        late[n] = woke - next;
        n += 1;
        if before != 0 {
            let longer = (woke - before - every) as f64;
            sum += longer;
            squares += longer * longer;
        }
        before = woke;
        next += every;
        while next <= woke {
            next += every;
            missed += 1;
        }
    }
    unsafe { sched_setscheduler(0, 0, &0) };
    let took = now() - began;
    println!("done");
    io::stdout().flush().unwrap();
    let mut rest = Vec::new();
    io::stdin().read_to_end(&mut rest).unwrap();
    late.truncate(n);
    late.sort();
    let gaps = (n.max(3) - 1) as f64;
    let deviation = ((squares - sum * sum / gaps) / (gaps - 1.0)).max(0.0).sqrt() / 1e3;
    let mut out = format!("BenchmarkCyclic {n} {} ns/op {missed} missed_releases {deviation} period_stddev_us", took as f64 / n as f64);
    for (name, p) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999)] {
        if n > 0 && (p < 0.99 || n as f64 * (1.0 - p) >= 5.0) {
            out += &format!(" {} latency_us_{}", late[(n as f64 * p) as usize] as f64 / 1e3, name);
        }
    }
    println!("{out} {} latency_us_max", late[n - 1] as f64 / 1e3);
}
