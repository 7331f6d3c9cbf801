use super::backend::pure::Inflater as PureInflater;
use super::*;
use proptest::prelude::*;

/// The other backend's decoder, whichever is built in.
fn inflate_by_flate2(stored: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; len];
    PureInflater::new().inflate(stored, &mut out).then_some(out)
}

proptest! {
    #[test]
    fn what_is_encoded_decodes_by_both_backends(seed in 0u8..4, len in 0usize..70_000, level in 0u8..14) {
        let record: Vec<u8> = (0..len).map(|i| match seed {
            0 => 0,
            1 => (i / 7) as u8,
            2 => ((i * i) >> 3) as u8,
            _ => (i as u32).wrapping_mul(2_654_435_761).rotate_left(9) as u8,
        }).collect();
        let mut out = vec![9];
        let deflated = Encoder::new(Codec::Flate(level)).encode(&record, &mut out);
        let stored = &out[1..];
        if deflated {
            prop_assert!(stored.len() * 50 <= record.len() * 49);
            let mut back = vec![0; len];
            prop_assert!(inflate(stored, &mut back));
            prop_assert_eq!(&back, &record);
            prop_assert_eq!(inflate_by_flate2(stored, len), Some(record));
        } else {
            prop_assert_eq!(stored, &record[..]);
        }
    }

    #[test]
    fn hostile_bytes_are_refused_not_fatal(stored in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut out = vec![0; 1000];
        let ours = inflate(&stored, &mut out);
        prop_assert_eq!(ours, inflate_by_flate2(&stored, 1000).is_some());
    }
}

#[test]
fn a_wrong_length_is_refused() {
    let mut stored = Vec::new();
    assert!(Encoder::new(Codec::default()).encode(&[5; 1000], &mut stored));
    for len in [0, 999, 1001] {
        assert!(!inflate(&stored, &mut vec![0; len]), "{len} bytes");
    }
    assert!(!inflate(&stored[..stored.len() - 1], &mut [0; 1000]));
}

/// Records of all kinds that a decoder meets: what repeats itself near and far, what hardly does, text, few values, many.
fn record(kind: u8, seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let mut out: Vec<u8> = Vec::with_capacity(len + 300);
    let mut last = 0u8;
    while out.len() < len {
        match kind {
            0 => out.push((random() % 7) as u8 * 36),
            1 => {
                last = last.wrapping_add((random() % 7) as u8);
                out.push(last);
            }
            2 if out.len() > 1 && random() % 3 > 0 => {
                let back = 1 + random() % out.len().min([3, 40, 33_000][random() % 3]);
                for _ in 0..3 + random() % 256 {
                    out.push(out[out.len() - back]);
                }
            }
            3 => out.extend_from_slice(
                ["record ", "store ", "of ", "the ", "a\n", "mount "][random() % 6].as_bytes(),
            ),
            4 => out.extend_from_slice(&[last; 700]),
            5 => out.push((random() % 97 * (random() % 97) / 37) as u8),
            // Most bytes once in a while: codes as long as there are.
            6 => out.push((random() % (1 << (random() % 9))) as u8),
            _ => out.push(random() as u8),
        }
        last = last.wrapping_add(random() as u8 & 1);
    }
    out.truncate(len);
    out
}

/// Decodes all, several at a time, and gives the number of one that does not decode.
fn inflate_together(records: &[(Vec<u8>, usize)]) -> (Vec<Vec<u8>>, Result<(), Undecodable>) {
    let mut decoded: Vec<Vec<u8>> = records.iter().map(|(_, len)| vec![0x55; *len]).collect();
    let outcome = with_inflaters(|inflaters| {
        for ((number, (stored, _)), dst) in (0..).zip(records).zip(&mut decoded) {
            let mut buffer = inflaters.buffer()?;
            buffer.resize(buffer.len().max(stored.len()), 0xAA);
            buffer[..stored.len()].copy_from_slice(stored);
            inflaters.push(number, buffer, stored.len(), dst)?;
        }
        inflaters.finish()
    });
    (decoded, outcome)
}

