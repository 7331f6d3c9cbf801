//! Endless streams of indices.
//!
//! Knows a number of records, a mode, a seed and how a stream is cut into steps. Knows no store.
//!
//! | mode | stream |
//! |---|---|
//! | [`Mode::Sequential`] | 0, 1, … length - 1, 0, 1, … |
//! | [`Mode::Iid`] | each draw uniform and independent of the others: with replacement |
//! | [`Mode::Shuffle`] | every index once a pass, each pass in an order of its own: without replacement |
//!
//! A stream is one sequence of draws, whatever the batch size: draw d is in global step d / `batch_size`. Rank r of a
//! world of w takes the global steps r, r + w, r + 2w, …; its own step k is global step k·w + r. So ranks share no work,
//! and in shuffle mode all of them together take each index once a pass.
//!
//! # The numbers are a promise
//!
//! The same seed gives the same stream in every release. All arithmetic below is modulo 2^64 unless it says otherwise, and
//! high(x, y) is the upper half of the 128-bit product of x and y.
//!
//! **Sequential**: draw d is d mod length.
//!
//! **Iid**: the numbers of loaderx 0.5.0. Draw d is high(word d, length), where the words are those of Sfc64, seeded as Zig's
//! standard library does: a = b = c = seed, counter = 1, and 12 words are dropped. A word is a + b + counter, and changes
//! the state so: counter += 1; a = b xor (b >> 11); b = c + (c << 3); c = rotate-left(c, 24) + word, each from the old values.
//!
//! **Shuffle**: draw d is at place p = d mod length of pass d / length. The pass number counts modulo 2^128. Each pass has a
//! stream of words of its own: Sfc64 with a = seed, b and c the lower and upper half of the pass number, counter = 1, and
//! 18 words dropped.
//!
//! Up to 256 records, a pass is a Fisher-Yates shuffle: of the table 0, 1, … length - 1, entry i is exchanged with entry
//! high(word, i + 1), for i from length - 1 down to 1, one word each. The index is entry p.
//!
//! More than 256 records are no longer shuffled in memory; the index is computed from the place. The places lie in a grid
//! of `rows` = the square root of length, rounded up to an even number, by `columns` = length / rows, rounded up; place p is
//! in row p / columns, column p mod columns. The pass's first ten words are the keys of ten rounds. Rounds 0, 2, 4, 6, 8 add
//! high(mix(column xor key), rows) to the row, modulo rows; rounds 1, 3, 5, 7, 9 add high(mix(row xor key), columns) to the column,
//! modulo columns. mix multiplies by 0xbf58476d1ce4e5b9, xors with itself shifted right by 32, and multiplies by
//! 0x94d049bb133111eb. After the last round the index is row · columns + column. The grid has fewer than `rows` places too many:
//! while the index is not below length, it goes through the ten rounds again.

mod iid;
mod options;
mod sfc64;
mod shuffle;
mod state;
mod stream;
#[cfg(test)]
mod tests;

pub use options::{Mode, SamplerOptions};
pub use state::SamplerState;
pub use stream::Sampler;
