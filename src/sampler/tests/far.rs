//! Far from the beginning: kept states, places that no seek reaches, the ends of the numbers.

use super::*;
use crate::error::ErrorKind;

/// States this many draws apart, as a power of two: a seek then reaches draw 4096 · 4, not 2^32.
const BITS: u32 = 2;
const REACH: u64 = 4096 << BITS;

fn near(length: u64, seed: u64) -> Iid {
    Iid::with_interval(length, seed, BITS)
}

fn near_sampler(options: &SamplerOptions) -> Sampler {
    Sampler::with_iid(1000, options, near).unwrap()
}

#[test]
fn kept_states_do_not_change_the_stream() {
    let mut indices = vec![0; 20_000];
    near_sampler(&options(Mode::Iid, 3, 20_000)).next(&mut indices).unwrap();
    assert_eq!(indices, stream(Mode::Iid, 3, 1000, 20_000));
    // Back and forth, in a sampler that has kept states and in one that has none yet.
    let mut old = near_sampler(&options(Mode::Iid, 3, 1));
    for draw in [16_000_usize, 0, 1, 3, 4, 5, 15_999, 8, 7, 9, 12_345, 16_384] {
        for sampler in [&mut old, &mut near_sampler(&options(Mode::Iid, 3, 1))] {
            sampler.seek(draw as u64).unwrap();
            assert_eq!(take(sampler, 9), indices[draw..draw + 9]);
        }
    }
}

#[test]
fn clones_share_kept_states() {
    let mut sampler = Sampler::new(1000, &options(Mode::Iid, 3, 1)).unwrap();
    let mut other = sampler.clone();
    std::thread::spawn(move || other.seek(5 << 20).unwrap()).join().unwrap();
    let Draws::Iid(iid) = &sampler.draws else { panic!() };
    assert_eq!(iid.nearest((5 << 20) + 9).0, 5 << 20);
    assert_eq!(iid.nearest((5 << 20) - 1).0, 4 << 20);
    sampler.seek(5 << 20).unwrap();
    assert_eq!(take(&mut sampler, 4), {
        let mut fresh = Sampler::new(1000, &options(Mode::Iid, 3, 4)).unwrap();
        fresh.seek(5 << 18).unwrap();
        take(&mut fresh, 1)
    });
}

#[test]
fn a_seek_past_the_last_kept_state_is_refused_and_next_goes_on() {
    for (batch, rank, world) in [(1, 0, 1), (7, 0, 1), (16, 2, 3)] {
        let options = SamplerOptions { rank, world, ..options(Mode::Iid, 5, batch) };
        let share = batch as u64 * world;
        let last = (REACH - rank * batch as u64) / share;
        let mut sampler = near_sampler(&options);
        sampler.seek(last).unwrap();
        assert!(sampler.state().to_json().find("generator").is_none());
        let ahead = take(&mut sampler, 40);
        for step in [last + 1, u64::MAX] {
            assert_eq!(sampler.seek(step).unwrap_err().kind(), ErrorKind::Unsupported);
            assert_eq!(sampler.step(), last + 40);
        }
        // What comes is the stream, further on.
        let from = usize::try_from(last * share + rank * batch as u64).unwrap();
        let whole = stream(Mode::Iid, 5, 1000, from + 40 * usize::try_from(share).unwrap());
        let expected = whole[from..].chunks(batch).step_by(usize::try_from(world).unwrap());
        assert_eq!(ahead, expected.flatten().copied().collect::<Vec<_>>());

        // Each place past it comes back from its state, and from there the first ones do, too.
        sampler.seek(last).unwrap();
        for passed in 1..30 {
            sampler.next(&mut vec![0; batch]).unwrap();
            let json = sampler.state().to_json();
            assert!(json.contains("generator"));
            let state = SamplerState::from_json(json.as_bytes()).unwrap();
            assert_eq!(state, sampler.state());
            let mut restored = Sampler::restore_with(&state, 1000, near).unwrap();
            assert_eq!(restored.state(), state);
            assert_eq!(take(&mut restored, 10), ahead[passed * batch..(passed + 10) * batch]);
            restored.seek(0).unwrap();
            assert_eq!(take(&mut restored, 3), take(&mut near_sampler(&options), 3));
        }
    }
}

