// rust/…: two async tasks that wake each other in turns, on one thread of an executor of many; and the memory of a task that waits.
// tasks tasks how=tokio|smol seconds=S
use std::future::{poll_fn, Future};
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

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

// Baton is what the two share: whose turn it is, and how each is woken. All is on one thread; the executors want tasks that could be sent.
#[derive(Default)]
struct Baton {
    turn: AtomicUsize,
    over: AtomicBool,
    switches: AtomicU64,
    wakers: [OnceLock<Waker>; 2],
}

// Turns waits until it is its turn, and gives it to the other, until the time is over. The first looks at the clock.
struct Turns {
    own: usize,
    baton: Arc<Baton>,
    until: Instant,
}

impl Future for Turns {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (b, other) = (&self.baton, 1 - self.own);
        let own = b.wakers[self.own].get_or_init(|| cx.waker().clone());
        assert!(own.will_wake(cx.waker()), "a task has got another waker");
        if b.turn.load(Relaxed) == self.own {
            let n = b.switches.load(Relaxed) + 1;
            b.switches.store(n, Relaxed);
            if self.own == 0 && n % 512 == 1 && n > 1 && Instant::now() >= self.until {
                b.over.store(true, Relaxed);
            }
            b.turn.store(other, Relaxed);
            if let Some(w) = b.wakers[other].get() {
                w.wake_by_ref();
            }
        }
        if b.over.load(Relaxed) {
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

// run is the same for both: spawn gives a task to the executor, whose future this is.
async fn run<S: Fn(Pin<Box<dyn Future<Output = ()> + Send>>)>(spawn: S, length: Duration) -> (u64, Duration, f64) {
    let (waiting, before) = (Arc::new(AtomicUsize::new(0)), resident());
    for _ in 0..TASKS {
        let waiting = waiting.clone();
        spawn(Box::pin(async move {
            waiting.fetch_add(1, Relaxed);
            std::future::pending::<()>().await
        }));
    }
    let others = |is: &dyn Fn() -> bool, cx: &mut Context<'_>| {
        if is() {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref(); // the others come first
        Poll::Pending
    };
    poll_fn(|cx| others(&|| waiting.load(Relaxed) == TASKS, cx)).await;
    let each = (resident() - before) / TASKS as f64;
    let (baton, left) = (Arc::new(Baton::default()), Arc::new(AtomicUsize::new(2)));
    let (over, parent) = (left.clone(), poll_fn(|cx| Poll::Ready(cx.waker().clone())).await);
    let began = ready();
    for own in 0..2 {
        let (turns, left, parent) = (Turns { own, baton: baton.clone(), until: began + length }, left.clone(), parent.clone());
        spawn(Box::pin(async move {
            turns.await;
            left.fetch_sub(1, Relaxed);
            parent.wake_by_ref();
        }));
    }
    poll_fn(|_| if over.load(Relaxed) == 0 { Poll::Ready(()) } else { Poll::Pending }).await; // it sleeps meanwhile
    let took = done(began);
    (baton.switches.load(Relaxed), took, each)
}

fn main() {
    let param = |key: &str| std::env::args().find_map(|a| a.strip_prefix(&format!("{key}=")).map(String::from)).unwrap_or_default();
    let length = Duration::from_secs_f64(param("seconds").parse().expect("seconds="));
    let (switches, took, each) = if param("how") == "tokio" {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        runtime.block_on(run(|task| drop(tokio::spawn(task)), length))
    } else {
        let executor = async_executor::LocalExecutor::new();
        futures_lite::future::block_on(executor.run(run(|task| executor.spawn(task).detach(), length)))
    };
    println!("BenchmarkTasks {switches} {} ns/op {each} waiting_bytes", took.as_nanos() as f64 / switches as f64);
    io::stdout().flush().unwrap();
    std::process::exit(0);
}
