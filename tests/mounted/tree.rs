//! `tree/`: the folder that was imported, as other programs see it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use zrfs::store::NewNames;
use zrfs::{Codec, Schema, Store, Version};

use super::place::{Place, text, wait_for, zrfs};

/// What a folder, file or link is, apart from where it lies.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    kind: char,
    modified: (i64, i64),
    executable: bool,
    /// Bytes of a file, target of a link.
    bytes: Vec<u8>,
}

/// Everything below `root`, by path. What a listing says of each must be what stat says.
fn walk(root: &Path) -> BTreeMap<Vec<u8>, Entry> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let (path, listed) = entry.map(|entry| (entry.path(), entry.file_type().unwrap())).unwrap();
            let meta = path.symlink_metadata().unwrap();
            assert_eq!(meta.file_type(), listed, "{}", path.display());
            let (kind, bytes) = if meta.is_dir() {
                folders.push(path.clone());
                ('d', Vec::new())
            } else if meta.is_symlink() {
                ('l', fs::read_link(&path).unwrap().into_os_string().into_vec())
            } else {
                ('f', fs::read(&path).unwrap())
            };
            if kind != 'd' {
                assert_eq!(meta.len(), bytes.len() as u64, "{}", path.display());
            }
            let modified = (meta.mtime(), meta.mtime_nsec());
            let executable = kind == 'f' && meta.mode() & 0o111 != 0;
            let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().to_vec();
            assert!(found.insert(name, Entry { kind, modified, executable, bytes }).is_none());
        }
    }
    found
}

/// Appends the records and names of what lies in `source`.
fn pack(store: &Path, source: &Path) {
    let nanos = |modified: (i64, i64)| modified.0 * 1_000_000_000 + modified.1;
    let meta = source.metadata().unwrap();
    let mut names = NewNames::new(nanos((meta.mtime(), meta.mtime_nsec())));
    let store = Store::open_or_create(store, Version::V2).unwrap();
    let mut appender = store.appender().unwrap();
    for (path, entry) in walk(source) {
        let (folder, name) = match path.iter().rposition(|&b| b == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b""[..], &path[..]),
        };
        let folder = names.folder_at(folder).unwrap();
        let modified = nanos(entry.modified);
        match entry.kind {
            'd' => {
                let added = names.folder(folder, name).unwrap();
                names.set_modified(added, modified);
            }
            'l' => names.link(folder, name, &entry.bytes, modified).unwrap(),
            _ => {
                let len = u32::try_from(entry.bytes.len()).unwrap();
                appender.append_ragged(&entry.bytes, &[0], &[len], Codec::default()).unwrap();
                names.record(folder, name, modified, entry.executable).unwrap();
            }
        }
    }
    appender.set_names(&names).unwrap();
    appender.commit().unwrap();
    store.sync().unwrap();
}

/// Appends records of one byte with these paths: 7, 8, 9 and so on.
fn add(store: &Path, paths: impl Iterator<Item = String>) {
    let mut names = NewNames::new(1);
    for path in paths {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
        let folder = names.folder_at(folder.as_bytes()).unwrap();
        names.record(folder, name.as_bytes(), 1, false).unwrap();
    }
    let store = Store::open_or_create(store, Version::V1).unwrap();
    let mut appender = store.appender().unwrap();
    let bytes: Vec<u8> = (7..=255).cycle().take(names.len()).collect();
    appender.append(&bytes, 1, Codec::Raw).unwrap();
    appender.set_names(&names).unwrap();
    appender.commit().unwrap();
    store.sync().unwrap();
}

