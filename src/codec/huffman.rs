//! The Huffman codes of a Deflate block (RFC 1951, 3.2.7): from the lengths of codes to tables to look symbols up in.
//!
//! A table is looked up by the next bits of the input, whatever they are, and its entry says what the code there means and
//! how many bits it takes, so that a decoder needs no branch for that. Codes that are longer than what a table is looked up
//! by are rare by their nature, and are looked up length by length.

#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "numbers of symbols and lengths of codes are small; arrays of a fixed size are indexed by them or below a mask"
)]

use super::bits::peek;

/// Bits that literals and lengths are looked up by.
pub(super) const SYMBOL_BITS: u32 = 10;
/// Bits that distances are looked up by. So two literals, a length and a distance take 56 bits at most, with all of their
/// extra bits: no more than one look at the input gives.
pub(super) const DISTANCE_BITS: u32 = 8;

/// Lengths and distances begin with a code each, and extra bits add to what it stands for.
const LENGTHS: [(u16, u8); 29] = [
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (8, 0),
    (9, 0),
    (10, 0),
    (11, 1),
    (13, 1),
    (15, 1),
    (17, 1),
    (19, 2),
    (23, 2),
    (27, 2),
    (31, 2),
    (35, 3),
    (43, 3),
    (51, 3),
    (59, 3),
    (67, 4),
    (83, 4),
    (99, 4),
    (115, 4),
    (131, 5),
    (163, 5),
    (195, 5),
    (227, 5),
    (258, 0),
];

/// The symbol that ends a block; those behind it are the lengths.
const END_OF_BLOCK: u16 = 256;

/// What a code of the literals and lengths means.
#[derive(Clone, Copy)]
pub(super) struct Symbol {
    /// Of a literal the length of its code in bits 0 to 5, bit 6, and the byte in bits 8 to 15; 0 of all else.
    pub(super) literal: u16,
    /// Length of the code and of its extra bits.
    pub(super) bits: u8,
    /// Length of the code.
    pub(super) code: u8,
    /// How many bytes it stands for, without what the extra bits add. More than any does of what the table can't tell.
    pub(super) base: u16,
    /// The extra bits.
    pub(super) mask: u8,
    /// The byte of a literal.
    pub(super) byte: u8,
}

/// What a code of the distances means. Aligned, so that an index needs no more than a shift.
#[derive(Clone, Copy)]
#[repr(align(8))]
pub(super) struct Distance {
    /// How many bytes back, without what the extra bits add. 0 of what the table can't tell.
    pub(super) base: u16,
    /// The extra bits.
    pub(super) mask: u16,
    /// Length of the code and of its extra bits.
    pub(super) bits: u8,
    /// Length of the code.
    pub(super) code: u8,
}

/// An entry of a table.
pub(super) trait Entry: Copy {
    /// What the table can't tell: a longer code, the end of the block, or nothing.
    const LONG: Self;

    /// The meaning of a code that has `bits` bits, of one of no bits.
    fn coded(self, bits: u8) -> Self;
}

impl Entry for Symbol {
    const LONG: Symbol = Symbol { literal: 0, bits: 0, code: 0, base: u16::MAX, mask: 0, byte: 0 };

    #[inline(always)]
    fn coded(self, bits: u8) -> Symbol {
        // Bits of no more than 15: they do not reach bit 6.
        let literal = if self.literal == 0 { 0 } else { self.literal | u16::from(bits) };
        Symbol { literal, bits: self.bits + bits, code: bits, ..self }
    }
}

impl Entry for Distance {
    const LONG: Distance = Distance { base: 0, mask: 0, bits: 0, code: 0 };

    #[inline(always)]
    fn coded(self, bits: u8) -> Distance {
        Distance { bits: self.bits + bits, code: bits, ..self }
    }
}

/// Symbols by their numbers, without their codes.
const SYMBOLS: [Symbol; 288] = {
    let mut all = [Symbol::LONG; 288];
    let mut i = 0;
    while i < 256 {
        let byte = i as u8;
        all[i] = Symbol { literal: (byte as u16) << 8 | 64, bits: 0, code: 0, base: 1, mask: 0, byte };
        i += 1;
    }
    i = 0;
    while i < LENGTHS.len() {
        let (base, extra) = LENGTHS[i];
        all[END_OF_BLOCK as usize + 1 + i] =
            Symbol { literal: 0, bits: extra, code: 0, base, mask: (1 << extra) - 1, byte: 0 };
        i += 1;
    }
    all
};

