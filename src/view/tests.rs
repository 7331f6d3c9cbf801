use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::*;
use crate::codec::Codec;
use crate::format::Version;
use crate::store::{FolderId, NewNames};

const SECOND: i64 = 1_000_000_000;

fn options() -> ViewOptions {
    ViewOptions { umask: 0o027, ..ViewOptions::default() }
}

fn append(store: &Store, records: &[&[u8]], names: &NewNames) {
    let mut appender = store.appender().unwrap();
    for record in records {
        appender.append(record, record.len(), Codec::Raw).unwrap();
    }
    appender.set_names(names).unwrap();
    appender.commit().unwrap();
    store.sync().unwrap();
}

/// Seven records, of which the last two have no name.
///
/// ```text
/// cats/a.png  cats/deep/b  cats/link -> a.png  empty/  top.tar.gz  -odd\n\xff.  .png
/// ```
fn named(path: &Path) -> Store {
    let store = Store::create(path, Version::V1).unwrap();
    let mut names = NewNames::new(9 * SECOND);
    let cats = names.folder_at(b"cats").unwrap();
    let deep = names.folder_at(b"cats/deep").unwrap();
    let empty = names.folder_at(b"empty").unwrap();
    names.set_modified(cats, 10 * SECOND + 1);
    names.set_modified(deep, -3 * SECOND - 5);
    names.set_modified(empty, 0);
    names.record(cats, b"a.png", 1_700_000_000_123_456_789, true).unwrap();
    names.record(deep, b"b", -1_500_000_000, false).unwrap();
    names.record(FolderId::ROOT, b"top.tar.gz", 0, false).unwrap();
    names.record(FolderId::ROOT, b"-odd\n\xff.", 5, false).unwrap();
    names.record(FolderId::ROOT, b".png", 6, false).unwrap();
    names.link(cats, b"link", b"a.png", 7 * SECOND).unwrap();
    append(&store, &[b"one", b"two-", b"three", b"four--", b"five---"], &names);
    store.append(&[0; 20], 10, Codec::Raw).unwrap();
    store.sync().unwrap();
    store
}

fn view(path: &Path, options: ViewOptions) -> View {
    View::new(Store::open_read_only(path).unwrap(), None, options).unwrap()
}

/// Everything that a listing tells, taken `at_once` entries a call.
fn list(view: &View, directory: Node, at_once: usize) -> Vec<(Vec<u8>, Node, Kind)> {
    let mut entries = Vec::new();
    let mut offset = 0;
    loop {
        let (before, from) = (entries.len(), offset);
        let take = |entry: ListEntry<'_>, attributes: Option<Attributes>| {
            if entries.len() == before + at_once {
                return true;
            }
            let attributes = attributes.unwrap();
            assert_eq!((attributes.node, attributes.kind), (entry.node, entry.kind));
            if entry.name != b"." && entry.name != b".." {
                assert_eq!(attributes, view.attributes(entry.node).unwrap());
            }
            entries.push((entry.name.to_vec(), entry.node, entry.kind));
            offset = entry.next;
            false
        };
        view.list(directory).unwrap().each(from, true, take).unwrap();
        if entries.len() == before {
            return entries;
        }
    }
}

/// What is at `path`, looked up name by name.
fn at(view: &View, path: &[u8]) -> Result<Attributes> {
    let root = view.attributes(Node::Root);
    path.split(|&b| b == b'/').fold(root, |found, name| view.lookup(found?.node, name))
}

/// The answer to one request, whichever thread gives it.
pub(super) fn read(view: &View, node: Node, handle: u64, offset: u64, size: u32) -> Result<Vec<u8>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let reply = move |answer: Result<&[u8]>| {
        sender.send(answer.map(<[u8]>::to_vec)).unwrap();
    };
    view.read(node, handle, offset, size, Box::new(reply));
    receiver.recv().unwrap()
}

fn read_all(view: &View, node: Node) -> Vec<u8> {
    let Opening::Done(opened) = view.open(node, Access::Read).unwrap() else {
        panic!("nothing is being deleted")
    };
    let seen = read(view, node, opened.handle, 0, 1 << 20).unwrap();
    view.release(node, opened.handle);
    seen
}