fn set_modified(path: &Path, seconds: i64, nanos: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Names as people and programs make them.
fn odd_names() -> Vec<Vec<u8>> {
    let odd: [&[u8]; 17] = [
        b" ",
        b"a b",
        b"two\nlines",
        b"'single' \"double\"",
        b"-rf",
        b"--help",
        b"trailing.",
        b"...",
        b".hidden",
        b"Case",
        b"case",
        b"\xff\xfe\x80",
        "größe".as_bytes(),
        b"tab\t\x01\x7f",
        b"$HOME;*?[a]\\",
        b"records",
        b"00000000.bin",
    ];
    odd.iter()
        .map(|name| name.to_vec())
        .chain([vec![b'n'; 255], [&[b'n'; 251][..], b".png"].concat()])
        .collect()
}

/// A folder with all that a folder can hold.
fn source(root: &Path) {
    fs::create_dir_all(root.join("nested/deep/er")).unwrap();
    fs::create_dir_all(root.join("empty")).unwrap();
    fs::create_dir_all(root.join("nested/empty too")).unwrap();
    fs::create_dir_all(root.join("odd folders")).unwrap();
    for (i, name) in odd_names().iter().enumerate() {
        fs::write(root.join(OsStr::from_bytes(name)), vec![i as u8; i * 50]).unwrap();
        let folder = root.join("odd folders").join(OsStr::from_bytes(name));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("x"), name).unwrap();
    }
    fs::write(root.join("nested/deep/er/large.png"), super::noise(3_000_000)).unwrap();
    fs::write(root.join("nested/run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("nested/run.sh"), Permissions::from_mode(0o755)).unwrap();
    symlink("run.sh", root.join("nested/link")).unwrap();
    symlink("../nested", root.join("nested/to folder")).unwrap();
    symlink("/no/such/file", root.join("dangling")).unwrap();
    symlink(OsStr::from_bytes(&[b't'; 4000]), root.join("odd folders/long")).unwrap();
    let times = [
        (1_600_000_000, 123_456_789),
        (-1, 500_000_000),
        (-1_000_000, 1),
        (1, 0),
        (4_000_000_000, 999_999_999),
    ];
    let mut paths: Vec<_> = walk(root).into_keys().collect();
    // Folders last: what is made in them changes their times.
    paths.sort_by_key(|path| root.join(OsStr::from_bytes(path)).is_dir());
    for (path, (seconds, nanos)) in paths.iter().zip(times.into_iter().cycle()) {
        set_modified(&root.join(OsStr::from_bytes(path)), seconds, nanos);
    }
    set_modified(root, 1_500_000_000, 7);
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{command:?}: {}", text(&output));
    output.stdout
}

/// So that a user who is not root can remove it.
fn make_writable(copy: &Path) {
    run(Command::new("chmod").args(["-R", "u+w"]).arg(copy));
}

/// > tree/ is the folder that was imported: its folders, empty ones too, its files and its links, with their bytes.
/// > A name in tree/ is any bytes that a Linux file name may hold.
/// > A link in tree/ has the target that it had, wherever that leads.
/// > Files, folders and links in tree/ have the times that they had, in nanoseconds, before 1970 too.
/// > `find`, `cp -a`, `rsync -a`, `tar` and `diff -r` see in tree/ what they saw in the folder.
#[test]
fn the_folder_that_was_imported() {
    let place = Place::new();
    let root = place.dir.path().join("source");
    source(&root);
    pack(&place.store(), &root);
    place.mount(&[]);
    let (tree, expected) = (place.mnt().join("tree"), walk(&root));
    assert!(walk(&tree) == expected);
    let time = |path: &Path| path.metadata().map(|meta| (meta.mtime(), meta.mtime_nsec())).unwrap();
    assert_eq!(time(&tree), (1_500_000_000, 7));
    let missing = tree.join("nested/deep/none").symlink_metadata().unwrap_err();
    assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));

    run(Command::new("diff").args(["-r", "--no-dereference"]).args([&root, &tree]));
    let find = |folder: &Path| {
        let listed =
            Command::new("find").arg(".").args(["-printf", "%P %y %l %T@\\0"]).current_dir(folder).output();
        let listed = listed.unwrap().stdout;
        listed.split(|&b| b == 0).map(<[u8]>::to_vec).collect::<BTreeSet<_>>()
    };
    assert_eq!(find(&tree), find(&root));

    let copy = place.dir.path().join("cp");
    run(Command::new("cp").arg("-a").args([&tree, &copy]));
    assert!(walk(&copy) == expected && time(&copy) == time(&root));
    make_writable(&copy);

    let copy = place.dir.path().join("tar");
    fs::create_dir(&copy).unwrap();
    let archive = place.dir.path().join("archive");
    run(Command::new("tar")
        .args(["--format=pax", "-cf"])
        .arg(&archive)
        .arg("-C")
        .args([&tree, Path::new(".")]));
    run(Command::new("tar")
        .args(["--delay-directory-restore", "--warning=no-timestamp", "-xf"])
        .arg(&archive)
        .arg("-C")
        .arg(&copy));
    assert!(walk(&copy) == expected);
    make_writable(&copy);

    if Command::new("rsync").arg("--version").stdout(Stdio::null()).status().is_err() {
        return eprintln!("rsync is not installed: not tried");
    }
    let copy = place.dir.path().join("rsync");
    let rsync = |options: &[&str]| {
        let mut rsync = Command::new("rsync");
        rsync.args(["-a", "--chmod=Du+w", "--out-format=%i %n"]).args(options);
        run(rsync.arg(tree.join("")).arg(copy.join("")))
    };
    assert!(!rsync(&[]).is_empty());
    assert!(walk(&copy) == expected);
    assert_eq!(String::from_utf8_lossy(&rsync(&[])), "");
    assert_eq!(String::from_utf8_lossy(&rsync(&["-c"])), "");
}

