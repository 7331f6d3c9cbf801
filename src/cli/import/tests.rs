//! What an import leaves in a store, as the library reads it.

use std::collections::BTreeMap;
use std::fs::{File, create_dir_all, write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use zrfs::store::NodeKind;

use super::feed::Records;
use super::*;

const DEFAULTS: Look<'static> = Look {
    only: None,
    links: Links::Follow,
    null: false,
    stack: false,
    rows: None,
    codec: Codec::Raw,
    own: &[],
    labelled: false,
};

fn import<'a>(path: &'a Path, labels: Option<&'a Path>) -> Import<'a> {
    Import {
        path,
        labels,
        codec: Codec::Raw,
        choice: Choice::default(),
        v1: false,
        large: false,
        resume: false,
        options: Options::default(),
        hints: &[],
        command: Some("the command".into()),
        stop: Stop::default(),
    }
}

fn how<'a>(stop: &'a Stop, done: &'a [u64]) -> How<'a> {
    How { choice: Choice::default(), v1_only: None, stop, done, begun_with: None }
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
    assert_eq!(done.unwrap().classes, Some(3));
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
fn a_store_in_a_source_is_refused_by_name_but_for_what_the_import_makes() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    create_dir_all(root.join("a")).unwrap();
    write(root.join("a/1"), "1").unwrap();
    let made = |name: &str, only: &[String], resume: bool| {
        let (store, labels) = (root.join(format!("{name}.zr")), root.join(format!("{name}-labels.zr")));
        let (own, only) = (own(&store, Some(&labels)), Only::new(only).unwrap());
        let look = Look { own: &own, only: only.as_ref(), ..DEFAULTS };
        let plan = Plan::make(&[root.to_path_buf()], &look, &Stop::default())?.0;
        Import { resume, ..import(&store, Some(&labels)) }.create(&plan)
    };
    assert_eq!(made("data", &[], false).ok().unwrap().unwrap().records, 1);
    // The same command goes on, or says what it did before.
    assert!(made("data", &[], true).ok().unwrap().is_none());
    assert!(text(made("data", &[], false).err().unwrap()).contains("exists already"));
    std::fs::remove_dir_all(root.join("data-labels.zr")).unwrap();
    let partial = root.join("data.zr.partial");
    std::fs::rename(root.join("data.zr"), &partial).unwrap();
    assert_eq!(made("data", &[], true).ok().unwrap().unwrap().classes, Some(1));
    std::fs::remove_dir_all(root.join("data-labels.zr")).unwrap();

    let refused = |place: &Path| {
        for only in [&[][..], &["*1".to_owned()]] {
            let text = text(made("data2", only, false).err().unwrap());
            assert!(text.starts_with(&format!("{} is a store, and would be", place.display())), "{text}");
        }
        assert!(!root.join("data2.zr.partial").exists());
    };
    refused(&root.join("data.zr"));
    std::fs::rename(root.join("data.zr"), &partial).unwrap();
    refused(&partial);
    std::fs::rename(&partial, root.join("a/deep")).unwrap();
    refused(&root.join("a/deep"));
    // A folder that has a file of that name is none.
    std::fs::remove_dir_all(root.join("a/deep")).unwrap();
    write(root.join("a/meta.zr"), "no store").unwrap();
    assert_eq!(made("data2", &[], false).ok().unwrap().unwrap().records, 2);
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
        Feed::over(&plan, &how(&Stop::default(), &[]), |batch| {
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

/// Records that are read behind those that are done, and the marks of all.
fn rest(plan: &Plan, done: &[u64]) -> (Vec<Vec<u8>>, Vec<u64>) {
    let (mut records, mut marks) = (Vec::new(), done.to_vec());
    Feed::over(plan, &how(&Stop::default(), done), |batch| {
        marks.extend_from_slice(&batch.marks);
        match &batch.records {
            Records::Equal { bytes, len } => records.extend(bytes.chunks(*len).map(<[u8]>::to_vec)),
            Records::Ragged { bytes, offsets, lens } => {
                let record = |(&at, &len): (&u64, &u32)| bytes[at as usize..][..len as usize].to_vec();
                records.extend(offsets.iter().zip(lens).map(record));
            }
            Records::Copies { .. } => panic!("there are no links"),
        }
        Ok(())
    })
    .unwrap();
    (records, marks)
}

#[test]
fn what_is_done_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("tree");
    create_dir_all(&root).unwrap();
    for i in 0..7 {
        write(root.join(format!("{i}")), format!("file {i}")).unwrap();
    }
    let arrays: Vec<_> = (0..3u8).map(|i| dir.path().join(format!("{i}.npy"))).collect();
    for (i, path) in arrays.iter().enumerate() {
        let mut bytes = Schema::new("|u1", &[3, 2], Codec::Raw).unwrap().npy_header();
        bytes.extend((0..6).map(|byte| byte + 10 * i as u8));
        write(path, bytes).unwrap();
    }
    let sources: Vec<_> = arrays.iter().map(|path| path.as_path()).collect();
    for plan in [plan(&[&root], &DEFAULTS), plan(&sources, &DEFAULTS)] {
        let (records, marks) = rest(&plan, &[]);
        assert!(records.len() >= 7);
        assert_eq!(plan.marks(usize::MAX).unwrap(), marks);
        for done in 0..=marks.len() {
            assert_eq!(rest(&plan, &marks[..done]), (records[done..].to_vec(), marks.clone()), "{done}");
            assert_eq!(plan.marks(done).unwrap(), marks[..done]);
        }
    }
}

#[test]
fn an_array_whose_data_end_early_is_told_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let (npy, store) = (dir.path().join("x.npy"), dir.path().join("s.zr"));
    let mut bytes = Schema::new("|u1", &[1000], Codec::Raw).unwrap().npy_header();
    let header = bytes.len();
    bytes.extend([7; 1000]);
    write(&npy, &bytes).unwrap();
    let arrays = plan(&[&npy], &DEFAULTS);
    for len in [header + 999, header, header - 1] {
        write(&npy, &bytes[..len]).unwrap();
        let text = text(import(&store, None).create(&arrays).err().unwrap());
        assert!(text.contains("x.npy") && !text.contains("buffer"), "{text}");
        assert!(text.contains("cut"), "{text}");
    }
    // Cut while it is read.
    let Plan::Arrays(arrays) = &arrays else { panic!("arrays") };
    let array = &arrays.files[0];
    let cut = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    assert!(array.cannot_read(cut()).to_string().contains("x.npy has changed since it was looked at"));
}

#[test]
fn what_version_1_does_not_hold_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (store, more) = (dir.path().join("s.zr"), dir.path().join("more"));
    let root = dir.path().join("tree");
    for (folder, files) in
        [(&root, &[("a", 0), ("b", 1 << 20), ("c", 0)][..]), (&more, &[("d", (1 << 20) + 1)])]
    {
        create_dir_all(folder).unwrap();
        files.iter().for_each(|&(name, len)| write(folder.join(name), vec![7; len]).unwrap());
    }
    let said = |done: Option<Done>| done.unwrap().beyond_v1.map(|beyond| beyond.to_string());
    let done = import(&store, None).create(&plan(&[&root, &more], &DEFAULTS)).ok().unwrap();
    assert_eq!(said(done).unwrap(), "2 records are empty and 1 record is over 1 MiB");
    std::fs::remove_file(root.join("a")).unwrap();
    std::fs::remove_file(root.join("c")).unwrap();
    std::fs::remove_dir_all(&store).unwrap();
    assert_eq!(said(import(&store, None).create(&plan(&[&root], &DEFAULTS)).ok().unwrap()), None);
    let large = Import { large: true, ..import(&store, None) }.append(&plan(&[&more], &DEFAULTS));
    assert_eq!(said(large.ok().unwrap()).unwrap(), "1 record is over 1 MiB");
}

