// rust/bumpalo: allocates for hours of a device, in a time that is as short as the machine is fast, within a bound. memory memory seconds=S
// What it would keep is let go at once when that is as much as others keep. The sizes are those of all contestants: see package rtmemory.
use bumpalo::Bump;
use std::alloc::Layout;
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

const PHASE: u64 = 90_000;
const HOUR: u64 = 360_000;
const BLOCK: usize = 2 << 20;
const BOUND: usize = 64 << 20;
const KEPT: usize = BOUND / 2;

struct Sizes {
    seed: u64,
    ops: u64,
}

impl Sizes {
    fn draw(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }

    fn next(&mut self) -> usize {
        let r = self.draw();
        let (small, large) = (|r: u64| 16 + r % 240, |r: u64| 1024 + r % 7168);
        let n = match self.ops / PHASE % 4 {
            0 => small(r),
            2 => large(r),
            _ if r & 1 == 1 => small(r >> 1),
            _ => large(r >> 1),
        };
        self.ops += 1;
        n as usize
    }
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

fn main() {
    let param = |key: &str| std::env::args().find_map(|a| a.strip_prefix(&format!("{key}=")).map(String::from)).unwrap_or_default();
    let length = Duration::from_secs_f64(param("seconds").parse().expect("seconds="));
    let before = resident();
    let mut arena = Bump::new();
    arena.set_allocation_limit(Some(BOUND));
    let (mut sizes, mut live, mut failed) = (Sizes { seed: 88172645463325252, ops: 0 }, 0, 0u64);
    println!("ready");
    let mut go = [0u8; 3];
    io::stdin().read_exact(&mut go).expect("go");
    let began = Instant::now();
    while began.elapsed() < length {
        for _ in 0..1000 {
            let n = sizes.next();
            if live + n > KEPT {
                arena.reset();
                live = 0;
            }
            match arena.try_alloc_layout(Layout::from_size_align(n, 8).unwrap()) {
                Ok(p) => unsafe {
                    p.as_ptr().write_volatile(1);
                    p.as_ptr().add(n - 1).write_volatile(1);
                    live += n;
                },
                Err(_) => failed += 1,
            }
        }
    }
    let kept = resident() - before;
    let most = (BOUND - live) / BLOCK;
    let mut got = 0;
    while got < most {
        match arena.try_alloc_layout(Layout::from_size_align(BLOCK, 8).unwrap()) {
            Ok(p) => (0..BLOCK).step_by(4096).for_each(|at| unsafe { p.as_ptr().add(at).write_volatile(1) }),
            Err(_) => break,
        }
        got += 1;
    }
    let took = began.elapsed();
    println!("done");
    io::stdout().flush().unwrap();
    let mut rest = Vec::new();
    io::stdin().read_to_end(&mut rest).unwrap();
    let (fragmentation, dead) = (100.0 * (1.0 - got as f64 / most as f64), if kept > live { 100.0 * (1.0 - live as f64 / kept as f64) } else { 0.0 });
    let (ops, hours) = (sizes.ops, sizes.ops as f64 / HOUR as f64);
    println!("BenchmarkMemory {ops} {} ns/op {fragmentation} fragmentation_percent {failed} failed_allocations {dead} dead_percent {hours} simulated_hours", took.as_nanos() as f64 / ops as f64);
}