/// > A record's names in records/ and in tree/ are hard links of one file, whose pages are in memory once.
/// > A file has 2 names where its record has one in tree/, else 1; a folder has 2 and one for each folder in it.
#[test]
fn two_names_of_one_file() {
    let place = Place::new();
    let root = place.dir.path().join("source");
    source(&root);
    pack(&place.store(), &root);
    let store = Store::open(place.store()).unwrap();
    let nameless = store.append(b"nameless", 8, Codec::Raw).unwrap();
    store.sync().unwrap();
    place.mount(&[]);
    let (tree, records) = (place.mnt().join("tree"), place.mnt().join("records"));
    let mut by_inode: BTreeMap<u64, Vec<PathBuf>> = BTreeMap::new();
    let mut folders = Vec::new();
    for (path, entry) in walk(&tree) {
        let path = tree.join(OsStr::from_bytes(&path));
        match entry.kind {
            'f' => by_inode.entry(path.metadata().unwrap().ino()).or_default().push(path),
            'd' => folders.push(path),
            _ => assert_eq!(path.symlink_metadata().unwrap().nlink(), 1),
        }
    }
    for entry in fs::read_dir(&records).unwrap() {
        let path = entry.unwrap().path();
        by_inode.entry(path.metadata().unwrap().ino()).or_default().push(path);
    }
    assert_eq!(by_inode.len() as u64, store.len());
    for names in by_inode.values() {
        let expected = if names[0] == place.record(nameless as usize) { 1 } else { 2 };
        assert_eq!(names.len(), expected, "{names:?}");
        for name in names {
            assert_eq!(name.metadata().unwrap().nlink(), expected as u64, "{}", name.display());
        }
    }
    for folder in [tree.clone(), place.mnt()].iter().chain(&folders) {
        let inner = fs::read_dir(folder)
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().file_type().unwrap().is_dir());
        assert_eq!(folder.metadata().unwrap().nlink(), 2 + inner.count() as u64, "{}", folder.display());
    }

    let reads = || {
        let stats = fs::read_to_string(place.mnt().join("stats")).unwrap();
        serde_json::from_str::<serde_json::Value>(&stats).unwrap()["counters"]["reads"].as_u64().unwrap()
    };
    let large = tree.join("nested/deep/er/large.png");
    let other = &by_inode[&large.metadata().unwrap().ino()][1];
    assert_eq!(other.extension(), Some(OsStr::new("png")));
    assert!(fs::read(&large).unwrap() == super::noise(3_000_000));
    let before = reads();
    assert!(fs::read(other).unwrap() == super::noise(3_000_000));
    assert_eq!(reads(), before, "the pages were in memory");

    let copy = place.dir.path().join("copy");
    run(Command::new("cp").arg("-a").args([&place.mnt(), &copy]));
    let inode = |path: &Path| copy.join(path.strip_prefix(place.mnt()).unwrap()).metadata().unwrap().ino();
    assert_eq!(inode(&large), inode(other));
    make_writable(&copy);
}

