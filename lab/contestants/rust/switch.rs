// rust/…: two threads, or two async tasks of a small executor, that wake each other in turns; and the memory of one that waits.
// switch switch how=thread|async seconds=S
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Waker};
use std::thread;
use std::time::{Duration, Instant};

const WAITERS: usize = 500;
const TASKS: usize = 10_000;

fn resident() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc/self/statm");
    statm.split(' ').nth(1).unwrap().parse::<f64>().unwrap() * 4096.0
}

fn ready() -> Instant {
    println!("ready");
    let mut go = [0u8; 3];
    io::stdin().read_exact(&mut go).expect("go");
    Instant::now()
}

fn done(began: Instant) -> Duration {
    let took = began.elapsed();
    println!("done");
    io::stdout().flush().unwrap();
    let mut rest = Vec::new();
    io::stdin().read_to_end(&mut rest).unwrap();
    took
}

fn threads(length: Duration) -> (u64, Duration, f64) {
    let before = resident();
    for _ in 0..WAITERS {
        thread::spawn(|| loop {
            thread::park()
        });
    }
    thread::sleep(Duration::from_millis(20));
    let each = (resident() - before) / WAITERS as f64;
    let (turn, over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let first = thread::current();
    let (t, o) = (turn.clone(), over.clone());
    let second = thread::spawn(move || {
        while !o.load(Ordering::SeqCst) {
            while t.load(Ordering::SeqCst) == 0 && !o.load(Ordering::SeqCst) {
                thread::park();
            }
            t.store(0, Ordering::SeqCst);
            first.unpark();
        }
    });
    let began = ready();
    let mut switches = 0;
    while began.elapsed() < length {
        for _ in 0..256 {
            turn.store(1, Ordering::SeqCst);
            second.thread().unpark();
            while turn.load(Ordering::SeqCst) == 1 {
                thread::park();
            }
        }
        switches += 512;
    }
    let took = done(began);
    over.store(true, Ordering::SeqCst);
    second.thread().unpark();
    second.join().unwrap();
    (switches, took, each)
}

// Other waits until it is its turn, and gives it to the other task.
struct Other {
    own: u32,
    turn: Rc<Cell<u32>>,
    over: Rc<Cell<bool>>,
    switches: Rc<Cell<u64>>,
    wakers: Rc<RefCell<[bool; 2]>>,
}

impl Future for Other {
    type Output = ();
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.over.get() {
            return Poll::Ready(());
        }
        if self.turn.get() == self.own {
            self.turn.set(1 - self.own);
            self.switches.set(self.switches.get() + 1);
            self.wakers.borrow_mut()[1 - self.own as usize] = true; // wakes it: the executor polls it next
        }
        Poll::Pending
    }
}

fn waker() -> Waker {
    const TABLE: RawWakerVTable = RawWakerVTable::new(|p| RawWaker::new(p, &TABLE), |_| {}, |_| {}, |_| {});
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) }
}

fn tasks(length: Duration) -> (u64, Duration, f64) {
    let (turn, over, switches) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
    let wakers = Rc::new(RefCell::new([true, false]));
    let other = |own| -> Pin<Box<dyn Future<Output = ()>>> {
        let (turn, over, switches, wakers) = (turn.clone(), over.clone(), switches.clone(), wakers.clone());
        Box::pin(async move { Other { own, turn, over, switches, wakers }.await })
    };
    let before = resident();
    let waiting: Vec<_> = (0..TASKS).map(|_| other(2)).collect();
    let each = (resident() - before) / TASKS as f64;
    let mut two = [other(0), other(1)];
    let waker = waker();
    let mut cx = Context::from_waker(&waker);
    let began = ready();
    while began.elapsed() < length {
        for _ in 0..512 {
            for i in 0..2 {
                if std::mem::take(&mut wakers.borrow_mut()[i]) {
                    let _ = two[i].as_mut().poll(&mut cx);
                }
            }
        }
    }
    let took = done(began);
    drop(waiting);
    (switches.get(), took, each)
}

fn main() {
    let param = |key: &str| std::env::args().find_map(|a| a.strip_prefix(&format!("{key}=")).map(String::from)).unwrap_or_default();
    let length = Duration::from_secs_f64(param("seconds").parse().expect("seconds="));
    let (switches, took, each) = if param("how") == "async" { tasks(length) } else { threads(length) };
    println!("BenchmarkSwitch {switches} {} ns/op {each} waiting_bytes", took.as_nanos() as f64 / switches as f64);
    io::stdout().flush().unwrap();
    std::process::exit(0);
}