proptest! {
    #[test]
    fn several_at_a_time_decode_as_each_by_itself(
        kinds in proptest::collection::vec((0u8..8, any::<u64>(), 17usize..40_000, 1u8..13), 0..9),
        slow in any::<bool>(),
    ) {
        let mut stored = Vec::new();
        let mut wanted = Vec::new();
        for (kind, seed, len, level) in kinds {
            let record = record(kind, seed, if slow { len % 900 + 17 } else { len });
            let mut out = Vec::new();
            if Encoder::new(Codec::Flate(level)).encode(&record, &mut out) {
                stored.push((out, record.len()));
                wanted.push(record);
            }
        }
        let (decoded, outcome) = inflate_together(&stored);
        prop_assert_eq!(outcome, Ok(()));
        prop_assert!(decoded == wanted);
    }

    /// Where one byte of one record is another one: what is decoded is what a decoder of one record makes of it, or that
    /// record is named.
    #[test]
    fn several_at_a_time_refuse_what_each_by_itself_does(
        kind in 0u8..8, seed in any::<u64>(), len in 200usize..5_000, place in any::<usize>(), flip in 1u8..=255,
        cut in 0usize..40, longer in -3isize..4,
    ) {
        let mut stored: Vec<(Vec<u8>, usize)> = Vec::new();
        for i in 0..4 {
            let mut out = Vec::new();
            prop_assume!(Encoder::new(Codec::Flate(6)).encode(&record(kind, seed.wrapping_add(i), len), &mut out));
            stored.push((out, len));
        }
        let damaged = place % stored.len();
        let (bytes, len) = &mut stored[damaged];
        let at = (place / 7) % bytes.len();
        // Half of them where the codes are told.
        let at = if place.is_multiple_of(2) { at % 80 % bytes.len() } else { at };
        bytes[at] ^= flip;
        bytes.truncate(bytes.len() - cut.saturating_sub(20).min(bytes.len() - 1));
        *len = len.saturating_add_signed(longer);
        let (bytes, len) = &stored[damaged];
        let mut alone = vec![0; *len];
        let valid = inflate(bytes, &mut alone);
        let wanted = Undecodable { number: damaged as u64, stored: bytes.len(), len: *len };
        let (decoded, outcome) = inflate_together(&stored);
        prop_assert_eq!(outcome, if valid { Ok(()) } else { Err(wanted) });
        if valid {
            prop_assert!(decoded[damaged] == alone);
        }
    }
}

#[test]
fn records_of_all_lengths_come_in_any_company() {
    // Stored and fixed blocks, blocks one after another, records that are decoded by themselves for their length.
    let mut stored = Vec::new();
    let mut wanted = Vec::new();
    for (kind, len) in
        [(4, 60), (3, 90), (1, 300_000), (4, 6_000_000), (3, 200), (1, 4_000_000), (6, 150_000)]
    {
        let record = record(kind, len as u64, len);
        let mut out = Vec::new();
        assert!(Encoder::new(Codec::default()).encode(&record, &mut out), "{len} bytes");
        stored.push((out, len));
        wanted.push(record);
    }
    let mut with_stored_block = vec![0, 5, 0, 250, 255];
    with_stored_block.extend_from_slice(b"plain");
    with_stored_block.extend_from_slice(&stored[4].0);
    stored.push((with_stored_block, 205));
    wanted.push([b"plain", &wanted[4][..]].concat());
    let (decoded, outcome) = inflate_together(&stored);
    assert_eq!(outcome, Ok(()));
    assert!(decoded == wanted);
}

#[test]
fn usual_records_are_decoded_together() {
    // Not those that consist of what was there before: one decoder does best with them.
    for (kind, len) in [(0, 3_000), (1, 12_288), (1, 150_000), (5, 3_072), (6, 100_000)] {
        let stored: Vec<(Vec<u8>, usize)> = (0..7)
            .map(|seed| {
                let mut out = Vec::new();
                assert!(Encoder::new(Codec::default()).encode(&record(kind, seed, len), &mut out));
                (out, len)
            })
            .collect();
        let before = interleaved::ALONE.get();
        assert_eq!(inflate_together(&stored).1, Ok(()));
        // The last one may be.
        assert!(
            interleaved::ALONE.get() <= before + 1,
            "kind {kind}: {} of 7",
            interleaved::ALONE.get() - before
        );
    }
}

#[test]
fn nothing_to_decode_is_done_at_once() {
    assert_eq!(inflate_together(&[]).1, Ok(()));
    assert_eq!(inflate_together(&[(vec![], 0)]).1, Err(Undecodable { number: 0, stored: 0, len: 0 }));
}
