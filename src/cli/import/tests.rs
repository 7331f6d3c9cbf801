//! What an import leaves in a store, as the library reads it.

use std::collections::BTreeMap;
use std::fs::{File, create_dir_all, write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use zrfs::store::NodeKind;

use super::*;

const DEFAULTS: Look<'static> =
    Look { only: None, links: Links::Follow, null: false, stack: false, rows: None, codec: Codec::Raw };

fn import<'a>(path: &'a Path, labels: Option<&'a Path>) -> Import<'a> {
    let choice = Choice::default();
    Import { path, labels, codec: Codec::Raw, choice, v1: false, large: false, stop: Stop::default() }
}

fn plan(sources: &[&Path], look: &Look<'_>) -> Plan {
    let sources: Vec<_> = sources.iter().map(|path| path.to_path_buf()).collect();
    Plan::make(&sources, look, &Stop::default()).ok().unwrap().0
}

fn text(failure: Failure) -> String {
    match failure {
        Failure::Failed(e) => e.to_string(),
        Failure::Usage(text) => text,
        _ => panic!("an error with a text"),
    }
}

/// Everything that has a name: its path, kind and time. A record's kind is its index and contents.
fn tree_of(store: &Path) -> BTreeMap<Vec<u8>, (String, i64)> {
    let store = Store::open_read_only(store).unwrap();
    let names = store.names().unwrap().unwrap();
    let mut found = BTreeMap::new();
    names
        .each_node(|node| {
            let kind = match &node.kind {
                NodeKind::Folder { .. } => "folder".to_owned(),
                NodeKind::Record { index, executable } => {
                    let x = if *executable { "x" } else { "-" };
                    format!("{index} {x} {}", String::from_utf8(store.read(*index).unwrap()).unwrap())
                }
                NodeKind::Link { target } => format!("-> {}", String::from_utf8_lossy(target)),
            };
            found.insert(names.path(node.id).unwrap(), (kind, node.modified_ns));
            false
        })
        .unwrap();
    found
}

#[test]
fn names_times_modes_links_and_empty_folders_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("tree");
    create_dir_all(root.join("a/deep")).unwrap();
    create_dir_all(root.join("empty/too")).unwrap();
    for (name, content) in [("top", "0"), ("a/\n-x", "1"), ("a/tool", "2"), ("a/deep/f", "3")] {
        write(root.join(name), content).unwrap();
    }
    let odd = std::ffi::OsStr::from_bytes(b"a/\xff");
    write(root.join(odd), "4").unwrap();
    std::fs::set_permissions(root.join("a/tool"), std::fs::Permissions::from_mode(0o610)).unwrap();
    symlink("deep/f", root.join("a/l")).unwrap();
    symlink("..", root.join("a/up")).unwrap();
    let long_ago = SystemTime::UNIX_EPOCH - Duration::from_nanos(1_500_000_001);
    File::options().write(true).open(root.join("top")).unwrap().set_modified(long_ago).unwrap();
    let store = dir.path().join("s.zr");
    import(&store, None).create(&plan(&[&root], &Look { links: Links::Keep, ..DEFAULTS })).ok().unwrap();

    let expected: BTreeMap<Vec<u8>, String> = [
        (&b""[..], "folder"),
        (b"a", "folder"),
        (b"a/deep", "folder"),
        (b"empty", "folder"),
        (b"empty/too", "folder"),
        (b"top", "0 - 0"),
        (b"a/\n-x", "1 - 1"),
        (b"a/tool", "2 x 2"),
        (b"a/\xff", "3 - 4"),
        (b"a/deep/f", "4 - 3"),
        (b"a/l", "-> deep/f"),
        (b"a/up", "-> .."),
    ]
    .map(|(path, kind)| (path.to_vec(), kind.to_owned()))
    .into();
    let found = tree_of(&store);
    let kinds: BTreeMap<_, _> = found.iter().map(|(path, (kind, _))| (path.clone(), kind.clone())).collect();
    assert_eq!(kinds, expected);
    for (path, (_, modified)) in &found {
        let meta = root.join(std::ffi::OsStr::from_bytes(path)).symlink_metadata().unwrap();
        assert_eq!(*modified, meta.mtime() * 1_000_000_000 + meta.mtime_nsec(), "{}", path.escape_ascii());
    }
    assert_eq!(found[&b"top"[..]].1, -1_500_000_001);
}

