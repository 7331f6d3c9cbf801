//! Numbers that never change.

use super::*;

#[test]
fn sequential_goes_round() {
    assert_eq!(stream(Mode::Sequential, 0, 3, 8), [0, 1, 2, 0, 1, 2, 0, 1]);
    assert_eq!(stream(Mode::Sequential, 9, 1, 3), [0, 0, 0]);
}

/// Taken from loaderx 0.5.0.
#[test]
fn iid_is_loaderxs() {
    let mut sampler = Sampler::new(10, &options(Mode::Iid, 42, 4)).unwrap();
    assert_eq!(take(&mut sampler, 3), [5, 4, 4, 6, 1, 7, 1, 2, 1, 8, 6, 1]);
    assert_eq!(stream(Mode::Iid, 0, 1_000_003, 8)[..4], [229_731, 959_816, 71_676, 44_600]);
    assert_eq!(stream(Mode::Iid, 5, 1, 3), [0, 0, 0]);
}

/// These are a promise: a training run that is resumed with a later release goes on in the same order. They never change. An order
/// that is to be better is a new mode.
#[test]
fn shuffle_orders_are_pinned() {
    let first: [(u64, [u64; 8]); 11] = [
        (1, [0, 0, 0, 0, 0, 0, 0, 0]),
        (2, [1, 0, 1, 0, 0, 1, 0, 1]),
        (3, [2, 0, 1, 1, 2, 0, 0, 2]),
        (10, [6, 8, 0, 1, 7, 9, 3, 5]),
        (256, [37, 88, 48, 159, 28, 30, 237, 157]),
        (257, [110, 1, 179, 34, 239, 240, 163, 167]),
        (1000, [274, 479, 891, 537, 75, 257, 967, 726]),
        (65_536, [31420, 5710, 9402, 45911, 16480, 51921, 7148, 49371]),
        (1_000_003, [442114, 294321, 61314, 748971, 714609, 58375, 205314, 907457]),
        (1 << 24, [13769064, 14826719, 2675616, 10451316, 2611662, 16609511, 13301941, 11702440]),
        (
            u64::MAX,
            [
                9350214259851707725,
                9664495101960918019,
                3806796877689916820,
                9819657155195515569,
                3587968290240268656,
                10506553756105126087,
                3858288603323809879,
                16995462770795674277,
            ],
        ),
    ];
    for (length, indices) in first {
        assert_eq!(stream(Mode::Shuffle, 42, length, 8), indices, "{length}");
    }
    // Later passes, other seeds, and a pass number of more than 64 bits.
    let far = SamplerOptions { world: u64::MAX, ..options(Mode::Shuffle, u64::MAX, 6) };
    for (length, step, indices) in [
        (10, 1_000_000, [0, 6, 3, 4, 7, 9]),
        (10, u64::MAX, [2, 1, 8, 7, 0, 4]),
        (1000, 1_000_000, [455, 276, 922, 88, 788, 142]),
        (1000, u64::MAX, [38, 476, 209, 774, 589, 8]),
        (1 << 24, u64::MAX, [15297893, 11328700, 16320822, 5492235, 9869815, 11827651]),
    ] {
        let mut sampler = Sampler::new(length, &far).unwrap();
        sampler.seek(step).unwrap();
        assert_eq!(take(&mut sampler, 1), indices, "{length} {step}");
    }
}