/// Distances by their numbers, without their codes. The last two are not in use.
const DISTANCES: [Distance; 32] = {
    let mut all = [Distance::LONG; 32];
    let mut i = 0u16;
    while i < 30 {
        let extra = if i < 4 { 0 } else { (i / 2 - 1) as u8 };
        let base = if i < 4 { i + 1 } else { ((2 + i % 2) << extra) + 1 };
        all[i as usize] = Distance { base, mask: (1 << extra) - 1, bits: extra, code: 0 };
        i += 1;
    }
    all
};

/// One Huffman code of at most `SYMBOLS` symbols, with a table of `TABLE` entries.
pub(super) struct Code<E, const TABLE: usize, const SYMBOLS: usize> {
    table: [E; TABLE],
    /// How many codes there are of each length.
    count: [u16; 16],
    /// The symbols in the order of their codes.
    sorted: [u16; SYMBOLS],
}

impl<E: Entry, const TABLE: usize, const SYMBOLS: usize> Code<E, TABLE, SYMBOLS> {
    const fn new(empty: E) -> Self {
        Code { table: [empty; TABLE], count: [0; 16], sorted: [0; SYMBOLS] }
    }

    /// The entry for the next bits of the input, of which it takes as many as the table is looked up by.
    #[inline(always)]
    pub(super) fn at(&self, bits: usize) -> &E {
        &self.table[bits & (TABLE - 1)]
    }

    /// The symbol whose code comes next in `bits`, and the length of that code, which is longer than `known` bits.
    fn long(&self, bits: u64, known: u32) -> Option<(u16, u8)> {
        // Codes of one length are consecutive numbers, and behind the last of them begin those that are one bit longer.
        let code = u32::from((bits as u16).reverse_bits());
        let (mut first, mut index) = (0, 0);
        let (shorter, longer) = self.count[1..].split_at(known as usize);
        for &count in shorter {
            index += u32::from(count);
            first = (first + u32::from(count)) << 1;
        }
        for (length, &count) in (known + 1..).zip(longer) {
            let count = u32::from(count);
            let place = (code >> (16 - length)).wrapping_sub(first);
            if place < count {
                return Some((*self.sorted.get((index + place) as usize)?, length as u8));
            }
            index += count;
            first = (first + count) << 1;
        }
        None
    }

    /// Makes the code of which symbol `i` has `lengths[i]` bits, 0 where it is not in use, and its table, which is looked up
    /// by `bits` bits. `meanings` says what a symbol stands for. Gives whether that is a code: of a symbol or less it is, too,
    /// where `few` may be.
    fn make(&mut self, lengths: &[u8; SYMBOLS], meanings: &[E; SYMBOLS], bits: u32, few: bool) -> bool {
        // Each half is counted and sorted by itself: who adds to a number that was just added to waits for it.
        let (front, back) = lengths.split_at(SYMBOLS / 2);
        let mut counts = [[0u16; 16]; 2];
        for (&in_front, &in_back) in front.iter().zip(back) {
            counts[0][usize::from(in_front & 15)] += 1;
            counts[1][usize::from(in_back & 15)] += 1;
        }
        let mut cursors = [[0u16; 16]; 2];
        let (mut used, mut room) = (0u16, 1i32);
        for length in 1..16 {
            self.count[length] = counts[0][length] + counts[1][length];
            cursors[0][length] = used;
            cursors[1][length] = used + counts[0][length];
            used += self.count[length];
            room = 2 * room - i32::from(self.count[length]);
            if room < 0 {
                return false;
            }
        }
        let whole = room == 0;
        let is_few = few && used <= 1 && self.count[1] == used;
        if !(whole || is_few) {
            return false;
        }
        // Those that have no code go behind all others, which is cheaper than to look at each.
        cursors[0][0] = used;
        cursors[1][0] = used + counts[0][0];
        for (i, (&in_front, &in_back)) in front.iter().zip(back).enumerate() {
            place(&mut self.sorted, &mut cursors[0], i, in_front);
            place(&mut self.sorted, &mut cursors[1], SYMBOLS / 2 + i, in_back);
        }

        // The table for codes of up to n bits is twice that for up to n - 1 bits, and the codes of n bits.
        let mut symbols = self.sorted[..usize::from(used).min(SYMBOLS)].iter();
        let mut code = 0usize;
        for length in 1..=bits {
            let half = 1 << (length - 1);
            self.table.copy_within(..half, half);
            for &symbol in symbols.by_ref().take(usize::from(self.count[length as usize])) {
                self.table[code & (TABLE - 1)] = meanings[usize::from(symbol)].coded(length as u8);
                code = next(code, length);
            }
        }
        if !whole || symbols.next().is_some() {
            loop {
                self.table[code & (TABLE - 1)] = E::LONG;
                code = next(code, bits);
                if code == 0 {
                    break;
                }
            }
        }
        true
    }
}

