//! Deleting and compacting through the mount, and what files are afterwards.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use zrfs::store::NewNames;
use zrfs::{Codec, Store, Version};

use crate::place::{Place, text, wait_for, zrfs};

/// The bytes of record number `n` of the ones that are appended: of a length and a content of its own.
fn body(n: usize) -> Vec<u8> {
    let len = 40 + n * 37 % 9000;
    (0..len).map(|i| ((i / 3) ^ (n * 7)) as u8).chain(n.to_le_bytes()).collect()
}

/// A store of `count` records with names: `cats/N.a` and `dogs/N.b`, in turn.
fn fill(place: &Place, count: usize) -> Store {
    let store = Store::create(place.store(), Version::V2).unwrap();
    append(&store, 0..count);
    store
}

fn append(store: &Store, which: std::ops::Range<usize>) {
    let mut names = NewNames::new(5_000_000_000);
    let mut appender = store.appender().unwrap();
    for n in which {
        let folder = names.folder_at(if n % 2 == 0 { b"cats" } else { b"dogs" }).unwrap();
        names.record(folder, name(n).split('/').nth(1).unwrap().as_bytes(), n as i64 + 7, false).unwrap();
        let record = body(n);
        appender
            .append(&record, record.len(), if n % 3 == 0 { Codec::Raw } else { Codec::default() })
            .unwrap();
    }
    appender.set_names(&names).unwrap();
    appender.commit().unwrap();
    store.sync().unwrap();
}

fn name(n: usize) -> String {
    if n.is_multiple_of(2) { format!("cats/{n}.a") } else { format!("dogs/{n}.b") }
}

fn ext(n: usize) -> &'static str {
    if n.is_multiple_of(2) { "a" } else { "b" }
}

/// One write to a file of the mount.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut file = File::options().write(true).open(path)?;
    let n = file.write(bytes)?;
    assert_eq!(n, bytes.len(), "a write is taken whole or not at all");
    Ok(())
}

#[track_caller]
fn refused(done: std::io::Result<()>, errno: i32) {
    assert_eq!(done.unwrap_err().raw_os_error(), Some(errno));
}

