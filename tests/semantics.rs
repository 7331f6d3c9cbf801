//! Every guarantee of docs/SEMANTICS.md is quoted by a test in tests/mounted, and no test quotes another.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

#[test]
fn every_guarantee_is_quoted_by_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/SEMANTICS.md")).unwrap();
    let guarantees: BTreeSet<&str> = page.lines().filter_map(|line| line.strip_prefix("- ")).collect();
    let files = fs::read_dir(root.join("tests/mounted")).unwrap();
    let tests: String = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    let quoted: BTreeSet<&str> =
        tests.lines().filter_map(|line| line.trim().strip_prefix("/// > ")).collect();
    let unproven: Vec<_> = guarantees.difference(&quoted).collect();
    let invented: Vec<_> = quoted.difference(&guarantees).collect();
    assert!(
        unproven.is_empty() && invented.is_empty(),
        "not quoted: {unproven:#?}\nno guarantee: {invented:#?}"
    );
    assert!(guarantees.len() > 20, "only {} guarantees were found", guarantees.len());
}