#[test]
fn the_generators_words_have_to_be_those_of_the_step() {
    let mut sampler = near_sampler(&options(Mode::Iid, 5, 8));
    sampler.seek(REACH / 8).unwrap();
    sampler.next(&mut [0; 8]).unwrap();
    let state = sampler.state();
    let other = SamplerState { step: state.step + 1, ..state.clone() };
    assert_eq!(Sampler::restore_with(&other, 1000, near).unwrap_err().kind(), ErrorKind::Damaged);
    let none = SamplerState { generator: None, ..state.clone() };
    assert_eq!(Sampler::restore_with(&none, 1000, near).unwrap_err().kind(), ErrorKind::Unsupported);
    // Where a seek reaches, they are not used.
    let reached = SamplerState { step: 3, ..state };
    let mut restored = Sampler::restore_with(&reached, 1000, near).unwrap();
    assert_eq!(take(&mut restored, 1), stream(Mode::Iid, 5, 1000, 32)[24..]);
}

#[test]
fn real_samplers_come_back_past_2_32_draws() {
    let step = (1_u64 << 40) / 256;
    let mut state = Sampler::new(1000, &SamplerOptions::default()).unwrap().state();
    state.step = step;
    assert_eq!(Sampler::restore(&state, 1000).unwrap_err().kind(), ErrorKind::Unsupported);
    state.generator = Some([1, 2, 3, (1 << 40) + 13]);
    let mut sampler = Sampler::restore(&state, 1000).unwrap();
    assert_eq!(sampler.state(), state);
    let indices = take(&mut sampler, 2);
    assert!(indices.iter().all(|&index| index < 1000));
    let words = sampler.state().generator.unwrap();
    assert_eq!((sampler.step(), words[3]), (step + 2, (1 << 40) + 13 + 512));
    let mut again = Sampler::restore(&sampler.state(), 1000).unwrap();
    assert_eq!(take(&mut again, 2), take(&mut sampler, 2));
    sampler.seek(0).unwrap();
    assert_eq!(take(&mut sampler, 1), stream(Mode::Iid, 42, 1000, 256));
}

#[test]
fn the_ends_of_the_numbers() {
    let ends = [1, 2, u64::MAX / 2, u64::MAX - 1, u64::MAX];
    for mode in [Mode::Sequential, Mode::Shuffle] {
        for length in [1, 2, 3, 255, 256, 257, 258, 1 << 32, (1 << 32) + 1, u64::MAX - 1, u64::MAX] {
            for world in ends {
                for rank in [0, world / 2, world - 1] {
                    let options = SamplerOptions { rank, world, ..options(mode, 1, 600) };
                    let mut sampler = Sampler::new(length, &options).unwrap();
                    for step in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
                        sampler.seek(step).unwrap();
                        let indices = take(&mut sampler, 1);
                        assert!(indices.iter().all(|&index| index < length));
                        assert_eq!(sampler.step(), step.wrapping_add(1));
                    }
                    // After the last step comes the first.
                    assert_eq!(sampler.state(), Sampler::new(length, &options).unwrap().state());
                }
            }
        }
    }
}