#[test]
fn only_leaves_folders_and_links_to_folders() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("tree");
    create_dir_all(root.join("a")).unwrap();
    create_dir_all(root.join("b")).unwrap();
    write(root.join("a/1.png"), "1").unwrap();
    write(root.join("b/1.txt"), "2").unwrap();
    symlink("a", root.join("class")).unwrap();
    symlink("../a/1.png", root.join("b/l.png")).unwrap();
    symlink("1.txt", root.join("b/l.txt")).unwrap();
    symlink("/nowhere", root.join("b/gone.txt")).unwrap();
    let only = Only::new(&["*.png".to_owned()]).unwrap();
    let look = Look { only: only.as_ref(), links: Links::Keep, ..DEFAULTS };
    let (store, labels) = (dir.path().join("s.zr"), dir.path().join("l.zr"));
    let done = import(&store, Some(&labels)).create(&plan(&[&root], &look)).ok().unwrap();
    assert_eq!(done.classes, Some(3));
    let found: Vec<_> = tree_of(&store).into_keys().collect();
    assert_eq!(found, [&b""[..], b"a", b"a/1.png", b"b", b"b/l.png", b"class"]);
}

#[test]
fn a_path_that_two_sources_have_is_refused_before_anything_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    for (root, names) in [(&a, ["x/1", "x/2"]), (&b, ["x/1", "y/2"])] {
        for name in names {
            create_dir_all(root.join(name).parent().unwrap()).unwrap();
            write(root.join(name), name).unwrap();
        }
    }
    let (store, labels) = (dir.path().join("s.zr"), dir.path().join("l.zr"));
    let refused = |plan: &Plan| text(import(&store, Some(&labels)).create(plan).err().unwrap());
    assert!(refused(&plan(&[&a, &b], &DEFAULTS)).contains("x/1"));
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");

    import(&store, Some(&labels)).create(&plan(&[&b], &DEFAULTS)).ok().unwrap();
    let text = text(import(&store, Some(&labels)).append(&plan(&[&a], &DEFAULTS)).err().unwrap());
    assert!(text.contains("x/1"), "{text}");
    for store in [&store, &labels] {
        assert_eq!(Store::open_read_only(store).unwrap().len(), 2);
    }
}

#[test]
fn a_file_that_changes_between_look_and_read_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (root, store) = (dir.path().join("tree"), dir.path().join("s.zr"));
    create_dir_all(&root).unwrap();
    let file = root.join("f");
    for change in [
        // Another time, other sizes, and no file at all.
        (|file: &Path| {
            let file = File::options().write(true).open(file).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        }) as fn(&Path),
        |file| write(file, "longer").unwrap(),
        |file| write(file, "f").unwrap(),
        |file| std::fs::remove_file(file).unwrap(),
    ] {
        write(&file, "before").unwrap();
        let plan = plan(&[&root], &DEFAULTS);
        change(&file);
        let text = text(import(&store, None).create(&plan).err().unwrap());
        assert!(text.contains(&file.display().to_string()), "{text}");
        assert!(!store.exists() && std::fs::read_dir(dir.path()).unwrap().count() == 1);
    }
}

#[test]
fn marks_depend_on_path_size_and_time_alone() {
    let dir = tempfile::tempdir().unwrap();
    let marks = |files: &[(&str, &str, u64)]| {
        let root = tempfile::tempdir_in(dir.path()).unwrap();
        for &(name, content, seconds) in files {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            write(root.path().join(name), content).unwrap();
            File::options().write(true).open(root.path().join(name)).unwrap().set_modified(at).unwrap();
        }
        let mut marks = Vec::new();
        let plan = plan(&[root.path()], &DEFAULTS);
        let how = How { choice: Choice::default(), v1_only: None, stop: &Stop::default() };
        Feed::over(&plan, &how, |batch| {
            marks.extend_from_slice(&batch.marks);
            Ok(())
        })
        .unwrap();
        marks
    };
    let first = marks(&[("a", "xy", 1), ("b", "xy", 1)]);
    assert_eq!(first.len(), 2);
    assert_ne!(first[0], first[1]);
    assert_eq!(marks(&[("a", "zz", 1), ("b", "xy", 1)]), first);
    assert_ne!(marks(&[("a", "xyz", 1)])[0], first[0]);
    assert_ne!(marks(&[("a", "xy", 2)])[0], first[0]);
}