/// > Named files have mode 0555 if they could be executed, else 0444; folders in tree/ have 0555, links 0777.
/// > The time of the last status change is the store's.
#[test]
fn attributes() {
    let place = Place::new();
    let root = place.dir.path().join("source");
    source(&root);
    pack(&place.store(), &root);
    let changed = place.store().join("meta.zr").metadata().unwrap().modified().unwrap();
    for (options, taken) in [(&[][..], 0), (&["umask=027"], 0o027)] {
        place.mount(options);
        let tree = place.mnt().join("tree");
        for path in walk(&tree).into_keys().chain([Vec::new()]) {
            let path = tree.join(OsStr::from_bytes(&path));
            let meta = path.symlink_metadata().unwrap();
            let expected = match () {
                () if meta.is_symlink() => 0o777,
                () if meta.is_dir() || path.ends_with("run.sh") => 0o555 & !taken,
                () => 0o444 & !taken,
            };
            assert_eq!(meta.mode() & 0o7777, expected, "{}", path.display());
            let ctime = SystemTime::UNIX_EPOCH + Duration::new(meta.ctime() as u64, meta.ctime_nsec() as u32);
            assert_eq!(ctime, changed, "{}", path.display());
            assert_eq!(meta.blocks(), if meta.is_dir() { 0 } else { meta.len().div_ceil(512) });
        }
        assert!(zrfs(&["umount"], &[&place.mnt()]).status.success());
        place.wait_for_end();
    }
}

/// > In a dense store a file in tree/ has NumPy's header where its name in records/ ends in .npy.
#[test]
fn dense_records() {
    let place = Place::new();
    add(&place.store(), ["a.npy", "b", "c.raw"].into_iter().map(String::from));
    let schema = Schema::new("|u1", &[1], Codec::Raw).unwrap();
    schema.write(&Store::open(place.store()).unwrap()).unwrap();
    place.mount(&[]);
    let header = schema.npy_header();
    for (name, record, bytes) in [
        ("a.npy", "00000000.npy", [&header[..], &[7]].concat()),
        ("b", "00000001.npy", [&header[..], &[8]].concat()),
        ("c.raw", "00000002.raw", vec![9]),
    ] {
        assert_eq!(fs::read(place.mnt().join("tree").join(name)).unwrap(), bytes, "{name}");
        assert_eq!(fs::read(place.mnt().join("records").join(record)).unwrap(), bytes, "{record}");
    }
}

/// > A listing of a folder can be resumed at any entry, also when names were added meanwhile: none comes twice, none is left out.
#[test]
fn listings_go_on() {
    let place = Place::new();
    let paths = |numbers: std::ops::Range<u32>| numbers.map(|i| format!("class/{i:05}.png"));
    add(&place.store(), paths(0..5000));
    place.mount(&[]);
    let class = place.mnt().join("tree/class");
    let mut dir = rustix::fs::Dir::new(File::open(&class).unwrap()).unwrap();
    let mut read = |from: Option<i64>, most: usize| -> Vec<(String, i64)> {
        if let Some(offset) = from {
            dir.seek(offset).unwrap();
        }
        let entries = std::iter::from_fn(|| dir.read()).take(most).map(Result::unwrap);
        entries.map(|entry| (entry.file_name().to_str().unwrap().to_owned(), entry.offset())).collect()
    };
    let mut seen = read(None, 1000);
    assert_eq!(seen.len(), 1000);
    add(&place.store(), paths(5000..6000));
    wait_for("a new listing shows them", || fs::read_dir(&class).unwrap().count() == 6000);
    seen.extend(read(None, usize::MAX));
    let names: BTreeSet<_> = seen.iter().map(|(name, _)| name.clone()).collect();
    let expected: BTreeSet<_> =
        paths(0..6000).map(|path| path[6..].to_owned()).chain([".".to_owned(), "..".to_owned()]).collect();
    assert!(names == expected && seen.len() == expected.len());
    for at in [0, 1, 2, 999, 3000, 5999, 6001] {
        assert!(read(Some(seen[at].1), usize::MAX) == seen[at + 1..], "behind entry {at}");
    }
}