#[test]
fn far_places_are_exact() {
    // The last rank's last step but one of the largest world, by hand: (2^64 - 2) · (2^64 - 1) + 2^64 - 2 = 2^128 - 2^65 = step
    // g; modulo 1000 its first draw is g · 7.
    let options = SamplerOptions { rank: u64::MAX - 1, world: u64::MAX, ..options(Mode::Sequential, 0, 7) };
    let mut sampler = Sampler::new(1000, &options).unwrap();
    sampler.seek(u64::MAX - 1).unwrap();
    let global = u128::MAX - (1 << 65) + 1;
    let first = u64::try_from(global % 1000 * 7 % 1000).unwrap();
    assert_eq!(take(&mut sampler, 1)[0], first);
    // In a shuffle, steps in a row make passes there as anywhere.
    let mut sampler = Sampler::new(12, &super::options(Mode::Shuffle, 0, 4)).unwrap();
    sampler.seek(u64::MAX / 3 * 3 - 3).unwrap();
    let mut pass = take(&mut sampler, 3);
    pass.sort_unstable();
    assert!(pass.into_iter().eq(0..12));
}

#[test]
fn a_store_of_another_length_is_refused_unless_told() {
    for mode in MODES {
        let mut sampler = Sampler::new(1000, &options(mode, 5, 8)).unwrap();
        take(&mut sampler, 3);
        let state = sampler.state();
        for length in [999, 1001, 0] {
            assert_eq!(Sampler::restore(&state, length).unwrap_err().kind(), ErrorKind::Geometry);
        }
        let mut told = Sampler::restore(&state.clone().with_length(1200), 1200).unwrap();
        let mut expected = Sampler::new(1200, sampler.options()).unwrap();
        expected.seek(3).unwrap();
        assert_eq!((told.length(), told.step()), (1200, 3));
        assert_eq!(take(&mut told, 5), take(&mut expected, 5));
        assert!(Sampler::restore(&state.with_length(0), 0).is_err());
    }
}

#[test]
fn hostile_states_are_errors() {
    let text = Sampler::new(10, &options(Mode::Shuffle, u64::MAX, 3)).unwrap().state().to_json();
    let state = SamplerState::from_json(text.as_bytes()).unwrap();
    assert_eq!(state.seed, u64::MAX);
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    // Each field is needed, and has to be of its type.
    for name in value.as_object().unwrap().keys() {
        for wrong in ["null", "-1", "1.5", "18446744073709551616", "[]", "\"x\"", "true"] {
            let mut value = value.clone();
            value[name] = serde_json::from_str(wrong).unwrap();
            let refused = SamplerState::from_json(value.to_string().as_bytes()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Damaged, "{name} {wrong}");
        }
        let mut value = value.clone();
        value.as_object_mut().unwrap().remove(name);
        assert!(SamplerState::from_json(value.to_string().as_bytes()).is_err(), "{name}");
    }
    for generator in ["null", "{}", "[]", "[1,2,3]", "[1,2,3,4,5]", "[1,2,3,-4]", "[1,2,3,1e3]"] {
        let mut value = value.clone();
        value["generator"] = serde_json::from_str(generator).unwrap();
        assert!(SamplerState::from_json(value.to_string().as_bytes()).is_err(), "{generator}");
    }
    let newer = text.replace("\"version\":1", "\"version\":2");
    assert_eq!(SamplerState::from_json(newer.as_bytes()).unwrap_err().kind(), ErrorKind::Version);
    let (deep, long) = ("[".repeat(60_000), " ".repeat(1 << 20));
    for text in ["", "{}", "[]", "null", "\u{0}", "{\"sampler\":\"zrfs\"", &deep, &long] {
        assert_eq!(SamplerState::from_json(text.as_bytes()).unwrap_err().kind(), ErrorKind::Damaged);
    }
    for cut in 0..text.len() {
        assert!(SamplerState::from_json(&text.as_bytes()[..cut]).is_err());
    }
    // States that can be read and in which no sampler can be.
    for (name, wrong) in [("batch_size", 0_u64), ("world", 0), ("rank", 1), ("length", 0)] {
        let mut value = value.clone();
        value[name] = wrong.into();
        let state = SamplerState::from_json(value.to_string().as_bytes()).unwrap();
        assert!(Sampler::restore(&state, state.length).is_err(), "{name}");
    }
}
