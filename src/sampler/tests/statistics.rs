//! Chi-square tests of the shuffle, with fixed seeds. Each has failed on a shuffle that was made worse on purpose.

use super::*;

/// How far chi-square is from what chance makes of it, in standard deviations: `cells` are counts of what should be equally likely.
fn deviation(cells: &[u32], freedom: usize) -> f64 {
    let total: f64 = cells.iter().map(|&n| f64::from(n)).sum();
    let expected = total / cells.len() as f64;
    assert!(expected >= 5.0, "too few for chi-square: {expected} a cell");
    let chi_square: f64 = cells.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
    (chi_square - freedom as f64) / (2.0 * freedom as f64).sqrt()
}

/// Chance alone is further away once in more than ten thousand tests.
fn assert_even(what: &str, cells: &[u32], freedom: usize) {
    let deviation = deviation(cells, freedom);
    assert!(deviation.abs() < 4.0, "{what}: {deviation:.1} standard deviations from an unbiased order");
}

/// Calls `each` with every pass, and the pass before it.
fn passes(length: usize, seed: u64, count: usize, mut each: impl FnMut(&[usize], &[usize])) {
    let mut sampler = Sampler::new(length as u64, &options(Mode::Shuffle, seed, length)).unwrap();
    let mut last: Vec<usize> = Vec::new();
    for _ in 0..=count {
        let pass: Vec<usize> =
            take(&mut sampler, 1).into_iter().map(|index| usize::try_from(index).unwrap()).collect();
        if !last.is_empty() {
            each(&pass, &last);
        }
        last = pass;
    }
}

/// The number of an order among all orders of that length.
fn rank(order: &[usize]) -> usize {
    let smaller_behind = |i: usize| order[i..].iter().filter(|&&index| index < order[i]).count();
    (0..order.len()).fold(0, |rank, i| rank * (order.len() - i) + smaller_behind(i))
}

#[test]
fn all_orders_are_equally_likely() {
    for length in 2..=6_usize {
        let orders: usize = (1..=length).product();
        let count = (40 * orders).max(20_000);
        let mut in_passes = vec![0; orders];
        passes(length, 7, count, |pass, _| in_passes[rank(pass)] += 1);
        assert_even(&format!("passes of {length}"), &in_passes, orders - 1);
        let mut over_seeds = vec![0; orders];
        for seed in 0..count as u64 {
            let pass: Vec<_> = stream(Mode::Shuffle, seed, length as u64, length);
            over_seeds[rank(&pass.iter().map(|&index| index as usize).collect::<Vec<_>>())] += 1;
        }
        assert_even(&format!("seeds of {length}"), &over_seeds, orders - 1);
    }
}

/// Counts pairs (x, y) of indices, over many passes; all as often as each other where the order is unbiased.
struct Pairs {
    length: usize,
    cells: Vec<u32>,
}

impl Pairs {
    fn new(length: usize) -> Pairs {
        Pairs { length, cells: vec![0; length * length] }
    }

    fn add(&mut self, x: usize, y: usize) {
        self.cells[x * self.length + y] += 1;
    }

    /// Each pass adds every x and every y once: that many sums are given, and no chance.
    fn assert_even(&self, what: &str) {
        let length = self.length;
        // The sum of p permutation matrices: chi-square has (n - 1)^2 degrees of freedom when scaled by (n - 1) / n.
        let freedom = (length - 1) * (length - 1);
        let total: f64 = self.cells.iter().map(|&n| f64::from(n)).sum();
        let expected = total / self.cells.len() as f64;
        assert!(expected >= 5.0, "too few for chi-square: {expected} a cell");
        let chi_square: f64 = self.cells.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum();
        let scaled = chi_square * (length - 1) as f64 / length as f64;
        let deviation = (scaled - freedom as f64) / (2.0 * freedom as f64).sqrt();
        assert!(
            deviation.abs() < 4.0,
            "{what} of {length}: {deviation:.1} standard deviations from an unbiased order"
        );
    }