fn said(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Deletes `doomed` from a table, as the store does.
fn swap_last(table: &mut Vec<usize>, doomed: &[usize]) -> Vec<(usize, usize)> {
    let before = table.clone();
    let mut doomed = doomed.to_vec();
    doomed.sort_unstable();
    doomed.dedup();
    for hole in doomed.into_iter().rev() {
        table.swap_remove(hole);
    }
    let from = |n| before.iter().position(|&other| other == n).unwrap();
    let moves = table.iter().enumerate().map(|(to, &n)| (from(n), to));
    moves.filter(|(from, to)| from != to).collect()
}

/// The mount shows exactly the records of `table`, by both names, in listings, attributes and bytes.
#[track_caller]
fn shows(place: &Place, table: &[usize]) {
    let list = |path: &Path| {
        let entries = fs::read_dir(path).unwrap().map(|entry| {
            let entry = entry.unwrap();
            let inode = std::os::unix::fs::DirEntryExt::ino(&entry);
            (entry.file_name().into_string().unwrap(), inode)
        });
        entries.collect::<BTreeMap<_, _>>()
    };
    let records = list(&place.mnt().join("records"));
    let expected: Vec<_> = table.iter().enumerate().map(|(i, &n)| format!("{i:08}.{}", ext(n))).collect();
    assert_eq!(records.keys().cloned().collect::<Vec<_>>(), expected);
    for folder in ["cats", "dogs"] {
        let mut expected: Vec<_> = table
            .iter()
            .map(|&n| name(n))
            .filter_map(|name| Some(name.strip_prefix(&format!("{folder}/"))?.to_owned()))
            .collect();
        expected.sort();
        assert_eq!(list(&place.mnt().join("tree").join(folder)).into_keys().collect::<Vec<_>>(), expected);
    }
    for (file, &n) in expected.iter().zip(table) {
        let by_index = place.mnt().join("records").join(file);
        let by_name = place.mnt().join("tree").join(name(n));
        let attributes = [&by_index, &by_name].map(|path| {
            let metadata = fs::metadata(path).unwrap();
            (metadata.len(), metadata.ino(), metadata.nlink(), metadata.mtime_nsec())
        });
        assert_eq!(attributes[0], attributes[1]);
        assert_eq!(attributes[0].1, records[file]);
        assert_eq!((attributes[0].0, attributes[0].2), (body(n).len() as u64, 2));
        assert_eq!(fs::read(&by_index).unwrap(), body(n), "{file}");
        assert_eq!(fs::read(&by_name).unwrap(), body(n), "{}", name(n));
    }
    let behind = ["a", "b"].map(|ext| place.mnt().join(format!("records/{:08}.{ext}", table.len())));
    assert!(behind.iter().all(|path| !path.exists()));
    assert_eq!(said(&place.mnt().join("stats"))["records"], table.len());
}

/// > `echo 7 12 100-199 > delete` deletes these records: one write that ends in a newline is one batch, applied as a whole before the write returns, or refused.
/// > A longer list stands between the lines begin and end, over any number of writes and processes; the write that brings end applies it.
/// > After a delete, new openings, stat and listings see the new state as soon as the write has returned, by records/ and by tree/.
/// > Reading delete gives JSON: how many batches there were, what the last one deleted and left, its moves as pairs of index before and after, and why the last list was refused.
/// > Names in tree/ follow their records, and a folder whose records are gone stays.
#[test]
fn batches_are_applied_before_the_write_returns() {
    let place = Place::new();
    drop(fill(&place, 300));
    place.mount(&[]);
    let (mut table, delete): (Vec<usize>, _) = ((0..300).collect(), place.mnt().join("delete"));
    shows(&place, &table);
    let said_of = |moves: Vec<(usize, usize)>, batches: u64, deleted: usize, left: usize| {
        let said = said(&delete);
        let told: Vec<(usize, usize)> = serde_json::from_value(said["moves"].clone()).unwrap();
        assert_eq!(told, moves);
        assert_eq!(
            (said["batches"].as_u64(), said["deleted"].as_u64()),
            (Some(batches), Some(deleted as u64))
        );
        assert_eq!((said["records"].as_u64(), &said["refused"]), (Some(left as u64), &Value::Null));
    };
    write(&delete, b"7 12,100-149\n12\n").unwrap();
    let doomed: Vec<usize> = [7, 12].into_iter().chain(100..150).collect();
    let moves = swap_last(&mut table, &doomed);
    shows(&place, &table);
    said_of(moves, 1, 52, 248);
    // Through a shell, by several processes with one opening.
    let script = format!("(echo begin; seq 0 40; echo 99-120; echo end) > {}", delete.display());
    assert!(Command::new("sh").arg("-c").arg(&script).status().unwrap().success());
    let doomed: Vec<usize> = (0..41).chain(99..121).collect();
    let moves = swap_last(&mut table, &doomed);
    shows(&place, &table);
    said_of(moves, 2, 63, 185);
    // All of a class: the folder stays.
    let cats: Vec<usize> = (0..table.len()).filter(|&i| table[i] % 2 == 0).collect();
    let list: String = cats.iter().map(|i| format!("{i}\n")).collect();
    let before = fs::metadata(place.mnt().join("tree/cats")).unwrap().modified().unwrap();
    write(&delete, format!("begin\n{list}end\n").as_bytes()).unwrap();
    swap_last(&mut table, &cats);
    shows(&place, &table);
    assert_eq!(fs::read_dir(place.mnt().join("tree/cats")).unwrap().count(), 0);
    assert!(
        fs::metadata(place.mnt().join("tree/cats")).unwrap().modified().unwrap() > before,
        "it has changed"
    );
    // Everything, and the store goes on.
    write(&delete, format!("0-{}\n", table.len() - 1).as_bytes()).unwrap();
    table.clear();
    shows(&place, &table);
    let (umount, mnt) = (zrfs(&["umount"], &[&place.mnt()]), place.mnt());
    assert!(umount.status.success(), "{}: {}", mnt.display(), text(&umount));
    place.wait_for_end();
    let store = Store::open(place.store()).unwrap();
    assert_eq!(store.len(), 0);
    append(&store, 1000..1003);
    drop(store);
    place.mount(&[]);
    shows(&place, &[1000, 1001, 1002]);
}

/// > A record that is not there refuses the batch with ERANGE, what is no list with EINVAL; nothing is deleted then.
/// > One opening takes one batch: what follows is refused with ESTALE; after a refused write everything is refused as that was.
/// > Where another batch went in since delete was opened, a list is refused with ESTALE: its indices are old.
/// > What was not applied when delete is closed is dropped, and reading delete says so.
/// > A write of a multiple of 4096 bytes is no list of its own, as it is what programs that buffer write of a longer one: EINVAL.
/// > A line of a list is one program's: a write that goes on in the middle of a line of another one is refused with EINVAL.
#[test]
fn what_is_refused_deletes_nothing() {
    let place = Place::new();
    drop(fill(&place, 50));
    place.mount(&[]);
    let delete = place.mnt().join("delete");
    let all: Vec<usize> = (0..50).collect();
    for (list, errno) in [
        ("50\n", libc::ERANGE),
        ("0-50\n", libc::ERANGE),
        ("begin\n1\n50\nend\n", libc::ERANGE),
        ("1", libc::EINVAL),
        ("x\n", libc::EINVAL),
        ("1.5\n", libc::EINVAL),
        ("-1\n", libc::EINVAL),
        ("5-3\n", libc::EINVAL),
        ("1\n2", libc::EINVAL),
        ("end\n", libc::EINVAL),
        ("begin\n1\nend\n2\n", libc::EINVAL),
        ("cats/1.a\n", libc::EINVAL),
        ("1\0\n", libc::EINVAL),
    ] {
        let mut file = File::options().write(true).open(&delete).unwrap();
        refused(file.write(list.as_bytes()).map(drop), errno);
        let why = said(&delete)["refused"].clone();
        refused(file.write(b"3\n").map(drop), errno);
        assert!(why.is_string() && said(&delete)["refused"] == why, "{list}");
    }
    refused(write(&delete, b"\xff\n"), libc::EINVAL);
    // Killed half way, or closed before the end.
    write(&delete, b"begin\n1\n2\n").unwrap();
    wait_for("it is told", || {
        said(&delete)["refused"].as_str().is_some_and(|why| why.contains("without its line `end`"))
    });
    // What fills a program's buffer is a piece of something longer.
    let piece: String = (0..4096 / 4).map(|_| "  7\n").collect();
    refused(write(&delete, piece.as_bytes()), libc::EINVAL);
    let mut half = Command::new("sh")
        .arg("-c")
        .arg(format!("(echo begin; echo 1; exec sleep 1000) > {}", delete.display()))
        .spawn()
        .unwrap();
    half.kill().unwrap();
    half.wait().unwrap();
    write(&delete, b"\n").unwrap();
    write(&delete, b"begin\nend\n").unwrap();
    let script =
        format!("(printf 'begin\\n1'; /usr/bin/printf '7\\nend\\n' || exit; :) > {}", delete.display());
    assert!(!Command::new("bash").args(["-c", &script]).stderr(Stdio::null()).status().unwrap().success());
    shows(&place, &all);
    // Two at once, and one that goes on after its batch.
    let mut first = File::options().append(true).open(&delete).unwrap();
    let mut second = File::options().append(true).open(&delete).unwrap();
    first.write_all(b"begin\n49\n").unwrap();
    second.write_all(b"48\n").unwrap();
    refused(first.write(b"end\n").map(drop), libc::ESTALE);
    refused(second.write(b"7\n").map(drop), libc::ESTALE);
    let mut table = all;
    swap_last(&mut table, &[48]);
    shows(&place, &table);
    let status = Command::new("sh")
        .arg("-c")
        .arg(format!("{{ /bin/echo 7 && /bin/echo 12; }} > {}", delete.display()))
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(!status.success(), "the shell is told that the second list was refused");
    swap_last(&mut table, &[7]);
    shows(&place, &table);
}

/// > A record that a delete has moved has the time of that as its status change, and as its own time where it has no name.
/// > A record's inode number is its own: a record that moves keeps it, and another one that comes to its index has another one.
/// > A file that was opened or mapped before a delete or a compaction goes on to show its record, wherever that went; that of a deleted record gives ESTALE.
#[test]
fn open_files_follow_their_records() {
    let place = Place::new();
    drop(fill(&place, 200));
    place.mount(&[]);
    let begun = std::time::SystemTime::now();
    let path = |index: usize, n: usize| place.mnt().join(format!("records/{index:08}.{}", ext(n)));
    let mut table: Vec<usize> = (0..200).collect();
    let open: HashMap<usize, File> = table.iter().map(|&n| (n, File::open(path(n, n)).unwrap())).collect();
    let inodes: HashMap<usize, u64> =
        open.iter().map(|(&n, file)| (n, file.metadata().unwrap().ino())).collect();
    // Half of them with their pages in memory.
    for (n, file) in &open {
        if n % 4 < 2 {
            assert_eq!(read_at(file).unwrap(), body(*n));
        }
    }
    let check = |table: &[usize]| {
        for (n, file) in &open {
            match read_at(file) {
                Ok(bytes) if table.contains(n) => assert_eq!(bytes, body(*n), "{n}"),
                Err(e) if !table.contains(n) => assert_eq!(e.raw_os_error(), Some(libc::ESTALE), "{n}"),
                other => panic!("{n}: {:?}", other.map(|bytes| bytes.len())),
            }
        }
        for (index, &n) in table.iter().enumerate() {
            let metadata = fs::metadata(path(index, n)).unwrap();
            let ino = metadata.ino();
            // It has moved, by a delete of this test.
            if index != n && n < 200 {
                let changed = std::time::Duration::new(metadata.ctime() as u64, metadata.ctime_nsec() as u32);
                assert!(changed > begun.duration_since(std::time::UNIX_EPOCH).unwrap(), "{n}");
                assert_eq!(metadata.mtime_nsec(), n as i64 + 7, "that of its name");
            }
            match inodes.get(&n) {
                Some(&before) => assert_eq!(ino, before, "{n}"),
                None => assert!(!inodes.values().any(|&other| other == ino), "{n}"),
            }
        }
    };
    check(&table);
    let mut next = 200;
    for round in 0..8usize {
        let doomed: Vec<usize> = (0..10).map(|i| (i * 31 + round * 17) % table.len()).collect();
        let list: Vec<String> = doomed.iter().map(ToString::to_string).collect();
        write(&place.mnt().join("delete"), format!("{}\n", list.join(" ")).as_bytes()).unwrap();
        swap_last(&mut table, &doomed);
        check(&table);
        if round % 2 == 1 {
            compact(&place);
            check(&table);
        }
        let store = Store::open(place.store()).unwrap();
        append(&store, next..next + 7);
        drop(store);
        table.extend(next..next + 7);
        next += 7;
        let last = path(table.len() - 1, next - 1);
        wait_for("what was appended shows", || last.exists());
        check(&table);
    }
    shows(&place, &table);
}

fn read_at(file: &File) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; 20_000];
    let n = file.read_at(&mut bytes, 0)?;
    bytes.truncate(n);
    Ok(bytes)
}

