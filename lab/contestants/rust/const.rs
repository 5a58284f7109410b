// rust/…: has a checksum and a hash by the compiler, or makes them at its start. It prints the ns that it took to have them, and both.
// --cfg computed: all is made at the start. --cfg checked: what the compiler made is checked at the start. Neither: it is only compared with what is stored.
#![allow(dead_code, unexpected_cfgs)]
use std::hint::black_box;
use std::time::Instant;

const POLYNOMIAL: u32 = 0xedb88320; // of CRC-32, reflected
const VERSION: &[u8] = b"uboot-spl-v2024.07-arm64";
const TEXT_BASE: u32 = 0x60; // where U-Boot's SPL begins on a sun8i

// What the start is held to, which a board has burnt in.
static STORED: [u8; 32] = [
    0xbb, 0x9c, 0xfa, 0x42, 0xe1, 0xce, 0x86, 0x9e, 0x6b, 0xaa, 0x86, 0x9f, 0xfb, 0xc2, 0xcc, 0x17,
    0x9d, 0xc1, 0x3b, 0xcd, 0x77, 0x97, 0xd6, 0xe2, 0x7f, 0x2f, 0xac, 0xfd, 0x75, 0x72, 0x3a, 0xcb,
];

const fn table(polynomial: u32) -> [u32; 256] {
    let (mut t, mut n) = ([0; 256], 0);
    while n < 256 {
        let (mut c, mut bit) = (n as u32, 0);
        while bit < 8 {
            c = c >> 1 ^ (polynomial & (c & 1).wrapping_neg());
            bit += 1;
        }
        t[n] = c;
        n += 1;
    }
    t
}

const fn checksum(t: &[u32; 256], p: &[u8]) -> u32 {
    let (mut c, mut i) = (!0u32, 0);
    while i < p.len() {
        c = c >> 8 ^ t[(c as u8 ^ p[i]) as usize];
        i += 1;
    }
    !c
}

const K: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

// sha256 is of two words, a block of their own (FIPS 180-4, 6.2).
const fn sha256(a: u32, b: u32) -> [u8; 32] {
    let h = [0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19];
    let (mut s, mut w, mut i) = (h, [0u32; 64], 16);
    (w[0], w[1], w[2], w[15]) = (a, b, 1 << 31, 64);
    while i < 64 {
        let (x, y) = (w[i - 15], w[i - 2]);
        let (s0, s1) = (x.rotate_right(7) ^ x.rotate_right(18) ^ x >> 3, y.rotate_right(17) ^ y.rotate_right(19) ^ y >> 10);
        w[i] = w[i - 16].wrapping_add(w[i - 7]).wrapping_add(s0).wrapping_add(s1);
        i += 1;
    }
    i = 0;
    while i < 64 {
        let [a, b, c, d, e, f, g, h]: [u32; 8] = s;
        let s1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let one = h.wrapping_add(s1).wrapping_add((e & f) ^ (!e & g)).wrapping_add(K[i]).wrapping_add(w[i]);
        let s0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let two = s0.wrapping_add((a & b) ^ (a & c) ^ (b & c));
        s = [one.wrapping_add(two), a, b, c, d.wrapping_add(one), e, f, g];
        i += 1;
    }
    let mut out = [0; 32];
    i = 0;
    while i < 32 {
        out[i] = (h[i / 4].wrapping_add(s[i / 4]) >> (24 - 8 * (i % 4))) as u8;
        i += 1;
    }
    out
}

const CRC: u32 = checksum(&table(POLYNOMIAL), VERSION);
const HASH: [u8; 32] = sha256(CRC, TEXT_BASE);
static TABLE: [u32; 256] = table(POLYNOMIAL);

fn have() -> (u32, [u8; 32], bool) {
    let base = black_box(TEXT_BASE);
    if cfg!(computed) {
        let crc = checksum(&table(black_box(POLYNOMIAL)), black_box(VERSION));
        (crc, sha256(crc, base), true)
    } else if cfg!(checked) {
        (CRC, sha256(CRC, base), checksum(&TABLE, black_box(VERSION)) == CRC)
    } else {
        (CRC, HASH, base == TEXT_BASE)
    }
}

fn main() {
    let began = Instant::now();
    let (crc, hash, right) = have();
    let right = right && hash == *black_box(&STORED);
    let took = began.elapsed();
    if !right {
        eprintln!("the constants are not what is stored");
        std::process::exit(1);
    }
    let hash: String = hash.iter().map(|b| format!("{b:02x}")).collect();
    println!("{} {crc:08x} {hash}", took.as_nanos());
}
