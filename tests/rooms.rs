//! The rooms of the library import downward only: a room uses those before it in this list, and nothing behind it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that goes wrong should stop")]

use std::fs;
use std::path::{Path, PathBuf};

/// Rooms of the library, the lowest first. `error` is the ground that all stand on.
const ROOMS: [&str; 11] =
    ["error", "format", "storage", "codec", "store", "sampler", "dataset", "loader", "capi", "view", "fuse"];

fn rust_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

/// The rooms that a source text names as `crate::room`.
fn imports(text: &str) -> Vec<String> {
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rooms = Vec::new();
    // `super::super::room` would lead out of a room as well.
    for after in code.split("crate::").skip(1).chain(code.split("super::super::").skip(1)) {
        let name: String = after.chars().take_while(|&c| is_name(c)).collect();
        rooms.push(name);
    }
    rooms
}

#[test]
fn no_room_imports_upward() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut checked = 0;
    for (rank, room) in ROOMS.iter().enumerate() {
        let mut files = Vec::new();
        if src.join(room).is_dir() {
            rust_files(&src.join(room), &mut files);
        } else {
            files.push(src.join(format!("{room}.rs")));
        }
        for file in files {
            for import in imports(&fs::read_to_string(&file).unwrap()) {
                // What is no room is re-exported by lib.rs from one: name the room instead.
                let Some(used) = ROOMS.iter().position(|&known| known == import) else {
                    panic!("{}: crate::{import} does not name a room", file.display());
                };
                assert!(used <= rank, "{}: {room} imports {import}, which stands above it", file.display());
                checked += 1;
            }
        }
    }
    assert!(checked > 30, "only {checked} imports were found: the check does not see them");
}

#[test]
fn every_room_of_the_library_is_in_the_list() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in fs::read_dir(src).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let room = name.strip_suffix(".rs").unwrap_or(&name);
        // The program is a crate of its own: the compiler keeps the library from importing it.
        let known = ROOMS.contains(&room) || ["lib", "main", "cli"].contains(&room);
        assert!(known, "src/{name} is in no room");
    }
}

#[test]
fn unsafe_stays_in_storage_and_capi() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    rust_files(&root.join("src"), &mut files);
    for file in files {
        if file.starts_with(root.join("src/storage")) || file.starts_with(root.join("src/capi")) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let allowed = text.contains("unsafe_code") || text.lines().any(|line| line.contains("unsafe {"));
        assert!(!allowed, "{} has unsafe code", file.display());
    }
}
