// rust/epoll: an HTTP server by epoll, level-triggered, a thread and a listening socket for each CPU; the standard library and the C library's
// calls alone. It answers every head that ends, and looks at nothing in it.
// http addr=HOST:PORT
use std::net::SocketAddrV4;
use std::os::raw::{c_int, c_void};
use std::thread;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nDate: Fri, 20 Nov 2026 12:00:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!";
const MOST_FDS: usize = 65536;
const NONBLOCK: c_int = 0o4000;
const CLOEXEC: c_int = 0o2000000;

#[repr(C)]
#[cfg_attr(any(target_arch = "x86_64", target_arch = "x86"), repr(packed))]
#[derive(Clone, Copy)]
struct Event {
    events: u32,
    data: u64,
}

#[repr(C)]
struct Address {
    family: u16,
    port: u16,
    ip: u32,
    zero: [u8; 8],
}

extern "C" {
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_int, len: u32) -> c_int;
    fn bind(fd: c_int, addr: *const Address, len: u32) -> c_int;
    fn listen(fd: c_int, backlog: c_int) -> c_int;
    fn accept4(fd: c_int, addr: *mut c_void, len: *mut c_void, flags: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(ep: c_int, op: c_int, fd: c_int, event: *mut Event) -> c_int;
    fn epoll_wait(ep: c_int, events: *mut Event, most: c_int, ms: c_int) -> c_int;
    fn read(fd: c_int, buf: *mut c_void, n: usize) -> isize;
    fn send(fd: c_int, buf: *const c_void, n: usize, flags: c_int) -> isize;
    fn close(fd: c_int) -> c_int;
}

fn heads(b: &[u8], state: &mut u8) -> usize {
    let mut ended = 0;
    let mut s = *state;
    for &c in b {
        s = match (c, s) {
            (b'\r', 2) => 3,
            (b'\r', _) => 1,
            (b'\n', 1) => 2,
            (b'\n', 3) => {
                ended += 1;
                0
            }
            _ => 0,
        };
    }
    *state = s;
    ended
}

fn serve(at: SocketAddrV4) {
    unsafe {
        let l = socket(2, 1 | NONBLOCK | CLOEXEC, 0);
        let one: c_int = 1;
        for (level, name) in [(1, 2), (1, 15), (6, 1)] {
            // SO_REUSEADDR, SO_REUSEPORT, TCP_NODELAY
            setsockopt(l, level, name, &one, 4);
        }
        let addr = Address { family: 2, port: at.port().to_be(), ip: u32::from_ne_bytes(at.ip().octets()), zero: [0; 8] };
        if bind(l, &addr, 16) != 0 || listen(l, 4096) != 0 {
            eprintln!("listen: {}", std::io::Error::last_os_error());
            std::process::exit(1);
        }
        let ep = epoll_create1(CLOEXEC);
        let mut e = Event { events: 1, data: l as u64 };
        epoll_ctl(ep, 1, l, &mut e);
        let mut events = [Event { events: 0, data: 0 }; 512];
        let mut input = vec![0u8; 65536];
        let mut out = Vec::new();
        let mut state = vec![0u8; MOST_FDS];
        loop {
            let n = epoll_wait(ep, events.as_mut_ptr(), 512, -1);
            for i in 0..n.max(0) as usize {
                let fd = { events[i].data } as c_int;
                if fd == l {
                    loop {
                        let c = accept4(l, std::ptr::null_mut(), std::ptr::null_mut(), NONBLOCK | CLOEXEC);
                        if c < 0 {
                            break;
                        }
                        if c as usize >= MOST_FDS {
                            close(c);
                            continue;
                        }
                        state[c as usize] = 0;
                        let mut e = Event { events: 1, data: c as u64 };
                        epoll_ctl(ep, 1, c, &mut e);
                    }
                    continue;
                }
                let got = read(fd, input.as_mut_ptr() as *mut c_void, input.len());
                if got <= 0 {
                    close(fd);
                    continue;
                }
                out.clear();
                for _ in 0..heads(&input[..got as usize], &mut state[fd as usize]) {
                    out.extend_from_slice(ANSWER);
                }
                let mut at = 0;
                while at < out.len() {
                    let put = send(fd, out[at..].as_ptr() as *const c_void, out.len() - at, 0x4000); // MSG_NOSIGNAL
                    if put > 0 {
                        at += put as usize;
                    } else if std::io::Error::last_os_error().kind() != std::io::ErrorKind::WouldBlock {
                        break;
                    }
                }
            }
        }
    }
}

fn main() {
    let at = std::env::args().find_map(|a| a.strip_prefix("addr=").and_then(|v| v.parse().ok()));
    let at: SocketAddrV4 = at.expect("no parameter addr=HOST:PORT");
    for _ in 1..thread::available_parallelism().map_or(1, |n| n.get()) {
        thread::spawn(move || serve(at));
    }
    serve(at);
}