/// Compacts through the mount, to the end.
#[track_caller]
fn compact(place: &Place) -> Value {
    let compact = place.mnt().join("compact");
    write(&compact, b"1\n").unwrap();
    wait_for("the compaction ends", || said(&compact)["state"] != "running");
    let said = said(&compact);
    assert_eq!(said["state"], "done", "{said}");
    said
}

/// > `echo 1 > compact` begins a compaction; it returns when that is under way, and gives EBUSY while one runs.
/// > Reading compact gives JSON: state (idle, running, done or failed), done and total in bytes, what was moved and freed, and the error.
/// > Records are served while the store is compacted, deletes are refused with EBUSY, and the disk is given back.
#[test]
fn compactions_give_disk_back() {
    let place = Place::new();
    drop(fill(&place, 400));
    place.mount(&[]);
    let compact_file = place.mnt().join("compact");
    assert_eq!(said(&compact_file)["state"], "idle");
    let mut table: Vec<usize> = (0..400).collect();
    let doomed: Vec<usize> = (0..400).step_by(2).collect();
    let list: Vec<String> = doomed.iter().map(ToString::to_string).collect();
    write(&place.mnt().join("delete"), format!("{}\n", list.join(" ")).as_bytes()).unwrap();
    swap_last(&mut table, &doomed);
    let blocks = || fs::metadata(place.store().join("0.zr")).unwrap().blocks();
    let before = blocks();
    refused(write(&compact_file, b"0\n"), libc::EINVAL);
    let done = compact(&place);
    assert!(done["records_moved"].as_u64() > Some(0) && blocks() < before * 2 / 3, "{done}");
    shows(&place, &table);
    assert_eq!(fs::metadata(&compact_file).unwrap().len(), fs::read(&compact_file).unwrap().len() as u64);
}