#[inline(always)]
fn place<const SYMBOLS: usize>(sorted: &mut [u16; SYMBOLS], cursors: &mut [u16; 16], i: usize, length: u8) {
    let cursor = &mut cursors[usize::from(length & 15)];
    if let Some(place) = sorted.get_mut(usize::from(*cursor)) {
        *place = i as u16;
    }
    *cursor += 1;
}

/// The code of `length` bits behind `code`, both with their first bit lowest, as they come in the input; 0 behind the last.
#[inline(always)]
fn next(code: usize, length: u32) -> usize {
    match !code & ((1 << length) - 1) {
        0 => 0,
        zeros => {
            let highest = 1 << zeros.ilog2();
            code & (highest - 1) | highest
        }
    }
}

/// Lengths of codes, of which each is coded itself. Two that come together are looked up together where they fit.
#[derive(Clone, Copy)]
struct Lengths {
    /// What both codes take, and the first alone.
    bits: [u8; 2],
    values: [u8; 2],
    /// 0 where the first is no length but tells to repeat one.
    many: u8,
}

impl Entry for Lengths {
    const LONG: Lengths = Lengths { bits: [0; 2], values: [0; 2], many: 0 };

    fn coded(self, bits: u8) -> Lengths {
        Lengths { bits: [bits; 2], ..self }
    }
}

/// Bits of the longest code of a length.
const LENGTH_BITS: u32 = 7;
/// From this number on a code tells to repeat a length.
const REPEAT: u8 = 16;

const LENGTH_VALUES: [Lengths; 20] = {
    let mut all = [Lengths::LONG; 20];
    let mut i = 0;
    while i < 19 {
        all[i] = Lengths { bits: [0; 2], values: [i as u8; 2], many: (i < REPEAT as usize) as u8 };
        i += 1;
    }
    all
};

/// The two codes of a block.
pub(super) struct Codes {
    pub(super) symbols: Code<Symbol, { 1 << SYMBOL_BITS }, 288>,
    /// The upper half of the table is for what follows a literal: a distance of no bits, further back than any length.
    pub(super) distances: Code<Distance, { 2 << DISTANCE_BITS }, 32>,
}

/// The start of a block.
pub(super) struct Header {
    /// Where the first code is, in bits.
    pub(super) end: usize,
    /// Whether no block follows.
    pub(super) last: bool,
}

impl Codes {
    pub(super) fn new() -> Codes {
        let behind_literals = Distance { base: u16::MAX, mask: 0, bits: 0, code: 0 };
        Codes { symbols: Code::new(Symbol::LONG), distances: Code::new(behind_literals) }
    }

    /// What comes next in `bits`: a literal or a length, or the end of the block, which has the base of [`Entry::LONG`].
    pub(super) fn symbol(&self, bits: u64) -> Option<Symbol> {
        let found = self.symbols.at(bits as usize);
        if found.code != 0 {
            return Some(*found);
        }
        let (symbol, length) = self.symbols.long(bits, SYMBOL_BITS)?;
        Some(SYMBOLS.get(usize::from(symbol))?.coded(length))
    }

    /// The distance that comes next in `bits`.
    pub(super) fn distance(&self, bits: u64) -> Option<Distance> {
        let found = self.distances.at(bits as usize & ((1 << DISTANCE_BITS) - 1));
        if found.base != Distance::LONG.base {
            return Some(*found);
        }
        let (symbol, length) = self.distances.long(bits, DISTANCE_BITS)?;
        Some(DISTANCES.get(usize::from(symbol))?.coded(length))
            .filter(|found| found.base != Distance::LONG.base)
    }