fn record(index: u32) -> Node {
    Node::Record(RecordId::new(index, 0))
}

fn since_1970(nanos: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(nanos)
}

#[test]
fn the_tree_is_the_folder_that_was_imported() {
    let dir = tempfile::tempdir().unwrap();
    named(&dir.path().join("s.zr"));
    let view = view(&dir.path().join("s.zr"), options());
    let mut found = BTreeMap::new();
    let mut folders = vec![(Vec::new(), Node::Tree, Node::Root)];
    while let Some((path, folder, parent)) = folders.pop() {
        for (i, (name, node, kind)) in list(&view, folder, 1000).into_iter().enumerate() {
            match i {
                0 => assert_eq!((&name[..], node), (&b"."[..], folder)),
                1 => assert_eq!((&name[..], node), (&b".."[..], parent)),
                _ => {
                    let path = [&path[..], b"/", &name].concat();
                    assert_eq!(at(&view, &[&b"tree"[..], &path].concat()).unwrap().node, node);
                    if kind == Kind::Directory {
                        folders.push((path.clone(), node, folder));
                    }
                    found.insert(path, (node, kind));
                }
            }
        }
    }
    let paths: Vec<_> = found.keys().map(|path| path.escape_ascii().to_string()).collect();
    let expected = [
        r"/-odd\n\xff.",
        "/.png",
        "/cats",
        "/cats/a.png",
        "/cats/deep",
        "/cats/deep/b",
        "/cats/link",
        "/empty",
        "/top.tar.gz",
    ];
    assert_eq!(paths, expected);
    let records: Vec<_> =
        found.values().filter(|&&(_, kind)| kind == Kind::File).map(|&(node, _)| node).collect();
    assert_eq!(records, [3, 4, 0, 1, 2].map(record));
    for bad in
        [&b"tree/cats/b"[..], b"tree/cats/A.png", b"tree/a.png", b"tree/empty/a.png", b"tree/top.tar.gz/x"]
    {
        assert_eq!(at(&view, bad).unwrap_err().kind(), ErrorKind::NotFound);
    }
}

#[test]
fn a_listing_goes_on_wherever_it_was_left() {
    let dir = tempfile::tempdir().unwrap();
    let store = named(&dir.path().join("s.zr"));
    let view = view(&dir.path().join("s.zr"), options());
    let cats = at(&view, b"tree/cats").unwrap().node;
    for directory in [Node::Root, Node::Records, Node::Tree, cats] {
        let whole = list(&view, directory, 1000);
        for at_once in 1..whole.len() {
            assert_eq!(list(&view, directory, at_once), whole, "{directory:?}, {at_once} at once");
        }
        for offset in [1000, 1 << 33, u64::MAX] {
            let told = |entry: ListEntry<'_>, _| panic!("{:?} at {offset}", entry.name);
            view.list(directory).unwrap().each(offset, false, told).unwrap();
        }
    }
    // Names that are added meanwhile: what was told is not told again, and what is new comes.
    let mut offset = 0;
    let mut names = Vec::new();
    let mut take = |most: usize, offset: &mut u64| {
        let (before, from) = (names.len(), *offset);
        let entry = |entry: ListEntry<'_>, _| {
            let full = names.len() == before + most;
            if !full {
                names.push(entry.name.to_vec());
                *offset = entry.next;
            }
            full
        };
        view.list(Node::Tree).unwrap().each(from, false, entry).unwrap();
    };
    take(4, &mut offset);
    let mut more = NewNames::new(0);
    let folder = more.folder_at(b"cats").unwrap();
    more.record(FolderId::ROOT, b"new", 0, false).unwrap();
    more.record(folder, b"newer", 0, false).unwrap();
    append(&store, &[b"6", b"7"], &more);
    take(1000, &mut offset);
    names.sort();
    let expected: [&[u8]; 8] =
        [b"-odd\n\xff.", b".", b"..", b".png", b"cats", b"empty", b"new", b"top.tar.gz"];
    assert_eq!(names, expected);
}