/// > delete and compact have mode 0644; every other file refuses to be opened for writing with EROFS, to root too, and no name can be made, moved or removed.
/// > In a mount with `-o ro`, or of a store that can't be written, delete and compact refuse with EROFS, too.
#[test]
fn nothing_else_can_be_written() {
    let place = Place::new();
    drop(fill(&place, 5));
    place.mount(&[]);
    let is_root = rustix::process::geteuid().is_root();
    for name in ["delete", "compact"] {
        let metadata = fs::metadata(place.mnt().join(name)).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, 0o644);
        assert_eq!(metadata.len(), fs::read(place.mnt().join(name)).unwrap().len() as u64);
    }
    for name in ["README", "stats", "records/00000000.a", "tree/cats/0.a"] {
        let e = File::options().write(true).open(place.mnt().join(name)).unwrap_err();
        let expected = if is_root { libc::EROFS } else { libc::EACCES };
        assert_eq!(e.raw_os_error(), Some(expected), "{name}");
    }
    let refused = |done: std::io::Result<()>| {
        let errno = done.unwrap_err().raw_os_error();
        assert!(matches!(errno, Some(libc::EPERM | libc::EACCES)), "{errno:?}");
    };
    let (old, new) = (place.mnt().join("tree/cats/0.a"), place.mnt().join("tree/cats/new"));
    refused(fs::remove_file(&old));
    refused(fs::rename(&old, &new));
    refused(fs::hard_link(&old, &new));
    refused(std::os::unix::fs::symlink(&old, &new));
    refused(File::create(&new).map(drop));
    refused(fs::create_dir(&new));
    refused(fs::remove_dir(place.mnt().join("tree/dogs")));
    refused(fs::set_permissions(&old, fs::Permissions::from_mode(0o777)));
    assert!(zrfs(&["umount"], &[&place.mnt()]).status.success());
    place.wait_for_end();
    place.mount(&["ro"]);
    for name in ["delete", "compact"] {
        let e = File::options().write(true).open(place.mnt().join(name)).unwrap_err();
        assert_eq!(e.raw_os_error(), Some(libc::EROFS), "{name}");
    }
    shows(&place, &[0, 1, 2, 3, 4]);
}

