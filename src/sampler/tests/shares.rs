//! How a stream is cut: into steps, and among ranks.

use proptest::prelude::*;

use super::*;
use crate::error::ErrorKind;

/// Lengths at which something changes: the table's end, square and oblong grids, their neighbours.
fn lengths() -> impl Strategy<Value = u64> {
    prop_oneof![1_u64..20, 250_u64..300, 1_u64..5000, Just(u64::MAX), any::<u64>().prop_map(|n| n.max(1))]
}

fn modes() -> impl Strategy<Value = Mode> {
    prop::sample::select(&MODES[..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_cut_into_batches_gives_the_same_stream(
        mode in modes(), seed: u64, length in lengths(), batch in 1_usize..700,
    ) {
        let mut sampler = Sampler::new(length, &options(mode, seed, batch)).unwrap();
        let steps = 2000_usize.div_ceil(batch);
        prop_assert_eq!(take(&mut sampler, steps), stream(mode, seed, length, steps * batch));
    }

    #[test]
    fn seeking_is_as_many_steps(
        mode in modes(), seed: u64, length in lengths(), batch in 1_usize..400, world in 1_u64..6, rank in 0_u64..6, step in 0_u64..20,
    ) {
        let options = SamplerOptions { mode, seed, batch_size: batch, rank: rank % world, world };
        let mut walked = Sampler::new(length, &options).unwrap();
        take(&mut walked, usize::try_from(step).unwrap());
        prop_assert_eq!(walked.step(), step);
        let mut sought = Sampler::new(length, &options).unwrap();
        sought.seek(step).unwrap();
        prop_assert_eq!(sought.state(), walked.state());
        let ahead = take(&mut walked, 7);
        prop_assert_eq!(&take(&mut sought, 7), &ahead);
        // Back again, and from a state in words.
        sought.seek(step).unwrap();
        let state = sought.state();
        prop_assert_eq!(&take(&mut sought, 7), &ahead);
        let state = SamplerState::from_json(state.to_json().as_bytes()).unwrap();
        let mut restored = Sampler::restore(&state, length).unwrap();
        prop_assert_eq!(restored.options(), &options);
        prop_assert_eq!(take(&mut restored, 7), ahead);
    }

    #[test]
    fn ranks_take_the_steps_in_turn(
        mode in modes(), seed: u64, length in lengths(), batch in 1_usize..60, world in 1_u64..8,
    ) {
        let whole = take(&mut Sampler::new(length, &options(mode, seed, batch)).unwrap(), 5 * usize::try_from(world).unwrap());
        for rank in 0..world {
            let options = SamplerOptions { mode, seed, batch_size: batch, rank, world };
            let own = take(&mut Sampler::new(length, &options).unwrap(), 5);
            let steps = whole.chunks(batch).skip(usize::try_from(rank).unwrap()).step_by(usize::try_from(world).unwrap());
            prop_assert_eq!(own, steps.flatten().copied().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_pass_has_every_index_once(seed: u64, length in prop_oneof![1_u64..600, 1_u64..20_000]) {
        let size = usize::try_from(length).unwrap();
        for pass in stream(Mode::Shuffle, seed, length, 2 * size).chunks_mut(size) {
            pass.sort_unstable();
            prop_assert!(pass.iter().copied().eq(0..length));
        }
    }
}

#[test]
fn ranks_together_cover_each_index_once_a_pass() {
    // 6 steps of 4 are one pass; 3 ranks take two of them each.
    let mut ranks: Vec<_> = (0..3)
        .map(|rank| {
            let options = SamplerOptions { rank, world: 3, ..options(Mode::Shuffle, 1, 4) };
            Sampler::new(24, &options).unwrap()
        })
        .collect();
    for _ in 0..50 {
        let mut pass: Vec<u64> = ranks.iter_mut().flat_map(|rank| take(rank, 2)).collect();
        pass.sort_unstable();
        assert!(pass.into_iter().eq(0..24));
    }
}

#[test]
fn passes_differ_and_so_do_seeds() {
    for length in [100, 256, 257, 1000] {
        let size = usize::try_from(length).unwrap();
        let passes = stream(Mode::Shuffle, 1, length, 2 * size);
        assert_ne!(passes[..size], passes[size..]);
        // Nor does a pass of one seed come again under another.
        let other = stream(Mode::Shuffle, 2, length, size);
        assert!(passes.chunks(size).all(|pass| pass != other));
    }
}

#[test]
fn what_makes_no_stream_is_refused() {
    let good = options(Mode::Shuffle, 0, 4);
    let kind = |length, options: &SamplerOptions| Sampler::new(length, options).unwrap_err().kind();
    assert_eq!(kind(0, &good), ErrorKind::Unsupported);
    assert_eq!(kind(1, &SamplerOptions { batch_size: 0, ..good.clone() }), ErrorKind::Geometry);
    assert_eq!(kind(1, &SamplerOptions { world: 0, ..good.clone() }), ErrorKind::Geometry);
    assert_eq!(kind(1, &SamplerOptions { rank: 3, world: 3, ..good.clone() }), ErrorKind::Geometry);
    // It would have to draw for ever.
    for batch_size in [2, usize::MAX] {
        let endless = SamplerOptions { mode: Mode::Iid, batch_size, world: u64::MAX, ..good.clone() };
        assert_eq!(kind(1, &endless), ErrorKind::Unsupported);
    }

    let mut sampler = Sampler::new(10, &good).unwrap();
    for len in [0, 3, 5] {
        assert_eq!(sampler.next(&mut vec![0; len]).unwrap_err().kind(), ErrorKind::Geometry);
    }
    assert_eq!(sampler.step(), 0);
}

#[test]
fn modes_have_names_and_numbers() {
    for (number, mode) in (0..).zip(MODES) {
        assert_eq!((Mode::from_number(number), mode.number()), (Some(mode), number));
        assert_eq!(mode.to_string().parse::<Mode>().unwrap(), mode);
    }
    assert_eq!(Mode::from_number(3), None);
    for name in ["", "IID", "random", "sequential "] {
        assert_eq!(name.parse::<Mode>().unwrap_err().kind(), ErrorKind::Unsupported);
    }
    assert_eq!(SamplerOptions::default(), options(Mode::Iid, 42, 256));
}
