// rust/blocking: a thread for each port that blocks in read and takes frames; the standard library alone. It checks no CRC.
// serial serial paths=A,B,…
// Its ports are in raw mode already: the laboratory opens them first.
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

const FRAME: usize = 128;
const AT_TIME: usize = 20;
const AT_CRC: usize = 126;
const KEEP: usize = 1 << 20;

// Whether a frame has its CRC-16/MODBUS.
fn whole(frame: &[u8]) -> bool {
    let mut crc = 0xFFFFu16;
    for b in &frame[..AT_CRC] {
        crc ^= *b as u16;
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xA001 } else { crc >> 1 };
        }
    }
    crc == u16::from_le_bytes([frame[AT_CRC], frame[AT_CRC + 1]])
}

// The latencies: of all the longest, and some of them, each with a chance of 1 in every.
struct Latencies {
    kept: Vec<i64>,
    every: u64,
    longest: i64,
    random: u64,
}

impl Latencies {
    fn chance(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 11
    }

    // The time of a damaged frame is none: one that would be the longest is looked at.
    fn count(&mut self, late: i64, frame: &[u8]) {
        if late > self.longest || late < 0 {
            if !whole(frame) {
                return;
            }
            self.longest = self.longest.max(late);
        }
        if self.every > 1 && self.chance() % self.every != 0 {
            return;
        }
        self.kept.push(late);
        if self.kept.len() == KEEP {
            for i in (0..KEEP).rev() {
                if self.chance() % 2 == 0 {
                    self.kept.swap_remove(i);
                }
            }
            self.every *= 2;
        }
    }
}

fn read_port(mut port: File, frames: Arc<AtomicU64>, latencies: Arc<Mutex<Latencies>>) {
    let mut buf = vec![0u8; 65536 + FRAME];
    let mut have = 0;
    loop {
        let n = match port.read(&mut buf[have..have + 4096]) {
            Ok(0) | Err(_) => return,
            Ok(n) => n,
        };
        have += n;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
        let mut at = 0;
        let mut kept = latencies.lock().unwrap();
        while have - at >= FRAME {
            if buf[at] != 0xA5 || buf[at + 1] != 0x5A {
                at += 1;
                continue;
            }
            let due = i64::from_le_bytes(buf[at + AT_TIME..at + AT_TIME + 8].try_into().unwrap());
            kept.count(now.wrapping_sub(due), &buf[at..at + FRAME]);
            frames.fetch_add(1, Ordering::Relaxed);
            at += FRAME;
        }
        buf.copy_within(at..have, 0);
        have -= at;
    }
}

fn main() {
    let paths = std::env::args().find_map(|a| a.strip_prefix("paths=").map(String::from)).expect("paths=");
    let frames = Arc::new(AtomicU64::new(0));
    let latencies = Arc::new(Mutex::new(Latencies { kept: Vec::new(), every: 1, longest: 0, random: 88172645463325252 }));
    for path in paths.split(',') {
        let port = File::open(path).unwrap_or_else(|e| {
            eprintln!("{path}: {e}");
            std::process::exit(1)
        });
        let (f, l) = (frames.clone(), latencies.clone());
        thread::spawn(move || read_port(port, f, l));
    }
    println!("ready");
    let mut line = String::new();
    io::stdin().read_line(&mut line).unwrap();
    let began = Instant::now();
    io::stdin().read_to_string(&mut line).unwrap();
    let took = began.elapsed();
    let n = frames.load(Ordering::Relaxed);
    let mut seen = latencies.lock().unwrap();
    let longest = seen.longest;
    let all = &mut seen.kept;
    all.sort();
    let mut out = format!("BenchmarkSerial {} {} ns/op {} MB_per_s", n, took.as_nanos() as f64 / n as f64, n as f64 * FRAME as f64 / 1e6 / took.as_secs_f64());
    for (name, p) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("p9999", 0.9999)] {
        if !all.is_empty() && (p < 0.99 || all.len() as f64 * (1.0 - p) >= 5.0) {
            out += &format!(" {} latency_us_{}", all[(all.len() as f64 * p) as usize] as f64 / 1e3, name);
        }
    }
    if !all.is_empty() {
        out += &format!(" {} latency_us_max", longest as f64 / 1e3);
    }
    println!("{out}");
    io::stdout().flush().unwrap();
    std::process::exit(0);
}