    /// As the other, where x and y are never the same.
    fn assert_even_but_same(&self, what: &str) {
        let others = self.cells.iter().enumerate().filter(|(i, _)| i / self.length != i % self.length);
        let others: Vec<u32> = others.map(|(_, &n)| n).collect();
        assert_even(&format!("{what} of {}", self.length), &others, others.len() - 1);
    }
}

#[test]
fn every_index_is_equally_likely_at_every_place() {
    for length in [2, 3, 31, 64, 100, 256, 257, 289, 307] {
        let mut places = Pairs::new(length);
        let mut between = Pairs::new(length);
        passes(length, 11, 20 * length, |pass, last| {
            for (place, (&index, &before)) in pass.iter().zip(last).enumerate() {
                places.add(place, index);
                between.add(before, index);
            }
        });
        places.assert_even("places");
        between.assert_even("passes one after another");
    }
}

#[test]
fn places_of_long_passes_are_even_in_bins() {
    const BINS: usize = 64;
    for length in [1000, 1009, 4096, 10_000, 65_536, 99_991] {
        let mut bins = vec![0_u32; BINS * BINS];
        passes(length, 3, 400_000_usize.div_ceil(length), |pass, _| {
            for (place, &index) in pass.iter().enumerate() {
                bins[place * BINS / length * BINS + index * BINS / length] += 1;
            }
        });
        let total: f64 = bins.iter().map(|&n| f64::from(n)).sum();
        // Some bins are larger by one.
        let mut share = [0.0; BINS];
        for index in 0..length {
            share[index * BINS / length] += 1.0 / length as f64;
        }
        let chi_square: f64 = (bins.iter().enumerate())
            .map(|(i, &n)| {
                let expected = total * share[i / BINS] * share[i % BINS];
                (f64::from(n) - expected).powi(2) / expected
            })
            .sum();
        // As for pairs: the sums over a row or column of bins are given.
        let freedom = ((BINS - 1) * (BINS - 1)) as f64;
        let scaled = chi_square * (length - 1) as f64 / length as f64;
        let deviation = (scaled - freedom) / (2.0 * freedom).sqrt();
        assert!(deviation.abs() < 4.0, "{length}: {deviation:.1} standard deviations from an unbiased order");
    }
}

/// What a network with too few rounds keeps: places that are neighbours, or above each other in the grid, come to places
/// that are related.
#[test]
fn neighbours_do_not_stay_related() {
    for length in [5_usize, 100, 257, 289] {
        let columns = if length > 256 { length.div_ceil(18) } else { 2 };
        let (mut next, mut below) = (Pairs::new(length), Pairs::new(length));
        passes(length, 5, 6000, |pass, _| {
            for pair in pass.windows(2) {
                next.add(pair[0], pair[1]);
            }
            for pair in pass.windows(columns + 1) {
                below.add(pair[0], pair[columns]);
            }
        });
        next.assert_even_but_same("neighbours");
        below.assert_even_but_same("places above each other");
    }
}

#[test]
fn orders_of_neighbouring_seeds_are_unrelated() {
    let mut both = Pairs::new(257);
    for seed in 0..3000 {
        let (one, other) = (stream(Mode::Shuffle, seed, 257, 257), stream(Mode::Shuffle, seed + 1, 257, 257));
        for (&x, &y) in one.iter().zip(&other) {
            both.add(x as usize, y as usize);
        }
    }
    both.assert_even("seeds one after another");
}

/// A grid without an even side makes no odd permutation.
#[test]
fn orders_are_odd_as_often_as_even() {
    for length in [2, 9, 256, 257, 289, 1000, 1024] {
        let mut odd = [0; 2];
        passes(length, 1, 2000, |pass, _| {
            let mut seen = vec![false; length];
            let mut cycles = 0;
            for start in 0..length {
                if !seen[start] {
                    cycles += 1;
                }
                let mut at = start;
                while !seen[at] {
                    seen[at] = true;
                    at = pass[at];
                }
            }
            odd[(length - cycles) % 2] += 1;
        });
        assert_even(&format!("parity of {length}"), &odd, 1);
    }
}
