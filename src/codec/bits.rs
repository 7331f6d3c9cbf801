//! Bits of a byte string, the lowest of each byte first, as Deflate has them.

/// What lies from bit `at` on: 57 bits at least; behind the end come zeros.
#[inline(always)]
pub(super) fn peek(bytes: &[u8], at: usize) -> u64 {
    match peek_inside(bytes, at) {
        Some(bits) => bits,
        None => peek_at_end(bytes, at),
    }
}

/// As [`peek`], where eight bytes are left.
#[inline(always)]
pub(super) fn peek_inside(bytes: &[u8], at: usize) -> Option<u64> {
    let first = at >> 3;
    let word = bytes.get(first..first + 8)?.first_chunk()?;
    Some(u64::from_le_bytes(*word) >> (at & 7))
}

#[cold]
fn peek_at_end(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    let rest = bytes.get(at >> 3..).unwrap_or_default();
    for (to, from) in word.iter_mut().zip(rest) {
        *to = *from;
    }
    u64::from_le_bytes(word) >> (at & 7)
}
