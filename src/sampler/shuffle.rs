//! Passes without replacement: every index once, in an order that is computed from the pass and the place in it.
//!
//! The module docs of the room have the algorithm. Its numbers are a promise.

use super::sfc64::{Sfc64, low, multiply_high};

/// Up to that many records, a pass is a table.
const TABLE: u64 = 256;
/// Rounds over the grid, in pairs: one moves rows, the next columns. Six rounds leave places above each other related:
/// 200,000 passes over 257 records show it, as the same number shows no more with seven. Each round made that some
/// fifteen times weaker.
const ROUND_PAIRS: usize = 5;
/// Indices that are computed side by side: a round of one waits for its multiplications, those of others fill the time.
const LANES: usize = 8;

/// The passes of one seed, and the order of the one that is being drawn from.
#[derive(Clone, Debug)]
pub(super) struct Shuffle {
    length: u64,
    seed: u64,
    /// The pass whose order this is.
    pass: u128,
    order: Order,
}

#[derive(Clone, Debug)]
enum Order {
    Table(Vec<u8>),
    Grid(Grid),
}

impl Shuffle {
    /// Standing in pass 0.
    pub(super) fn new(length: u64, seed: u64) -> Shuffle {
        Shuffle { length, seed, pass: 0, order: Order::new(length, seed, 0) }
    }

    /// Fills `indices` from place `place` of pass `pass` on, over the ends of passes. A new pass costs as
    /// much as a few indices, up to 256 records as much as shuffling them.
    pub(super) fn draw(&mut self, pass: u128, place: u64, indices: &mut [u64]) {
        let (mut pass, mut place, mut rest) = (pass, place, indices);
        while !rest.is_empty() {
            let left = usize::try_from(self.length - place).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at_mut(rest.len().min(left));
            if pass != self.pass {
                self.order = Order::new(self.length, self.seed, pass);
                self.pass = pass;
            }
            self.order.fill(place, now);
            (pass, place, rest) = (pass.wrapping_add(1), 0, later);
        }
    }
}

impl Order {
    fn new(length: u64, seed: u64, pass: u128) -> Order {
        let mut words = Sfc64::keyed([seed, low(pass), low(pass >> 64)]);
        if length > TABLE {
            return Order::Grid(Grid::new(length, &mut words));
        }
        let mut table: Vec<u8> = (0..=u8::MAX).zip(0..length).map(|(index, _)| index).collect();
        for i in (1..table.len()).rev() {
            let other = words.below(i as u64 + 1);
            table.swap(i, usize::try_from(other).unwrap_or(i));
        }
        Order::Table(table)
    }

    fn fill(&self, place: u64, indices: &mut [u64]) {
        match self {
            Order::Table(table) => {
                let from = table.iter().skip(usize::try_from(place).unwrap_or(usize::MAX));
                for (index, &entry) in indices.iter_mut().zip(from) {
                    *index = u64::from(entry);
                }
            }
            Order::Grid(grid) => grid.fill(place, indices),
        }
    }
}

/// A permutation of a grid's places, as a network of rounds: each moves the places of a column along it, or those of a row,
/// by a number that depends on the column or row. Every round can be undone, so no two places meet.
#[derive(Clone, Debug)]
struct Grid {
    length: u64,
    /// Even: then a column that is moved by one is an odd permutation. Without any, half of all orders never come.
    rows: u64,
    columns: u64,
    keys: [[u64; 2]; ROUND_PAIRS],
}

impl Grid {
    fn new(length: u64, words: &mut Sfc64) -> Grid {
        // At most 2^32 each, so no sum of two overflows, and the last place of the grid is at most u64::MAX.
        let root = (length - 1).isqrt() + 1;
        let rows = root + root % 2;
        let columns = length.div_ceil(rows);
        Grid { length, rows, columns, keys: std::array::from_fn(|_| [words.word(), words.word()]) }
    }

    /// The indices at the places from `place` on.
    fn fill(&self, place: u64, indices: &mut [u64]) {
        let (mut row, mut column) = (place / self.columns, place % self.columns);
        for indices in indices.chunks_mut(LANES) {
            let mut lanes = [[0; 2]; LANES];
            // What is behind the last index is computed, too, and dropped.
            for lane in &mut lanes {
                *lane = [row, column];
                column += 1;
                if column == self.columns {
                    (row, column) = (row + 1, 0);
                }
            }
            self.rounds(&mut lanes);
            for (index, &lane) in indices.iter_mut().zip(&lanes) {
                *index = self.walk(lane);
            }
        }
    }

    /// The index of a lane after its rounds. The grid is a little larger than `length`: a lane that is outside goes on along
    /// the cycle of the permutation that it is in, until it is inside. It began inside, so it comes there.
    #[inline]
    fn walk(&self, lane: [u64; 2]) -> u64 {
        let mut lanes = [lane];
        loop {
            let [[row, column]] = lanes;
            let index = row * self.columns + column;
            if index < self.length {
                return index;
            }
            self.rounds(&mut lanes);
        }
    }

    #[inline]
    fn rounds<const N: usize>(&self, lanes: &mut [[u64; 2]; N]) {
        for &[of_rows, of_columns] in &self.keys {
            for [row, column] in lanes.iter_mut() {
                *row = moved(*row, multiply_high(mix(*column ^ of_rows), self.rows), self.rows);
            }
            for [row, column] in lanes.iter_mut() {
                *column = moved(*column, multiply_high(mix(*row ^ of_columns), self.columns), self.columns);
            }
        }
    }
}

/// `x + by` modulo `bound`, for both below it. Without a branch: half of them would be mispredicted.
#[inline]
fn moved(x: u64, by: u64, bound: u64) -> u64 {
    let sum = x + by;
    sum.min(sum.wrapping_sub(bound))
}

/// 64 bits whose upper ones, which alone are used, depend on all bits of `x`.
#[inline]
fn mix(x: u64) -> u64 {
    let x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb)
}
