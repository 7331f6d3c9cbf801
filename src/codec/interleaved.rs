//! Deflate of several records at a time, on one thread.
//!
//! A decoder of one record waits: each code has to be looked up before it is known where the next one begins, and a
//! processor that guesses whether a literal or a length comes next guesses wrong every few codes, which costs it more than
//! the code itself. So nothing is guessed here: a step takes two literals, if they come next, and one code of any kind with
//! its distance, without a branch that depends on the input; and steps of several records alternate, so that one is at work
//! while another waits. What is out of the ordinary goes code by code: long codes, long matches, a record's last bytes.
//!
//! Only blocks with codes of their own are decoded here, which all but the shortest records consist of. Whatever does not
//! decode is given to [`inflate`], which knows the rest and has the last word.
//!
//! Nothing is shared: tables and buffers are the thread's own.

#![expect(
    clippy::cast_possible_truncation,
    reason = "of words only the lower bits are meant; records are no longer than u32 says"
)]

use std::cell::RefCell;
use std::hint;

use super::bits::{peek, peek_inside};
use super::huffman::{Codes, DISTANCE_BITS, Entry, Symbol};
use super::inflate;

/// Records at a time. With two the processor still waits now and then; the state of four does not fit into its registers.
const LANES: usize = 3;
/// Bytes that a step copies of a match; longer ones are out of the ordinary.
const COPY: usize = 16;
/// Bytes that a step may write: two literals and a copy, of which what lies behind the match is written again later.
const ROOM: usize = COPY + 4;
/// Records that are stored longer are decoded by themselves: so much is kept in memory for each lane.
const MOST: usize = 2 << 20;

/// What decoding takes, kept by the thread: tables, and stored bytes of records that are being decoded.
struct Scratch {
    codes: Box<[Codes; LANES]>,
    stored: Vec<Vec<u8>>,
}

impl Scratch {
    fn new() -> Scratch {
        Scratch { codes: Box::new(std::array::from_fn(|_| Codes::new())), stored: Vec::new() }
    }
}

thread_local! {
    static SCRATCH: RefCell<Option<Scratch>> = const { RefCell::new(None) };
}

#[cfg(test)]
thread_local! {
    /// How many records were decoded by themselves.
    pub(super) static ALONE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Lends this thread's decoders; they are kept, as they take some tens of KiB and as much as the records' stored bytes.
///
/// Calls may not be nested: an inner one makes decoders for itself alone.
pub fn with_inflaters<'a, R>(work: impl FnOnce(&mut Inflaters<'_, 'a>) -> R) -> R {
    let lend = |scratch: &mut Scratch| work(&mut Inflaters { scratch, lanes: Vec::new(), free: None });
    SCRATCH.with(|kept| match kept.try_borrow_mut() {
        Ok(mut kept) => lend(kept.get_or_insert_with(Scratch::new)),
        Err(_) => lend(&mut Scratch::new()),
    })
}

/// Decodes raw Deflate of several records: each is taken by [`Inflaters::push`], and all are decoded when
/// [`Inflaters::finish`] returns. After an error what the others decode to is unspecified.
pub struct Inflaters<'s, 'a> {
    scratch: &'s mut Scratch,
    lanes: Vec<Lane<'a>>,
    /// The lane whose record is decoded, to be taken by the next one.
    free: Option<usize>,
}

/// A record that does not decode to as many bytes as it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Undecodable {
    /// As [`Inflaters::push`] was given it.
    pub number: u64,
    /// How many bytes are stored.
    pub stored: usize,
    /// How many they should decode to.
    pub len: usize,
}

/// A record that is being decoded.
struct Lane<'a> {
    number: u64,
    /// Its stored bytes are the first `len`.
    stored: Vec<u8>,
    len: usize,
    dst: &'a mut [u8],
    /// Where the next code begins, in bits.
    at: usize,
    /// Bytes that are decoded.
    done: usize,
    /// Whether the block that is under way is the last one.
    block: Option<bool>,
}

/// Why a record does not go on.
#[derive(Clone, Copy)]
enum Stop {
    /// At its end, in bits.
    EndOfBlock(usize),
    Invalid,
}