#[test]
fn attributes_are_those_that_were_imported() {
    let dir = tempfile::tempdir().unwrap();
    named(&dir.path().join("s.zr"));
    let view = view(&dir.path().join("s.zr"), options());
    let stored = view.store().modified().unwrap();
    let seen = |path: &[u8]| {
        let found = at(&view, path).unwrap();
        assert_eq!(found.changed, stored);
        (found.mode, found.links, found.size, found.modified)
    };
    let before = |nanos| SystemTime::UNIX_EPOCH - Duration::from_nanos(nanos);
    assert_eq!(seen(b"tree/cats/a.png"), (0o550, 2, 3, since_1970(1_700_000_000_123_456_789)));
    assert_eq!(seen(b"tree/cats/deep/b"), (0o440, 2, 4, before(1_500_000_000)));
    assert_eq!(seen(b"tree/top.tar.gz"), (0o440, 2, 5, since_1970(1)));
    assert_eq!(seen(b"records/00000006.bin"), (0o440, 1, 10, stored));
    assert_eq!(seen(b"tree/cats/link"), (0o777, 1, 5, since_1970(7_000_000_000)));
    assert_eq!(seen(b"tree"), (0o550, 4, 0, since_1970(9_000_000_000)));
    assert_eq!(seen(b"tree/cats"), (0o550, 3, 0, since_1970(10_000_000_001)));
    assert_eq!(seen(b"tree/cats/deep"), (0o550, 2, 0, before(3_000_000_005)));
    assert_eq!(seen(b"tree/empty"), (0o550, 2, 0, since_1970(1)));
    assert_eq!(view.attributes(Node::Root).unwrap().links, 5);
}

#[test]
fn records_have_the_extension_of_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    named(&path);
    let extensions = |view: &View| {
        let names = list(view, Node::Records, 1000).split_off(2);
        for (i, (name, node, _)) in names.iter().enumerate() {
            assert_eq!(*node, record(i as u32));
            assert_eq!(view.lookup(Node::Records, name).unwrap(), view.attributes(*node).unwrap());
            assert_eq!(name[..9], *format!("{i:08}.").as_bytes());
        }
        names.into_iter().map(|(name, ..)| String::from_utf8(name[9..].to_vec()).unwrap()).collect::<Vec<_>>()
    };
    let plain = view(&path, options());
    assert_eq!(extensions(&plain), ["png", "bin", "gz", "bin", "bin", "bin", "bin"]);
    for name in [
        "00000000.bin",
        "00000001.png",
        "00000002.tar.gz",
        "00000000.pn",
        "00000000.PNG",
        "00000007.bin",
        "0.png",
    ] {
        let found = plain.lookup(Node::Records, name.as_bytes());
        assert_eq!(found.unwrap_err().kind(), ErrorKind::NotFound, "{name}");
    }
    let forced = view(&path, ViewOptions { ext: Some("x".into()), ..options() });
    assert_eq!(extensions(&forced), ["x"; 7]);
    assert!(forced.lookup(Node::Records, b"00000000.png").is_err());
}

#[test]
fn both_names_of_a_dense_record_show_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let store = Store::create(&path, Version::V1).unwrap();
    let schema = Schema::new("<u2", &[3], Codec::Raw).unwrap();
    schema.write(&store).unwrap();
    let mut names = NewNames::new(0);
    for name in [&b"a.npy"[..], b"b", b"c.raw"] {
        names.record(FolderId::ROOT, name, 1, false).unwrap();
    }
    append(&store, &[b"abcdef", b"ghijkl", b"mnopqr"], &names);
    store.append(b"stuvwx", 6, Codec::Raw).unwrap();
    store.sync().unwrap();
    let with_header = |record: &[u8]| [&schema.npy_header()[..], record].concat();
    let shown = |view: &View, path: &[u8]| {
        let found = at(view, path).unwrap();
        let bytes = read_all(view, found.node);
        assert_eq!(bytes.len() as u64, found.size);
        bytes
    };
    let plain = view(&path, options());
    for (name, record, bytes) in [
        (&b"tree/a.npy"[..], &b"records/00000000.npy"[..], with_header(b"abcdef")),
        // Without an extension of its own the file in records/ is a .npy one.
        (b"tree/b", b"records/00000001.npy", with_header(b"ghijkl")),
        (b"tree/c.raw", b"records/00000002.raw", b"mnopqr".to_vec()),
        (b"records/00000003.npy", b"records/00000003.npy", with_header(b"stuvwx")),
    ] {
        assert_eq!(at(&plain, name).unwrap(), at(&plain, record).unwrap());
        assert_eq!((shown(&plain, name), shown(&plain, record)), (bytes.clone(), bytes));
    }
    for (ext, bytes) in [("npy", with_header(b"mnopqr")), ("f", b"mnopqr".to_vec())] {
        let forced = view(&path, ViewOptions { ext: Some(ext.into()), ..options() });
        assert_eq!(shown(&forced, b"tree/c.raw"), bytes);
    }
}

