// The end of a ring of package ipc that a program in Rust fills: results for the laboratory, each of 64 bytes. ARCHITECTURE.md and package ring say why the orders are right.
use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

extern "C" {
    fn mmap(at: *mut c_void, n: usize, prot: c_int, flags: c_int, fd: c_int, off: c_long) -> *mut c_void;
    fn syscall(number: c_long, ...) -> c_long;
}

// Kind, due in ns; and in ticks: woke, stamped, aggregated, and what the push before took; two more.
pub type Record = [u64; 8];
pub const CLOCK: u64 = 1;
pub const SAMPLE: u64 = 2;
const SIZE: u64 = 64;
const FUTEX: c_long = if cfg!(target_arch = "x86_64") { 202 } else if cfg!(target_arch = "aarch64") { 98 } else { 240 };

pub struct Queue {
    map: *mut u8,
    header: usize,
    size: u64,
    at: u64,    // published so far
    taken: u64, // as it was last seen
}

impl Queue {
    pub fn open(fd: c_int) -> Queue {
        let h = unsafe { mmap(std::ptr::null_mut(), 512, 1, 1, fd, 0) as *const u64 };
        let [magic, version, size, owner] = unsafe { *(h as *const [u64; 4]) };
        assert!(magic == 0x676e69722d6c6174 && version == 1, "descriptor {fd} is no ring");
        let header = 512 + owner as usize;
        let map = unsafe { mmap(std::ptr::null_mut(), header + size as usize, 3, 0x8001, fd, 0) as *mut u8 }; // MAP_SHARED | MAP_POPULATE
        assert_ne!(map as isize, -1, "the queue: {}", std::io::Error::last_os_error());
        let q = Queue { map, header, size, at: 0, taken: 0 };
        q.word(576).store((q.word(576).load(SeqCst) + 1) | 1, SeqCst); // the life of who fills it: odd while it is taken
        Queue { at: q.index(128).load(SeqCst), ..q }
    }

    fn word(&self, at: usize) -> &AtomicU32 { unsafe { &*(self.map.add(at) as *const AtomicU32) } }
    fn index(&self, at: usize) -> &AtomicU64 { unsafe { &*(self.map.add(at) as *const AtomicU64) } }

    pub fn push(&mut self, r: &Record) {
        if self.at - self.taken > self.size - SIZE {
            self.taken = self.index(256).load(SeqCst);
            assert!(self.at - self.taken <= self.size - SIZE, "the queue of results is full");
        }
        unsafe { *(self.map.add(self.header + (self.at & (self.size - 1)) as usize) as *mut Record) = *r };
        self.at += SIZE;
        self.index(128).store(self.at, SeqCst);
        let want = self.word(768).load(SeqCst) as u64; // for so many bytes does who empties it sleep
        if want > 0 && self.at - self.index(256).load(SeqCst) >= want && self.word(768).swap(0, SeqCst) > 0 {
            unsafe { syscall(FUTEX, self.word(768), 1, 1, 0usize, 0usize, 0) };
        }
    }

    pub fn close(self) {
        self.word(576).fetch_add(1, SeqCst);
        self.word(768).store(0, SeqCst);
        unsafe { syscall(FUTEX, self.word(768), 1, 1, 0usize, 0usize, 0) };
    }
}
