//! The generator Sfc64 (Chris Doty-Humphrey's Small Fast Counting generator), as Zig's standard library has it.

/// A generator and where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sfc64 {
    a: u64,
    b: u64,
    c: u64,
    counter: u64,
}

impl Sfc64 {
    /// Words that [`Sfc64::seeded`] has dropped, and 1: the counter before the first draw.
    const COUNTER_AT_START: u64 = 13;

    /// Zig's `Sfc64.init`.
    pub(super) fn seeded(seed: u64) -> Sfc64 {
        Sfc64 { a: seed, b: seed, c: seed, counter: 1 }.without(12)
    }

    /// A stream for each triple of words. The generator's state is changed one to one, so two triples never meet in the same
    /// state; 18 dropped words are its author's count for three words of seed.
    pub(super) fn keyed(words: [u64; 3]) -> Sfc64 {
        let [a, b, c] = words;
        Sfc64 { a, b, c, counter: 1 }.without(18)
    }

    fn without(mut self, dropped: u32) -> Sfc64 {
        for _ in 0..dropped {
            self.word();
        }
        self
    }

    /// The next 64 bits.
    #[inline]
    pub(super) fn word(&mut self) -> u64 {
        let word = self.a.wrapping_add(self.b).wrapping_add(self.counter);
        self.counter = self.counter.wrapping_add(1);
        self.a = self.b ^ (self.b >> 11);
        self.b = self.c.wrapping_add(self.c << 3);
        self.c = self.c.rotate_left(24).wrapping_add(word);
        word
    }

    /// The next number below `bound`, Zig's `uintLessThanBiased`: no number is more than bound / 2^64 of its share too likely.
    #[inline]
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        multiply_high(self.word(), bound)
    }

    /// The whole state.
    pub(super) fn words(&self) -> [u64; 4] {
        [self.a, self.b, self.c, self.counter]
    }

    /// The generator whose state is `words`, if it is one that [`Sfc64::seeded`] reaches after that many draws; as far as the
    /// counter can tell.
    pub(super) fn from_words(words: [u64; 4], drawn: u128) -> Option<Sfc64> {
        let [a, b, c, counter] = words;
        let expected = low(drawn).wrapping_add(Self::COUNTER_AT_START);
        (counter == expected).then_some(Sfc64 { a, b, c, counter })
    }
}

/// The upper half of the product.
#[inline]
pub(super) fn multiply_high(x: u64, y: u64) -> u64 {
    ((u128::from(x) * u128::from(y)) >> 64) as u64
}

/// The lower half.
#[expect(clippy::cast_possible_truncation, reason = "the lower half is what is wanted")]
pub(super) fn low(x: u128) -> u64 {
    x as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_zig() {
        // The beginning of the sequence in Zig's own test of std.Random.Sfc64.
        let mut generator = Sfc64::seeded(0);
        for word in [
            0x3acf_a029_e3cc_6041,
            0xf5b6_515b_f2ee_419c,
            0x1259_6358_94a2_9b61,
            0x0b6a_e753_95f8_ebd6,
            0x2256_2228_5ce3_02e2,
            0x520d_2861_1395_cb21,
            0xdb90_9c81_8901_599d,
            0x8ffd_1953_6521_6f57,
        ] {
            assert_eq!(generator.word(), word);
        }
    }

    #[test]
    fn a_state_comes_back_only_at_its_place() {
        let mut generator = Sfc64::seeded(9);
        for drawn in 0..100_u128 {
            assert_eq!(Sfc64::from_words(generator.words(), drawn), Some(generator));
            assert_eq!(Sfc64::from_words(generator.words(), drawn + (1 << 64)), Some(generator));
            assert_eq!(Sfc64::from_words(generator.words(), drawn + 1), None);
            generator.word();
        }
    }
}
