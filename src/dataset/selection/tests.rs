//! Slices beside NumPy's, and beside the rule that Python documents for them.

use super::*;
use proptest::prelude::*;

type Case = (u64, Option<i64>, Option<i64>, i64, &'static [u64]);

/// Length, start, stop, step, and `numpy.arange(length)[start:stop:step]` by NumPy 2.4.6.
#[rustfmt::skip]
const BY_NUMPY: [Case; 44] = [
    (5, None, None, 1, &[0, 1, 2, 3, 4]),
    (5, Some(1), Some(4), 1, &[1, 2, 3]),
    (5, Some(-3), Some(-1), 1, &[2, 3]),
    (5, Some(-9), Some(9), 1, &[0, 1, 2, 3, 4]),
    (5, Some(9), None, 1, &[]),
    (5, None, Some(-9), 1, &[]),
    (5, Some(3), Some(1), 1, &[]),
    (5, Some(4), Some(4), 1, &[]),
    (5, None, None, 2, &[0, 2, 4]),
    (5, Some(1), None, 3, &[1, 4]),
    (5, Some(0), Some(5), 9, &[0]),
    (5, None, None, -1, &[4, 3, 2, 1, 0]),
    (5, None, None, -2, &[4, 2, 0]),
    (5, Some(3), Some(0), -1, &[3, 2, 1]),
    (5, Some(3), None, -1, &[3, 2, 1, 0]),
    (5, Some(3), Some(-1), -1, &[]),
    (5, Some(-1), None, -1, &[4, 3, 2, 1, 0]),
    (5, Some(9), Some(-9), -1, &[4, 3, 2, 1, 0]),
    (5, Some(9), Some(1), -3, &[4]),
    (5, Some(1), Some(3), -1, &[]),
    (5, Some(-9), None, -1, &[]),
    (5, None, Some(-6), -1, &[4, 3, 2, 1, 0]),
    (5, None, Some(-5), -1, &[4, 3, 2, 1]),
    (5, None, Some(0), -2, &[4, 2]),
    (0, None, None, 1, &[]),
    (0, None, None, -1, &[]),
    (0, Some(-1), Some(1), 1, &[]),
    (0, Some(1), Some(-1), -1, &[]),
    (1, None, None, -1, &[0]),
    (1, Some(-1), None, 1, &[0]),
    (1, Some(-2), None, -1, &[]),
    (5, Some(i64::MIN), Some(i64::MAX), 1, &[0, 1, 2, 3, 4]),
    (5, Some(i64::MAX), Some(i64::MIN), -1, &[4, 3, 2, 1, 0]),
    (5, Some(i64::MIN), Some(i64::MAX), i64::MAX, &[0]),
    (5, Some(i64::MAX), Some(i64::MIN), i64::MIN, &[4]),
    (5, None, None, i64::MIN, &[4]),
    (5, None, None, i64::MAX, &[0]),
    (5, Some(2), None, i64::MIN, &[2]),
    (5, Some(2), None, i64::MAX, &[2]),
    (5, Some(i64::MIN), Some(i64::MIN), 1, &[]),
    (5, Some(i64::MAX), Some(i64::MAX), -1, &[]),
    (0, Some(i64::MIN), Some(i64::MAX), i64::MIN, &[]),
    (5, Some(i64::MAX), None, 1, &[]),
    (5, Some(i64::MIN), None, -1, &[]),
];

#[test]
fn slices_are_numpys() {
    for (len, start, stop, step, expected) in BY_NUMPY {
        let slice = Slice { start, stop, step };
        assert_eq!(Selection::from(slice).resolve(len).unwrap(), expected, "{slice:?} of {len}");
    }
}

/// Python's rule, word for word: "the slice of s from i to j with step k is the sequence of items with index x = i + n*k
/// such that 0 <= n < (j-i)/k"; a negative i or j has len(s) added; then "when k is positive, i and j are reduced to
/// len(s) if they are greater; when k is negative, to len(s) - 1"; and what is still negative ends before the first item.
fn by_pythons_rule(len: i64, start: Option<i64>, stop: Option<i64>, step: i64) -> Vec<u64> {
    let end = |given: Option<i64>, left_out: i64| {
        let Some(end) = given else { return left_out };
        let end = if end < 0 { end + len } else { end };
        if step > 0 { end.min(len).max(0) } else { end.min(len - 1).max(-1) }
    };
    let (i, j) =
        if step > 0 { (end(start, 0), end(stop, len)) } else { (end(start, len - 1), end(stop, -1)) };
    let mut found = Vec::new();
    let mut x = i;
    while if step > 0 { x < j } else { x > j } {
        found.push(u64::try_from(x).unwrap());
        x += step;
    }
    found
}

proptest! {
    #[test]
    fn any_slice_is_what_the_rule_says(
        len in 0i64..20,
        start in prop::option::of(-25i64..25),
        stop in prop::option::of(-25i64..25),
        step in (-25i64..25).prop_filter("0 is no step", |&step| step != 0),
    ) {
        let found = Selection::from(Slice { start, stop, step }).resolve(len as u64).unwrap();
        prop_assert_eq!(found, by_pythons_rule(len, start, stop, step));
    }

    #[test]
    fn any_range_is_a_slice_with_step_1(len in 0i64..20, a in -25i64..25, b in -25i64..25) {
        let resolve = |selection: Selection<'_>| selection.resolve(len as u64).unwrap();
        prop_assert_eq!(resolve((a..b).into()), by_pythons_rule(len, Some(a), Some(b), 1));
        prop_assert_eq!(resolve((a..).into()), by_pythons_rule(len, Some(a), None, 1));
        prop_assert_eq!(resolve((..b).into()), by_pythons_rule(len, None, Some(b), 1));
        // With its last record: where that is the dataset's last, Python leaves the end out.
        let stop = if b == -1 { None } else { Some(b + 1) };
        prop_assert_eq!(resolve((a..=b).into()), by_pythons_rule(len, Some(a), stop, 1));
        prop_assert_eq!(resolve((..=b).into()), by_pythons_rule(len, None, stop, 1));
    }

    #[test]
    fn no_slice_overflows_or_leaves_the_records(
        len in any::<u64>(),
        start in any::<Option<i64>>(),
        stop in any::<Option<i64>>(),
        step in any::<i64>(),
    ) {
        // Steps so long that few records are met.
        let step = if step.unsigned_abs() < 1 << 44 { i64::MIN } else { step };
        let found = Selection::from(Slice { start, stop, step }).resolve(len).unwrap();
        prop_assert!(found.iter().all(|&index| index < len));
        prop_assert!(found.len() as u64 <= len / step.unsigned_abs() + 1);
    }

    #[test]
    fn any_list_and_mask_is_what_each_of_it_says(mask in prop::collection::vec(any::<bool>(), 0..20), index in any::<i64>()) {
        let len = mask.len() as u64;
        let expected: Vec<u64> = (0..len).filter(|&i| mask[i as usize]).collect();
        prop_assert_eq!(Selection::from(&mask).resolve(len).unwrap(), expected);
        let near = index % 25;
        for index in [index, near] {
            let found = Selection::from(&[index]).resolve(len);
            let all: Vec<u64> = (0..len).collect();
            // Python's own indexing: from the end where negative.
            let place = if index < 0 { i128::from(index) + i128::from(len) } else { index.into() };
            match usize::try_from(place).ok().and_then(|place| all.get(place)) {
                Some(&expected) => prop_assert_eq!(found.unwrap(), [expected]),
                None => prop_assert_eq!(found.unwrap_err().kind(), ErrorKind::OutOfRange),
            }
        }
    }
}

#[test]
fn inclusive_ranges_end_with_their_end() {
    let resolve = |selection: Selection<'_>| selection.resolve(5).unwrap();
    assert_eq!(resolve((1..=2).into()), [1, 2]);
    let (second, last) = (1, -1);
    assert_eq!(resolve((second..=last).into()), [1, 2, 3, 4]);
    assert_eq!(resolve((..=-2).into()), [0, 1, 2, 3]);
    assert_eq!(resolve((..=0).into()), [0]);
    assert_eq!(resolve((0..=i64::MAX).into()), [0, 1, 2, 3, 4]);
    assert_eq!(resolve((i64::MIN..=i64::MIN).into()), [0u64; 0]);
    assert_eq!(resolve((..).into()), [0, 1, 2, 3, 4]);
}

#[test]
fn lists_may_repeat_and_name_what_is_not_there() {
    assert_eq!(Selection::from(&[4, -5, 4, -1]).resolve(5).unwrap(), [4, 0, 4, 4]);
    assert_eq!(Selection::from(&vec![0; 0]).resolve(0).unwrap(), [0u64; 0]);
    for (index, len) in [(5, 5), (-6, 5), (0, 0), (-1, 0), (i64::MIN, 5), (i64::MAX, 5)] {
        let e = Selection::from(&[0, index][usize::from(len == 0)..]).resolve(len).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::OutOfRange);
        assert!(e.to_string().contains(&index.to_string()), "{e}");
    }
    // As many records as a number counts.
    assert_eq!(resolve_index(i64::MIN, u64::MAX).unwrap(), (1 << 63) - 1);
    assert_eq!(resolve_index(i64::MAX, u64::MAX).unwrap(), (1 << 63) - 1);
}

#[test]
fn masks_have_the_length_of_the_records() {
    assert_eq!(Selection::from(&[false, true, true]).resolve(3).unwrap(), [1, 2]);
    assert_eq!(Selection::from(&[false; 3][..]).resolve(3).unwrap(), [0u64; 0]);
    for len in [0, 2, 4, u64::MAX] {
        assert_eq!(Selection::from(&[true; 3]).resolve(len).unwrap_err().kind(), ErrorKind::Geometry);
    }
}

#[test]
fn a_step_of_0_and_more_than_memory_holds_are_errors() {
    for len in [0, 5] {
        let e = Selection::from(Slice { start: None, stop: None, step: 0 }).resolve(len).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Geometry);
    }
    assert_eq!(Selection::from(..).resolve(u64::MAX).unwrap_err().kind(), ErrorKind::Memory);
}