#[test]
fn what_became_of_the_sources_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("tree");
    let of = |names: &[&str]| {
        let _ = std::fs::remove_dir_all(&root);
        create_dir_all(&root).unwrap();
        for name in names {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
            write(root.join(name), "x").unwrap();
            File::options().write(true).open(root.join(name)).unwrap().set_modified(at).unwrap();
        }
        plan(&[&root], &DEFAULTS)
    };
    let done = of(&["b", "c", "d"]).marks(3).unwrap();
    let said = |names: &[&str]| {
        let found = resume::check_sources(&done, &of(names), None, "begin anew");
        found.err().map(|e| e.to_string().replace(&format!("{}/", root.display()), ""))
    };
    assert_eq!(said(&["b", "c", "d"]), None);
    assert_eq!(said(&["b", "c", "d", "e"]), None);
    // Given by other names, and another one from the first record on.
    let others = Others::of(b"sources 1 /it\n", &Options::of_sources(&["/other".into()]), "anew").unwrap();
    let with = |names: &[&str]| resume::check_sources(&done, &of(names), others.as_ref(), "anew");
    assert!(with(&["b", "c", "d"]).is_ok());
    assert!(with(&["a", "c"]).unwrap_err().to_string().contains("begun with: /it; give those, or anew"));
    assert!(with(&["b", "x", "y"]).unwrap_err().to_string().contains("x has changed"));
    let among = "among the 3 records done; begin anew";
    assert_eq!(said(&["a", "b", "c", "d"]).unwrap(), format!("a was added {among}"));
    assert_eq!(said(&["b", "d", "e"]).unwrap(), format!("a file before d was removed, which is {among}"));
    assert_eq!(
        said(&["b", "cc", "d"]).unwrap(),
        format!("cc has changed (name, size or time), and is {among}")
    );
    let fewer =
        "there are 3 records that are done, but the sources hold only 2: some were removed; begin anew";
    assert_eq!(said(&["b", "c"]).unwrap(), fewer);
}