impl<'a> Inflaters<'_, 'a> {
    /// A buffer for the stored bytes of the next record, as long as whatever was in it before. Decodes records until one
    /// more can be taken.
    ///
    /// # Errors
    /// Which of the records before does not decode.
    pub fn buffer(&mut self) -> Result<Vec<u8>, Undecodable> {
        self.make_room()?;
        let used =
            self.free.and_then(|free| self.lanes.get_mut(free)).map(|lane| std::mem::take(&mut lane.stored));
        Ok(used.or_else(|| self.scratch.stored.pop()).unwrap_or_default())
    }

    /// Takes a record, number `number`, to decode to all of `dst`: the first `len` bytes of `stored`, which came from
    /// [`Inflaters::buffer`].
    ///
    /// # Errors
    /// Which of the records does not decode: this one or one before.
    pub fn push(
        &mut self,
        number: u64,
        stored: Vec<u8>,
        len: usize,
        dst: &'a mut [u8],
    ) -> Result<(), Undecodable> {
        self.make_room()?;
        let mut lane = Lane { number, len: len.min(stored.len()), stored, dst, at: 0, done: 0, block: None };
        if lane.stored.len() > MOST || u32::try_from(lane.dst.len()).is_err() {
            return lane.alone();
        }
        match self.free.take().and_then(|free| self.lanes.get_mut(free)) {
            Some(free) => *free = lane,
            None => self.lanes.push(lane),
        }
        Ok(())
    }

    /// Decodes what is not decoded yet.
    ///
    /// # Errors
    /// Which record does not decode.
    pub fn finish(&mut self) -> Result<(), Undecodable> {
        loop {
            if let Some(free) = self.free.take() {
                let lane = self.lanes.swap_remove(free);
                self.scratch.codes.swap(free, self.lanes.len());
                self.scratch.stored.push(lane.stored);
            }
            match self.lanes.as_mut_slice() {
                [] => return Ok(()),
                // A single record has nothing to alternate with.
                [only] if only.at == 0 => {
                    only.alone()?;
                    self.free = Some(0);
                }
                _ => self.free = Some(self.decode_one()?),
            }
        }
    }

    /// Decodes until one more record can be taken.
    fn make_room(&mut self) -> Result<(), Undecodable> {
        if self.lanes.len() == LANES && self.free.is_none() {
            self.free = Some(self.decode_one()?);
        }
        Ok(())
    }

    /// Decodes until one of the records is done, and gives its lane.
    fn decode_one(&mut self) -> Result<usize, Undecodable> {
        loop {
            for (i, (lane, codes)) in self.lanes.iter_mut().zip(self.scratch.codes.iter_mut()).enumerate() {
                if lane.block.is_none() && !lane.begin_block(codes) {
                    return lane.alone().map(|()| i);
                }
            }
            let (i, stop) = match self.lanes.as_mut_slice() {
                [a, b, c] => run([a, b, c], &self.scratch.codes),
                [a, b] => run([a, b], &self.scratch.codes),
                [a] => run([a], &self.scratch.codes),
                _ => return Ok(0),
            };
            let Some(lane) = self.lanes.get_mut(i) else { return Ok(0) };
            match (stop, lane.block.take()) {
                (Stop::EndOfBlock(_), Some(true)) if lane.done == lane.dst.len() => return Ok(i),
                (Stop::EndOfBlock(end), Some(false)) => lane.at = end,
                _ => return lane.alone().map(|()| i),
            }
        }
    }
}

impl Lane<'_> {
    fn stored(&self) -> &[u8] {
        self.stored.get(..self.len).unwrap_or_default()
    }

    /// Reads the start of a block; `false` where that can't be decoded here.
    fn begin_block(&mut self, codes: &mut Codes) -> bool {
        let Some(header) = codes.read(self.stored(), self.at) else { return false };
        self.at = header.end;
        self.block = Some(header.last);
        true
    }

    /// Decodes the whole record by itself.
    fn alone(&mut self) -> Result<(), Undecodable> {
        #[cfg(test)]
        ALONE.set(ALONE.get() + 1);
        let stored = self.stored.get(..self.len).unwrap_or_default();
        if inflate(stored, self.dst) {
            return Ok(());
        }
        Err(Undecodable { number: self.number, stored: self.len, len: self.dst.len() })
    }
}