/// > With `-o labels=` the labels lose the same records in one step.
#[test]
fn labels_stay_aligned() {
    let place = Place::new();
    drop(fill(&place, 60));
    let labels = place.dir.path().join("labels.zr");
    let store = Store::create(&labels, Version::V1).unwrap();
    zrfs::dataset::Schema::new("<i8", &[], Codec::Raw).unwrap().write(&store).unwrap();
    let bytes: Vec<u8> = (0..60i64).flat_map(|n| (n * 11).to_le_bytes()).collect();
    store.append(&bytes, 8, Codec::Raw).unwrap();
    store.sync().unwrap();
    drop(store);
    place.mount(&[&format!("labels={}", labels.display())]);
    let mut table: Vec<usize> = (0..60).collect();
    write(&place.mnt().join("delete"), b"3 17 20-29 59\n").unwrap();
    swap_last(&mut table, &[3, 17, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 59]);
    shows(&place, &table);
    let store = Store::open_read_only(&labels).unwrap();
    for (index, &n) in table.iter().enumerate() {
        assert_eq!(store.read(index as u64).unwrap(), (n as i64 * 11).to_le_bytes());
    }
}

/// > A store that another process has open refuses a delete and a compaction with EBUSY, and the reason is in delete and compact.
#[test]
fn a_store_in_use_elsewhere_is_not_changed() {
    let place = Place::new();
    drop(fill(&place, 10));
    place.mount(&[]);
    let reader = Store::open_read_only(place.store()).unwrap();
    refused(write(&place.mnt().join("delete"), b"3\n"), libc::EBUSY);
    let why = said(&place.mnt().join("delete"))["refused"].as_str().unwrap().to_owned();
    assert!(why.contains("is open by") && why.contains(&std::process::id().to_string()), "{why}");
    refused(write(&place.mnt().join("compact"), b"1\n"), libc::EBUSY);
    assert_eq!(said(&place.mnt().join("compact"))["state"], "failed");
    drop(reader);
    write(&place.mnt().join("delete"), b"3\n").unwrap();
    let mut table: Vec<usize> = (0..10).collect();
    swap_last(&mut table, &[3]);
    shows(&place, &table);
    let mut whole = String::new();
    File::open(place.mnt().join("stats")).unwrap().read_to_string(&mut whole).unwrap();
}