#[test]
fn links_lead_where_they_led() {
    let dir = tempfile::tempdir().unwrap();
    named(&dir.path().join("s.zr"));
    let view = view(&dir.path().join("s.zr"), options());
    let link = at(&view, b"tree/cats/link").unwrap().node;
    assert_eq!(view.link_target(link).unwrap(), b"a.png");
    for node in [Node::Tree, record(0), Node::Readme] {
        assert!(view.link_target(node).is_err());
    }
    // A number of the other kind is no node.
    let Node::Link(id) = link else { panic!("{link:?}") };
    assert_eq!(view.attributes(Node::Folder(id)).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(read(&view, link, 0, 0, 10).is_err());
}

#[test]
fn a_store_without_names_has_no_tree_until_they_come() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.zr");
    let store = Store::create(&path, Version::V1).unwrap();
    store.append(b"one", 3, Codec::Raw).unwrap();
    store.sync().unwrap();
    let view = view(&path, options());
    let root =
        || list(&view, Node::Root, 1000).split_off(2).into_iter().map(|(name, ..)| name).collect::<Vec<_>>();
    let readme = || String::from_utf8(read_all(&view, Node::Readme)).unwrap();
    assert_eq!(root(), [&b"README"[..], b"batches", b"compact", b"delete", b"records", b"stats"]);
    assert_eq!(at(&view, b"tree").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(view.attributes(Node::Root).unwrap().links, 4);
    assert!(!readme().contains("tree/") && readme().contains("records/00000000.bin"));
    // The page says what is to be written, where something can.
    let changing = View::new(Store::open(&path).unwrap(), None, options()).unwrap();
    let writable = String::from_utf8(read_all(&changing, Node::Readme)).unwrap();
    for says in ["echo 7 12 100-199 > delete", "echo 1 > compact"] {
        assert!(writable.contains(says) && !readme().contains(says));
    }
    drop(changing);
    let mut seen = view.seen();
    assert_eq!(view.grown(&mut seen), []);

    let mut names = NewNames::new(0);
    let folder = names.folder_at(b"a/b").unwrap();
    names.record(folder, b"x.png", 1, false).unwrap();
    append(&store, &[b"two"], &names);
    let grown = view.grown(&mut seen);
    assert!(grown.contains(&Node::Root) && grown.contains(&Node::Records), "{grown:?}");
    assert_eq!(view.grown(&mut seen), []);
    assert_eq!(root(), [&b"README"[..], b"batches", b"compact", b"delete", b"records", b"stats", b"tree"]);
    assert_eq!(view.attributes(Node::Root).unwrap().links, 5);
    assert_eq!(view.attributes(Node::Readme).unwrap().size, readme().len() as u64);
    assert!(readme().contains("ImageFolder(\"MOUNTPOINT/tree\")"));

    // Only the folders that grew, and their numbers of folders with them.
    let mut names = NewNames::new(0);
    let folder = names.folder_at(b"a").unwrap();
    names.record(folder, b"y.png", 1, false).unwrap();
    names.folder_at(b"a/c").unwrap();
    append(&store, &[b"three"], &names);
    let (a, b) = (at(&view, b"tree/a").unwrap(), at(&view, b"tree/a/b").unwrap());
    let grown = view.grown(&mut seen);
    assert!(grown.contains(&a.node) && !grown.contains(&b.node), "{grown:?}");
    assert_eq!((a.links, b.links), (4, 2));
}