/// Decodes until one of the records comes to the end of a block or to what is not valid; gives which.
#[inline(never)]
#[expect(clippy::indexing_slicing, reason = "arrays of N, indexed below N")]
fn run<const N: usize>(lanes: [&mut Lane<'_>; N], codes: &[Codes; LANES]) -> (usize, Stop) {
    // In variables of their own they stay in registers.
    let mut at = [0; N];
    let mut done = [0; N];
    for i in 0..N {
        at[i] = lanes[i].at;
        done[i] = lanes[i].done as u32;
    }
    let places = lanes.map(|lane| {
        let stored = lane.stored.get(..lane.len).unwrap_or_default();
        (stored, &mut *lane.dst, &mut lane.at, &mut lane.done)
    });
    // Not a loop over the lanes, which would look each one's state up by its number.
    let (stopped, stop) = loop {
        if N > 0
            && let Err(stop) = turn(places[0].0, places[0].1, &codes[0], &mut at[0], &mut done[0])
        {
            break (0, stop);
        }
        if N > 1
            && let Err(stop) = turn(places[1].0, places[1].1, &codes[1], &mut at[1], &mut done[1])
        {
            break (1, stop);
        }
        if N > 2
            && let Err(stop) = turn(places[2].0, places[2].1, &codes[2], &mut at[2], &mut done[2])
        {
            break (2, stop);
        }
    };
    for (i, (.., lane_at, lane_done)) in places.into_iter().enumerate() {
        *lane_at = at[i];
        *lane_done = done[i] as usize;
    }
    (stopped, stop)
}

/// Decodes what comes next of one record.
#[inline(always)]
fn turn(stored: &[u8], dst: &mut [u8], codes: &Codes, at: &mut usize, done: &mut u32) -> Result<(), Stop> {
    if !step(stored, dst, codes, at, done) {
        (*at, *done) = symbol(stored, dst, codes, *at, *done)?;
    }
    Ok(())
}

/// Decodes the literals that come next, at most two, and one literal or length with its distance. `false` where the latter
/// is out of the ordinary: it comes next, then.
#[inline(always)]
fn step(stored: &[u8], dst: &mut [u8], codes: &Codes, at: &mut usize, done: &mut u32) -> bool {
    let Some(mut bits) = peek_inside(stored, *at) else { return false };
    let start = *done as usize;
    let Some(room) = dst.get_mut(start..start + ROOM).and_then(|room| room.first_chunk_mut::<ROOM>()) else {
        return false;
    };
    // What is no literal has neither bits nor bit 6.
    let first = codes.symbols.at(bits as usize).literal;
    bits = bits.wrapping_shr(first.into());
    room[0] = (first >> 8) as u8;
    let second = codes.symbols.at(bits as usize).literal;
    bits = bits.wrapping_shr(second.into());
    if let Some(to) = room.get_mut(usize::from(first >> 6 & 1)) {
        *to = (second >> 8) as u8;
    }
    let both = u32::from(first) + u32::from(second);
    let literals = (both >> 6 & 3) as usize;
    *done += literals as u32;
    *at += (both & 63) as usize;

    let symbol = codes.symbols.at(bits as usize);
    let is_literal = symbol.literal & 64;
    let behind = bits.wrapping_shr(symbol.bits.into());
    let distance = codes.distances.at((behind as usize & ((1 << DISTANCE_BITS) - 1))
        + usize::from(is_literal) * ((1 << DISTANCE_BITS) / 64));
    let len =
        u32::from(symbol.base) + (bits.wrapping_shr(symbol.code.into()) as u32 & u32::from(symbol.mask));
    let back = u32::from(distance.base)
        + (behind.wrapping_shr(distance.code.into()) as u32 & u32::from(distance.mask));
    if len > back || len > COPY as u32 {
        return false;
    }
    // A literal copies the record's first bytes, which is as good as any, and is put in their place.
    let from = hint::select_unpredictable(is_literal != 0, 0, done.wrapping_sub(back)) as usize;
    let Some(copy) = dst.get(from..from + COPY).and_then(|copy| copy.first_chunk::<COPY>()).copied() else {
        return false;
    };
    let Some(room) = dst.get_mut(start..start + ROOM).and_then(|room| room.first_chunk_mut::<ROOM>()) else {
        return false;
    };
    if let Some(to) = room.get_mut(literals..literals + COPY) {
        to.copy_from_slice(&copy);
    }
    // Of a length behind the copy, where it is written again later.
    if let Some(to) = room.get_mut(literals + COPY - usize::from(is_literal) / 4) {
        *to = symbol.byte;
    }
    *done += len;
    *at += usize::from(symbol.bits) + usize::from(distance.bits);
    true
}

/// Decodes one literal, or one length with its distance, and gives what `at` and `done` are then.
///
/// Takes no reference to them, as `step` has them in registers.
#[inline(never)]
fn symbol(stored: &[u8], dst: &mut [u8], codes: &Codes, at: usize, done: u32) -> Result<(usize, u32), Stop> {
    let bits = peek(stored, at);
    let found = codes.symbol(bits).ok_or(Stop::Invalid)?;
    let mut taken = usize::from(found.bits);
    if found.base == Symbol::LONG.base {
        let end = at + taken;
        return Err(if end <= 8 * stored.len() { Stop::EndOfBlock(end) } else { Stop::Invalid });
    }
    let start = done as usize;
    let len = usize::from(found.base) + ((bits >> found.code) as usize & usize::from(found.mask));
    let room = dst.len() - start;
    if found.literal != 0 {
        *dst.get_mut(start).ok_or(Stop::Invalid)? = found.byte;
    } else {
        let bits = bits >> found.bits;
        let distance = codes.distance(bits).ok_or(Stop::Invalid)?;
        taken += usize::from(distance.bits);
        let back =
            usize::from(distance.base) + ((bits >> distance.code) as usize & usize::from(distance.mask));
        let from = start.checked_sub(back).ok_or(Stop::Invalid)?;
        if len > room {
            return Err(Stop::Invalid);
        }
        // What repeats itself is twice as long after each copy.
        let (mut copied, mut known) = (0, back);
        while copied < len {
            let n = known.min(len - copied);
            dst.copy_within(from..from + n, start + copied);
            copied += n;
            known += n;
        }
    }
    Ok((at + taken, done + len as u32))
}