/// > Names that any process has appended and synced are in tree/ at once, and in its listings within a second; tree/ itself comes with the first ones.
#[test]
fn growth() {
    let place = Place::new();
    place.fill(&[vec![1; 10]]);
    place.mount(&[]);
    let list = |folder: &str| {
        let names = fs::read_dir(place.mnt().join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect::<BTreeSet<_>>()
    };
    let shows = |folder: &str, names: &[&str]| list(folder).into_iter().eq(names.iter().copied());
    let within_a_second = |what: &str, done: &dyn Fn() -> bool| {
        let begin = Instant::now();
        wait_for(what, done);
        assert!(begin.elapsed() < Duration::from_secs(1), "{what}: {:?}", begin.elapsed());
    };
    let grow = |paths: &[&str]| add(&place.store(), paths.iter().map(|path| (*path).to_owned()));
    assert!(shows("", &["README", "batches", "compact", "delete", "records", "stats"]));
    assert!(!place.mnt().join("tree").exists());

    grow(&["a/b/one.png"]);
    assert_eq!(fs::read(place.mnt().join("tree/a/b/one.png")).unwrap(), [7]);
    assert_eq!(fs::read(place.mnt().join("records/00000001.png")).unwrap(), [7]);
    within_a_second("tree/ is listed", &|| {
        shows("", &["README", "batches", "compact", "delete", "records", "stats", "tree"])
    });
    assert!(shows("tree", &["a"]) && shows("tree/a", &["b"]) && shows("tree/a/b", &["one.png"]));
    assert!(shows("records", &["00000000.bin", "00000001.png"]));
    let links = |folder: &str| place.mnt().join(folder).metadata().unwrap().nlink();
    assert_eq!((links("tree"), links("tree/a"), links("tree/a/b")), (3, 3, 2));

    // In folders that were listed, in new ones, and at the root.
    grow(&["a/b/two.png", "a/c/three.png", "four.png"]);
    assert_eq!(fs::read(place.mnt().join("tree/a/c/three.png")).unwrap(), [8]);
    within_a_second("all grown folders show it", &|| {
        shows("tree", &["a", "four.png"])
            && shows("tree/a", &["b", "c"])
            && shows("tree/a/b", &["one.png", "two.png"])
            && shows("tree/a/c", &["three.png"])
    });
    assert_eq!((links("tree"), links("tree/a"), links("tree/a/b")), (3, 4, 2));
}

/// > Where another program than zrfs has changed the store, a record that lost its name is in records/ only; README, stats and `zrfs mount` say how many have none.
#[test]
fn names_that_are_lost() {
    let place = Place::new();
    add(&place.store(), (0..10).map(|i| format!("{i}.png")));
    // What loaderx does to delete record 3: the last entry comes to its place.
    let meta = File::options().read(true).write(true).open(place.store().join("meta.zr")).unwrap();
    let mut entry = [0; 16];
    meta.read_exact_at(&mut entry, 16 + 16 * 9).unwrap();
    meta.write_all_at(&entry, 16 + 16 * 3).unwrap();
    meta.write_all_at(&9u32.to_le_bytes(), 12).unwrap();
    let output = zrfs(&["mount"], &[&place.store(), &place.mnt()]);
    let line = String::from_utf8(output.stdout).unwrap();
    assert!(line.contains("9 records; 1 of 9 records have no name") && line.lines().count() == 1, "{line}");
    let read = |file: &str| fs::read_to_string(place.mnt().join(file)).unwrap();
    assert!(read("README").contains("1 of 9 records have no name"), "{}", read("README"));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&read("stats")).unwrap()["named"], 8);
    let mut names: Vec<_> =
        walk(&place.mnt().join("tree")).into_keys().map(|name| String::from_utf8(name).unwrap()).collect();
    names.sort();
    assert_eq!(names, ["0.png", "1.png", "2.png", "4.png", "5.png", "6.png", "7.png", "8.png"]);
    let records = fs::read_dir(place.mnt().join("records")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut records: Vec<_> = records.map(|name| name.into_string().unwrap()).collect();
    records.sort();
    let expected = (0..9).map(|i| format!("{i:08}.{}", if i == 3 { "bin" } else { "png" }));
    assert!(records.into_iter().eq(expected));
}