/// > While a file in batches/, an endless file or array.npy is open or mapped, opening delete gives EBUSY; closed, it does not.
/// > After a delete array.npy and the files in batches/ are other inodes, and made of the records that are left.
#[test]
fn files_of_the_whole_index_space_hold_it_still() {
    let place = Place::new();
    let store = Store::create(place.store(), Version::V1).unwrap();
    zrfs::dataset::Schema::new("<i8", &[2], Codec::Raw).unwrap().write(&store).unwrap();
    let bytes: Vec<u8> = (0..200i64).flat_map(i64::to_le_bytes).collect();
    store.append(&bytes, 16, Codec::Raw).unwrap();
    store.sync().unwrap();
    drop(store);
    place.mount(&["mode=sequential,batch_size=4"]);
    let path = |name: &str| place.mnt().join(name);
    let numbers = |name: &str| -> Vec<i64> {
        let file = fs::read(path(name)).unwrap();
        npyz::NpyFile::new(&file[..]).unwrap().into_vec().unwrap()
    };
    let names = [
        "array.npy",
        "batches/7.npy",
        "batches/7.tar",
        "batches/7.index.npy",
        "batch",
        "batch.npy",
        "batch.tar",
    ];
    for name in names {
        let mut file = File::open(path(name)).unwrap();
        refused(write(&path("delete"), b"3\n"), libc::EBUSY);
        let mut some = [0; 100];
        file.read_exact(&mut some).unwrap();
        drop(file);
        drop(File::options().write(true).open(path("delete")).unwrap());
    }
    let mut child = Command::new("python3")
        .arg("-c")
        .arg("import mmap, sys\nf = open(sys.argv[1], 'rb')\nm = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)\nf.close()\nprint(m[0], flush=True)\nsys.stdin.read()")
        .arg(path("array.npy"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 3]).unwrap();
    refused(write(&path("delete"), b"3\n"), libc::EBUSY);
    drop(child.stdin.take());
    child.wait().unwrap();
    // A writer that has delete open already is refused by the write.
    let mut early = File::options().write(true).open(path("delete")).unwrap();
    let batch = File::open(path("batches/0.npy")).unwrap();
    refused(early.write(b"3\n").map(drop), libc::EBUSY);
    drop(batch);

    let before: Vec<u64> = names[..4].iter().map(|name| fs::metadata(path(name)).unwrap().ino()).collect();
    assert_eq!(numbers("array.npy"), (0..200).collect::<Vec<_>>());
    assert_eq!(numbers("batches/24.npy"), (192..200).collect::<Vec<_>>());
    assert_eq!(numbers("batches/025.npy"), (0..8).collect::<Vec<_>>());
    wait_for("the kernel has let go", || File::options().write(true).open(path("delete")).is_ok());
    write(&path("delete"), b"0 99\n").unwrap();
    let after: Vec<u64> = names[..4].iter().map(|name| fs::metadata(path(name)).unwrap().ino()).collect();
    assert!(before.iter().zip(&after).all(|(before, after)| before != after));
    let left: Vec<i64> = [196, 197].into_iter().chain(2..196).collect();
    assert_eq!(numbers("array.npy"), left);
    let twice: Vec<i64> = left.iter().chain(&left).copied().collect();
    assert_eq!(numbers("batches/24.npy"), twice[192..200]);
    assert_eq!(numbers("batches/0.index.npy"), [0, 1, 2, 3]);
}