    /// Reads the start of a block, at bit `at`, with its codes. `None` where it is of another kind or not valid.
    pub(super) fn read(&mut self, stored: &[u8], mut at: usize) -> Option<Header> {
        let start = peek(stored, at);
        let last = start & 1 == 1;
        let dynamic = start >> 1 & 3 == 2;
        let field = |from: u32, bits: u32| (start >> from) as usize & ((1 << bits) - 1);
        let (symbols, distances, coded) = (field(3, 5) + 257, field(8, 5) + 1, field(13, 4) + 4);
        if !dynamic || symbols > 286 || distances > 30 {
            return None;
        }
        at += 17;
        let lengths = self.read_lengths(stored, &mut at, coded, symbols + distances)?;
        let mut of_symbols = [0; 288];
        of_symbols[..symbols].copy_from_slice(&lengths[..symbols]);
        let mut of_distances = [0; 32];
        of_distances[..distances].copy_from_slice(&lengths[symbols..symbols + distances]);
        let ends = of_symbols[usize::from(END_OF_BLOCK)] != 0;
        // Where nearly all are lengths it is no guess that one comes next, and one decoder does best. A code of n bits comes
        // once in 2^n symbols, or thereabouts.
        let share = |bits: &u8| if *bits == 0 { 0 } else { (1 << 15) >> bits };
        let matches: u32 = of_symbols[usize::from(END_OF_BLOCK) + 1..].iter().map(share).sum();
        if matches > (1 << 15) * 2 / 3 {
            return None;
        }
        let made = self.symbols.make(&of_symbols, &SYMBOLS, SYMBOL_BITS, false)
            && self.distances.make(&of_distances, &DISTANCES, DISTANCE_BITS, true);
        (ends && made).then_some(Header { end: at, last })
    }

    /// The `wanted` lengths at bit `at`, which comes to lie behind them. The lengths of the first `coded` of their own codes
    /// come before them.
    fn read_lengths(&self, stored: &[u8], at: &mut usize, coded: usize, wanted: usize) -> Option<[u8; 512]> {
        const ORDER: [u8; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
        let mut of_codes = [0; 20];
        let bits = peek(stored, *at);
        for (i, &value) in (0..coded).zip(&ORDER) {
            of_codes[usize::from(value)] = (bits >> (3 * i)) as u8 & 7;
        }
        *at += 3 * coded;
        let mut code: Code<Lengths, { 1 << LENGTH_BITS }, 20> = Code::new(Lengths::LONG);
        if !code.make(&of_codes, &LENGTH_VALUES, LENGTH_BITS, false) {
            return None;
        }
        let singles = code.table;
        for (i, entry) in code.table.iter_mut().enumerate() {
            let second = singles[i >> entry.bits[0] & ((1 << LENGTH_BITS) - 1)];
            let both = entry.bits[0] + second.bits[0];
            if entry.many == 1 && second.many == 1 && u32::from(both) <= LENGTH_BITS {
                *entry = Lengths {
                    bits: [both, entry.bits[0]],
                    values: [entry.values[0], second.values[0]],
                    many: 2,
                };
            }
        }

        // Room for a repetition that goes too far.
        let mut lengths = [0u8; 512];
        let mut known = 0;
        while known < wanted {
            let mut bits = peek(stored, *at);
            // Each look takes 14 bits at most.
            for _ in 0..4 {
                let entry = *code.at(bits as usize);
                let mut taken = u32::from(entry.bits[0]);
                if entry.many > 0 {
                    lengths[known & 511] = entry.values[0];
                    lengths[(known + 1) & 511] = entry.values[1];
                    known += usize::from(entry.many);
                    if known > wanted {
                        known = wanted;
                        taken = u32::from(entry.bits[1]);
                    }
                } else {
                    let (value, extra, least) = match entry.values[0] {
                        REPEAT => (*lengths.get(known.checked_sub(1)?)?, 2, 3),
                        17 => (0, 3, 3),
                        _ => (0, 7, 11),
                    };
                    let many = least + ((bits >> taken) as usize & ((1 << extra) - 1));
                    taken += extra;
                    lengths.get_mut(known..known + many)?.fill(value);
                    known += many;
                    if known > wanted {
                        return None;
                    }
                }
                bits >>= taken;
                *at += taken as usize;
                if known == wanted {
                    break;
                }
            }
        }
        Some(lengths)
    }
}