#[test]
fn an_import_that_was_killed_at_the_renames_is_completed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("tree");
    for name in ["a/1", "a/2", "b/3"] {
        create_dir_all(root.join(name).parent().unwrap()).unwrap();
        write(root.join(name), name).unwrap();
    }
    let (store, labels) = (dir.path().join("s.zr"), dir.path().join("l.zr"));
    let plan = plan(&[&root], &DEFAULTS);
    let made = import(&store, Some(&labels)).create(&plan).ok().unwrap().unwrap();
    assert_eq!((made.records, made.classes), (3, Some(2)));
    let go_on = || Import { resume: true, ..import(&store, Some(&labels)) }.create(&plan);
    let unname = |path: &Path| std::fs::rename(path, partial::beside(path).unwrap()).unwrap();
    let check = |what: &str| {
        let label = |i| Store::open_read_only(&labels).unwrap().read(i).unwrap()[0];
        assert_eq!([label(0), label(1), label(2)], [0, 0, 1], "{what}");
        assert_eq!(Store::open_read_only(&store).unwrap().read(2).unwrap(), b"b/3", "{what}");
        assert!(go_on().ok().unwrap().is_none(), "{what}: it is complete");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3, "{what}");
    };
    unname(&store);
    assert_eq!(go_on().ok().unwrap().unwrap().records, 3);
    check("the labels have their name");

    unname(&store);
    unname(&labels);
    assert_eq!(go_on().ok().unwrap().unwrap().classes, Some(2));
    check("nothing has its name");

    unname(&store);
    std::fs::remove_dir_all(&labels).unwrap();
    assert!(go_on().is_ok());
    check("the labels are lost");

    unname(&store);
    let other = Store::open(&labels).unwrap();
    other.delete(&[2]).unwrap();
    drop(other);
    let text = text(go_on().err().unwrap());
    assert!(text.contains("holds other labels"), "{text}");
    assert!(!store.exists());
}
